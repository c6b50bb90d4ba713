"""ResNet-50 on one GPU, fed by torch's DataLoader and by Headrace.

    python benchmarks/gpu/resnet.py [--data FOLDER] [--megabytes 500] [--workers N] [--quick]

Needs a GPU, torch and torchvision. The images are JPEG files of 0.1 MB on average, made once, and
in the page cache. A training step in bfloat16 is the same for all; its inputs come from

- *resident*: one batch that stays on the GPU: the most that any loader can give it;
- *torch*: torchvision's ImageFolder and the transforms of its reference script, by worker
  processes, in pinned memory;
- *changed line*: the same dataset with `headrace.torch.DataLoader`, the same workers;
- *engine*: `hr.Loader` with `hr.image.train`, normalized on the GPU by `DeviceBatches`.

They take turns; of each run the first epoch does not count. A figure is the median over rounds of
images a second, and of the share of *resident* in the same round.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _data
import _harness
import torch
import torch.utils.data
import torchvision
from torchvision.transforms import v2

import headrace as hr
import headrace.torch

BATCH = 256
SIDE = 224
EPOCHS = 3
RESIDENT_STEPS = 40
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Trainer:
    """One step of a network on a batch of the GPU."""

    def __init__(self) -> None:
        model = torchvision.models.resnet50(num_classes=1000).cuda()
        self._model: Any = model.to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        images = images.to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self._model(images), labels.long())
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()


def folder_of_torchvision(folder: Path) -> Any:
    return torchvision.datasets.ImageFolder(
        str(folder),
        v2.Compose(
            [
                v2.RandomResizedCrop(SIDE, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        ),
    )


def by_dataloader(kind: Any, folder: Path, workers: int) -> Iterator[Iterable[Any]]:
    loader = kind(
        folder_of_torchvision(folder),
        BATCH,
        shuffle=True,
        num_workers=workers,
        pin_memory=True,
        drop_last=True,
        persistent_workers=True,
    )
    for _ in range(EPOCHS):
        yield ((x.cuda(non_blocking=True), y.cuda(non_blocking=True)) for x, y in loader)


def by_engine(folder: Path) -> Iterator[Iterable[Any]]:
    transform = hr.image.train(SIDE, dtype="uint8", layout="NHWC")
    with closing(hr.Loader(folder, BATCH, transform=transform, drop_last=True)) as loader:
        normalize = headrace.torch.Normalize(given="NHWC", layout="NCHW", dtype=torch.bfloat16)
        batches = headrace.torch.DeviceBatches(loader, "cuda", prepare={"image": normalize})
        for _ in range(EPOCHS):
            yield batches


def resident() -> Iterator[Iterable[Any]]:
    images = torch.rand(BATCH, 3, SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(1000, (BATCH,), device="cuda")
    for _ in range(EPOCHS):
        yield ((images, labels) for _ in range(RESIDENT_STEPS))


def images_a_second(trainer: Trainer, epochs: Iterator[Iterable[Any]]) -> float:
    """Of all epochs but the first."""
    begin, count = 0.0, 0
    for epoch, batches in enumerate(epochs):
        if epoch == 1:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        for images, labels in batches:
            trainer.step(images, labels)
            count += len(images) if epoch else 0
    torch.cuda.synchronize()
    return count / (time.perf_counter() - begin)


def measure(folder: Path, workers: int, rounds: int) -> dict[str, Any]:
    trainer = Trainer()
    ways: dict[str, Callable[[], Iterator[Iterable[Any]]]] = {
        "resident": resident,
        "torch": lambda: by_dataloader(torch.utils.data.DataLoader, folder, workers),
        "changed line": lambda: by_dataloader(headrace.torch.DataLoader, folder, workers),
        "engine": lambda: by_engine(folder),
    }
    runs: list[dict[str, float]] = []
    for number in range(rounds):
        order = list(ways) if number % 2 == 0 else list(reversed(ways))
        runs.append({way: images_a_second(trainer, ways[way]()) for way in order})
    return {
        way: {
            "images_s": median(run[way] for run in runs),
            "share_of_resident": median(run[way] / run["resident"] for run in runs),
        }
        for way in ways
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, no record")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "resnet: torch finds no GPU\n")
    torch.backends.cudnn.benchmark = True
    folder = _data.image_data(arguments.data, arguments.megabytes * 10**6).folder
    _harness.make_warm(sorted(folder.rglob("*.jpg")))
    found = {
        "gpu": torch.cuda.get_device_name(),
        "workers": arguments.workers,
        "ways": measure(folder, arguments.workers, 1 if arguments.quick else arguments.rounds),
    }
    print(f"{found['gpu']}, {arguments.workers} workers")
    for way, row in found["ways"].items():
        print(f"  {way:<14}{row['images_s']:8.0f} images/s  {row['share_of_resident']:5.2f}")
    if not arguments.quick:
        _harness.record("gpu_resnet", found)


if __name__ == "__main__":
    main()
