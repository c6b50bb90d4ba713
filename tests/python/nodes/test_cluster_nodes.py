"""Nodes of tools/cluster, which have a network of their own: they give each other samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from loader_data import COUNT

from cluster.network import why_no_namespaces
from headrace._observe._steps.merge import merge_traces

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("cluster_script.py")
NO_NAMESPACES = why_no_namespaces()


@pytest.fixture
def headrace_on_path(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has the command, whether the package is installed or not."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "headrace"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace "$@"\n')
    program.chmod(0o755)
    paths = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": paths}


@pytest.mark.parametrize("network", ["namespaces", "loopback"])
def test_nodes_with_networks_of_their_own_give_each_other_samples(
    numbered: Path, tmp_path: Path, headrace_on_path: dict[str, str], network: str
) -> None:
    if network == "namespaces" and NO_NAMESPACES is not None:
        pytest.skip(f"no network namespaces here: {NO_NAMESPACES}")
    alone = network == "namespaces"  # Each sees only its own loaders: the others are asked.
    options = [] if alone else ["--loopback"]
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "cluster", "run", "-n", "3", "--link", "200Mbit",
         *options, "--", sys.executable, SCRIPT, numbered, tmp_path, *(["ask"] * alone)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, check=False,
        env=headrace_on_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    stats = [json.loads((tmp_path / f"stats-{node}.json").read_text()) for node in range(3)]
    assert [each["nodes"]["node"] for each in stats] == [0, 1, 2]
    assert sum(each["nodes"]["received"] for each in stats) > COUNT / 3
    assert sum(each["nodes"]["failed"] for each in stats) == 0
    if alone:
        loaders = json.loads((tmp_path / "top.json").read_text())["loaders"]
        seen = [(each["rank"], each.get("node")) for each in loaders]
        assert seen == [(0, None), (1, "10.77.0.2"), (2, "10.77.0.3")]
    merged = merge_traces([tmp_path / f"trace-{node}.json" for node in range(3)])
    tracks = {event["args"]["name"] for event in merged["traceEvents"] if event["ph"] == "M"}
    assert {"rank 0", "rank 1", "rank 2"} <= tracks
