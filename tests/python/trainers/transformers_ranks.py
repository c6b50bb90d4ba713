"""What the ranks of Hugging Face's Trainer are given, case by case. Run by test_trainers.py.

Usage: transformers_ranks.py DATA FOLDER [two]: without `two`, also what one rank does.

Prints a JSON object: of each case the samples that this rank trained on, epoch by epoch as the
Trainer counts them, or the error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from loader_data import FLAT
from transformers import Trainer, TrainerCallback, TrainingArguments

import headrace as hr
from headrace.torch import TrainerLoader

data, folder = Path(sys.argv[1]), Path(sys.argv[2])
trained: list[int] = []


class Model(torch.nn.Module):
    """Notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        grey = pixel_values[:, 0, 0, 0]
        trained.extend(grey.tolist())
        assert bool((pixel_values == grey[:, None, None, None]).all()), "a sample is mixed"
        return {"loss": self.linear(grey[:, None].float()).mean() * 0}


def inputs(sample: hr.Sample) -> dict[str, Any]:
    return {"pixel_values": sample.image, "labels": sample.label}


def loader(workers: int = 0) -> hr.Loader:
    of_this_script = hr.Workers(workers, start="fork")  # Others would import it.
    return hr.Loader(data, batch_size=10, seed=1, transform=(FLAT, inputs), workers=of_this_script)


class LoaderTrainer(Trainer):
    loader: TrainerLoader

    def get_train_dataloader(self) -> Any:
        return self.loader


class KeepPlace(TrainerCallback):
    """Saves the loader's place beside each checkpoint, and stops at the first if it is to."""

    def __init__(self, loader: TrainerLoader, stop: bool) -> None:
        self._loader, self._stop = loader, stop

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        place = Path(args.output_dir, f"checkpoint-{state.global_step}", "headrace.json")
        place.write_text(json.dumps(self._loader.state_dict()))
        control.should_training_stop = self._stop


def train(
    name: str,
    source: hr.Loader,
    stop: bool = False,
    resume: bool = False,
    restore: bool = False,
    **how: Any,
) -> list[int]:
    trained.clear()
    loader: TrainerLoader | None = None
    arguments = TrainingArguments(
        output_dir=str(folder / name),
        per_device_train_batch_size=10,
        num_train_epochs=2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        save_steps=3,
        save_strategy="steps" if stop else "no",
        **how,
    )
    checkpoint = folder / name / "checkpoint-3"
    trainer = LoaderTrainer(Model(), arguments)
    loader = trainer.loader = TrainerLoader(source)
    if resume and restore:
        loader.load_state_dict(json.loads((checkpoint / "headrace.json").read_text()))
    trainer.add_callback(KeepPlace(loader, stop))
    trainer.train(resume_from_checkpoint=str(checkpoint) if resume else None)
    return list(trained)


def resumed(name: str, make: Any, **how: Any) -> list[int]:
    first = train(name, make(), stop=True)
    return first + train(name, make(), resume=True, **how)


cases = {
    "loader": lambda: train("loader", loader()),
}
alone = {
    "loader, workers": lambda: train("workers", loader(2)),
    "loader, resumed": lambda: resumed("skipped", loader),
    "loader, restored and resumed": lambda: resumed("both told", loader, restore=True),
    "loader, resumed, nothing skipped": lambda: resumed(
        "resumed", loader, restore=True, ignore_data_skip=True
    ),
}
if "two" not in sys.argv:
    cases |= alone
told: dict[str, Any] = {}
for name, case in cases.items():
    try:
        told[name] = case()
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
