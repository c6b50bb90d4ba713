"""Several nodes: each has a node process of its own, and they give each other what tiers hold."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat
from node_ranks import RankError, Ranks, addresses, is_running

import headrace as hr
from headrace._nodes.plan import rate_bytes

ORDERS = ("exact", "batch", "epoch")
GLOBAL = 12  # samples of a global batch


def opened(ranks: Ranks, source: Path, nodes: list[str], **arguments: Any) -> None:
    arguments.setdefault("batch_size", GLOBAL // len(ranks.ranks))
    arguments.setdefault("ram", "16MiB")
    arguments["node"] = {"addresses": nodes, **arguments.get("node", {})}
    ranks.ask("open_", str(source), **arguments)


def merged(of_ranks: list[list[list[int]]]) -> list[list[int]]:
    """Global batches of an epoch, each ascending."""
    return [sorted(flat(batches)) for batches in zip(*of_ranks, strict=True)]


def alone(
    source: Path, order: str | hr.orders.Order, epochs: int, **arguments: Any
) -> list[list[list[int]]]:
    """What one rank gets with the same global batch."""
    with hr.Loader(
        source,
        GLOBAL,
        order=order,
        transform=FLAT,
        output=hr.Output("numpy", ids=True),
        **arguments,
    ) as loader:
        return [[sorted(ids) for ids in epoch_ids(loader)] for _ in range(epochs)]


def total(ranks: Ranks, section: str, name: str) -> int:
    return sum(rank.ask("figures", section)[0][name] for rank in ranks)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("nodes", [2, 3])
def test_nodes_deliver_the_batches_of_one(numbered: Path, order: str, nodes: int) -> None:
    expected = alone(numbered, order, epochs=3, drop_last=True)
    with Ranks(nodes, local_ranks=1) as ranks:
        opened(ranks, numbered, addresses(nodes), order=order, drop_last=True)
        for epoch in range(3):
            assert merged(ranks.ask("epoch")) == expected[epoch]
        ranks.ask("close")


def data_bytes(source: Path) -> int:
    return sum(file.stat().st_size for file in source.rglob("*.jpg"))


@pytest.mark.parametrize("share", [0.75, 1.5])
def test_after_the_first_epoch_nothing_comes_from_storage(numbered: Path, share: float) -> None:
    """Tiers that hold the data together, and tiers that hold all of it each."""
    with Ranks(2, local_ranks=1) as ranks:
        ram = int(share * data_bytes(numbered))
        opened(ranks, numbered, addresses(2), epochs=4, ram=ram, engine={"prefetch": 2})
        ranks.ask("epoch")
        read = total(ranks, "io", "reads")
        assert COUNT <= read <= COUNT + 12  # Each once, whoever needs it first, or nearly so.
        for _ in range(3):
            assert Counter(flat(flat(ranks.ask("epoch")))).keys() == set(range(COUNT))
        assert total(ranks, "io", "reads") == read
        assert total(ranks, "nodes", "received") == total(ranks, "nodes", "given") > 0
        for figure in ("failed", "bad_messages"):
            assert total(ranks, "nodes", figure) == 0, figure
        ranks.ask("close")


def test_several_ranks_of_a_node_share_what_it_receives(numbered: Path) -> None:
    with Ranks(4, local_ranks=2) as ranks:
        opened(ranks, numbered, addresses(2), order="batch", epochs=3)
        for _ in range(3):
            assert set(flat(flat(ranks.ask("epoch")))) == set(range(COUNT))
        first, second = ranks[0].ask("figures", "nodes")[0], ranks[2].ask("figures", "nodes")[0]
        assert (first["node"], first["nodes"]) == (0, 2)
        assert (second["node"], second["nodes"]) == (1, 2)
        assert first["received"] == second["given"]
        assert first["received_bytes"] == second["given_bytes"]
        ranks.ask("close")


def test_a_restored_run_goes_on_and_uses_what_tiers_hold(numbered: Path, tmp_path: Path) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        opened(ranks, numbered, addresses(2), ram=None, ssd=str(tmp_path / "tier"), epochs=3)
        ranks.ask("epoch")
        begun = ranks.ask("steps", 3)
        states = ranks.ask("state")
        ranks.ask("close")
    with Ranks(2, local_ranks=1) as ranks:
        opened(ranks, numbered, addresses(2), ram=None, ssd=str(tmp_path / "tier"), epochs=3)
        for rank, state in zip(ranks, states, strict=True):
            rank.ask("load", state)
        rest = ranks.ask("epoch")
        assert total(ranks, "io", "reads") == 0
        whole = merged(begun) + merged(rest)
        ranks.ask("close")
    assert Counter(flat(whole)).keys() == set(range(COUNT))
    with hr.Loader(numbered, GLOBAL, output=hr.Output("numpy", ids=True, fields=["label"])) as one:
        list(one)
        assert whole[:-1] == [sorted(int(i) for i in batch.sample_id) for batch in one][:-1]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_node_changes_no_batch_of_the_others(numbered: Path, how: signal.Signals) -> None:
    expected = alone(numbered, "exact", epochs=2)
    with Ranks(2, local_ranks=1) as ranks:
        opened(
            ranks, numbered, addresses(2), epochs=2, ram=int(0.6 * data_bytes(numbered)),
            engine={"prefetch": 1},
        )  # fmt: skip
        ranks.ask("epoch")
        lost = ranks[1].ask("node_pid")
        os.kill(lost, how)
        try:
            got = ranks[0].ask("epoch")  # Of rank 0 alone: its half of every batch.
            fallbacks = ranks[0].ask("figures", "sources")[0]["node_fallbacks"]
        finally:
            if how == signal.SIGSTOP:
                os.kill(lost, signal.SIGCONT)
        assert fallbacks > 0
        for ids, batch in zip(got, expected[1], strict=True):
            assert set(ids) <= set(batch)
        if how == signal.SIGKILL:
            with pytest.raises(RankError, match=r"UnavailableError: .*node process"):
                ranks[1].ask("epoch")
        else:
            both = merged([got, ranks[1].ask("epoch")])
            assert both[:-1] == expected[1][:-1]  # The last is filled up.


def test_other_options_end_the_run_on_all_nodes_and_are_named(numbered: Path) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        node = {"addresses": addresses(2)}
        for rank, seed in zip(ranks, (1, 2), strict=True):
            rank.say("open_", str(numbered), batch_size=4, ram="16MiB", node=node, seed=seed)
        for rank in ranks:
            rank.answer()
        for rank in ranks:
            rank.say("epoch")
        for rank, here, there in zip(ranks, (1, 2), (2, 1), strict=True):
            with pytest.raises(RankError, match=f"seed is {here} here and {there} there"):
                rank.answer()


def test_nodes_with_different_tokens_say_that_and_neither_token(numbered: Path) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        for rank, token in zip(ranks, ("one secret", "another secret"), strict=True):
            rank.ask("environment", HEADRACE_TOKEN=token)
        opened(ranks, numbered, addresses(2))
        for rank in ranks:
            rank.say("epoch")
        for rank, other in zip(ranks, (1, 0), strict=True):
            with pytest.raises(RankError, match=f"node {other} .* has another token") as caught:
                rank.answer()
            assert caught.value.kind == "FailedPreconditionError"
            assert "the same secret in the environment variable HEADRACE_TOKEN" in str(caught.value)
            assert "one secret" not in str(caught.value)
            assert "another secret" not in str(caught.value)


def test_another_position_ends_the_run_and_is_named(numbered: Path) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        opened(ranks, numbered, addresses(2))
        state = ranks[0].ask("state")
        ranks[0].ask("load", {**state, "epoch": 3})
        for rank in ranks:
            rank.say("epoch")
        for rank in ranks:
            with pytest.raises(RankError, match="epoch 3 step 0"):
                rank.answer()


def test_a_node_that_does_not_come_is_named(numbered: Path) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        opened(ranks, numbered, addresses(2), node={"start_timeout": 2})
        with pytest.raises(RankError, match=r"DeadlineExceeded|node 1"):
            ranks[0].ask("epoch")


def test_nothing_is_left_of_nodes_that_end(numbered: Path) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        opened(ranks, numbered, addresses(2))
        ranks.ask("steps", 2)
        processes = ranks.ask("node_pid")
        ranks.ask("close")
        assert not any(is_running(pid) for pid in processes)


def test_without_what_it_needs_nodes_is_refused(numbered: Path) -> None:
    def job(**options: Any) -> hr.Job:
        node = hr.Node(local_rank=0, local_world_size=1, **options)
        return hr.Job(rank=0, world_size=2, node=node)

    ram = hr.tiers.Ram("1MiB")
    with pytest.raises(
        hr.errors.InvalidArgumentError, match=r"^Node\.open_network without tiers: "
    ):
        hr.Loader(numbered, job=job(open_network=True))
    with pytest.raises(hr.errors.InvalidArgumentError, match="store cannot be reached"):
        hr.Loader(numbered, job=job(open_network=True), tiers=ram)
    with pytest.raises(hr.errors.InvalidArgumentError, match="a list of 2 texts"):
        hr.Loader(numbered, job=job(addresses=["127.0.0.1:1"]), tiers=ram)


def test_a_network_that_is_not_private_is_refused(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", "secret")
    with pytest.raises(hr.errors.InvalidArgumentError, match="open_network=True"):
        hr.Loader(
            numbered,
            job=hr.Job(
                rank=0,
                world_size=2,
                node=hr.Node(
                    local_rank=0, local_world_size=1, addresses=["0.0.0.0:1", "127.0.0.1:2"]
                ),
            ),
            tiers=[hr.tiers.Ram("1MiB")],
        )


def test_a_rate_is_a_number_of_bytes_a_second_or_a_text_that_says_it() -> None:
    assert rate_bytes(None) == 0
    assert rate_bytes("2GB/s") == rate_bytes("2GB") == rate_bytes(2 * 10**9) == 2 * 10**9
    for wrong in ("2GB/h", "fast", 0, -1, "10KB/s"):
        with pytest.raises(hr.errors.InvalidArgumentError, match=r"Node\.rate"):
            rate_bytes(wrong)
