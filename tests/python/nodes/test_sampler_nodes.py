"""Redox's sampler on the ranks of a node process, and on nodes that send each other samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, flat
from node_ranks import Ranks
from test_nodes import addresses

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("order", "nodes"),
    [
        (["Exact", {}], 1),
        (["Redox", {"block_samples": 4}], 1),
        (["Epoch", {"block_samples": 4, "homes": 2, "pools": 4}], 2),
        (["Redox", {"block_samples": 4, "nodes": 2, "prefetch": 8}], 2),
    ],
)
def test_ranks_of_a_node_process_and_nodes_that_send_each_other_samples(
    numbered: Path, order: list[Any], nodes: int
) -> None:
    """Where nodes read their own disks, a rank's samples depend on how many share its engine."""
    arguments: dict[str, Any] = {"batch_size": 4, "order": order, "seed": 3}
    if nodes > 1:
        arguments["node"] = {"addresses": addresses(nodes)}
    with Ranks(4, local_ranks=4 // nodes, server="torch ranks") as ranks:
        ranks.ask("open_", str(numbered), **arguments)
        planned = ranks.ask("planned")
        assert planned == ranks.ask("epoch")
        assert set(flat(flat(each) for each in planned)) == set(range(COUNT))
