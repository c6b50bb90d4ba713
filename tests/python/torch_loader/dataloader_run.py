"""Runs one cell of the DataLoader's matrix: every batch against torch's DataLoader."""

from __future__ import annotations

import gc
import json
import pickle
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils.data
from dataloader_cells import ITERABLE, is_defined
from folder_data import fixed
from map_data import WAYS, Batches, Fails, Numbers, plain
from matrix_cells import Cell
from stateful_data import NoState, OwnState
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    Subset,
    WeightedRandomSampler,
    random_split,
)

import headrace as hr
from headrace.torch import DataLoader

EPOCHS = 3
COUNT = 37
EPOCH_SIZE = 10

READS: dict[str, dict[str, Any]] = {
    "loop": WAYS["direct"],
    "threads": {"num_workers": 2, "pool_size": 16, "worker_method": "thread"},
    **{name: WAYS[name] for name in ("processes", "persistent", "pool")},
    "auto": {"num_workers": 2, "pool_size": "auto"},
    "persistent-pool": WAYS["persistent"] | WAYS["pool"],
}
DELIVERY: dict[str, dict[str, Any]] = {
    "in-order": {},
    "as-ready": {"in_order": False},
    "arrival": {"fetch": "arrival"},
}
MOVES = {
    "loop": "threads",
    "threads": "processes",
    "processes": "loop",
    "persistent": "persistent-pool",
    "pool": "processes",
    "auto": "loop",
}


@dataclass(frozen=True)
class Given:
    """What cells read."""

    table: hr.Dataset
    images: Any
    """A torchvision ImageFolder."""


class Restorable(OwnState):
    """An iterable dataset with a state."""

    def __iter__(self) -> Iterator[Any]:
        return (number for number, *_ in super().__iter__())


class Chunks(Sampler[Any]):
    """The next `size` keys of a sampler that begins anew when it ends: what epoch_size= is."""

    def __init__(self, sampler: Any, size: int) -> None:
        self.sampler, self.size = sampler, size
        self.keys: list[Any] = []

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Any]:
        while len(self.keys) < self.size:
            self.keys += self.sampler
        chunk, self.keys = self.keys[: self.size], self.keys[self.size :]
        yield from chunk


class Run:
    """One cell."""

    def __init__(self, cell: Cell, given: Given) -> None:
        self.cell, self.given = cell, given
        self.is_map = cell["dataset"] not in ITERABLE

    def check(self) -> None:
        """Raises AssertionError if a batch is wrong, and what the loader raises."""
        run = self.cell["run"]
        if run in ("resumed", "moved"):
            self._check_resumed()
            return
        expected = self._expected(leave=run == "left")
        torch.manual_seed(5)
        with closing(self._ours()) as loader:
            if run == "copied":
                loader.close()
                loader = pickle.loads(pickle.dumps(loader))
            with closing(loader):
                found = self._epochs(loader, leave=run == "left")
                if not is_defined(self.cell):
                    return
                self._compare(found, expected)
                lengths = length_of(loader), length_of(self._torchs())
                assert lengths[0] == lengths[1], lengths

    def refuse(self) -> None:
        """Makes a loader, copies it or loads its state; does not compare."""
        with closing(self._ours()) as loader:
            if self.cell["run"] == "copied":
                self._outcomes(pickle.loads(pickle.dumps(loader)), 1)
            if self.cell["run"] in ("resumed", "moved"):
                self._outcomes(loader, 1)
                with closing(self._ours()) as second:
                    second.load_state_dict(loader.state_dict())

    def _check_resumed(self) -> None:
        expected = self._expected(leave=False)
        chance = zlib.crc32(json.dumps(self.cell).encode())
        epoch = chance % 2
        step = chance // 2 % (len(expected[epoch]) + 1)
        torch.manual_seed(5)
        with closing(self._ours()) as first:
            for earlier in range(epoch):
                self._begin(first, earlier)
                self._compare([self._outcomes(first)], [expected[earlier]])
            self._begin(first, epoch)
            iterator = iter(first)
            taken = [outcome for _ in range(step) for outcome in self._outcomes(iterator, 1)]
            state = first.state_dict()
            del iterator
        state = json.loads(json.dumps(state))
        torch.manual_seed(77)  # As in another process.
        how = READS[self._moves_to] if self.cell["run"] == "moved" else None
        with closing(self._ours(how)) as second:
            second.load_state_dict(state)
            if step == len(expected[epoch]):
                self._compare([taken], [expected[epoch]])
                taken, epoch = [], epoch + 1
            while taken and is_failure(taken[-1]):  # Not counted until a later one came.
                taken.pop()
            self._begin(second, epoch)
            found = [taken + self._outcomes(second)]
            for later in range(epoch + 1, EPOCHS):
                self._begin(second, later)
                found.append(self._outcomes(second))
        self._compare(found, expected[epoch:])

    @property
    def _moves_to(self) -> str:
        """How the second loader of a cell that moves reads."""
        before = self.cell["reads"]
        if not self.is_map:  # Each worker has a part, so their number stays.
            return {"processes": "persistent", "persistent": "processes"}.get(before, before)
        if before == "processes" and self.cell["delivery"] == "arrival":
            return "pool"
        return MOVES[before]

    # Loaders.

    def _ours(self, how: dict[str, Any] | None = None) -> DataLoader:
        arguments = self._arguments()
        if self.cell["epoch_size"] != "none":
            arguments["epoch_size"] = EPOCH_SIZE
        how = READS[self.cell["reads"]] if how is None else how
        return DataLoader(self._dataset(), **arguments, **how, **DELIVERY[self.cell["delivery"]])

    def _torchs(self) -> torch.utils.data.DataLoader[Any]:
        """One that reads in the loop, but if workers make a difference."""
        arguments = self._arguments()
        if self.cell["epoch_size"] != "none":
            sampler = arguments.pop("sampler", None)
            if sampler is None and arguments.pop("shuffle", False):
                sampler = RandomSampler(self._dataset(), generator=arguments.get("generator"))
            elif sampler is None:
                sampler = range(len(self._dataset()))
            arguments["sampler"] = Chunks(sampler, EPOCH_SIZE)
        if self.cell["run"] == "left":  # What is drawn ahead, and lost, depends on them.
            arguments["num_workers"] = READS[self.cell["reads"]].get("num_workers", 0)
        if not self.is_map or self.cell["reads"] == "persistent":  # Its base seed is drawn once.
            arguments |= READS[self.cell["reads"]]
        return torch.utils.data.DataLoader(self._dataset(), **arguments)

    def _arguments(self) -> dict[str, Any]:
        cell, made = self.cell, {}
        size = None if cell["batch_size"] == "none" else int(cell["batch_size"])
        generator = torch.Generator().manual_seed(11) if cell["generator"] == "own" else None
        draw = cell["draw"]
        made = {"batch_size": size, "drop_last": cell["drop_last"] == "yes"}
        if generator is not None:
            made["generator"] = generator
        if cell["collate"] == "own":
            made["collate_fn"] = as_given
        if draw == "in-order":
            return made
        if draw == "shuffle":
            return made | {"shuffle": True}
        count = len(self._dataset()) if self.is_map else COUNT
        if draw == "weighted":
            weights = torch.arange(count) + 1.0
            return made | {"sampler": WeightedRandomSampler(weights, 17, generator=generator)}
        if draw == "replacement":  # Draws from its generator now and then.
            own = torch.Generator().manual_seed(7) if generator is None else generator
            return made | {"sampler": RandomSampler(range(count), True, 70, generator=own)}
        if draw == "list":
            return made | {"sampler": [5, 5, *range(count - 1, 0, -3)]}
        if draw == "distributed":
            return made | {"sampler": DistributedSampler(range(count), 2, 1, seed=4)}
        del made["batch_size"]
        inner = RandomSampler(range(count), generator=torch.Generator().manual_seed(3))
        return made | {"batch_sampler": BatchSampler(inner, 6, False)}

    def _dataset(self) -> Any:
        name = self.cell["dataset"]
        if name == "nested":
            split, _ = random_split(Numbers(COUNT), [20, 17], torch.Generator().manual_seed(2))
            return ConcatDataset([Subset(split, range(1, 19)), Numbers(3)])
        made = {
            "numbers": lambda: Numbers(COUNT),
            "fails": lambda: Fails(COUNT, {6: OSError, 22: OSError}),
            "arrays": lambda: self.given.table,
            "images": lambda: self.given.images,
            "batched": lambda: Batches(COUNT),
            "iterable": NoState,
            "own-state": Restorable,
        }
        return made[name]()

    # What they give.

    def _expected(self, *, leave: bool) -> list[list[Any]]:
        torch.manual_seed(5)
        found = self._epochs(self._torchs(), leave=leave)
        gc.collect()  # An error keeps torch's persistent workers.
        return found

    def _begin(self, loader: Any, epoch: int) -> None:
        if self.cell["draw"] == "distributed":
            if isinstance(loader, DataLoader):
                loader.set_epoch(epoch)
            else:
                sampler = loader.sampler
                getattr(sampler, "sampler", sampler).set_epoch(epoch)

    @property
    def _left_at(self) -> int:
        """The step at which a cell leaves its first epoch."""
        return zlib.crc32(json.dumps(self.cell).encode()) % 6

    def _epochs(self, loader: Any, *, leave: bool) -> list[list[Any]]:
        """The outcomes of each epoch. If `leave`, the first is left early."""
        found = []
        for epoch in range(EPOCHS):
            self._begin(loader, epoch)
            found.append(self._outcomes(loader, self._left_at if leave and not epoch else None))
        return found

    def _outcomes(self, loader: Any, count: int | None = None) -> list[Any]:
        """Batches, and errors in their places."""
        found: list[Any] = []
        iterator = iter(loader)
        while count is None or len(found) < count:
            try:
                batch = next(iterator)
            except StopIteration:
                break
            except OSError as error:
                found.append(type(error).__name__)
                continue
            if self.cell["delivery"] == "arrival" and self._makes_batches:
                found.append(sorted(self._rows_of(batch), key=repr))
            else:
                found.append(plain(batch))
        return found

    @property
    def _makes_batches(self) -> bool:
        return self.cell["batch_size"] != "none" or self.cell["draw"] == "batch-sampler"

    def _rows_of(self, batch: Any) -> list[Any]:
        """The samples of a batch."""
        if self.cell["collate"] == "own":
            return [plain(sample) for sample in batch]
        return [row(batch, number) for number in range(rows(batch))]

    def _compare(self, found: list[list[Any]], expected: list[list[Any]]) -> None:
        """Of each epoch."""
        assert len(found) == len(expected)
        for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            if self.cell["delivery"] == "as-ready":
                if self.cell["run"] == "left" and number == 0:
                    continue  # Its first batches may be any.
                ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
            assert ours == theirs, (
                f"epoch {number} of those compared:\n{brief(ours)}\ninstead of\n{brief(theirs)}"
            )


def brief(outcomes: list[Any]) -> str:
    return "\n".join(repr(outcome)[:150] for outcome in outcomes)


def as_given(samples: Any) -> Any:
    """A collate_fn, or the conversion of a sample that is a batch by itself."""
    return samples


def rows(batch: Any) -> int:
    """Samples of a batch that default_collate made."""
    if isinstance(batch, torch.Tensor):
        return len(batch)
    return rows(next(iter(batch.values() if isinstance(batch, dict) else batch)))


def row(batch: Any, number: int) -> Any:
    """One of them."""
    if isinstance(batch, dict):
        return {name: row(each, number) for name, each in batch.items()}
    if isinstance(batch, torch.Tensor) or isinstance(batch[0], str):
        return plain(batch[number])
    return [row(each, number) for each in batch]


def is_failure(outcome: Any) -> bool:
    return outcome == "OSError"


def length_of(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def image_folder(vision: Any, images: Path) -> Any:
    """torchvision's."""
    return vision.ImageFolder(str(images), transform=fixed)
