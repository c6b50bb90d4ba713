"""What trainers train on after they resume, at every step. Run by test_resumes.py.

Usage: resumes.py DATA FOLDER

Imports the trainers once, then forks the ranks of three jobs. Prints a line for each rank and case:
[ranks of the checkpoint or 0, ranks, rank, trainer, source, steps that it resumed after, one after
the other, samples of each step after the first of them, or the error].
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import torch
import torch.distributed as dist
from accelerate import Accelerator
from loader_data import COUNT, FLAT
from torch.utils.data import Dataset, DistributedSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

import headrace as hr
from headrace.torch import DataLoader, TrainerLoader

data, folder = Path(sys.argv[1]), Path(sys.argv[2])
EPOCHS, GLOBAL_BATCH = 2, 32
EPOCH_STEPS = -(-COUNT // GLOBAL_BATCH)
STEPS = EPOCHS * EPOCH_STEPS
PR_SET_PDEATHSIG = 1  # If this process is killed, its ranks are, too.
taken: list[list[int]] = []


class Run(NamedTuple):
    """One call of a trainer."""

    source: str
    folder: Path
    """Of checkpoints that are saved."""
    saves: Collection[int] = ()
    """After which steps."""
    resume: Path | None = None
    """A folder of checkpoints, and the step of the one that is loaded."""
    step: int | str = 0
    stop: int | None = None
    """The step after which training ends before its end."""


class Net(torch.nn.Module):
    """Notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        first = image.flatten(1)[:, :1]
        taken.append(first[:, 0].int().tolist())
        return self.linear(first.float()).mean() * 0


class Numbers(Dataset[Any]):
    """Sample i is i; in a dict, or not."""

    def __init__(self, dicts: bool) -> None:
        self.dicts = dicts

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Any:
        image, label = torch.tensor([number]), 0
        return {"image": image, "label": label} if self.dicts else (image, label)


def named(sample: hr.Sample) -> dict[str, Any]:
    return {"image": sample.image, "label": sample.label}


def made(source: str, dicts: bool = False) -> Any:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    batch_size = GLOBAL_BATCH // ranks
    if source == "Loader":
        more: Any = {"transform": (FLAT, named), "workers": 0} if dicts else {"transform": FLAT}
        return hr.Loader(data, batch_size=batch_size, seed=1, **more)
    how: Any = {"batch_size": batch_size, "num_workers": 2, "worker_method": "thread"}
    if source == "DataLoader, shuffle":  # Lightning gives it a DistributedSampler.
        return DataLoader(Numbers(dicts), shuffle=True, **how)
    if source == "DataLoader, prepared":  # Accelerate divides it.
        generator = torch.Generator().manual_seed(3)
        return DataLoader(Numbers(dicts), shuffle=True, generator=generator, **how)
    sampler = DistributedSampler(Numbers(dicts), ranks, rank, seed=3)
    return DataLoader(Numbers(dicts), sampler=sampler, **how)


def with_accelerate(run: Run) -> None:
    accelerator = Accelerator(cpu=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    loader = made(run.source)
    if run.source in ("Loader", "DataLoader, prepared"):
        loader = accelerator.prepare(TrainerLoader(loader, accelerator))
    else:
        accelerator.register_for_checkpointing(loader)
    assert isinstance(run.step, int)
    step = run.step
    if run.resume is not None:
        accelerator.load_state(str(run.resume / str(step)))
    while (epoch := loader.state_dict()["epoch"]) < EPOCHS:
        loader.set_epoch(epoch)
        for image, label in loader:
            optimizer.zero_grad()
            accelerator.backward(model(image, label))
            optimizer.step()
            step += 1
            if step in run.saves:
                accelerator.save_state(str(run.folder / str(step)))
            if step == run.stop:
                loader.close()
                return
    loader.close()


class Dicts(Net):
    def forward(self, image: torch.Tensor, label: torch.Tensor) -> Any:
        return {"loss": super().forward(image, label)}


class SourceTrainer(Trainer):
    source: Any

    def get_train_dataloader(self) -> Any:
        is_loader = isinstance(self.source, hr.Loader)
        return TrainerLoader(self.source) if is_loader else self.source


class Saves(TrainerCallback):
    """Saves after some steps; beside the checkpoint the state of a DataLoader."""

    def __init__(self, run: Run, source: Any) -> None:
        self._run, self._source = run, source

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_save = state.global_step in self._run.saves
        control.should_training_stop |= state.global_step == self._run.stop

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            place = self._run.folder / f"checkpoint-{state.global_step}" / "source.json"
            place.write_text(json.dumps(self._source.state_dict()))


def with_trainer(run: Run) -> None:
    source = made(run.source, dicts=True)
    is_loader = run.source == "Loader"
    arguments = TrainingArguments(
        output_dir=str(run.folder),
        per_device_train_batch_size=GLOBAL_BATCH // dist.get_world_size(),
        num_train_epochs=EPOCHS,
        ignore_data_skip=not is_loader,  # A Loader is skipped to the place without reading.
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
    )
    checkpoint = None if run.resume is None else run.resume / f"checkpoint-{run.step}"
    if checkpoint is not None and not is_loader:
        source.load_state_dict(json.loads((checkpoint / "source.json").read_text()))
    trainer = SourceTrainer(Dicts(), arguments, callbacks=[Saves(run, source)])
    trainer.source = source
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    source.close()


class Module(lightning.LightningModule):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.net, self.run = Net(), run

    def train_dataloader(self) -> Any:
        self.source = made(self.run.source)
        is_loader = isinstance(self.source, hr.Loader)
        return TrainerLoader(self.source) if is_loader else self.source

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        loss: torch.Tensor = self.net(*batch)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        if self.trainer.global_step in self.run.saves:
            self.trainer.save_checkpoint(self.run.folder / f"{self.trainer.global_step}.ckpt")

    def on_train_epoch_end(self) -> None:
        if self.trainer.global_step in self.run.saves:
            self.trainer.save_checkpoint(self.run.folder / "epoch.ckpt")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def with_lightning(run: Run) -> None:
    module = Module(run)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=dist.get_world_size(),
        strategy="ddp",
        max_epochs=EPOCHS,
        max_steps=run.stop or -1,
        use_distributed_sampler=run.source == "DataLoader, shuffle",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    checkpoint = None if run.resume is None else run.resume / f"{run.step}.ckpt"
    trainer.fit(module, ckpt_path=checkpoint, weights_only=False)
    module.source.close()


TRAINERS: dict[str, Callable[[Run], None]] = {
    "accelerate": with_accelerate,
    "transformers": with_trainer,
    "lightning": with_lightning,
}
CASES = [(name, source) for source in ("Loader", "DataLoader") for name in TRAINERS]
CASES += [("lightning", "DataLoader, shuffle"), ("accelerate", "DataLoader, prepared")]


def saved_by(ranks: int, trainer: str, source: str) -> Path:
    return folder / f"{trainer} {source} {ranks}"


def train(trainer: str, seed: int, *runs: Run) -> Any:
    """The samples of each step of runs, one after the other; or the error."""
    taken.clear()
    try:
        for run in runs:
            torch.manual_seed(seed)
            TRAINERS[trainer](run)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return list(taken)


def tell(before: int, case: tuple[str, str], steps: Collection[int | str], told: Any) -> None:
    line = json.dumps([before, dist.get_world_size(), dist.get_rank(), *case, steps, told])
    os.write(1, f"\n{line}\n".encode())  # Ranks have one pipe.


def whole() -> None:
    """Trains to the end and saves every step."""
    for case in CASES:
        place = saved_by(dist.get_world_size(), *case)
        tell(0, case, [], train(case[0], 1, Run(case[1], place, range(1, STEPS))))


def resumed_steps(before: int, ranks: int, trainer: str) -> list[list[int]]:
    """Each step once. On the same number of ranks two in a row: the second resumes from what the
    first saved after one step. On one rank and on two other steps are the first."""
    alone = range(1, STEPS)
    if before != ranks:
        return [[step] for step in alone]
    found: list[list[int]] = []
    for step in alone:
        # After an epoch's last step Lightning counts one epoch less, in the checkpoints of the
        # next epoch, too: it takes the first of them for the end of an epoch.
        is_miscounted = trainer == "lightning" and step - 1 == EPOCH_STEPS
        is_second = (step - ranks) % 2 == 1 and step > 1
        if found and is_second and not is_miscounted:
            found[-1].append(step)
        else:
            found.append([step])
    return found


def resume(before: int) -> None:
    """Resumes at every step."""
    ranks = dist.get_world_size()
    for trainer, source in CASES:
        place, again = saved_by(before, trainer, source), folder / f"again {trainer} {source}"
        if source == "DataLoader, shuffle" and ranks != before:
            continue  # On one rank Lightning leaves the RandomSampler: another order.
        if trainer == "lightning":  # From a checkpoint of the end of the first epoch.
            tell(
                before,
                (trainer, source),
                ["epoch"],
                train(trainer, 77, Run(source, again, (), place, "epoch")),
            )
        for steps in resumed_steps(before, ranks, trainer):
            step, *then = steps
            runs = [Run(source, again, then, place, step, then[0] if then else None)]
            runs += [Run(source, again, (), again, second) for second in then]
            tell(before, (trainer, source), steps, train(trainer, 77, *runs))
            dist.barrier()
            if dist.get_rank() == 0:
                shutil.rmtree(again, ignore_errors=True)


def as_rank(job: int, rank: int, ranks: int, befores: list[int]) -> None:
    """One rank's cases: of checkpoints that so many ranks saved."""
    place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})  # Asked for, and not used.
    meeting = f"file://{folder.absolute()}/meeting-{job}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    if ranks in befores:
        whole()
    for before in befores:
        dist.barrier()
        resume(before)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # The first one imports much of torch.
    gc.freeze()  # Trainers collect garbage at each end: over a second with all that was imported.
    for job, (ranks, befores) in enumerate([(1, [1]), (2, [2, 1]), (1, [2])]):
        started = []
        for rank in range(ranks):
            process = os.fork()
            if not process:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                try:
                    as_rank(job, rank, ranks, befores)
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            started.append(process)
        for process in started:
            os.waitpid(process, 0)
