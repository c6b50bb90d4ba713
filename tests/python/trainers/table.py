"""What each trainer's ranks train on, on several numbers of ranks. Run by test_trainers_table.py.

Usage: table.py DATA FOLDER RANKS...

Imports the trainers once, then forks the ranks. Prints a line for each rank and cell:
[ranks, rank, trainer, drop_last, samples in the order of training, or the error].
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
from accelerate import Accelerator
from loader_data import FLAT
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer, TrainingArguments

import headrace as hr
from headrace.torch import DeviceBatches, TrainerLoader

data, folder = Path(sys.argv[1]), Path(sys.argv[2])
EPOCHS = 2
PR_SET_PDEATHSIG = 1  # If this process is killed, its ranks are, too.
trained: list[int] = []


class Net(torch.nn.Module):
    """Notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 4)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        trained.extend(image[:, 0, 0, 0].tolist())
        return self.linear(label[:, None].float()).mean()


def loader(drop_last: bool, **more: Any) -> hr.Loader:
    return hr.Loader(
        data, batch_size=10, seed=1, drop_last=drop_last, **({"transform": FLAT} | more)
    )


def loop(model: Any, batches: Any, backward: Callable[[Any], None] = torch.Tensor.backward) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(EPOCHS):
        for image, label in batches:
            optimizer.zero_grad()
            backward(model(image, label))
            optimizer.step()


def ddp(drop_last: bool) -> None:
    loop(DistributedDataParallel(Net()), loader(drop_last))


def fsdp(drop_last: bool) -> None:
    model = Net()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    loop(model, loader(drop_last))


def fsdp_wrapped(drop_last: bool) -> None:
    """The older class, which looks for a GPU unless its device is given."""
    loop(FullyShardedDataParallel(Net(), device_id=torch.device("cpu")), loader(drop_last))


def fsdp_accelerate(drop_last: bool) -> None:
    """A model that the script shards, and a loader that Accelerate prepares: its own FSDP becomes
    DDP on the CPU."""
    model = Net()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    accelerator = Accelerator(cpu=True)
    loop(
        model,
        accelerator.prepare(TrainerLoader(loader(drop_last), accelerator)),
        accelerator.backward,
    )


def accelerate(drop_last: bool) -> None:
    accelerator = Accelerator(cpu=True)
    model, batches = accelerator.prepare(Net(), TrainerLoader(loader(drop_last), accelerator))
    loop(model, batches, accelerator.backward)


def accelerate_copies(drop_last: bool) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Net())
    loop(model, DeviceBatches(loader(drop_last), accelerator.device), accelerator.backward)


class Dicts(Net):
    def forward(self, image: torch.Tensor, label: torch.Tensor) -> Any:
        return {"loss": super().forward(image, label)}


def named(sample: hr.Sample) -> dict[str, Any]:
    return {"image": sample.image, "label": sample.label}


class LoaderTrainer(Trainer):
    drop_last: bool

    def get_train_dataloader(self) -> Any:
        return TrainerLoader(loader(self.drop_last, transform=(FLAT, named), workers=0))


def transformers(drop_last: bool) -> None:
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=10,
        num_train_epochs=EPOCHS,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
    )
    trainer: Any = LoaderTrainer(Dicts(), arguments)
    trainer.drop_last = drop_last
    trainer.train()


class Module(lightning.LightningModule):
    def __init__(self, drop_last: bool) -> None:
        super().__init__()
        self.net, self.drop_last = Net(), drop_last

    def train_dataloader(self) -> Any:
        return TrainerLoader(loader(self.drop_last))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss: torch.Tensor = self.net(*batch)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def with_lightning(drop_last: bool) -> None:
    lightning.Trainer(
        accelerator="cpu",
        devices=dist.get_world_size(),
        strategy="ddp",
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(drop_last))


TRAINERS = {
    "ddp": ddp,
    "fsdp": fsdp,
    "fsdp, wrapped": fsdp_wrapped,
    "fsdp, accelerate": fsdp_accelerate,
    "accelerate": accelerate,
    "accelerate, copies": accelerate_copies,
    "transformers": transformers,
    "lightning": with_lightning,
}


def as_rank(rank: int, ranks: int) -> None:
    """One rank's cells."""
    place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in place.items()})
    meeting = f"file://{folder.absolute()}/meeting-{ranks}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    for name, train in TRAINERS.items():
        for drop_last in (False, True):
            trained.clear()
            told: Any = trained
            try:
                train(drop_last)
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
            line = json.dumps([ranks, rank, name, drop_last, told])
            os.write(1, f"\n{line}\n".encode())  # Ranks have one pipe.
    dist.destroy_process_group()


if __name__ == "__main__":
    for ranks in map(int, sys.argv[3:]):
        started = []
        for rank in range(ranks):
            process = os.fork()
            if not process:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                try:
                    as_rank(rank, ranks)
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            started.append(process)
        for process in started:
            os.waitpid(process, 0)
