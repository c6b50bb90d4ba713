"""Nodes that choose the fastest source of a sample by a profile; links that a profile measures."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, made_profile
from node_ranks import RankError, Ranks, addresses
from test_nodes import alone, merged, opened, total

import headrace as hr

WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
ORDERS = ("exact", "batch", "epoch")


def saved(folder: Path, **rates: Any) -> str:
    path = folder / "machine.toml"
    made_profile(folder, **rates).save(path)
    return str(path)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("storage", "link", "asks"),
    [
        pytest.param(1e8, 1e6, False, id="storage is faster than other nodes"),
        # In the first epoch both nodes read storage, which then gives each of them less.
        pytest.param(1.5e8, 1e8, True, id="other nodes are faster than shared storage"),
    ],
)
def test_the_faster_of_storage_and_other_nodes_is_read(
    numbered: Path, tmp_path: Path, order: str, storage: float, link: float, asks: bool
) -> None:
    profile = saved(tmp_path, storage=storage, ram=1e10, disk=1e10, link=link)
    expected = alone(numbered, order, epochs=3, drop_last=True)
    with Ranks(2, local_ranks=1) as ranks:
        opened(
            ranks, numbered, addresses(2), order=order, drop_last=True, epochs=3,
            engine={"profile": profile},
        )  # fmt: skip
        assert merged(ranks.ask("epoch")) == expected[0]
        begun = total(ranks, "sources", "nodes")
        for epoch in (1, 2):
            assert merged(ranks.ask("epoch")) == expected[epoch]
        assert total(ranks, "sources", "nodes_passed") > 0, "one node reads storage, or none"
        if not asks:
            assert total(ranks, "sources", "nodes") == total(ranks, "nodes", "received") == 0
        elif order == "exact":  # In others nodes use what they have, or what nobody has.
            assert begun > 0
        ranks.ask("close")


def test_another_node_s_memory_is_faster_than_the_own_disk(numbered: Path, tmp_path: Path) -> None:
    profile = saved(tmp_path, storage=1e5, ram=1e10, disk=1e6, link=1e8)
    expected = alone(numbered, "exact", epochs=4, drop_last=True)
    ram = COUNT // 2 * 4096  # of half of the samples
    with Ranks(2, local_ranks=1) as ranks:
        opened(
            ranks, numbered, addresses(2), drop_last=True, epochs=4, placement="frequency",
            ram=ram, ssd=str(tmp_path / "tier"),
            engine={"profile": profile, "prefetch": 1},
        )  # fmt: skip
        for epoch in range(4):
            assert merged(ranks.ask("epoch")) == expected[epoch]
        passed = total(ranks, "sources", "tiers_passed")
        assert 0 < passed <= total(ranks, "sources", "nodes")
        ranks.ask("close")


REDOX = ("Redox", {"nodes": 2})
STORAGE = {1_000: 1e5, 4_000: 1e6, 32_000: 1e6}  # Fast from reads of a little less than 4 kB on.


def test_nodes_with_equal_profiles_have_chunks_by_them(numbered: Path, tmp_path: Path) -> None:
    profile = saved(tmp_path, storage=STORAGE, ram=1e10, disk=1e10)
    with Ranks(2, local_ranks=1) as ranks:
        ranks.ask(
            "open_", str(numbered), node={"addresses": addresses(2)}, order=REDOX, batch_size=6,
            drop_last=True, engine={"profile": profile},
        )  # fmt: skip
        chunks = {state["order_parameters"]["block_samples"] for state in ranks.ask("state")}
        (chunk,) = chunks
        assert 1 < chunk < 64
        order = hr.orders.Redox(nodes=2, block_samples=chunk)
        assert merged(ranks.ask("epoch")) == alone(numbered, order, epochs=1, drop_last=True)[0]
        ranks.ask("close")


def test_nodes_whose_profiles_want_other_chunks_do_not_begin(
    numbered: Path, tmp_path: Path
) -> None:
    profiles = []
    for name, storage in (("one", STORAGE), ("other", {1_000: 1e6, 4_000: 1e6, 32_000: 1e6})):
        (tmp_path / name).mkdir()
        profiles.append(saved(tmp_path / name, storage=storage, ram=1e10, disk=1e10))
    nodes = addresses(2)
    with Ranks(2, local_ranks=1) as ranks:
        for rank, profile in zip(ranks, profiles, strict=True):
            rank.say(
                "open_", str(numbered), node={"addresses": nodes}, order=REDOX, batch_size=6,
                engine={"profile": profile},
            )  # fmt: skip
        for rank in ranks:
            rank.answer()
        for rank in ranks:
            rank.say("steps", 1)
        for rank in ranks:
            with pytest.raises(RankError, match=r"block_samples: \d+ here, \d+ there.*profiles"):
                rank.answer()


def profiled(source: Path, node: int, nodes: list[str], *more: str) -> Any:
    """`headrace profile --links` on one node of a job."""
    environment = os.environ | {
        "HEADRACE_NODES": ",".join(nodes),
        "HEADRACE_TOKEN": "of this test",
        "JOB_COMPLETION_INDEX": str(node),
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    arguments = ["profile", str(source), "--links", "--seconds", "0.3", *more]
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "headrace", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_links_are_measured_between_two_nodes(source_pack: Path, tmp_path: Path) -> None:
    nodes = addresses(2)
    output = tmp_path / "machine.toml"
    with ThreadPoolExecutor(2) as threads:
        runs = [
            threads.submit(profiled, source_pack, node, nodes, "--output", str(output), *more)
            for node, more in ((0, ["--json"]), (1, []))
        ]
        first, second = (each.result() for each in runs)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert second.stdout == ""
    machine = hr.profile.load(output)
    link = machine.link
    assert link is not None
    assert json.loads(first.stdout)["link"] == machine.to_plain()["link"]
    assert link.nodes == 2
    assert [size.read_bytes for size in link.rates] == [4096, 102400, 1048576]
    assert all(size.rates.users == (1, 16, 64) for size in link.rates)
    assert all(rate > 0 for size in link.rates for rate in size.rates.bytes_per_second)
    assert link.latency_seconds == pytest.approx(
        4096 / link.rates[0].rates.bytes_per_second[0], rel=0.01
    )
    assert link.cpu_seconds_per_gb > 0
    values = machine.to_model().values
    assert values["link"][1] == link.rates[-1].rates.users_enough


def certificates(folder: Path) -> list[str]:
    """The options of a node that has a certificate, for the addresses of two nodes."""
    authority, key, request = (folder / name for name in ("ca.pem", "node.key", "node.csr"))
    names, certificate = folder / "names", folder / "node.pem"
    names.write_text("subjectAltName=IP:127.0.0.1,IP:127.0.0.2\n")
    key_of_ca = folder / "ca.key"
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for command in (
        [*new, "-x509", "-subj", "/CN=test", "-keyout", key_of_ca, "-out", authority],
        [*new, "-subj", "/CN=node", "-keyout", key, "-out", request],
        ["x509", "-req", "-in", request, "-CA", authority, "-CAkey", key_of_ca,
         "-CAcreateserial", "-extfile", names, "-out", certificate],
    ):  # fmt: skip
        subprocess.run(["openssl", *map(str, command)], check=True, capture_output=True)
    pairs = (("--certificate", certificate), ("--key", key), ("--authority", authority))
    return [str(each) for pair in pairs for each in pair]


def test_links_with_certificates(source_pack: Path, tmp_path: Path) -> None:
    nodes = addresses(2)
    output = tmp_path / "machine.toml"
    trusted = certificates(tmp_path)
    with ThreadPoolExecutor(2) as threads:
        runs = [
            threads.submit(profiled, source_pack, node, nodes, "--output", str(output), *trusted)
            for node in range(2)
        ]
        for each in runs:
            assert each.result().returncode == 0, each.result().stderr
    assert hr.profile.load(output).link is not None


def test_links_of_nodes_that_torchrun_started(source_pack: Path, tmp_path: Path) -> None:
    """Two agents of two processes: one of each node measures, the other ends at once."""
    output = tmp_path / "machine.toml"
    (port,) = (each.rpartition(":")[2] for each in addresses(1))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with contextlib.ExitStack() as agents:
        started = [
            agents.enter_context(
                subprocess.Popen(
                    [*WITH_PARENT, sys.executable, "-m", "torch.distributed.run", "--nnodes=2",
                     "--nproc-per-node=2", f"--node-rank={node}", "--master-addr=127.0.0.1",
                     f"--master-port={port}", "--no-python",
                     sys.executable, "-m", "headrace", "profile", source_pack, "--links",
                     "--seconds", "0.3", "--output", output],
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
            )
            for node in range(2)
        ]  # fmt: skip
        try:
            printed = [each.communicate(timeout=300)[0] for each in started]
        finally:
            for each in started:
                each.kill()
    assert [each.returncode for each in started] == [0, 0], "\n".join(printed)
    link = hr.profile.load(output).link
    assert link is not None
    assert link.nodes == 2


def test_links_need_a_job_of_several_nodes(source_pack: Path) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "HEADRACE_NODES")
    }
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "profile", str(source_pack), "--links"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "run the same command on each of them" in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "profile", str(source_pack), "--open-network"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "are of --links: add it" in done.stderr


def test_a_node_that_does_not_come_is_named(source_pack: Path, monkeypatch: Any) -> None:
    from headrace._measure import links
    from headrace._nodes.launch import Launch
    from headrace._options.groups import Node

    nodes = addresses(2)
    monkeypatch.setenv("HEADRACE_NODES", ",".join(nodes))
    monkeypatch.setenv("HEADRACE_TOKEN", "of this test")
    monkeypatch.setattr(links, "_MEET_S", 1)
    with pytest.raises(hr.errors.HeadraceError, match=r"measuring links: .*node 1"):
        links.LinkProcess(Launch("a test", 0, 2, 0, 1, 0, 2), Node(), seconds=0.1)
