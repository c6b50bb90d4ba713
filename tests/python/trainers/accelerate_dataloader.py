"""What Accelerate makes of torch's DataLoader and of ours. Run by test_accelerate_dataloader.py.

Usage: accelerate_dataloader.py FOLDER

Imports the packages once, then forks the ranks of two jobs. Prints a line for each rank and case:
[ranks, rank, case, what it told, or the error].
"""

from __future__ import annotations

import copy
import ctypes
import itertools
import json
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import accelerate_places as places
import numpy as np
import torch
import torch.distributed as dist
from accelerate_loaders import (
    CONFIGS,
    COUNT,
    EPOCHS,
    SOURCES,
    THREADS,
    WAYS,
    Numbers,
    accelerator,
    divided,
    error,
    ids,
    ours,
    prepared,
    torchs,
)
from torch.utils.data import IterableDataset

import headrace as hr
import headrace.torch
from headrace.torch._trainers import divided as divided_batches

folder = Path(sys.argv[1])
PR_SET_PDEATHSIG = 1  # If this process is killed, its ranks are, too.


class Stream(IterableDataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[torch.Tensor]:
        return map(torch.tensor, range(COUNT))


def trained(loader: Any, config: str) -> list[Any]:
    """Of each batch of two epochs the samples, and what Accelerate makes of it."""
    torch.manual_seed(3)
    trains = accelerator(CONFIGS[config], gradient_accumulation_steps=3)
    loader = prepared(trains, loader)
    model = torch.nn.Linear(1, 1)
    told: list[Any] = [len(loader), loader.total_batch_size, loader.total_dataset_length]
    for _ in range(EPOCHS):
        for batch in loader:
            with trains.accumulate(model):
                steps = trains.sync_gradients
            state = trains.gradient_state
            told.append([sorted(batch.tolist()), steps, state.end_of_dataloader, state.remainder])
            if config != "uneven" or trains.num_processes == 1:
                told.append(sorted(trains.gather_for_metrics(batch).tolist()))
    told.append(torch.rand(1).item().hex())
    return told


def same() -> Iterator[tuple[str, Any]]:
    """Cases in which ours tells what torch's does."""
    for source, config in itertools.product(SOURCES, CONFIGS):
        expected = trained(torchs(source), config)
        yield f"torch, {source}, {config}", expected
        ways = WAYS if config == "plain" or source == "shuffled" else ["direct", "threads"]
        for way in ways:
            told = trained(ours(source, way), config)
            yield f"{way}, {source}, {config}", True if told == expected else [told, expected]


def engine() -> Any:
    """A dataset that the engine reads."""
    np.save(folder / f"numbers-{dist.get_world_size()}-{dist.get_rank()}.npy", np.arange(COUNT))
    opened = hr.open(folder / f"numbers-{dist.get_world_size()}-{dist.get_rank()}.npy")
    field = opened.fields[0]
    told = []
    for kind in (torch.utils.data.DataLoader, headrace.torch.DataLoader):
        torch.manual_seed(3)
        loader = prepared(accelerator({}), kind(opened, batch_size=4, shuffle=True))
        told.append([batch[field].flatten().tolist() for _ in range(2) for batch in loader])
    reader = loader.stats()["reader"]
    loader.close()
    return reader, told[0] == told[1]


def on_the_device() -> Any:
    """The device of batches, with and without placement; "meta" is one that every machine has."""
    told = []
    for placement in (True, False):
        trains = accelerator({}, device_placement=placement)
        trains.state._shared_state["device"], before = torch.device("meta"), trains.device
        try:
            loader = prepared(trains, ours("in order"))
            told.append([str(next(iter(loader)).device), str(loader.device)])
        finally:
            trains.state._shared_state["device"] = before
    return told


def left_early() -> Any:
    """An epoch after one that was left after a batch, as with torch's loader."""
    told = []
    for made in (torchs("generator"), ours("generator")):
        loader = prepared(accelerator({"use_seedable_sampler": True}), made)
        next(iter(loader))
        told.append([ids(loader), ids(loader)])
    return True if told[0] == told[1] else told


def stays() -> Any:
    first = accelerator({})
    loader = headrace.torch.TrainerLoader(ours("shuffled"), first)
    made = first.prepare(loader)
    again = accelerator({})
    return [
        made is loader,
        isinstance(made, torch.utils.data.DataLoader),
        made.batch_size,
        first._dataloaders == [loader],
        again.prepare(made) is loader and again._dataloaders == [loader],
        hasattr(ours("shuffled"), "_is_accelerate_prepared"),
    ]


def copied() -> Any:
    """What copying and pickling a prepared loader raise."""
    loader = prepared(accelerator({}), ours("shuffled"))
    return [error(lambda: copy.copy(loader)), error(lambda: pickle.dumps(loader))]


def on_distributed_sampler() -> Any:
    """Not divided again: the samples of two epochs."""
    trains = accelerator({})
    loader = prepared(trains, divided())
    remainders = []
    taken = []
    for _ in range(EPOCHS):
        for batch in loader:
            taken += batch.tolist()
            remainders.append(trains.gradient_state.remainder)
    return taken, sorted(set(remainders))


def in_any_order(**how: Any) -> Any:
    """Batches whose padding may be anywhere in them, and what is gathered of an epoch."""
    trains = accelerator({})
    loader = prepared(trains, headrace.torch.DataLoader(Numbers(), 4, **THREADS, **how))
    expected = ids(prepared(accelerator({}), torchs("in order")))
    taken, gathered = [], []
    for batch in loader:
        taken.append(sorted(batch.tolist()))
        gathered += trains.gather_for_metrics(batch).tolist()
    return sorted(taken) == sorted(expected), sorted(gathered)


def of_lists() -> Any:
    """A list of batches, which has no batch size, on one process; of two Accelerate asks for it."""
    trains = accelerator({})
    if trains.num_processes > 1:
        return []
    loader = prepared(trains, headrace.torch.DataLoader(Numbers(), batch_sampler=[[3, 1], [2]]))
    return [loader.batch_size, loader.total_batch_size, ids(loader)]


def of_epochs() -> Any:
    return headrace.torch.DataLoader(Numbers(), 4, shuffle=True, epoch_size=16, **THREADS)


def sized() -> Any:
    """`epoch_size`: the samples of three epochs."""
    torch.manual_seed(dist.get_rank())
    loader = prepared(accelerator({}), of_epochs())
    return [sample for _ in range(3) for batch in ids(loader) for sample in batch]


def kind_of(loader: Any) -> str:
    kind = type(getattr(loader, "base_dataloader", loader))
    return f"{kind.__module__}.{kind.__qualname__}"


def with_unknown_version() -> Any:
    """What a TrainerLoader raises."""
    known = divided_batches._USED
    divided_batches._USED = ("something_new",)
    try:
        return error(lambda: kind_of(prepared(accelerator({}), ours("generator", "direct"))))
    finally:
        divided_batches._USED = known


def not_wrapped() -> Any:
    """What Accelerate makes of ours, whether it gives torch's batches, and the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loader = accelerator({}).prepare(ours("generator", "direct"))
    expected = ids(accelerator({}).prepare(torchs("generator")))
    messages = [str(each.message) for each in said if "headrace" in str(each.message)]
    return kind_of(loader), ids(loader) == expected, messages


def restored_before() -> Any:
    made = ours("generator")
    made.load_state_dict(made.state_dict())
    return kind_of(prepared(accelerator({}), made))


CASES: dict[str, Callable[[], Any]] = {
    **{
        f"resumed, {way}, {source}, {config}": lambda way=way, source=source, config=config: (
            places.resumed(lambda: ours(source, way), CONFIGS[config])
        )
        for source, way, config in (
            *itertools.product(SOURCES, ["direct", "threads"], ["plain", "seedable"]),
            ("generator", "processes", "plain"),
            ("generator", "pool", "plain"),
            ("generator", "threads", "split"),
            ("generator", "threads", "uneven"),
        )
    },
    "resumed, DistributedSampler": lambda: places.resumed(divided, {}),
    "resumed, epoch_size": lambda: places.resumed(of_epochs, {}),
    "resumed, epochs told": lambda: places.resumed(
        lambda: ours("generator"), CONFIGS["seedable"], True
    ),
    **{
        f"skipped, {source}, {config}": lambda source=source, config=config: places.skipped(
            source, config
        )
        for source, config in itertools.product(["shuffled", "generator"], ["plain", "seedable"])
    },
    "skipped to the end": places.skipped_to_the_end,
    "places while skipped": places.places_while_skipped,
    "saved": lambda: places.checkpointed(folder, "saved", False),
    "registered": lambda: places.checkpointed(folder, "registered", True),
    "writes": lambda: places.writes(folder),
    "seeds": places.seeds,
    **{f"failed, {way}": lambda way=way: places.failed(way) for way in WAYS},
    "engine": engine,
    "on the device": on_the_device,
    "left early": left_early,
    "stays": stays,
    "copied": copied,
    "DistributedSampler": on_distributed_sampler,
    "DistributedSampler of three": lambda: kind_of(prepared(accelerator({}), divided(ranks=3))),
    "arrival": lambda: in_any_order(fetch="arrival", pool_size=5),
    "not in order": lambda: in_any_order(in_order=False),
    "epoch_size": sized,
    "lists": of_lists,
    "iterable": lambda: kind_of(accelerator({}).prepare(ours("in order", "direct", Stream()))),
    "iterable, ids": lambda: ids(accelerator({}).prepare(ours("in order", "direct", Stream()))),
    "dispatched": lambda: kind_of(
        accelerator({"dispatch_batches": True}).prepare(ours("in order", "direct"))
    ),
    "iterable, wrapped": lambda: kind_of(
        prepared(accelerator({}), ours("in order", "direct", Stream()))
    ),
    "dispatched, wrapped": lambda: kind_of(
        prepared(accelerator({"dispatch_batches": True}), ours("in order", "direct"))
    ),
    "unknown version": with_unknown_version,
    "not wrapped": not_wrapped,
    "restored before": restored_before,
}


MOVES: dict[str, Callable[[], Any]] = {
    f"moved, {config}, {before}": lambda config=config, before=before: places.moved(
        folder, config, before
    )
    for config in ("plain", "seedable", "split")
    for before in (1, 2)
}


def as_rank(job: str, rank: int, ranks: int) -> None:
    place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})  # Asked for, and not used.
    meeting = f"file://{folder.absolute()}/meeting-{job}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    cases = CASES if job != "moves" else {}
    if job != "one":
        cases |= {name: MOVES[name] for name in MOVES if job == "two" or name.endswith("2")}
    else:
        cases |= {name: MOVES[name] for name in MOVES if name.endswith("1")}
    told: Iterator[tuple[str, Any]] = ((name, error(case)) for name, case in cases.items())
    for name, what in told if job == "moves" else itertools.chain(same(), told):
        line = json.dumps([ranks, rank, name, what])
        os.write(1, f"\n{line}\n".encode())  # Ranks have one pipe.
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # The first one imports much of torch.
    for job, ranks in (("one", 1), ("two", 2), ("moves", 1)):
        started = []
        for rank in range(ranks):
            process = os.fork()
            if not process:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                code = 1
                try:
                    as_rank(job, rank, ranks)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            started.append(process)
        codes = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in started]
        if any(codes):
            sys.exit(f"{job}: ranks ended with {codes}")
