"""Trains an autoencoder of small images with Lightning.

python with_lightning.py DATA [--workers N]

Prints a line for each step of training and validation: the samples, and the loss as a hexadecimal
number.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader

SIDE = 16


class Images(torch.utils.data.Dataset[Any]):
    """All images below a folder."""

    def __init__(self, root: str) -> None:
        self.paths = sorted(path for path in Path(root).rglob("*") if path.is_file())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> dict[str, Any]:
        with Image.open(self.paths[number]) as image:
            pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE)), np.float32) / 255
        return {"pixels": pixels, "number": number}


class Autoencoder(lightning.LightningModule):
    def __init__(self, data: str, workers: int) -> None:
        super().__init__()
        self.data, self.workers = data, workers
        values = SIDE * SIDE * 3
        self.encoder = nn.Sequential(nn.Linear(values, 32), nn.ReLU(), nn.Dropout(0.1))
        self.decoder = nn.Linear(32, values)

    def setup(self, stage: str) -> None:
        parts = torch.utils.data.random_split(Images(self.data), [0.7, 0.3])
        self.train_set, self.validation_set = parts

    def train_dataloader(self) -> Any:
        return DataLoader(self.train_set, batch_size=6, shuffle=True, num_workers=self.workers)

    def val_dataloader(self) -> Any:
        return DataLoader(self.validation_set, batch_size=6, num_workers=self.workers)

    def loss_of(self, batch: dict[str, torch.Tensor], stage: str) -> torch.Tensor:
        pixels = batch["pixels"].flatten(1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(pixels)), pixels)
        print(stage, batch["number"].tolist(), loss.item().hex())
        return loss

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        return self.loss_of(batch, "train")

    def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
        self.loss_of(batch, "validation")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), 1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    lightning.seed_everything(3, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=2,
        val_check_interval=0.5,  # also while an epoch of training lasts
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Autoencoder(args.data, args.workers))


if __name__ == "__main__":
    main()
