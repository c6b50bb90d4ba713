"""Jobs of two nodes over an object store, each with a node process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from loader_data import sample_digest
from node_ranks import Ranks, addresses
from open_checks import put_pictures
from served_objects.object_server import ObjectServer

NODES = 2
SAMPLES = 1200  # As many for each node in each step: no sample is read to fill one up.
BATCH = 4  # of a node
EPOCHS = 2

Content = dict[int, str]
"""What says the bytes of each sample, by number."""


@dataclass(frozen=True)
class Stored:
    url: str
    content: Content
    bytes: int


@pytest.fixture
def stored(tmp_path: Path, server: ObjectServer) -> Stored:
    root = tmp_path / "data"
    url = put_pictures(server, root, SAMPLES)
    files = sorted(root.rglob("*.png"))
    content = {
        number: sample_digest(
            [("image", file.read_bytes()), ("label", int(file.parent.name.removeprefix("class")))]
        )
        for number, file in enumerate(files)
    }
    return Stored(url, content, sum(file.stat().st_size for file in files))


def opened(ranks: Ranks, data: Stored, order: str) -> None:
    """With tiers that hold all of it together, rounded up as they count."""
    ranks.ask(
        "open_", data.url, raw=True, batch_size=BATCH, order=order, epochs=EPOCHS,
        ram=int(1.3 * data.bytes / NODES), engine={"prefetch": 2},
        node={"addresses": addresses(NODES), "answer_timeout": 600},
    )  # fmt: skip


def contents(ranks: Ranks, count: int | None = None) -> Content:
    """Of so many steps, or the rest of the epoch: no sample twice."""
    found = [each for share in ranks.ask("contents", count) for batch in share for each in batch]
    content = dict(map(tuple, found))
    assert len(content) == len(found)
    return content


@pytest.mark.parametrize("order", ["exact", "batch"])
def test_each_byte_comes_from_the_store_once_where_tiers_hold_the_data(
    server: ObjectServer, stored: Stored, order: str
) -> None:
    with Ranks(NODES, local_ranks=1) as ranks:
        opened(ranks, stored, order)
        server.clear_log()
        for _ in range(EPOCHS):
            assert contents(ranks) == stored.content
        nodes = [rank.ask("figures", "nodes")[0] for rank in ranks]
        ranks.ask("close")
    assert sum(one["sent"] for one in server.log("GET")) <= 1.01 * stored.bytes
    assert sum(one["failed"] for one in nodes) == 0
    assert sum(one["received_bytes"] for one in nodes) > 0


@pytest.mark.parametrize("order", ["exact", "batch", "epoch"])
def test_a_job_that_is_restored_goes_on_with_the_rest(
    server: ObjectServer, stored: Stored, order: str
) -> None:
    with Ranks(NODES, local_ranks=1) as ranks:
        opened(ranks, stored, order)
        first = contents(ranks, 20)
        states = ranks.ask("state")
        ranks.ask("close")
    with Ranks(NODES, local_ranks=1) as ranks:
        opened(ranks, stored, order)
        for rank, state in zip(ranks, states, strict=True):
            rank.ask("load", state)
        rest = contents(ranks)
        ranks.ask("close")
    assert not first.keys() & rest.keys()
    assert first | rest == stored.content
