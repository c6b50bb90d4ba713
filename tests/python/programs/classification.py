"""Trains a small ResNet on a folder of images, in the style of torchvision's reference script.

python classification.py DATA [--workers N] [--sample-rng]

Prints a line for each step: the samples of its batch, and the loss as a hexadecimal number.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

from headrace.torch import sample_rng

SIDE = 24
EPOCHS = 2


class ImageFolder(torch.utils.data.Dataset[Any]):
    """The images below a folder that has a folder for each class."""

    def __init__(self, root: Path, transform: Callable[[Any, int], torch.Tensor]) -> None:
        self.classes = sorted(each.name for each in root.iterdir())
        self.samples = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((root / name).iterdir())
        ]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int, int]:
        path, label = self.samples[number]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB"), number), label, number


class TrainTransform:
    """A random crop, a flip and an erased rectangle."""

    def __init__(self, by_sample: bool) -> None:
        self.by_sample = by_sample

    def __call__(self, image: Image.Image, number: int) -> torch.Tensor:
        rng = sample_rng() if self.by_sample else np.random.default_rng((17, number))
        share = rng.uniform(0.3, 1.0) ** 0.5
        width, height = (max(1, int(side * share)) for side in image.size)
        left = int(rng.integers(image.width - width + 1))
        top = int(rng.integers(image.height - height + 1))
        image = image.resize((SIDE, SIDE), box=(left, top, left + width, top + height))
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = normalized(image)
        if rng.random() < 0.25:
            row, column = rng.integers(SIDE - 6, size=2)
            pixels[:, row : row + 6, column : column + 6] = 0
        return pixels


def eval_transform(image: Image.Image, number: int) -> torch.Tensor:
    return normalized(image.resize((SIDE, SIDE)))


def normalized(image: Image.Image) -> torch.Tensor:
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (pixels - mean[:, None, None]) / std[:, None, None]


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.blocks(self.stem(x)).mean((2, 3))
        logits: torch.Tensor = self.head(self.drop(features))
        return logits


def train_one_epoch(model: nn.Module, average: nn.Module, batches: Any, parts: Any) -> None:
    optimizer, scheduler, criterion = parts
    model.train()
    for images, labels, numbers in batches:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        with torch.no_grad():
            pairs = zip(average.parameters(), model.parameters(), strict=True)
            for mine, theirs in pairs:
                mine.lerp_(theirs, 0.1)
        print("train", numbers.tolist(), loss.item().hex())


def evaluate(model: nn.Module, batches: Any, criterion: nn.Module) -> None:
    model.eval()
    with torch.inference_mode():
        for images, labels, numbers in batches:
            loss = criterion(model(images), labels)
            print("test", numbers.tolist(), loss.item().hex())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--sample-rng", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)

    dataset = ImageFolder(args.data, TrainTransform(args.sample_rng))
    dataset_test = ImageFolder(args.data, eval_transform)
    data_loader = DataLoader(
        dataset,
        batch_size=8,
        sampler=torch.utils.data.RandomSampler(dataset),
        num_workers=args.workers,
        drop_last=True,
    )
    data_loader_test = DataLoader(
        dataset_test,
        batch_size=24,
        sampler=torch.utils.data.SequentialSampler(dataset_test),
        num_workers=args.workers,
    )
    model = ResNet(len(dataset.classes))
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, weight_decay=1e-4, nesterov=True)
    steps = EPOCHS * len(data_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 4, (1 + math.cos(math.pi * step / steps)) / 2)
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for _ in range(EPOCHS):
        train_one_epoch(model, average, data_loader, (optimizer, scheduler, criterion))
        evaluate(model, data_loader_test, criterion)
        evaluate(average, data_loader_test, criterion)


if __name__ == "__main__":
    main()
