"""What Lightning trains on where a loader is in the script's body. Run by test_trainers.py.

Usage: lightning_resumes.py DATA FOLDER: on one device, and again from a checkpoint of each step;
       lightning_resumes.py DATA FOLDER STRATEGY: on two.

Prints a JSON object: the batches of the first, and of those that went on after a step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from loader_data import FLAT, payload_ids

import headrace as hr
from headrace.torch import TrainerLoader

data, folder = Path(sys.argv[1]), Path(sys.argv[2])
STOPS = (3, 10, 13)  # The second is the last of an epoch.


class Module(lightning.LightningModule):
    def __init__(self, saves: Path | None) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)
        self.saves = saves
        self.taken: list[list[int]] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        self.taken.append(payload_ids(batch))
        return self.linear(batch.image[:, 0, 0, :1].float()).mean() * 0

    def on_train_batch_end(self, *_: Any) -> None:
        if self.saves is not None and self.trainer.global_step in STOPS:
            self.trainer.save_checkpoint(self.saves / f"{self.trainer.global_step}.ckpt")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(
    folder: Path,
    stop: int | None = None,
    state: dict[str, Any] | None = None,
    **how: Any,
) -> list[list[int]]:
    """Trains two epochs, from the checkpoint after step `stop`; on what restored `state`."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    module = Module(folder if stop is None else None)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=2, enable_checkpointing=False, **quiet, **how
    )
    checkpoint = None if stop is None else folder / f"{stop}.ckpt"
    with hr.Loader(data, batch_size=10, seed=1, transform=FLAT) as loader:
        if state is not None:
            loader.load_state_dict(state)
        trainer.fit(module, TrainerLoader(loader), ckpt_path=checkpoint, weights_only=False)
    return module.taken


def state_after(step: int) -> dict[str, Any]:
    """Of a loader that gave so many batches of an epoch of 10."""
    with hr.Loader(data, batch_size=10, seed=1, transform=FLAT) as loader:
        loader.set_epoch(step // 10)
        for _ in zip(range(step % 10), loader, strict=False):
            pass
        return loader.state_dict()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        fit(folder, devices=2, strategy=sys.argv[3])
    else:
        told = {"whole": fit(folder, devices=1)}
        for stop in STOPS:
            told[f"loader {stop}"] = fit(folder, stop, devices=1)
        # Lightning's first epoch is the rest of the loader's second.
        told["restored 13"] = fit(folder / "restored", state=state_after(13), devices=1)[:7]
        print(json.dumps(told))
