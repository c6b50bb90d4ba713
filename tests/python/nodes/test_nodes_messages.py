"""Errors of nodes that cannot meet: the way out is an option, a variable or a launcher."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from loader_data import FLAT

import headrace as hr
from headrace import errors
from headrace._measure import links
from headrace._measure.links import LinkProcess
from headrace._nodes.launch import NODES, Launch
from headrace._nodes.meeting import Met
from headrace._nodes.plan import TOKEN, _check_reachable, rate_bytes

LAUNCH = Launch("a test", rank=0, world_size=2, local_rank=0, local_world_size=1, node=0, nodes=2)
HERE = "127.0.0.1:7071,127.0.0.1:7072"
ELSEWHERE = "10.0.0.1:7071,10.0.0.2:7071"


def said(nodes: hr.Node, kind: type[Exception] = errors.InvalidArgumentError) -> str:
    """The error of measuring links between two nodes."""
    with pytest.raises(kind) as raised:
        LinkProcess(LAUNCH, nodes, 1.0).end()
    return str(raised.value)


@pytest.mark.parametrize(
    ("addresses", "nodes", "says"),
    [
        (
            None,
            {},
            "--links: the nodes cannot meet: start them with torchrun, or set the environment "
            f"variables {NODES}, the addresses of all nodes, and {TOKEN}, a secret",
        ),
        (
            ELSEWHERE,
            {},
            "--links: the nodes are on other machines: give --certificate, --key and --authority, "
            "or say by --open-network that their network is private",
        ),
        (
            HERE,
            {"certificate": "node.pem"},
            "--certificate, --key and --authority: give all three, or none",
        ),
    ],
)
def test_nodes_that_cannot_measure_their_links_are_told_why(
    addresses: str | None, nodes: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "secret")
    if addresses is not None:
        monkeypatch.setenv(NODES, addresses)
    assert said(hr.Node(**nodes)) == says


def test_a_secret_of_two_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODES, "127.0.0.1:0,127.0.0.1:7072")
    monkeypatch.setenv(TOKEN, "one\ntwo")
    monkeypatch.setattr(links, "_arguments", lambda plan: ["--links", "127.0.0.1:0"])
    monkeypatch.setattr(links, "way_to_meet", lambda *rest: links_way(os.environ[NODES].split(",")))
    assert said(hr.Node()) == f"{NODES}, {TOKEN}: must be one line each"


def links_way(addresses: list[str]) -> Any:
    from headrace._nodes.plan import Way

    return Way(None, addresses, "127.0.0.1:0", None)


def test_a_process_of_links_that_ends_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "node"
    program.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(links, "executable", lambda: str(program))
    monkeypatch.setenv(NODES, HERE)
    monkeypatch.setenv(TOKEN, "secret")
    assert said(hr.Node(), errors.UnavailableError) == (
        "measuring links: the process ended with 3: no room; run the command again on all nodes"
    )


def test_an_address_that_others_cannot_reach_is_named() -> None:
    met = Met(["127.0.0.1:7071", "10.0.0.2:7071"], ["machine 0", "machine 1"], "secret")
    _check_reachable(0, met)
    with pytest.raises(errors.InvalidArgumentError) as raised:
        _check_reachable(1, met)
    assert str(raised.value) == (
        "Job.node: node 0 listens at 127.0.0.1:7071, and node 1 is another machine, which cannot "
        "reach it there: set MASTER_ADDR to a host that all nodes reach, or give each node its own "
        "job=hr.Job(node=hr.Node(listen=...))"
    )


def test_a_certificate_without_its_key_is_refused(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "secret")
    node = hr.Node(
        local_rank=0, local_world_size=1, addresses=HERE.split(","), certificate="node.pem"
    )
    job = hr.Job(rank=0, world_size=2, node=node)
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, 4, transform=FLAT, job=job, tiers=[hr.tiers.Ram("1MiB")])
    assert str(raised.value) == (
        "Node.certificate, key and authority: give all three files, or none"
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"rate": "2Gb/s"},
            'Node.rate: "2Gb/s" may be bits a second; write bytes: "0.25GB/s" if it is bits, else '
            '"2GB/s"',
        ),
        ({"rate": "100 Mib"}, 'write bytes: "12.5MiB/s" if it is bits, else "100MiB/s"'),
        ({"rate": "800mbit/s"}, 'write bytes: "100MB/s" if it is bits, else "800MB/s"'),
        ({"rate": "10Gbps"}, 'write bytes: "1.25GB/s" if it is bits'),
        ({"rate": "fast"}, 'Node.rate: "fast" is not a number of bytes; write it as'),
        ({"rate": 5}, "Node.rate: got 5, must be in [1000000, "),
        ({"answer_timeout": "x"}, "Node.answer_timeout: got 'x', must be an integer"),
        ({"answer_timeout": 0}, "Node.answer_timeout: got 0, must be in [1, 3600]"),
        ({"open_network": "yes"}, "Node.open_network: got 'yes', must be True or False"),
        ({"ask": "any"}, "Node.ask: got 'any', must be one of 'plan', 'progress'"),
        ({"listen": 5}, "Node.listen: got 5, must be a text"),
        ({"certificate_name": ""}, "Node.certificate_name: got '', must be a text"),
        ({"key": "a.pem"}, "Node.certificate, key and authority: give all three files, or none"),
        (
            {"addresses": "a:1"},
            "Node.addresses: got 'a:1', must be a list of texts 'host:port', on",
        ),
        ({"addresses": ["a"]}, "must be a list of texts 'host:port', one for each node"),
        ({"addresses": ["a:b"]}, "Node.addresses: 'a:b' has the port 'b', must be a number from"),
        ({"addresses": ["a:1", "a:1"]}, "must be different: each node listens on its own"),
    ],
)
@pytest.mark.parametrize("tiers", [None, [hr.tiers.Ram("1MiB")]])
def test_options_of_a_node_are_checked_where_there_is_one_rank(
    numbered: Path, options: dict[str, Any], says: str, tiers: Any
) -> None:
    node = hr.Node(local_rank=0, local_world_size=1, **options)
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(numbered, 4, transform=FLAT, job=hr.Job(node=node), tiers=tiers)
    assert says in str(raised.value)


def test_rates_in_bytes_are_read() -> None:
    rates = {"2GB/s": 2e9, " 1.5 GiB/s ": 1.5 * 2**30, "8MB": 8e6, "64m": 64 * 2**20, "1 PB": 1e15}
    assert {text: rate_bytes(text) for text in rates} == rates
