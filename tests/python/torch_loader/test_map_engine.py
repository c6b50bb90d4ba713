"""Datasets of headrace and their subsets: read by the engine, with what torch gives for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from map_data import plain
from torch.utils.data import Subset, random_split

import headrace as hr
from headrace.torch import DataLoader
from headrace.torch._dataloader.engine import EngineReader

COUNT = 53


@pytest.fixture
def table(tmp_path: Path) -> hr.Dataset:
    """Numbers, vectors and texts."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    rows = {
        "number": pa.array(range(COUNT), pa.int64()),
        "half": pa.array(np.arange(COUNT) / 2),
        "text": pa.array([f"sample {number}" for number in range(COUNT)]),
    }
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "rows.parquet", row_group_size=10)
    return hr.open(tmp_path / "rows.parquet")


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def given(name: str, table: hr.Dataset) -> Any:
    if name == "all":
        return table
    if name == "subset":
        return Subset(Subset(table, range(3, 50)), [-1, *range(40, 0, -2), 5])
    return random_split(table, [30, COUNT - 30], generator=seeded())[0]


@pytest.mark.parametrize("name", ["all", "subset", "split"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_engine_gives_what_torch_gives(name: str, shuffle: bool, table: hr.Dataset) -> None:
    data = given(name, table)
    theirs = torch.utils.data.DataLoader(data, 8, shuffle=shuffle, generator=seeded())
    ours = DataLoader(data, 8, shuffle=shuffle, generator=seeded(), num_workers=2)
    for _ in range(3):
        assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs]
    assert ours._engine is not None
    ours.close()


def test_the_engine_goes_on_at_every_step(table: hr.Dataset) -> None:
    def loader(**how: Any) -> DataLoader:
        return DataLoader(table, 8, shuffle=True, **how)

    torch.manual_seed(1)
    theirs = torch.utils.data.DataLoader(table, 8, shuffle=True)
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
        assert threads._engine is None
        with_engine.close()


def test_what_the_engine_would_give_in_another_form_is_read_by_the_dataset(
    table: hr.Dataset, numbered: Path
) -> None:
    assert EngineReader.of(hr.open(numbered), torch.utils.data.default_collate) is None
    assert EngineReader.of(table, list) is None
    ours = DataLoader(table, 8, collate_fn=list)
    assert next(iter(ours))[3] == table[3]
    assert ours._engine is None


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
