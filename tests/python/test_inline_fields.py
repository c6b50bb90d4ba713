"""Loaders that are asked only for fields that lie in the index: every order, no read, no wait."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import COUNT, LABELS, flat
from node_ranks import Ranks

import headrace as hr
from headrace.pack import PackParameters, write_pack
from headrace.tiers import Ram, Ssd

ORDERS = ("exact", "batch", "epoch", "redox")
pytestmark = pytest.mark.filterwarnings("ignore:headrace. order=.* mix of labels")


@pytest.fixture(params=["folder", "pack"])
def dataset(request: pytest.FixtureRequest, numbered: Path, tmp_path: Path) -> Path:
    """`numbered` as it is, or packed."""
    if request.param == "folder":
        return numbered
    source = hr.open(numbered, index=tmp_path / "source.hri")
    parameters = PackParameters(order="source", block_bytes=6_000, shard_bytes=30_000)
    write_pack(source, tmp_path / "pack", parameters)
    return tmp_path / "pack"


def make(dataset: Path, order: str, **options: Any) -> hr.Loader:
    """A loader of labels, with their numbers."""
    defaults: dict[str, Any] = {
        "batch_size": 12,
        "output": hr.Output(fields=["label"], ids=True),
        "seed": 6,
    }
    return hr.Loader(dataset, order=order, **defaults | options)


def label_ids(batches: Any, count: int | None = None) -> list[list[int]]:
    """The samples of each batch; their labels must be theirs."""
    epoch = []
    for batch in batches:
        ids = np.asarray(batch.sample_id)
        assert np.array_equal(np.asarray(batch.label), LABELS[ids])
        epoch.append([int(number) for number in ids])
        if len(epoch) == count:
            break
    return epoch


def whole(dataset: Path, order: str, epochs: int = 2, **options: Any) -> list[list[list[int]]]:
    """The same samples as with their images, which are read."""
    with make(dataset, order, output=hr.Output(ids=True), **options) as loader:
        return [label_ids(loader) for _ in range(epochs)]


@pytest.mark.parametrize("order", ORDERS)
def test_labels_alone_come_in_the_order_of_whole_samples_and_nothing_is_read(
    dataset: Path, order: str
) -> None:
    with make(dataset, order) as loader:
        assert [label_ids(loader) for _ in range(2)] == whole(dataset, order)
        stats = loader.stats()
        assert {row["source"] for row in loader.explain(1).rows} == {"index"}
    assert stats["io"]["reads"] == 0
    assert stats["memory"]["resident_peak"] == 0


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_labels_alone_on_several_ranks_come_as_on_one(
    dataset: Path, order: str, drop_last: bool
) -> None:
    for world_size in (2, 3):
        for rank in range(world_size):
            options: dict[str, Any] = {
                "batch_size": 12 // world_size,
                "job": hr.Job(rank=rank, world_size=world_size),
                "drop_last": drop_last,
            }
            with make(dataset, order, **options) as loader:
                assert [label_ids(loader) for _ in range(2)] == whole(dataset, order, **options)


@pytest.mark.parametrize("order", ORDERS)
def test_labels_alone_go_on_from_a_state(dataset: Path, order: str) -> None:
    with make(dataset, order) as loader:
        batches = iter(loader)
        first = label_ids(batches, 3)
        state = loader.state_dict()
        rest = label_ids(batches)
    with make(dataset, order) as loader:
        loader.load_state_dict(state)
        assert label_ids(loader) == rest
    assert sorted(flat([*first, *rest])) == list(range(COUNT))


@pytest.mark.filterwarnings("ignore:headrace. tiers= has no effect")
@pytest.mark.parametrize("order", ORDERS)
def test_labels_alone_leave_tiers_empty(dataset: Path, order: str, tmp_path: Path) -> None:
    tiers: Sequence[Any] = [Ram("1MiB"), Ssd(tmp_path / "tier", "1MiB")]
    with make(dataset, order, tiers=tiers) as loader:
        assert [label_ids(loader) for _ in range(2)] == whole(dataset, order)


@pytest.mark.parametrize("order", ORDERS)
def test_labels_alone_come_from_a_node_process(numbered: Path, order: str) -> None:
    hr.open(numbered)  # Its index is made once.
    job: dict[str, Any] = {"batch_size": 6, "order": order, "seed": 6}
    with Ranks(2) as ranks:
        for rank, epochs in enumerate(ranks.ask("labels", str(numbered), 2, **job)):
            assert epochs == whole(numbered, job=hr.Job(rank=rank, world_size=2), **job)
