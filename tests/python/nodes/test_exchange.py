"""Orders whose nodes each read their own blocks and send each other samples."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat, sample_file
from node_ranks import RankError, Ranks, addresses, wait_for_end
from test_nodes import GLOBAL, merged

import headrace as hr
from headrace.pack import write_pack
from headrace.pack._plan import PackParameters

BLOCK = 4  # samples
ORDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "redox": ("Redox", {"chunks_per_virtual": 3, "block_samples": BLOCK}),
    "redox-prefetch": (
        "Redox",
        {"chunks_per_virtual": 3, "block_samples": BLOCK, "prefetch": 8, "remap": True},
    ),
    "redox-chunk": (
        "Redox",
        {
            "chunks_per_virtual": 3,
            "block_samples": BLOCK,
            "prefetch": 8,
            "read": "chunk",
            "framing": "split",
        },
    ),
    "epoch": ("Epoch", {"block_samples": BLOCK}),
}


def order_of(name: str, nodes: int) -> tuple[str, dict[str, Any]]:
    kind, given = ORDERS[name]
    return kind, given | ({"nodes": nodes} if kind == "Redox" else {"homes": nodes})


def made(order: tuple[str, dict[str, Any]]) -> hr.orders.Order:
    made: hr.orders.Order = getattr(hr.orders, order[0])(**order[1])
    return made


def opened(ranks: Ranks, source: Path, nodes: list[str], name: str, **arguments: Any) -> None:
    arguments.setdefault("batch_size", GLOBAL // len(ranks.ranks))
    arguments["node"] = {"addresses": nodes, **arguments.get("node", {})}
    ranks.ask("open_", str(source), order=order_of(name, len(nodes)), **arguments)


def alone(source: Path, name: str, nodes: int, epochs: int, **arguments: Any) -> list[Any]:
    """What one rank gets that reads all blocks itself, with the same global batch."""
    order = made(order_of(name, nodes))
    with hr.Loader(
        source,
        GLOBAL,
        order=order,
        transform=FLAT,
        output=hr.Output("numpy", ids=True),
        **arguments,
    ) as loader:
        return [[sorted(ids) for ids in epoch_ids(loader)] for _ in range(epochs)]


def parcels(ranks: Ranks, name: str) -> list[int]:
    return [rank.ask("figures", "parcels")[0][name] for rank in ranks]


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize(("nodes", "local"), [(2, 1), (3, 1), (2, 2)])
def test_nodes_deliver_the_batches_of_one(
    numbered: Path, name: str, nodes: int, local: int
) -> None:
    expected = alone(numbered, name, nodes, epochs=2, drop_last=True)
    with Ranks(nodes * local, local_ranks=local) as ranks:
        opened(ranks, numbered, addresses(nodes), name, drop_last=True, epochs=2)
        for epoch in range(2):
            assert merged(ranks.ask("epoch")) == expected[epoch], epoch
        for figure in ("samples", "bytes"):
            sent, received = parcels(ranks, f"sent_{figure}"), parcels(ranks, f"received_{figure}")
            assert sum(sent) == sum(received) > 0
        # About one in `nodes` samples lies at its own node.
        away = sum(parcels(ranks, "sent_samples")) / local / (2 * (COUNT // GLOBAL * GLOBAL))
        assert away == pytest.approx((nodes - 1) / nodes, abs=0.15)
        assert ranks[0].ask("audit", ranks.ask("counted")) == [0, 1]
        ranks.ask("close")


@pytest.mark.parametrize("name", ORDERS)
def test_each_sample_once_with_the_pad_set(numbered: Path, name: str) -> None:
    with Ranks(3, local_ranks=1) as ranks:
        opened(ranks, numbered, addresses(3), name, epochs=2)
        for _ in range(2):
            counts = Counter(flat(flat(ranks.ask("epoch"))))
            assert counts.keys() == set(range(COUNT))
            assert sum(counts.values()) == COUNT + -COUNT % 3
        ranks.ask("close")


@pytest.mark.parametrize("name", ORDERS)
def test_a_run_goes_on_from_every_step_with_other_ranks_a_node(numbered: Path, name: str) -> None:
    expected = alone(numbered, name, 2, epochs=1, drop_last=True)[0]
    with Ranks(2, local_ranks=1) as ranks, Ranks(4, local_ranks=2) as others:
        for each in (ranks, others):
            opened(each, numbered, addresses(2), name, drop_last=True, epochs=1)
        for at in range(len(expected)):
            state = ranks[at % 2].ask("state")
            assert merged(ranks.ask("steps", 1)) == expected[at : at + 1]
            others.ask("load", state)
            assert merged(others.ask("steps", len(expected) - at)) == expected[at:], at
        others.ask("load", state)
        ranks.ask("load", others[3].ask("state"))
        assert merged(ranks.ask("steps", 1)) == expected[-1:]
        ranks.ask("close")
        others.ask("close")


def packed_homes(source: Path, folder: Path, homes: int) -> list[Path]:
    """A root for each node, with the blocks that lie there."""
    parameters = PackParameters(
        order="source", block_bytes=6_000, shard_bytes=30_000, shards_over=homes
    )
    write_pack(hr.open(source, index=folder / "source.hri"), folder / "all", parameters)
    roots = []
    for node in range(homes):
        roots.append(folder / f"node-{node}")
        shutil.copytree(folder / "all", roots[-1])
        for other in range(homes):
            if other != node:
                shutil.rmtree(roots[-1] / f"home-{other}")
    return roots


@pytest.mark.parametrize("name", ["redox-prefetch", "epoch"])
def test_nodes_read_their_own_disks_only(numbered: Path, tmp_path: Path, name: str) -> None:
    roots = packed_homes(numbered, tmp_path, 3)
    kind, given = order_of(name, 3)
    given.pop("block_samples")  # Those of the pack.
    if kind == "Epoch":
        given["pools"] = 3
    nodes = addresses(3)
    with Ranks(3, local_ranks=1) as ranks:
        for rank, root in zip(ranks, roots, strict=True):
            rank.say(
                "open_", str(root), node={"addresses": nodes}, order=(kind, given), batch_size=4
            )
        for rank in ranks:
            rank.answer()
        for _ in range(2):
            counts = Counter(flat(flat(ranks.ask("epoch"))))
            assert counts.keys() == set(range(COUNT))
        ranks.ask("close")


def test_a_home_that_is_not_here_is_named_at_the_start(numbered: Path, tmp_path: Path) -> None:
    roots = packed_homes(numbered, tmp_path, 2)
    nodes = addresses(2)
    with Ranks(2, local_ranks=1) as ranks:
        for rank, root in zip(ranks, reversed(roots), strict=True):
            order = ("Epoch", {"homes": 2, "pools": 2})
            rank.say("open_", str(root), node={"addresses": nodes}, order=order, batch_size=4)
        for number, rank in enumerate(ranks):
            with pytest.raises(RankError, match=f"home {number} of 2.*is not here"):
                rank.answer()


@pytest.mark.parametrize("name", ["redox-prefetch", "epoch"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_home_ends_the_job_with_one_error(numbered: Path, name: str, how: int) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        opened(
            ranks, numbered, addresses(2), name, node={"start_timeout": 3},
            engine={"prefetch": 1},
        )  # fmt: skip
        ranks.ask("steps", 1)
        pid = ranks[1].ask("node_pid")
        os.kill(pid, how)
        try:
            with pytest.raises(RankError, match="node 1"):
                ranks[0].ask("steps", COUNT)
        finally:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("name", ["redox-prefetch", "redox-chunk", "epoch"])
def test_a_damaged_sample_at_its_home_is_at_once_the_error_of_the_step_that_needs_it(
    numbered_copy: Path, name: str
) -> None:
    hr.open(numbered_copy)
    with Ranks(2, local_ranks=1) as ranks:
        opened(ranks, numbered_copy, addresses(2), name, node={"start_timeout": 1000})
        planned = [source for step in range(3) for source in ranks[0].ask("sources", step)]
        damaged = [sample for sample, source in planned if source == "node 1"][-1]
        path = sample_file(numbered_copy, damaged)
        path.write_bytes(b"")
        for rank in ranks:
            rank.say("steps", COUNT)
        with pytest.raises(RankError, match=f"sample {damaged} .*node 1.*{path.name}"):
            ranks[0].answer()
        # The other one gets nothing more of that node, which has ended its run: it may have all.
        with contextlib.suppress(RankError):
            ranks[1].answer()


@pytest.mark.parametrize("name", ["redox-prefetch", "epoch"])
def test_a_node_whose_rank_has_ended_gives_the_others_what_they_lack(
    numbered: Path, name: str
) -> None:
    with Ranks(2, local_ranks=1) as ranks:
        opened(
            ranks, numbered, addresses(2), name, epochs=1, drop_last=True, engine={"prefetch": 1}
        )
        pids = [rank.ask("node_pid") for rank in ranks]
        ranks[1].say("steps", COUNT // GLOBAL - 1)
        first = ranks[0].ask("epoch")
        ranks[0].end()
        second = ranks[1].answer() + ranks[1].ask("steps", COUNT)
        counts = Counter(flat(first) + flat(second))
        assert sum(counts.values()) == COUNT // GLOBAL * GLOBAL
        assert set(counts.values()) == {1}
        ranks[1].ask("close")
        for pid in pids:
            wait_for_end(pid)
