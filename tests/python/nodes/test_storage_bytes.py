"""What nodes read from storage, in bytes, by what their tiers hold together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import sample_digest
from node_ranks import Ranks, addresses

from headrace.formats import Builder

NODES = 3
SAMPLES = 504  # As many for each node in each step: no sample is read to fill one up.
BATCH = 4  # of a node
EPOCHS = 4
UNIT = 256  # Sizes are multiples of it, and so of the units in which tiers of this size count.


@dataclass(frozen=True)
class Sized:
    """A dataset of files of different sizes; `digests` say each sample's bytes."""

    path: Path
    digests: list[str]
    bytes: int


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Sized:
    root = tmp_path_factory.mktemp("sized")
    random = np.random.default_rng(4)
    sizes = [int(size) for size in UNIT * random.integers(1, 12, SAMPLES)]
    digests = []
    with Builder(root / "sized.hri", root) as builder:
        builder.add_field("data", "array", "uint8", (None,))
        for number, size in enumerate(sizes):
            value = random.integers(0, 256, size, np.uint8)
            path = root / f"{number:03}"
            path.write_bytes(value.tobytes())
            builder.add_extents("data", builder.add_file(path), [0], [size])
            digests.append(sample_digest([("data", value)]))
    return Sized(root / "sized.hri", digests, sum(sizes))


def run(sized: Sized, order: str, ram: int) -> tuple[list[int], dict[str, int]]:
    """Bytes read from storage by all nodes, after each epoch; and other figures of all nodes."""
    read = []
    with Ranks(NODES, local_ranks=1) as ranks:
        ranks.ask(
            "open_", str(sized.path), raw=True, batch_size=BATCH, order=order, epochs=EPOCHS,
            ram=ram, engine={"prefetch": 1},
            node={"addresses": addresses(NODES), "answer_timeout": 600},
        )  # fmt: skip
        for _ in range(EPOCHS):
            delivered = [
                each for share in ranks.ask("contents") for batch in share for each in batch
            ]
            assert {number for number, _ in delivered} == set(range(SAMPLES))
            assert len(delivered) == SAMPLES
            assert all(digest == sized.digests[number] for number, digest in delivered)
            read.append(sum(rank.ask("figures", "bytes")[0]["read"] for rank in ranks))
        of_nodes: list[Any] = [rank.ask("figures", "sources", "nodes") for rank in ranks]
        ranks.ask("close")
    figures = {
        "fallbacks": sum(sources["node_fallbacks"] for sources, _ in of_nodes),
        "failed": sum(nodes["failed"] for _, nodes in of_nodes),
        "received": sum(nodes["received_bytes"] for _, nodes in of_nodes),
        "given": sum(nodes["given_bytes"] for _, nodes in of_nodes),
    }
    return read, figures


def tier_bytes(sized: Sized, share: float) -> int:
    """Of a node, if the tiers of all hold that share of the data."""
    return int(share * sized.bytes / NODES) // UNIT * UNIT


@pytest.mark.parametrize("order", ["exact", "batch"])
def test_tiers_that_hold_the_data_together_leave_storage_idle(sized: Sized, order: str) -> None:
    read, figures = run(sized, order, tier_bytes(sized, 1.05))
    # A node that asks another one before that has planned the step may read a sample, too.
    assert sized.bytes <= read[0] <= 1.1 * sized.bytes
    assert read[1:] == [read[0]] * (EPOCHS - 1)
    assert figures["failed"] == 0
    assert figures["received"] == figures["given"] > 0


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_smaller_tiers_read_what_they_do_not_hold(sized: Sized, share: float) -> None:
    """max(0, F - capacity) an epoch, within 2 % of the data's F bytes."""
    tier = tier_bytes(sized, share)
    read, figures = run(sized, "exact", tier)
    later = (read[-1] - sized.bytes) / (EPOCHS - 1)  # The first epoch reads all of it.
    assert later == pytest.approx(max(0, sized.bytes - NODES * tier), abs=0.02 * sized.bytes)
    assert figures["failed"] == 0
