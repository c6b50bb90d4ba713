"""Cases of accelerate_dataloader.py that save, load, or skip to a place in an epoch. Each returns
True, or what is wrong."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from accelerate import skip_first_batches
from accelerate.state import GradientState
from accelerate_loaders import (
    CONFIGS,
    EPOCHS,
    Numbers,
    accelerator,
    divided,
    error,
    ids,
    ours,
    prepared,
    torchs,
)

from headrace.torch import sample_rng


class Place(NamedTuple):
    """What a checkpoint has."""

    state: Any
    generator: torch.Tensor
    """torch's global one, of this process."""

    @classmethod
    def of(cls, loader: Any) -> Place:
        return cls(loader.state_dict(), torch.get_rng_state())

    def restore(self, loader: Any) -> None:
        loader.load_state_dict(json.loads(json.dumps(self.state)))
        torch.set_rng_state(self.generator)


def steps(loader: Any) -> Iterator[list[int]]:
    """The samples of each batch. A step draws random numbers, as those of training do."""
    for batch in loader:
        torch.rand(1)
        yield sorted(batch.tolist())


def whole(loader: Any) -> tuple[list[list[int]], list[Place]]:
    """The batches of two epochs, and the places before and after each, with process 0's states."""
    taken, places = [], [Place.of(loader)]
    for _ in range(EPOCHS):
        for batch in steps(loader):
            taken.append(batch)
            places.append(Place.of(loader))
    shared = [[each.state for each in places]]
    dist.broadcast_object_list(shared)
    return taken, [
        Place(state, each.generator) for state, each in zip(shared[0], places, strict=True)
    ]


def resumed(made: Callable[[], Any], config: dict[str, Any], tells_epoch: bool = False) -> Any:
    """The steps at which a loader that goes on from process 0's state gives something else."""
    torch.manual_seed(3)
    taken, places = whole(prepared(accelerator(config), made()))
    length = len(taken) // EPOCHS
    wrong: list[Any] = []
    for step, place in enumerate(places[:-1]):
        torch.manual_seed(99)
        again = prepared(accelerator(config), made())
        place.restore(again)
        Place.of(again).restore(again)  # A second resume, before a batch.
        batches = steps(again)
        rest = [next(batches)]
        place = Place.of(again)
        again = prepared(accelerator(config), made())
        place.restore(again)  # And one after a batch. At the end of an epoch the next follows.
        while step + len(rest) < len(taken):
            if tells_epoch:
                again.set_epoch((step + len(rest)) // length)
            rest += steps(again)
        if rest != taken[step:]:
            wrong.append([step, rest, taken[step:]])
    return wrong or True


def skipped(source: str, config: str) -> Any:
    """The numbers of batches at which skipping gives other samples than of torch's loader."""
    wrong: list[Any] = []
    for count in range(len(prepared(accelerator(CONFIGS[config]), torchs(source))) + 1):
        told = []
        for made in (torchs(source), ours(source)):
            torch.manual_seed(3)
            loader = prepared(accelerator(CONFIGS[config]), made)
            ids(loader)
            loader.set_epoch(1)
            rest = ids(skip_first_batches(loader, count))
            loader.set_epoch(2)
            told.append([rest, ids(loader)])
        if told[0] != told[1]:
            wrong.append([count, told])
    return wrong or True


def skipped_to_the_end() -> Any:
    """An epoch of which every batch is skipped is over, unless a state says that it was before."""
    expected = []
    first = prepared(accelerator({}), ours("generator"))
    for _ in range(3):
        expected.append(ids(first))
        if len(expected) == 1:
            state = first.state_dict()
    told = []
    for restores in (False, True):
        again = prepared(accelerator({}), ours("generator"))
        if restores:
            again.load_state_dict(state)
        assert ids(skip_first_batches(again, len(again))) == []
        told.append([ids(again), ids(again)])
    return True if told == [expected[1:]] * 2 else [told, expected]


def places_while_skipped() -> Any:
    """A state within what is left after skipping, and skipping where the state is already."""
    first = prepared(accelerator({}), ours("generator"))
    expected = ids(first)
    first = prepared(accelerator({}), ours("generator"))
    rest = iter(skip_first_batches(first, 1))
    next(rest)
    state = first.state_dict()
    list(rest)
    ended = [first.state_dict()["epoch"], first.epoch, GradientState().in_dataloader]
    again = prepared(accelerator({}), ours("generator"))
    again.load_state_dict(state)
    other = prepared(accelerator({}), ours("generator"))
    other.load_state_dict(state)
    same = ids(skip_first_batches(again, 2)) == expected[2:]
    return same, state["batches"], ended, error(lambda: ids(skip_first_batches(other, 3)))


def checkpointed(folder: Path, name: str, register: bool) -> Any:
    """Accelerate's checkpoints have the place."""
    saves, loads = accelerator({}), accelerator({})
    first, second = ours("generator"), ours("generator")
    first, second = prepared(saves, first), prepared(loads, second)
    if register:
        saves.register_for_checkpointing(first)
        loads.register_for_checkpointing(second)
    expected = ids(first)
    taken = []
    for batch in first:
        taken.append(batch.tolist())
        if len(taken) == 2:
            saves.save_state(str(folder / name))
            break
    saves.wait_for_everyone()
    loads.load_state(str(folder / name))
    files = sorted(each.name for each in (folder / name).iterdir() if "dl_" in each.name)
    rest = ids(second)
    expected = ids(prepared(accelerator({}), twice())) if expected else []
    return files, [sorted(batch) for batch in taken] + rest == expected


def twice() -> Any:
    """A loader that has given an epoch before."""
    made = ours("generator")
    for _ in prepared(accelerator({}), made):
        pass
    return made


def of_global_batch(config: str) -> Any:
    """A loader whose steps have 8 samples of all processes."""
    size = 8 if config == "split" else 8 // dist.get_world_size()
    made = ours("generator", "threads", batch_size=size)
    return prepared(accelerator(CONFIGS[config]), made)


def moved(folder: Path, config: str, before: int) -> Any:
    """The steps at which a state of another number of processes gives something else."""
    torch.manual_seed(3)
    taken, places = whole(of_global_batch(config))
    saved = folder / f"{config}-{before}.json"
    if before == dist.get_world_size():
        if dist.get_rank() == 0:
            saved.write_text(json.dumps([each.state for each in places]))
        return True
    wrong: list[Any] = []
    for step, state in enumerate(json.loads(saved.read_text())[:-1]):
        again = of_global_batch(config)
        again.load_state_dict(state)
        rest = ids(again)
        rest += [] if step + len(rest) == len(taken) else ids(again)
        if rest != taken[step:]:
            wrong.append([step, rest, taken[step:]])
    return wrong or True


class Fails(Numbers):
    """A sample of the third batch raises."""

    def __getitem__(self, number: int) -> torch.Tensor:
        if number == 4 * (2 * dist.get_world_size()):
            raise ValueError("a sample fails")
        return super().__getitem__(number)


def failed(way: str) -> Any:
    """Accelerate reads a batch ahead: an error takes the place of the one before, too."""
    expected = ids(prepared(accelerator({}), ours("in order", way)))
    first = prepared(accelerator({}), ours("in order", way, Fails()))
    taken, kept = [], None
    try:
        for batch in first:
            taken.append(sorted(batch.tolist()))
    except ValueError as raised:
        kept = raised
    is_first = dist.get_rank() == 0  # which has the sample
    assert is_first == (kept is not None)
    assert multiprocessing.active_children() == []
    again = prepared(accelerator({}), ours("in order", way))
    again.load_state_dict(first.state_dict())
    return [taken, taken + ids(again)] == [
        expected[: 1 if is_first else None],
        expected if is_first else expected * 2,
    ]


class Draws(Numbers):
    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor(sample_rng().random())


def seeds() -> Any:
    """What samples draw in the epoch after a state, with a sampler that gets its epoch."""
    torch.manual_seed(3)
    first = prepared(accelerator({}), divided(Draws()))
    ids(first)
    state = first.state_dict()
    expected = ids(first)
    torch.manual_seed(99)
    again = prepared(accelerator({}), divided(Draws()))
    again.load_state_dict(state)
    return ids(again) == expected


def writes(folder: Path) -> Any:
    """Whether this process writes the state where Accelerate saves, and on each node; and whether
    it loads it."""
    trains = accelerator({})
    loader = prepared(trains, ours("in order"))
    told = []
    for on_each_node in (False, True):
        trains.project_configuration.save_on_each_node = on_each_node
        trains.save_state(str(folder / f"writes-{on_each_node}"))
        told.append(loader.use_stateful_dataloader)
    trains.wait_for_everyone()
    trains.load_state(str(folder / "writes-False"))
    return [*told, loader.use_stateful_dataloader]
