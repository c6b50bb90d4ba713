"""What Accelerate's ranks are given, case by case. Run by test_trainers.py, once a rank.

Prints a JSON object: of each case the samples that this rank was given, or the error.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, skip_first_batches
from loader_data import COUNT, FLAT, payload_ids
from torch.utils.data import DistributedSampler, RandomSampler

import headrace as hr
from headrace.torch import DeviceBatches, TrainerLoader

data, folder = Path(sys.argv[1]), Path(sys.argv[2])
accelerator = Accelerator(cpu=True)
ALL = hr.Job(rank=0, world_size=1)


def loader(**arguments: Any) -> hr.Loader:
    given: dict[str, Any] = {"transform": FLAT} | arguments
    return hr.Loader(data, batch_size=10, seed=1, **given)


def number(sample: hr.Sample) -> int:
    return sample.id


def with_workers() -> list[int]:
    workers = hr.Workers(2, start="fork")  # Others would import this script.
    batches = accelerator.prepare(wrapped(loader(transform=number, workers=workers)))
    return [sample for batch in batches for sample in batch.tolist()]


def wrapped(made: hr.Loader | None = None) -> TrainerLoader:
    """For this process's Accelerator."""
    return TrainerLoader(loader() if made is None else made, accelerator)


def ids(batches: Iterable[Any]) -> list[int]:
    return [sample for batch in batches for sample in payload_ids(batch)]


def divided() -> DistributedSampler[int]:
    """Gives each rank its share."""
    return DistributedSampler(range(COUNT), num_replicas=2, rank=accelerator.process_index)


def shuffled() -> RandomSampler:
    return RandomSampler(range(COUNT), generator=torch.Generator().manual_seed(3))


def restored(steps: int) -> TrainerLoader:
    made = loader()
    place = made.state_dict()
    made.load_state_dict(place | {"samples": steps * place["global_batch"]})
    return wrapped(made)


def saved() -> list[int]:
    """Accelerate's checkpoints have the place of a loader that was prepared, and nothing else."""
    saves, loads = Accelerator(cpu=True), Accelerator(cpu=True)
    first = saves.prepare(TrainerLoader(loader(), saves))
    second = loads.prepare(TrainerLoader(loader(), loads))
    taken = []
    for batch in first:
        taken += payload_ids(batch)
        if len(taken) == 20:
            saves.save_state(str(folder / "prepared"))
            break
    saves.wait_for_everyone()
    loads.load_state(str(folder / "prepared"))
    return taken + ids(second)


def the_end() -> list[int]:
    """Of each batch of two epochs whether accumulate() steps: every third, and the last."""
    stepped = []
    accumulates = Accelerator(cpu=True, gradient_accumulation_steps=3)
    batches = accumulates.prepare(TrainerLoader(loader(), accumulates))
    for _ in range(2):
        for _ in batches:
            with accumulates.accumulate(model):
                stepped.append(int(accumulates.sync_gradients))
    return stepped


def resumed(how: Callable[[TrainerLoader, dict[str, Any]], Any]) -> list[int]:
    """The steps of two epochs after which a loader that goes on gives something else: none."""
    first = accelerator.prepare(wrapped())
    whole, states = [], []
    for _ in range(2):
        for batch in first:
            whole.append(payload_ids(batch))
            states.append(first.state_dict())
    wrong = []
    for step, state in enumerate(states[:-1], 1):
        again = wrapped()
        rest = how(again, state)
        end = -(-(step + 1) // len(again)) * len(again)  # of the epoch that goes on
        if [payload_ids(batch) for batch in rest] != whole[step:end]:
            wrong.append(step)
        again.close()
    return wrong


def by_state(again: TrainerLoader, state: dict[str, Any]) -> Any:
    again = accelerator.prepare(again)
    again.load_state_dict(state)
    again.load_state_dict(again.state_dict())  # A second resume, before a batch.
    return again


def by_skipping(again: TrainerLoader, state: dict[str, Any]) -> Any:
    again.set_epoch(state["epoch"])
    return skip_first_batches(again, state["samples"] // state["global_batch"])


def twice_by_both(again: TrainerLoader, state: dict[str, Any]) -> Any:
    """A batch after the first resume, then a second one, of the state before that batch."""
    again = by_state(again, state)
    next(iter(again))
    again.load_state_dict(state)
    return by_skipping(again, state)


def passed_over(make: Callable[[], Any], *, in_epoch: int = 0) -> list[bool]:
    """If all batches are skipped nothing is given, and the epoch after that comes next."""
    whole, again = make(), make()
    epochs = [ids(whole) for _ in range(in_epoch + 2)]
    for _ in range(in_epoch):
        ids(again)
    rest = ids(skip_first_batches(again, len(again)))
    told = [rest == [], ids(again) == epochs[-1], epochs[-1] != epochs[-2]]
    place = again.state_dict()
    again.load_state_dict(place)  # The end of an epoch: skipping it once more has no effect.
    return [*told, ids(skip_first_batches(again, len(again))) == [], place == again.state_dict()]


def left_out(divide: Callable[[Iterable[Any]], Any]) -> list[int]:
    """A list of batches that something divides, as prepare() would."""
    other = skip_first_batches(wrapped(), 0)
    other.batch_sampler.batch_sampler = divide(other.batch_sampler.batch_sampler)
    return ids(other)


def checkpointed() -> list[int]:
    """Accelerate's checkpoints have the place of a loader that is registered."""
    saves, loads = Accelerator(cpu=True), Accelerator(cpu=True)
    first, second = loader(), loader()
    saves.register_for_checkpointing(first)
    loads.register_for_checkpointing(second)
    taken = []
    for batch in first:
        taken += payload_ids(batch)
        if len(taken) == 20:
            saves.save_state(str(folder))
            break
    saves.wait_for_everyone()
    loads.load_state(str(folder))
    return taken + ids(second)


def warned() -> list[str]:
    """The warnings of loaders that are iterated by themselves, once each, and of no others."""
    itself = loader()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for batches in (itself, itself, DeviceBatches(loader(), "cpu"), wrapped()):
            ids(batches)
    return [str(each.message) for each in said if "headrace" in str(each.message)]


model = torch.nn.Linear(2, 2)
cases: dict[str, Callable[[], Any]] = {
    "loader": lambda: ids(loader()),
    "on the device": lambda: ids(accelerator.prepare(DeviceBatches(loader(), accelerator.device))),
    "checkpointed": checkpointed,
    "prepared loader": lambda: ids(accelerator.prepare(wrapped())),
    "prepared loader, model": lambda: ids(accelerator.prepare(model, wrapped())[1]),
    "prepared loader, workers": with_workers,
    "prepared loader, itself": lambda: ids(accelerator.prepare_data_loader(wrapped())),
    "prepared sampler": lambda: ids(accelerator.prepare(wrapped(loader(sampler=divided())))),
    "prepared, all samples": lambda: ids(wrapped(loader(job=ALL))),
    "prepared, sampler of all": lambda: ids(wrapped(loader(sampler=range(COUNT)))),
    "prepared, not wrapped": lambda: ids(accelerator.prepare(loader())),
    "prepared loader, not wrapped": lambda: ids(accelerator.prepare_data_loader(loader())),
    "warned": warned,
    "skipped, not wrapped": lambda: ids(skip_first_batches(loader(), 2)),
    "prepared copies, itself": lambda: ids(
        accelerator.prepare_data_loader(DeviceBatches(loader(), "cpu"))
    ),
    "prepared, saved": saved,
    "prepared, the end": the_end,
    "skipped loader": lambda: ids(skip_first_batches(wrapped(), 2)),
    "skipped prepared": lambda: ids(skip_first_batches(accelerator.prepare(wrapped()), 2)),
    "skipped sampler": lambda: ids(skip_first_batches(wrapped(loader(sampler=divided())), 2)),
    "skipped and restored": lambda: ids(skip_first_batches(restored(2), 2)),
    "skipped and restored elsewhere": lambda: ids(skip_first_batches(restored(3), 2)),
    "all skipped": lambda: passed_over(wrapped),
    "all skipped, later": lambda: passed_over(wrapped, in_epoch=1),
    "all skipped, prepared": lambda: passed_over(lambda: accelerator.prepare(wrapped())),
    "all skipped, sampler": lambda: passed_over(lambda: TrainerLoader(loader(sampler=shuffled()))),
    "all skipped and restored": lambda: ids(skip_first_batches(restored(3), 5)),
    "resumed by state": lambda: resumed(by_state),
    "resumed by skipping": lambda: resumed(by_skipping),
    "resumed twice": lambda: resumed(twice_by_both),
    "left out": lambda: left_out(lambda steps: islice(steps, 0, None, 2)),
    "left out, listed": lambda: left_out(lambda steps: list(steps)[::2]),
    "left out, the last": lambda: left_out(lambda steps: islice(steps, 0, None, 5)),
    "skipped batches": lambda: ids(skip_first_batches(DeviceBatches(loader(), "cpu"), 2)),
}
told: dict[str, Any] = {}
for name, case in cases.items():
    try:
        told[name] = case()
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
