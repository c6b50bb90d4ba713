"""The same samples, bytes and structures as torch's DataLoader, in the same order."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.utils.data
from map_data import WAYS, Batches, Draws, Numbers, OnlyIds, Ragged, plain
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)

from headrace.torch import DataLoader
from headrace.torch._dataloader import pinning

COUNT = 37
EPOCHS = 3


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def arguments(name: str) -> dict[str, Any]:
    """New samplers, with generators in the same state."""
    data, weights = OnlyIds(COUNT), torch.arange(COUNT) + 1.0
    made: dict[str, Any] = {
        "in order": {"batch_size": 4},
        "drop_last": {"batch_size": 4, "drop_last": True, "shuffle": True},
        "shuffled": {"batch_size": 5, "shuffle": True},
        "generator": {"batch_size": 5, "shuffle": True, "generator": seeded()},
        "one by one": {"batch_size": None, "shuffle": True, "generator": seeded()},
        "weighted": {"batch_size": 4, "sampler": WeightedRandomSampler(weights, 50)},
        "subset": {"batch_size": 4, "sampler": SubsetRandomSampler(range(0, 30, 2), seeded())},
        "lazy": {
            "batch_size": 4,
            "sampler": RandomSampler(data, True, 100, generator=(own := seeded())),
            "generator": own,
        },
        "batches": {
            "batch_sampler": BatchSampler(RandomSampler(data, generator=seeded()), 6, False)
        },
        "lists": {"batch_sampler": [[3, 1], [2], [36, 36, 0]]},
        "list": {"batch_size": 2, "sampler": [5, 5, 1]},
        "distributed": {"batch_size": 3, "sampler": DistributedSampler(data, 2, 1, seed=4)},
    }
    return dict(made[name])


NAMES = [
    *("in order", "drop_last", "shuffled", "generator", "one by one", "weighted", "subset"),
    *("lazy", "batches", "lists", "list", "distributed"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_the_samples_are_those_of_torch_in_its_order(name: str, way: str) -> None:
    expected = of_torch(name, 2 if WAYS[way] else 0, way == "persistent")
    torch.manual_seed(5)
    ours = DataLoader(OnlyIds(COUNT), **arguments(name), **WAYS[way])
    assert epochs_of(ours, name) == expected
    ours.close()


@functools.cache
def of_torch(name: str, workers: int, persist: bool) -> Any:
    torch.manual_seed(5)
    how = {"num_workers": workers, "persistent_workers": persist}
    theirs = torch.utils.data.DataLoader(OnlyIds(COUNT), **arguments(name), **how)
    return epochs_of(theirs, name)


def epochs_of(loader: torch.utils.data.DataLoader[Any], name: str) -> Any:
    """Samples of some epochs, and that torch's global generator goes on equally between them."""
    found: list[Any] = []
    for epoch in range(EPOCHS):
        if name == "distributed":
            loader.sampler.set_epoch(epoch)  # type: ignore[union-attr]
        found += [plain(batch) for batch in loader]
        found.append(int(torch.randint(10**6, ())))
    try:
        return found, len(loader)
    except TypeError:
        return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch_size", [1, 4, 7, 100, None])
def test_batches_have_the_types_dtypes_and_values_of_torch(
    way: str, batch_size: int | None
) -> None:
    data = Numbers(COUNT)
    expected = [plain(batch) for batch in torch.utils.data.DataLoader(data, batch_size)]
    with_ours = DataLoader(data, batch_size, **WAYS[way])
    assert [plain(batch) for batch in with_ours] == expected
    with_ours.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_collate_fn_gets_the_samples_of_the_batch(way: str) -> None:
    ours = DataLoader(Ragged(9), 4, collate_fn=as_lists, **WAYS[way])
    assert list(ours) == [
        [[0], [1, 1], [2, 2, 2], [3]],
        [[4, 4], [5, 5, 5], [6], [7, 7]],
        [[8, 8, 8]],
    ]
    ours.close()


def as_lists(samples: list[torch.Tensor]) -> list[list[int]]:
    return [sample.tolist() for sample in samples]


class Mixed(OnlyIds):
    """int in the first half of a batch of 4, float in the other: parts of other dtypes."""

    def __getitem__(self, number: int) -> Any:
        return number if number % 4 < 2 else float(number)


@pytest.mark.parametrize("way", WAYS)
def test_parts_of_other_dtypes_make_the_batch_of_torch(way: str) -> None:
    expected = [plain(batch) for batch in torch.utils.data.DataLoader(Mixed(11), 4)]
    ours = DataLoader(Mixed(11), 4, **WAYS[way])
    assert [plain(batch) for batch in ours] == expected
    ours.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("subset", [False, True])
def test_a_dataset_that_reads_batches_is_asked_for_batches(way: str, subset: bool) -> None:
    data = Batches(11)
    given = Subset(data, range(1, 11)) if subset else data
    expected = [plain(batch) for batch in torch.utils.data.DataLoader(given, 4)]
    ours = DataLoader(given, 4, **WAYS[way])
    assert [plain(batch) for batch in ours] == expected
    ours.close()


@pytest.mark.parametrize("way", WAYS)
def test_subsets_and_splits_give_what_torch_gives(way: str) -> None:
    split, _ = random_split(Numbers(COUNT), [20, 17], generator=seeded())
    joined = torch.utils.data.ConcatDataset([split, Numbers(3)])
    kwargs: dict[str, Any] = {"batch_size": 6, "shuffle": True}
    theirs = torch.utils.data.DataLoader(joined, generator=seeded(), **kwargs)
    ours = DataLoader(joined, generator=seeded(), **kwargs, **WAYS[way])
    assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs]
    ours.close()


class Bulk(OnlyIds):
    """Is asked for lists, by a sampler of lists without automatic batching."""

    def __getitem__(self, numbers: Any) -> Any:
        return torch.tensor(numbers)


@pytest.mark.parametrize("way", WAYS)
def test_keys_may_be_lists_without_automatic_batching(way: str) -> None:
    lists = BatchSampler(SequentialSampler(range(11)), 4, False)
    expected = [plain(each) for each in torch.utils.data.DataLoader(Bulk(11), None, sampler=lists)]
    ours = DataLoader(Bulk(11), None, sampler=lists, **WAYS[way])
    assert [plain(batch) for batch in ours] == expected
    ours.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_key_may_come_twice_in_a_batch_and_a_batch_may_be_empty(way: str) -> None:
    ours = DataLoader(OnlyIds(9), batch_sampler=[[1, 1, 1], [], [2]], collate_fn=list, **WAYS[way])
    assert list(ours) == [[1, 1, 1], [], [2]]
    ours.close()


class Keyed:
    """A dataset with keys of another type, and no length."""

    def __getitem__(self, key: str) -> str:
        return key.upper()


class Keys:
    def __iter__(self) -> Iterator[str]:
        return iter("abcdefg")

    def __len__(self) -> int:
        return 7


@pytest.mark.parametrize("way", WAYS)
def test_keys_may_be_of_any_type(way: str) -> None:
    ours = DataLoader(Keyed(), 3, sampler=Keys(), **WAYS[way])
    assert list(ours) == [["A", "B", "C"], ["D", "E", "F"], ["G"]]
    ours.close()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("more", [{"num_workers": 1}, {"num_workers": 3}, {"num_workers": 2}])
def test_what_samples_draw_in_processes_depends_on_base_seed_and_place_only(
    more: dict[str, int],
) -> None:
    def drawn(**how: Any) -> Any:
        loader = DataLoader(Draws(23), 5, shuffle=True, generator=seeded(), **how)
        return [plain(batch) for _ in range(2) for batch in loader]

    once = drawn(num_workers=2)
    assert drawn(**more) == once
    values = [value for batch in once for value in batch[1][2][2]]
    assert len(set(values)) == 2 * 23  # No two samples draw the same.


@pytest.mark.parametrize("way", WAYS)
def test_the_generator_of_a_sample_is_the_same_in_every_way_to_read(way: str) -> None:
    def drawn(**how: Any) -> Any:
        loader = DataLoader(Draws(23), 5, shuffle=True, generator=seeded(), **how)
        values = [[(batch[0].tolist(), batch[4].tolist()) for batch in loader] for _ in range(2)]
        loader.close()
        return values

    found, expected = drawn(**WAYS[way]), drawn()
    assert found[0] == expected[0]
    if way == "persistent":  # torch draws no seed for the second epoch, but it is another.
        draws = [{value for _, values in epoch for value in values} for epoch in found]
        assert not draws[0] & draws[1]
        return
    assert found[1] == expected[1]


def test_without_workers_samples_draw_what_they_draw_with_torch() -> None:
    class GlobalDraws(Numbers):
        def __getitem__(self, number: int) -> Any:
            return number, torch.rand(2)

    torch.manual_seed(3)
    theirs = torch.utils.data.DataLoader(GlobalDraws(9), 4, shuffle=True)
    expected = [plain(batch) for batch in theirs]
    torch.manual_seed(3)
    assert [plain(batch) for batch in DataLoader(GlobalDraws(9), 4, shuffle=True)] == expected


def test_attributes_are_those_of_torch() -> None:
    data = OnlyIds(8)
    ours = DataLoader(data, 4, num_workers=2, worker_method="thread", prefetch_factor=3)
    theirs = torch.utils.data.DataLoader(data, 4, num_workers=2, prefetch_factor=3)
    for name, value in vars(theirs).items():
        mine = getattr(ours, name)
        assert type(mine) is type(value), name
        if isinstance(value, (int, str, float, type(None))) or name in ("dataset", "collate_fn"):
            assert mine == value, name
    assert isinstance(ours, torch.utils.data.DataLoader)
    assert isinstance(ours.sampler, SequentialSampler)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        ours.batch_size = 3


@pytest.mark.parametrize("way", ["direct", "threads"])
def test_pin_memory_pins_or_warns_as_torch(way: str) -> None:
    loader = DataLoader(Numbers(4), 2, pin_memory=True, **WAYS[way])
    if torch.cuda.is_available():
        assert all(batch[0].is_pinned() and batch[4]["half"].is_pinned() for batch in loader)
        return
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no acc"):
        iterator = iter(loader)
    assert [batch[2].tolist() for batch in iterator] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("way", sorted(WAYS.keys() - {"direct"}))
def test_batches_are_pinned_ahead_of_the_loop(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device that is not there."""
    by: list[tuple[str, int | None]] = []
    device = threading.local()

    def pin(batch: Any, kind: str) -> Any:
        assert kind == "pretended"
        if batch[2][0] == 12:
            raise MemoryError("no memory to pin")
        by.append((threading.current_thread().name, getattr(device, "number", None)))
        return [*batch, "pinned"]

    backend = SimpleNamespace(
        current_device=lambda: 3, set_device=lambda number: setattr(device, "number", number)
    )
    monkeypatch.setattr(pinning, "_accelerator", lambda: "pretended")
    monkeypatch.setattr(pinning, "pin_memory", pin)
    monkeypatch.setattr(torch, "pretended", backend, raising=False)
    with contextlib.closing(DataLoader(Numbers(16), 4, pin_memory=True, **WAYS[way])) as loader:
        batches = iter(loader)
        for first in (0, 4, 8):
            batch = next(batches)
            assert batch[2].tolist() == list(range(first, first + 4))
            assert batch[5] == "pinned"
        with pytest.raises(MemoryError, match="no memory to pin"):
            next(batches)
        assert next(batches, None) is None
    assert len(by) == 3
    assert all(name.startswith("headrace-dataloader-") and number == 3 for name, number in by)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
@pytest.mark.parametrize("way", WAYS)
def test_pinned_batches_copied_to_a_gpu_are_those_of_torch(way: str) -> None:
    def batches(kind: Any, **arguments: Any) -> list[Any]:
        found = []
        for batch in kind(Numbers(64), 8, pin_memory=True, **arguments):
            assert batch[0].is_pinned()
            assert batch[4]["half"].is_pinned()
            moved = batch[0].to("cuda", non_blocking=True)
            torch.cuda.synchronize()
            found.append((moved.cpu().tolist(), batch[2].tolist(), batch[3]))
        return found

    expected = batches(torch.utils.data.DataLoader, num_workers=2)
    assert batches(DataLoader, **WAYS[way]) == expected


def test_batches_are_not_those_of_a_reused_memory() -> None:
    """All batches of an epoch are kept, and stay as they were."""
    kept = list(DataLoader(Numbers(64), 8, num_workers=2))
    assert [batch[2].tolist() for batch in kept] == [
        list(range(first, first + 8)) for first in range(0, 64, 8)
    ]
    assert all((batch[0][:, 0, 0] == batch[2]).all() for batch in kept)
