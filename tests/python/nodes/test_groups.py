"""Ranks of tensor and pipeline groups: they get the same batches, which their node reads once."""

from __future__ import annotations

from pathlib import Path

import pytest
from loader_data import COUNT, flat
from node_ranks import RankError, Ranks, addresses
from test_nodes import GLOBAL, alone, merged

ORDERS = ("exact", "batch", "epoch")


@pytest.mark.parametrize("order", ORDERS)
def test_tensor_ranks_get_the_same_batches_read_once(numbered: Path, order: str) -> None:
    expected = alone(numbered, order, epochs=2, drop_last=True)
    with Ranks(4) as ranks:
        ranks.ask(
            "open_", str(numbered), batch_size=GLOBAL // 2, order=order, drop_last=True,
            ram="16MiB", job={"tensor": 2}, epochs=2,
        )  # fmt: skip
        for epoch in range(2):
            got = ranks.ask("epoch")
            assert got[0] == got[1]
            assert got[2] == got[3]
            assert merged([got[0], got[2]]) == expected[epoch]
        reads = {rank.ask("figures", "io")[0]["reads"] for rank in ranks}
        assert len(reads) == 1
        # `epoch` reads its blocks in every epoch, which tiers of this size do not change.
        assert reads.pop() <= (2 * COUNT if order == "epoch" else COUNT)
        ranks.ask("close")


@pytest.mark.parametrize("order", ORDERS)
def test_stages_of_a_pipeline_get_the_same_batches_on_their_nodes(
    numbered: Path, order: str
) -> None:
    """Two stages of two positions of two tensor ranks, with two ranks on each of four nodes."""
    expected = alone(numbered, order, epochs=2, drop_last=True)
    with Ranks(8, local_ranks=2) as ranks:
        ranks.ask(
            "open_", str(numbered), batch_size=GLOBAL // 2, order=order, drop_last=True,
            ram="16MiB", job={"tensor": 2, "pipeline": 2}, epochs=2,
            node={"addresses": addresses(4), "answer_timeout": 60},
        )  # fmt: skip
        for epoch in range(2):
            got = ranks.ask("epoch")
            for first in (0, 2):
                assert got[first] == got[first + 1] == got[first + 4] == got[first + 5]
            assert merged([got[0], got[2]]) == expected[epoch]
        figures = [ranks[rank].ask("figures", "nodes")[0] for rank in (0, 2, 4, 6)]
        assert [(each["node"], each["nodes"]) for each in figures] == [(0, 2), (1, 2)] * 2
        assert figures[0]["received"] == figures[1]["given"]
        assert figures[2]["received"] == figures[3]["given"]
        ranks.ask("close")


def test_two_stages_on_one_node_share_its_engine(numbered: Path) -> None:
    expected = alone(numbered, "exact", epochs=1, drop_last=True)
    with Ranks(4) as ranks:
        job = {"pipeline": 2}
        ranks.ask("open_", str(numbered), batch_size=GLOBAL // 2, drop_last=True, job=job)
        got = ranks.ask("epoch")
        assert got[0] == got[2]
        assert got[1] == got[3]
        assert merged(got[:2]) == expected[0]
        ranks.ask("close")


def test_without_a_node_process_each_rank_reads_for_itself(numbered: Path) -> None:
    from loader_data import FLAT, epoch_ids

    import headrace as hr

    def epoch(rank: int) -> list[list[int]]:
        share = hr.Job(rank=rank, world_size=8, tensor=2, pipeline=2)
        with hr.Loader(numbered, GLOBAL // 2, transform=FLAT, job=share) as loader:
            return epoch_ids(loader)

    got = [epoch(rank) for rank in range(8)]
    assert got[0] == got[1] == got[4] == got[5]
    assert got[2] == got[3] == got[6] == got[7]
    assert set(flat(got[0] + got[2])) == set(range(COUNT))


def test_a_state_goes_on_with_other_groups(numbered: Path) -> None:
    with Ranks(4) as ranks:
        ranks.ask("open_", str(numbered), batch_size=6, job={"tensor": 2})
        begun = ranks.ask("steps", 3)
        state = ranks[0].ask("state")
        ranks.ask("close")
    with Ranks(4) as ranks:
        ranks.ask("open_", str(numbered), batch_size=12, job={"tensor": 4})
        ranks.ask("load", state)
        rest = ranks.ask("epoch")
        ranks.ask("close")
    whole = merged([begun[0], begun[2]]) + merged(rest[:1])
    assert whole[:-1] == alone(numbered, "exact", epochs=1)[0][:-1]


def test_groups_that_a_node_cannot_plan_are_refused(numbered: Path) -> None:
    with (
        Ranks(6, numbers=[2], local_ranks=2) as ranks,
        pytest.raises(
            RankError, match=r"tensor=3, pipeline=1\) with a node process and 2 ranks on each node"
        ),
    ):
        ranks.ask("open_", str(numbered), job={"tensor": 3})
