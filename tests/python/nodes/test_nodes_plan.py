"""Nodes compare what they plan while they run."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_ranks import Rank, RankError, Ranks, addresses
from plan_message import tell_plan
from test_nodes import opened

RUNS_AT_MOST = 2000  # Only against a hang.


def until_it_ends(rank: Rank) -> None:
    for _ in range(RUNS_AT_MOST):
        rank.ask("steps", 3)


@pytest.mark.parametrize("order", ["exact", "batch", "epoch"])
def test_equal_plans_are_compared_and_go_on(numbered: Path, order: str) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        opened(ranks, numbered, addresses(2), order=order, epochs=3)
        for _ in range(3):
            ranks.ask("epoch")
        for rank in ranks:
            # What the other node says may come a moment later.
            compared = (
                rank.ask("figures", "nodes")[0]["compared_steps"] for _ in range(RUNS_AT_MOST)
            )
            assert any(steps > 0 for steps in compared)
            assert rank.ask("figures", "nodes")[0]["bad_messages"] == 0
        ranks.ask("close")


def test_a_plan_that_differs_ends_the_run_and_is_named(numbered: Path) -> None:
    """Somebody says, with the job's token, that node 1 plans something else."""
    with Ranks(2, local_ranks=1) as ranks:
        nodes = addresses(2)
        opened(ranks, numbered, nodes, batch_size=1, epochs=RUNS_AT_MOST)
        ranks.ask("steps", 3)
        tell_plan(nodes[0], node=1, step=1, sums=(1, 2, 3))
        named = r"FailedPrecondition.*: node 0 plans like node 1: .* step 1 of epoch 0 in ids"
        with pytest.raises(RankError, match=named):
            until_it_ends(ranks[0])
        ranks[1].ask("steps", 1)
