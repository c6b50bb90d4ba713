"""Redox's protocol between real processes, beside what the planner counts.

    python benchmarks/nodes/redox_remote.py [--part framing] [--quick]
        [--variants a,b] [--limits 0.2,4] [--chunks 16,64]

Three nodes on this machine, each a process with a node process, read 128,064 records of 4 KB (a
tenth of ImageNet-1k's samples) from shared storage in chunks of 64: table 6 of the paper with
`read="chunk"`, with a window a tenth of the one that fits its numbers; figure 5, the limit of
remote bytes, a tenth of the paper's samples each; and figure 6, other chunks, without a window.
The part `framing` has what a batch waits for if answers go alone (Brand) or with all that is sent
along (Redox): the same samples, links of several rates, a training step of 40 ms, rounds in turns.
Each line says what the nodes counted, and whether that is what the plan says. Writes the table of
docs/side-by-side.md. Seconds are of no storage, so not of the paper: all is in the page cache.

Goals: counts equal to the plan's, bytes within 2 % of it; without a window 2/3 of the samples are
requested, with one at least 15 times fewer; amplification within 2 % of the paper's without one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _data
import _harness
from _reports import redox_remote_report

SAMPLES = 128_064
NODES = 3
BATCH = 256
RATES = ("", "24MB/s", "16MB/s", "8MB/s")  # what a node gives: a step needs 0.7 MB of it
TRAIN_S = 0.04
ROUNDS = 3
WINDOW = 550
VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"refill": "random"},
    "fill": {"refill": "max_fill"},
    "window": {"refill": "random", "prefetch": WINDOW},
    "both": {"refill": "max_fill", "prefetch": WINDOW},
}


def run(pack: Path, order: dict[str, Any], chunk: int = 64, **more: object) -> list[dict[str, Any]]:
    """What each node counted."""
    held = [socket.create_server((f"127.0.0.{node + 1}", 0)) for node in range(NODES)]
    addresses = ["{}:{}".format(*each.getsockname()) for each in held]
    for each in held:
        each.close()
    sides = []
    for node in range(NODES):
        spec = {"pack": str(pack), "nodes": NODES, "node": node, "batch": BATCH, "chunk": chunk}
        spec |= more
        environment = os.environ | {
            "RANK": str(node),
            "WORLD_SIZE": str(NODES),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(node),
            "MASTER_ADDR": "redox",
            "MASTER_PORT": str(os.getpid()),
            "HEADRACE_TOKEN": "a benchmark's",
        }
        command = [
            sys.executable,
            str(Path(__file__).with_name("redox_side.py")),
            json.dumps(spec | {"order": order, "addresses": addresses}),
        ]
        sides.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True))
    results = []
    for side in sides:
        out, _ = side.communicate()
        if side.returncode != 0:
            raise SystemExit(f"a node ended with {side.returncode}")
        results.append(json.loads(out.splitlines()[-1]))
    return results


def compared(sides: list[dict[str, Any]]) -> dict[str, Any]:
    """The job's figures, and whether the nodes counted what the plan counts."""
    job = sides[0]["planned"]
    equal = all(
        side["parcels"]["received"] == side["planned"]["parcels_received"]
        and side["parcels"]["sent"] == side["planned"]["parcels_sent"]
        and side["parcels"]["sent_samples"] == side["planned"]["samples_sent"]
        for side in sides
    )
    read = sum(side["bytes"]["read"] for side in sides)
    return {
        "samples": sum(side["samples"] for side in sides),
        "counters_equal": equal,
        "remote_requests": sum(side["parcels"]["received"] for side in sides),
        "remote_requests_planned": job["remote_requests"],
        "sent_samples": sum(side["parcels"]["sent_samples"] for side in sides),
        "remote_reads": job["remote_reads"],
        "prefetched_share": job["prefetched"] / max(1, job["remote_reads"]),
        "loads_per_chunk": job["loads_per_chunk"],
        "read_bytes": read,
        "read_bytes_planned": job["read_bytes"],
        "amplification": read / (SAMPLES * 4096),
        "peak_remote_bytes": max(side["planned"]["node_peak_remote_bytes"] for side in sides),
        "seconds": max(side["seconds"] for side in sides),
    }


def framings(pack: Path, rates: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """What batches wait for, with either framing, by the rate of links."""
    for rate in rates:
        waits: dict[str, list[float]] = {"one": [], "split": []}
        seconds: dict[str, list[float]] = {"one": [], "split": []}
        parcels: dict[str, int] = {}
        for turn in range(rounds):
            for framing in sorted(waits, reverse=turn % 2 == 1):
                order = VARIANTS["both"] | {"framing": framing}
                more = {"train": TRAIN_S, "memory": "256MiB", "rate": rate or None}
                sides = run(pack, order, **more)
                for side in sides:
                    waits[framing] += side["waits"][1:]  # The first waits for the start, too.
                seconds[framing].append(max(side["seconds"] for side in sides))
                parcels[framing] = sum(side["parcels"]["received"] for side in sides)
                if not compared(sides)["counters_equal"]:
                    raise SystemExit(f"framing {framing}: the nodes count what the plan does not")
        for framing, found in waits.items():
            cuts = statistics.quantiles(found, n=100)
            yield {
                "framing": framing,
                "rate": rate,
                "parcels": parcels[framing],
                "seconds": statistics.median(seconds[framing]),
                "wait_s": sum(found) / rounds / NODES,
                "wait_p50_ms": cuts[49] * 1e3,
                "wait_p99_ms": cuts[98] * 1e3,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--part", choices=("counts", "framing"), help="default: both")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    limits = "0.195,1.95,3.9,5.86,7.81,11.7"  # the paper's 50 MB to 3 GB
    parser.add_argument("--limits", default=limits, help="MB of remote samples on a node")
    parser.add_argument("--chunks", default="4,16,64,256", help="samples a chunk")
    parser.add_argument("--quick", action="store_true", help="a little, unrecorded: does it work?")
    arguments = parser.parse_args()
    _, pack = _data.record_data(arguments.data, SAMPLES, 4096)
    if arguments.quick:
        for line in framings(pack, RATES[1:2], 1):
            print(line, flush=True)
        return
    if arguments.part != "counts":
        for line in framings(pack, RATES, ROUNDS):
            _harness.record("redox_remote", {"variant": "framing"} | line)
    if arguments.part != "framing":
        counts(pack, arguments)
    redox_remote_report.write()


def counts(pack: Path, arguments: argparse.Namespace) -> None:
    """The papers' tables and figures."""
    for name in filter(None, arguments.variants.split(",")):
        order = VARIANTS[name] | {"read": "chunk"}
        _harness.record("redox_remote", {"variant": name} | compared(run(pack, order)))
    for limit in filter(None, arguments.limits.split(",")):
        order = VARIANTS["both"] | {"remote_limit": round(float(limit) * 10**6), "read": "chunk"}
        result = compared(run(pack, order))
        _harness.record("redox_remote", {"variant": "limit", "limit_mb": float(limit)} | result)
    for chunk in filter(None, arguments.chunks.split(",")):
        order = VARIANTS["fill"] | {"read": "chunk"}
        result = compared(run(pack, order, int(chunk)))
        _harness.record("redox_remote", {"variant": "chunk", "chunk": int(chunk)} | result)


if __name__ == "__main__":
    main()
