"""Loaders in functions that launchers run in two processes of their own. Run by test_trainers.py.

Usage: launchers.py DATA PORT. Prints a line for each case and rank: [case, rank, samples or error].
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lightning
import torch
from accelerate import Accelerator, notebook_launcher
from lightning.fabric import Fabric
from loader_data import FLAT, payload_ids

import headrace as hr
from headrace.torch import TrainerLoader

data = Path(sys.argv[1])


def loader() -> hr.Loader:
    return hr.Loader(data, batch_size=10, seed=1, transform=FLAT)


def tell(case: str, rank: int, batches: Callable[[], Iterable[Any]]) -> None:
    try:
        told: Any = [sample for batch in batches() for sample in payload_ids(batch)]
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    os.write(1, f"{json.dumps([case, rank, told])}\n".encode())  # Ranks have one pipe.


def in_notebook(before: hr.Loader | None) -> None:
    rank = Accelerator(cpu=True).process_index
    if before is None:
        tell("notebook", rank, loader)
    else:
        tell("notebook, before", rank, lambda: before)


def in_fabric(fabric: Fabric, before: hr.Loader) -> None:
    set_up: Any = fabric.setup_dataloaders
    tell("fabric", fabric.global_rank, loader)
    tell("fabric, wrapped", fabric.global_rank, lambda: set_up(TrainerLoader(loader())))
    tell("fabric, set up", fabric.global_rank, lambda: set_up(loader()))
    tell("fabric, before", fabric.global_rank, lambda: before)


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def training_step(self, *_: Any) -> torch.Tensor:
        raise AssertionError("never trained")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(strategy: str, before: hr.Loader) -> list[Any]:
    lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy, logger=False).fit(
        Module(), before
    )
    return []


if __name__ == "__main__":
    os.environ["ACCELERATE_USE_CPU"] = "1"
    notebook_launcher(in_notebook, (None,), num_processes=2, use_port=sys.argv[2])
    with loader() as made:
        notebook_launcher(in_notebook, (made,), num_processes=2, use_port=sys.argv[2])
        Fabric(accelerator="cpu", devices=2, strategy="ddp_fork").launch(in_fabric, made)
        for strategy in ("ddp_fork", "ddp_spawn"):
            tell(strategy, 0, lambda: fit(strategy, made))  # noqa: B023
