"""Rinas's unordered fetcher: batches have the same samples, in the order in which they arrived."""

from __future__ import annotations

import threading
import traceback
from typing import Any

import pytest
import torch
from map_data import WAYS, Fails, OnlyIds, Ragged, ids
from torch.utils.data import Dataset

from headrace.torch import DataLoader
from headrace.torch._dataloader.iterations.thread_reader import ThreadReader

ARRIVALS: dict[str, dict[str, Any]] = {
    name: {**WAYS[name], "fetch": "arrival"} for name in ("threads", "processes", "pool")
}


class Gated(OnlyIds):
    """The first sample of each batch of three waits until the other two have arrived."""

    def __init__(self) -> None:
        super().__init__(9)
        self.arrived = [threading.Semaphore(0) for _ in range(3)]

    def __getitem__(self, number: int) -> int:
        batch, slot = divmod(number, 3)
        if slot == 0:
            for _ in range(2):
                self.arrived[batch].acquire()
        return number


@pytest.mark.parametrize("fetch", ["order", "arrival"])
def test_a_late_sample_comes_last_by_arrival_and_in_its_slot_in_order(
    fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Gated()
    put = ThreadReader._put

    def told(self: ThreadReader, batch: Any, slot: int, samples: list[Any]) -> bool:
        filled = put(self, batch, slot, samples)
        data.arrived[batch.drawn.number].release()
        return filled

    monkeypatch.setattr(ThreadReader, "_put", told)
    found = ids(DataLoader(data, 3, num_workers=4, worker_method="thread", fetch=fetch))
    assert [sorted(batch) for batch in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    late = -1 if fetch == "arrival" else 0
    assert [batch[late] for batch in found] == [0, 3, 6]


@pytest.mark.parametrize("way", ARRIVALS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_the_sets_of_the_ordered_ones(way: str, drop_last: bool) -> None:
    def loader(**how: Any) -> DataLoader:
        generator = torch.Generator().manual_seed(2)
        return DataLoader(
            OnlyIds(47), 6, shuffle=True, generator=generator, drop_last=drop_last, **how
        )

    ordered, arrived = loader(), loader(**ARRIVALS[way])
    for _ in range(2):
        assert [sorted(batch) for batch in ids(arrived)] == [
            sorted(batch) for batch in ids(ordered)
        ]


@pytest.mark.parametrize("way", ARRIVALS)
def test_ragged_samples_and_rows_that_fail_are_right_by_arrival(way: str) -> None:
    how = ARRIVALS[way]
    padded = DataLoader(Ragged(12), 4, collate_fn=pad, **how)
    for first, (numbers, sizes) in enumerate(padded):
        assert sorted(numbers) == list(range(first * 4, first * 4 + 4))
        assert sizes == [number % 3 + 1 for number in numbers]
    fails = DataLoader(Fails(12, {5: lambda: OSError("no such file")}), 4, **how)
    iterator = iter(fails)
    assert sorted(next(iterator).tolist()) == [0, 1, 2, 3]
    with pytest.raises(OSError, match="no such file") as caught:
        next(iterator)
    assert "reading sample 5 " in "".join(traceback.format_exception(caught.value))
    assert [sorted(batch.tolist()) for batch in iterator] == [[8, 9, 10, 11]]


def pad(samples: list[torch.Tensor]) -> tuple[list[int], list[int]]:
    return [int(sample[0]) for sample in samples], [len(sample) for sample in samples]


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_a_state_by_arrival_loses_and_repeats_nothing(way: str) -> None:
    def loader() -> DataLoader:
        generator = torch.Generator().manual_seed(2)
        return DataLoader(OnlyIds(23), 4, shuffle=True, generator=generator, **ARRIVALS[way])

    expected = [sorted(batch) for batch in ids(loader())]
    first = loader()
    iterator = iter(first)
    next(iterator), next(iterator)
    second = loader()
    second.load_state_dict(first.state_dict())
    assert [sorted(batch) for batch in ids(second)] == expected[2:]


@pytest.mark.parametrize("way", ["threads", "processes"])
def test_batches_out_of_order_are_all_there_and_a_state_names_those_ahead(way: str) -> None:
    def loader() -> DataLoader:
        return DataLoader(OnlyIds(23), 2, in_order=False, **WAYS[way])

    expected = [[n for n in (first, first + 1) if n < 23] for first in range(0, 23, 2)]
    assert sorted(ids(loader())) == expected
    first = loader()
    iterator = iter(first)
    taken = [next(iterator).tolist() for _ in range(5)]
    second = loader()
    second.load_state_dict(first.state_dict())
    assert sorted(taken + ids(second)) == expected


def test_a_batch_that_is_ready_overtakes_one_that_waits() -> None:
    data = Waits()
    loader = DataLoader(data, 1, num_workers=2, worker_method="thread", in_order=False)
    iterator = iter(loader)
    found = [int(next(iterator)) for _ in range(3)]
    assert found == [1, 2, 3]
    state = loader.state_dict()
    assert (state["batches"], state["ahead"]) == (0, [1, 2, 3])
    data.may_go.set()
    assert int(next(iterator)) == 0
    again = DataLoader(data, 1, num_workers=2, worker_method="thread", in_order=False)
    again.load_state_dict(state)
    assert ids(again) == [[0]]


class Waits(Dataset[int]):
    def __init__(self) -> None:
        self.may_go = threading.Event()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> int:
        if number == 0:
            self.may_go.wait()
        return number
