"""What a loader does by itself if its launcher says that there are several nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace._nodes import process as node
from headrace.errors import InvalidArgumentError

TIERS = [hr.tiers.Ram("1MiB")]


@pytest.fixture(autouse=True)
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, world_size=2, local=1)
    monkeypatch.setattr(node, "_warned", set())


def launch(monkeypatch: pytest.MonkeyPatch, world_size: int, local: int) -> None:
    for name, value in {
        "RANK": 0, "WORLD_SIZE": world_size, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": local,
        "MASTER_PORT": 1,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))


def has_node_process(source: Path, **arguments: Any) -> bool:
    with hr.Loader(source, **arguments) as loader:
        return loader._feed._session.place is not None


def test_with_tiers_on_several_nodes_there_is_a_node_process(numbered: Path) -> None:
    with pytest.warns(
        RuntimeWarning,
        match="other nodes are not asked for samples, .*: torch's store cannot be reached",
    ) as told:
        assert has_node_process(numbered, tiers=TIERS)
    assert told[0].filename == __file__


def test_without_a_node_process_a_warning_says_once_what_is_lost(
    numbered: Path,
) -> None:
    with pytest.warns(RuntimeWarning) as told:
        assert not has_node_process(numbered, tiers=TIERS, job=hr.Job(node=False))
    assert not has_node_process(numbered, tiers=TIERS, job=hr.Job(node=False))
    assert [str(each.message) for each in told] == [
        "headrace: tiers on 2 nodes with Job(node=False): other nodes are not asked for "
        "samples, each rank reads storage itself; leave node=False out"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tiers": TIERS, "job": hr.Job(rank=0, world_size=1)},
        {"tiers": TIERS, "job": hr.Job(rank=0, world_size=3)},
    ],
)
def test_otherwise_there_is_none(numbered: Path, arguments: dict[str, Any]) -> None:
    assert not has_node_process(numbered, **arguments)


def test_samplers_of_several_ranks_of_a_node_share_no_engine(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(RuntimeWarning, match="other nodes are not asked"):
        assert has_node_process(numbered, tiers=TIERS, sampler=[1, 2, 3])
    launch(monkeypatch, world_size=4, local=2)
    assert not has_node_process(numbered, tiers=TIERS, sampler=[1, 2, 3])


def test_ranks_of_one_node_need_not_be_asked(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(monkeypatch, world_size=2, local=2)
    assert not has_node_process(numbered, tiers=TIERS)


def test_an_order_s_own_number_of_nodes_is_the_launch_s(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(RuntimeWarning, match="other nodes are not asked"):
        hr.Loader(numbered, order=hr.orders.Redox(nodes=2), job=hr.Job(node=False)).close()
    with pytest.raises(InvalidArgumentError) as caught:
        hr.Loader(numbered, order=hr.orders.Redox(nodes=4))
    assert str(caught.value) == (
        "order redox: nodes=4, but this job has 2 nodes (rank 0 of 2, 1 on this node, by the "
        "environment (RANK, WORLD_SIZE)): give the order nodes=2, or start the job on 4 nodes"
    )
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name)
    hr.Loader(numbered, order=hr.orders.Redox(nodes=4)).close()  # To see what it would do.


def test_addresses_of_the_environment_must_be_those_of_all_nodes(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_NODES", "127.0.0.1,127.0.0.2,127.0.0.3")
    with pytest.raises(InvalidArgumentError, match=r"HEADRACE_NODES: got .* a list of 2 texts"):
        hr.Loader(numbered, tiers=TIERS)
    monkeypatch.setenv("HEADRACE_NODES", "127.0.0.1,127.0.0.2")
    with pytest.raises(InvalidArgumentError, match="HEADRACE_TOKEN must hold a secret"):
        hr.Loader(numbered, tiers=TIERS)


def test_addresses_of_several_nodes_without_a_rank_are_refused(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process would read all samples, as if it were alone."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADRACE_NODES", "127.0.0.1,127.0.0.2")
    with pytest.raises(InvalidArgumentError, match="HEADRACE_NODES names 2 nodes, but nothing"):
        hr.Loader(numbered)
    hr.Loader(numbered, job=hr.Job(rank=1, world_size=2)).close()
    monkeypatch.setenv("HEADRACE_NODES", "127.0.0.1")
    hr.Loader(numbered).close()


@pytest.mark.parametrize(
    ("addresses", "match"),
    [
        ("127.0.0.1:0,127.0.0.2", r"'127\.0\.0\.1:0' has the port '0', must be a number from 1 to"),
        ("127.0.0.1:99999,127.0.0.2", "has the port '99999', must be a number from 1 to 65,535"),
        ("127.0.0.1,127.0.0.2:abc", "has the port 'abc'"),
        ("127.0.0.1,127.0.0.1", "must be different: each node listens on its own"),
    ],
)
def test_addresses_on_which_nobody_can_listen_are_refused(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, addresses: str, match: str
) -> None:
    monkeypatch.setenv("HEADRACE_NODES", addresses)
    monkeypatch.setenv("HEADRACE_TOKEN", "secret")
    with pytest.raises(InvalidArgumentError, match=match):
        hr.Loader(numbered, tiers=TIERS)


def test_a_launch_of_no_ranks_is_refused(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, world_size=0, local=1)
    with pytest.raises(InvalidArgumentError, match=r"0 ranks, by .*: must be at least one rank"):
        hr.Loader(numbered)


def test_addresses_beyond_this_machine_need_a_word_on_the_network(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_NODES", "train-0.train,train-1.train")
    monkeypatch.setenv("HEADRACE_TOKEN", "secret")
    with pytest.warns(RuntimeWarning, match="say that their network is private"):
        assert has_node_process(numbered, tiers=TIERS)


EXCHANGING = [hr.orders.Redox(nodes=2, chunks_per_virtual=3), hr.orders.Epoch(homes=2)]


@pytest.mark.parametrize("order", EXCHANGING, ids=["redox", "epoch"])
def test_nodes_that_read_their_own_blocks_only_must_meet(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, order: hr.orders.Order
) -> None:
    """Nobody else has what they lack: what others get a warning for is an error here."""
    what = f"order {order.name} on 2 nodes: they must send each other samples, but "
    with pytest.raises(InvalidArgumentError) as caught:
        hr.Loader(numbered, order=order)
    assert str(caught.value) == (
        what + "torch's store cannot be reached: make the loader after init_process_group(), start "
        "the ranks with torchrun, or give job=hr.Job(node=hr.Node(addresses=[...])) or the "
        "environment variable HEADRACE_NODES"
    )
    monkeypatch.setenv("HEADRACE_NODES", "train-0.train,train-1.train")
    monkeypatch.setenv("HEADRACE_TOKEN", "secret")
    with pytest.raises(InvalidArgumentError) as caught:
        hr.Loader(numbered, order=order)
    assert str(caught.value) == (
        what + "they are on other machines: give certificates, job=hr.Job(node=hr.Node("
        "certificate=..., key=..., authority=...)), or say that their network is private, "
        "job=hr.Job(node=hr.Node(open_network=True))"
    )


@pytest.mark.parametrize("order", EXCHANGING, ids=["redox", "epoch"])
def test_without_node_processes_each_rank_reads_all_and_is_warned_once(
    numbered: Path, order: hr.orders.Order
) -> None:
    with pytest.warns(RuntimeWarning) as told:
        assert not has_node_process(numbered, order=order, job=hr.Job(node=False))
    assert not has_node_process(numbered, order=order, job=hr.Job(node=False))
    assert [str(each.message) for each in told] == [
        f"headrace: order {order.name} on 2 nodes with Job(node=False): other nodes are not "
        "asked for samples, each rank reads storage itself; leave node=False out"
    ]


@pytest.mark.parametrize("order", EXCHANGING, ids=["redox", "epoch"])
@pytest.mark.parametrize("given", ["sampler", "batch_sampler"])
def test_what_such_nodes_exchange_is_not_decided_by_a_sampler(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, order: hr.orders.Order, given: str
) -> None:
    monkeypatch.setenv("HEADRACE_NODES", "127.0.0.1,127.0.0.2")
    monkeypatch.setenv("HEADRACE_TOKEN", "secret")
    samples: list[Any] = [[1, 2]] if given == "batch_sampler" else [1, 2]
    with pytest.raises(InvalidArgumentError) as caught:
        hr.Loader(numbered, order=order, **{given: samples})
    assert str(caught.value) == (
        f"sampler with order='{order.name}': a sampler says which sample comes when, which only "
        "order='exact' keeps; leave one of them out"
    )
