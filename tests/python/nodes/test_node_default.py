"""What a loader does by itself if its launcher says that there are several nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace._loading import node
from headrace.errors import InvalidArgumentError

TIERS = [hr.tiers.Ram("1MiB")]


@pytest.fixture(autouse=True)
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, world_size=2, local=1)
    monkeypatch.setattr(node, "_told", set())


def launch(monkeypatch: pytest.MonkeyPatch, world_size: int, local: int) -> None:
    for name, value in {
        "RANK": 0, "WORLD_SIZE": world_size, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": local,
        "MASTER_PORT": 1,
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))


def has_node_process(source: Path, **arguments: Any) -> bool:
    with hr.Loader(source, **arguments) as loader:
        return loader._feed._session.place is not None


def test_with_tiers_on_several_nodes_there_is_a_node_process(
    numbered: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert has_node_process(numbered, tiers=TIERS)
    assert "other nodes are not asked for samples" in caplog.text
    assert "torch's store cannot be reached" in caplog.text


def test_without_a_node_process_a_warning_says_once_what_is_lost(
    numbered: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert not has_node_process(numbered, tiers=TIERS, node_process=False)
    with pytest.warns(FutureWarning, match="write node_process=False"):
        assert not has_node_process(numbered, tiers=TIERS, isolation="thread")
    messages = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert messages == [
        "tiers on 2 nodes with node_process=False: other nodes are not asked for samples, each "
        "rank reads storage and has tiers of its own; leave node_process= out"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tiers": TIERS, "sharding": hr.Sharding(rank=0, world_size=1)},
        {"tiers": TIERS, "sharding": hr.Sharding(rank=0, world_size=3)},
    ],
)
def test_otherwise_there_is_none(
    numbered: Path, caplog: pytest.LogCaptureFixture, arguments: dict[str, Any]
) -> None:
    assert not has_node_process(numbered, **arguments)
    assert "WARNING" not in caplog.text


def test_samplers_of_several_ranks_of_a_node_share_no_engine(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    hr.Loader(numbered, order=hr.orders.Redox(nodes=2)).close()
    with pytest.raises(InvalidArgumentError) as caught:
        hr.Loader(numbered, order=hr.orders.Redox(nodes=4))
    assert str(caught.value) == (
        "order redox: nodes=4, but this job has 2 nodes (rank 0 of 2, 1 on this node, by the "
        "environment (RANK, WORLD_SIZE)): leave nodes= out of the order, or start the job on 4"
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


def test_addresses_beyond_this_machine_need_a_word_on_the_network(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HEADRACE_NODES", "train-0.train,train-1.train")
    monkeypatch.setenv("HEADRACE_TOKEN", "secret")
    assert has_node_process(numbered, tiers=TIERS)
    assert "say that their network is private" in caplog.text
