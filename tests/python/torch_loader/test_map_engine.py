"""Datasets of headrace and their subsets: read by the engine, with what torch gives for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from map_data import plain
from torch.utils.data import ConcatDataset, Subset, random_split

import headrace as hr
from headrace._loading.feed import EpochFeed
from headrace.torch import DataLoader
from headrace.torch._dataloader.native.arrays import ArrayReader
from headrace.torch._dataloader.native.listed_reader import ListedReader

COUNT = 53


def write_table(path: Path, first: int, count: int) -> hr.Dataset:
    pa = pytest.importorskip("pyarrow")
    numbers = range(first, first + count)
    rows = {
        "number": pa.array(numbers, pa.int64()),
        "half": pa.array(np.array(numbers) / 2),
        "text": pa.array([f"sample {number}" for number in numbers]),
    }
    table = pa.table(rows)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    return hr.open(path)


@pytest.fixture
def table(tmp_path: Path) -> hr.Dataset:
    """Numbers and texts."""
    return write_table(tmp_path / "rows.arrow", 0, COUNT)


@pytest.fixture
def more(tmp_path: Path) -> hr.Dataset:
    """As `table`, other rows."""
    return write_table(tmp_path / "more.arrow", 1000, 21)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def given(name: str, table: hr.Dataset, more: hr.Dataset) -> Any:
    if name == "all":
        return table
    if name == "joined":
        return ConcatDataset([more, table])
    if name == "nested":
        joined = ConcatDataset([Subset(table, [5, -2, 9]), more, table])
        return Subset(joined, [-1, *range(30), 2])
    if name == "subset":
        return Subset(Subset(table, range(3, 50)), [-1, *range(40, 0, -2), 5])
    return random_split(table, [30, COUNT - 30], generator=seeded())[0]


@pytest.mark.parametrize("name", ["all", "subset", "split", "joined", "nested"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_engine_gives_what_torch_gives(
    name: str, shuffle: bool, table: hr.Dataset, more: hr.Dataset
) -> None:
    data = given(name, table, more)
    theirs = torch.utils.data.DataLoader(data, 8, shuffle=shuffle, generator=seeded())
    ours = DataLoader(data, 8, shuffle=shuffle, generator=seeded(), num_workers=2)
    for _ in range(3):
        assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs]
    assert ours.stats()["reader"] == "engine"
    ours.close()


@pytest.mark.parametrize("name", ["all", "joined"])
def test_the_engine_goes_on_at_every_step(name: str, table: hr.Dataset, more: hr.Dataset) -> None:
    data = given(name, table, more)

    def loader(**how: Any) -> DataLoader:
        return DataLoader(data, 8, shuffle=True, **how)

    torch.manual_seed(1)
    theirs = torch.utils.data.DataLoader(data, 8, shuffle=True)
    expected = [[plain(batch) for batch in theirs] for _ in range(2)]
    for step in range(len(expected[0]) + 1):
        torch.manual_seed(1)
        with_engine = loader()
        iterator = iter(with_engine)
        for _ in range(step):
            next(iterator)
        state = with_engine.state_dict()
        torch.manual_seed(2)
        threads = loader(num_workers=2, worker_method="thread")  # Without the engine.
        engine = loader()
        for each in (threads, engine):
            torch.manual_seed(2)
            each.load_state_dict(state)
            assert [plain(batch) for batch in each] == (expected[0][step:] or expected[1])
            each.close()
        assert threads.stats()["reader"] == "threads"
        with_engine.close()


@pytest.mark.parametrize("name", ["all", "joined"])
def test_the_end_of_an_epoch_leaves_nothing_to_stop(
    name: str, table: hr.Dataset, more: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python loses a Ctrl-C in __del__, and stopping takes time."""
    left: list[int] = []
    monkeypatch.setattr(EpochFeed, "_leave", lambda self, iteration: left.append(iteration))
    loader = DataLoader(given(name, table, more), 8, shuffle=True)
    assert len(list(loader)) == len(loader)
    assert left == []
    loader.close()


@pytest.mark.timeout(30)  # It comes though the loop waits.
def test_ctrl_c_while_an_iteration_is_dropped_comes_after_it(
    table: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: EpochFeed, iteration: int) -> None:
        raise KeyboardInterrupt

    with hr.Loader(table, 8) as loader:
        iterator = iter(loader)
        next(iterator)
        monkeypatch.setattr(EpochFeed, "_leave", interrupted)
        del iterator
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(60)
        monkeypatch.undo()


def test_what_the_engine_would_give_in_another_form_is_read_by_the_dataset(
    table: hr.Dataset, numbered: Path
) -> None:
    assert ArrayReader.of(hr.open(numbered)) is None
    ours = DataLoader(table, 8, collate_fn=list)
    assert next(iter(ours))[3] == table[3]
    assert ours.stats()["reader"] == "loop"


class Endless:
    def __iter__(self) -> Iterator[list[int]]:
        return ([first % COUNT, 5] for first in count())


def test_an_endless_sampler_is_drawn_as_batches_are_taken(table: hr.Dataset) -> None:
    iterator = iter(DataLoader(table, batch_sampler=Endless()))
    assert [next(iterator)["number"].tolist() for _ in range(60)][57:] == [[4, 5], [5, 5], [6, 5]]


def test_statistics_are_of_the_engine_that_reads(table: hr.Dataset) -> None:
    loader = DataLoader(table, 8)
    list(loader)
    found = loader.stats()
    assert (found["reader"], found["batches"]) == ("engine", 7)
    assert found["engine"]["verdict"] != ""
    loader.close()


def test_parts_of_other_fields_are_read_by_the_datasets(table: hr.Dataset, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    rows = {"number": pa.array(range(9), pa.int32())}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "other.parquet")
    data = ConcatDataset([hr.open(tmp_path / "other.parquet"), table])
    loader = DataLoader(data, 3, sampler=range(9))
    assert [batch["number"].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert loader.stats()["reader"] == "loop"


def test_two_iterations_at_once(table: hr.Dataset) -> None:
    loader = DataLoader(table, 8)
    expected = [plain(batch) for batch in loader]
    one = iter(loader)
    found = [plain(next(one))]
    assert [plain(batch) for batch in loader] == expected
    assert found + [plain(batch) for batch in one] == expected
    loader.close()


@pytest.mark.parametrize("name", ["all", "joined"])
def test_after_a_batch_that_fails_the_next_one_comes(
    name: str, table: hr.Dataset, more: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(given(name, table, more), 8)
    expected = [plain(batch) for batch in loader]
    begin, fails = ListedReader.begin, [3]

    def failing(reader: ListedReader, batches: Any, epoch: int) -> Iterator[Any]:
        for number, batch in enumerate(begin(reader, batches, epoch), 1):
            if fails and number == fails[0]:
                raise hr.errors.DataLossError(f"batch {fails.pop()}")
            yield batch

    monkeypatch.setattr(ListedReader, "begin", failing)
    iterator = iter(loader)
    found = [plain(next(iterator)) for _ in range(2)]
    with pytest.raises(hr.errors.DataLossError, match="batch 3"):
        next(iterator)
    assert [*found, expected[2], *[plain(batch) for batch in iterator]] == expected
    loader.close()


def test_a_samplers_error_comes_after_the_batches_before_it(table: hr.Dataset) -> None:
    class Fails(list[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(4)
            raise KeyError("sampler")

    sampler = torch.utils.data.BatchSampler(Fails([0] * 8), 2, drop_last=False)
    loader = DataLoader(table, batch_sampler=sampler)
    iterator = iter(loader)
    assert [next(iterator)["number"].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="sampler"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    loader.close()


@pytest.mark.parametrize("name", ["all", "subset", "joined"])
@pytest.mark.parametrize(
    "batches", [[[0], [2, 99], [3]], [[1], [1.0]], [[1], ["2"]], [[1], [True]], [[1], []]]
)
def test_batches_that_are_wrong_are_the_datasets_own_errors_in_their_places(
    name: str, batches: Any, table: hr.Dataset, more: hr.Dataset
) -> None:
    found = []
    for kind in (torch.utils.data.DataLoader, DataLoader):
        taken: list[Any] = []
        iterator = iter(kind(given(name, table, more), batch_sampler=batches))
        while len(taken) < len(batches):
            try:
                taken.append(plain(next(iterator)))
            except Exception as error:
                taken.append((type(error), str(error)))
        assert next(iterator, None) is None
        found.append(taken)
    assert found[0] == found[1]


def test_ctrl_c_loses_no_batch(table: hr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(table, 8)
    expected = [plain(batch) for batch in loader]
    begin, interrupts = ListedReader.begin, [2]

    def interrupted(reader: ListedReader, batches: Any, epoch: int) -> Iterator[Any]:
        for number, batch in enumerate(begin(reader, batches, epoch)):
            if interrupts and number == interrupts[0]:
                interrupts.pop()
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(ListedReader, "begin", interrupted)
    iterator = iter(loader)
    found = [plain(next(iterator)) for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert found + [plain(batch) for batch in iterator] == expected
    loader.close()


def test_an_epoch_that_was_taken_to_its_last_batch_leaves_the_next_its_engine(
    table: hr.Dataset,
) -> None:
    loader = DataLoader(table, 8)
    iterator: Any = None
    for _ in range(3):
        iterator = iter(loader)
        for _ in range(len(loader)):
            next(iterator)
    assert loader.stats()["engine"]["samples"] == 3 * COUNT
    loader.close()


def test_a_collate_fn_that_is_set_later_counts(table: hr.Dataset) -> None:
    loader = DataLoader(table, 8)
    list(loader)
    loader.collate_fn = list
    assert next(iter(loader))[3] == table[3]
    loader.close()
