"""What Accelerate's ranks are given, case by case. Run by test_trainers.py, once a rank.

Prints a JSON object: of each case the samples that this rank was given, or the error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration
from loader_data import COUNT, FLAT, payload_ids
from torch.utils.data import DataLoader, DistributedSampler

import headrace as hr
from headrace.torch import DeviceBatches, SampleStream

data, folder = Path(sys.argv[1]), Path(sys.argv[2])
accelerator = Accelerator(cpu=True)


def loader(**arguments: Any) -> hr.Loader:
    return hr.Loader(data, batch_size=10, seed=1, transform=FLAT, **arguments)


def ids(batches: Iterable[Any]) -> list[int]:
    return [sample for batch in batches for sample in payload_ids(batch)]


def prepared(stream: SampleStream, workers: int = 0, start: str = "fork", **config: Any) -> Any:
    with_config = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))
    context = start if workers else None
    return with_config.prepare(
        DataLoader(stream, batch_size=10, num_workers=workers, multiprocessing_context=context)
    )


def all_samples() -> SampleStream:
    return SampleStream(loader(sharding=hr.Sharding(rank=0, world_size=1)))


def went_on(told: bool) -> list[int]:
    """The rest of an epoch that a stream restored, below a prepared DataLoader."""
    stream = all_samples()
    stream.load_state_dict(place)
    batches = prepared(stream, dispatch_batches=False)
    if told:
        batches.set_epoch(place["epoch"])
    return ids(batches)


def skipped() -> list[int]:
    """A stream that goes on after its first batch, of which two more would be skipped."""
    stream = all_samples()
    stream.load_state_dict(place)
    batches = prepared(stream, dispatch_batches=False)
    batches.set_epoch(place["epoch"])
    return ids(skip_first_batches(batches, 2))


def divided_sampler() -> SampleStream:
    """One whose sampler gives each rank its share."""
    sampler = DistributedSampler(range(COUNT), num_replicas=2, rank=accelerator.process_index)
    return SampleStream(loader(sampler=sampler))


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


def twice() -> list[int]:
    """The second epoch of a prepared DataLoader."""
    batches = prepared(all_samples(), 1)
    first = ids(batches)
    second = ids(batches)
    assert first != second
    return second


with loader(sharding=hr.Sharding(rank=0, world_size=1)) as placed:
    ids(placed)
    iterator = iter(placed)
    before = payload_ids(next(iterator))
    place = placed.state_dict()
    del iterator

model = torch.nn.Linear(2, 2)
cases: dict[str, Callable[[], list[int]]] = {
    "dispatched": lambda: ids(prepared(SampleStream(loader()))),
    "dispatched, workers": lambda: ids(prepared(SampleStream(loader()), 2)),
    "dispatched, spawned workers": lambda: ids(prepared(SampleStream(loader()), 1, "spawn")),
    "split": lambda: ids(prepared(SampleStream(loader()), split_batches=True)),
    "sharded": lambda: ids(prepared(SampleStream(loader()), dispatch_batches=False)),
    "sharded, workers": lambda: ids(prepared(SampleStream(loader()), 1, dispatch_batches=False)),
    "sharded sampler": lambda: ids(prepared(divided_sampler(), dispatch_batches=False)),
    "all, dispatched": lambda: ids(prepared(all_samples())),
    "all, dispatched, workers": lambda: ids(prepared(all_samples(), 2)),
    "all, sharded": lambda: ids(prepared(all_samples(), dispatch_batches=False)),
    "all, split": lambda: ids(prepared(all_samples(), split_batches=True)),
    "all, dispatched twice": twice,
    "not prepared": lambda: ids(DataLoader(SampleStream(loader()), batch_size=10)),
    "not prepared, workers": lambda: ids(
        DataLoader(SampleStream(loader()), 10, num_workers=2, multiprocessing_context="fork")
    ),
    "loader": lambda: ids(loader()),
    "on the device": lambda: ids(accelerator.prepare(DeviceBatches(loader(), accelerator.device))),
    "checkpointed": checkpointed,
    "prepared loader": lambda: ids(accelerator.prepare(loader())),
    "prepared loader, model": lambda: ids(accelerator.prepare(model, loader())[1]),
    "prepared loader, itself": lambda: ids(accelerator.prepare_data_loader(loader())),
    "skipped loader": lambda: ids(skip_first_batches(loader(), 2)),
    "skipped batches": lambda: ids(skip_first_batches(DeviceBatches(loader(), "cpu"), 2)),
    "state lost": lambda: went_on(told=False),
    "state kept": lambda: went_on(told=True),
    "before the state": lambda: before,
    "state and skip": skipped,
}
told: dict[str, Any] = {}
for name, case in cases.items():
    try:
        told[name] = case()
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
