"""What loading from other nodes costs training's own traffic, and what `Node.rate` saves.

    python benchmarks/nodes/allreduce.py [--nodes 2] [--rounds 7] [--data FOLDER] [--quick]

tools/cluster makes the nodes: network namespaces whose links have a rate by tc, 400 Mbit/s in each
direction, so slow that two cores do not limit. The nodes sum tensors of 16 MiB by gloo, one after
the other, in three conditions, each once in a round, in random order:

alone: nothing else.
beside: each node takes batches as fast as it can, the samples from its own tier and the others'.
with rate: the same with `Node(rate=)` of a quarter of the link.

The slow-down is the seconds of an allreduce over those of the same round alone: the median over the
rounds, and its bootstrap 95 % interval. An allreduce needs the whole link, so with a share s of it
given away the least slow-down is 1 / (1 - s), 1.33 for a quarter. A run is void if storage
is read for more than a hundredth of what nodes receive, or if node 0 receives nothing.

Goal: with the rate at most 1.15 of that least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import _data
import _harness

from cluster.network import why_no_namespaces

ROOT = Path(__file__).resolve().parents[2]
_LINK_BITS = 400 * 10**6  # a second, in each direction
_SHARE = 0.25  # of the link, given to loading
_TENSOR_BYTES = 16 * 2**20
_ALLREDUCES = 6  # a condition and round
_SAMPLES = 600
_BATCH = 10
_AHEAD = 4  # batches
_HOLDS = 1.05  # of the data, the tiers together
_GOAL = 1.15
_RUN_S_MAX = 550.0


def _run(pack: Path, nodes: int, rounds: int) -> dict[str, Any]:
    spec = {
        "pack": str(pack),
        "batch": _BATCH,
        "ahead": _AHEAD,
        "tier_bytes": int(_HOLDS * _SAMPLES * _data.MEAN_BYTES / nodes),
        "rate": int(_SHARE * _LINK_BITS / 8),
        "tensor_bytes": _TENSOR_BYTES,
        "count": _ALLREDUCES,
        "rounds": rounds,
    }
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "cluster", "run", "-n", str(nodes),
         "--link", f"{_LINK_BITS / 1e6}Mbit", "--",
         sys.executable, Path(__file__).with_name("allreduce_side.py"), json.dumps(spec)],
        capture_output=True, text=True, timeout=_RUN_S_MAX, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("[node 0] result ")]
    if done.returncode != 0 or len(lines) != 1:
        raise SystemExit(f"{done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(lines[0].partition(" result ")[2])
    return found


def _slow_down(rounds: list[dict[str, Any]], condition: str) -> tuple[float, float, float]:
    return _harness.median_and_interval(
        [each[condition]["allreduce_s"] / each["alone"]["allreduce_s"] for each in rounds]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one round: to see that it works")
    given = parser.parse_args()
    if (why := why_no_namespaces()) is not None:
        print(f"skipped: needs root and network namespaces: {why}")
        return
    data = _data.raw_data(given.data, _SAMPLES * _data.MEAN_BYTES)
    steal = _harness.steal_share()
    found = _run(data.pack, given.nodes, 1 if given.quick else given.rounds)
    if found["storage_reads"] > 0.01 * found["received_samples"]:
        raise SystemExit(
            f"void: {found['storage_reads']} reads of storage, {found['received_samples']} samples "
            "received"
        )
    rounds = found["rounds"]
    if not all(
        each[name]["received_bytes_per_s"] for each in rounds for name in ("beside", "with rate")
    ):
        raise SystemExit("void: a node received nothing while it loaded")
    print("| condition | seconds of an allreduce | slow-down | received beside, MB/s |")
    slow_downs = {}
    for condition in ("alone", "beside", "with rate"):
        slow_downs[condition] = _slow_down(rounds, condition)
        value, low, high = slow_downs[condition]
        seconds = median(each[condition]["allreduce_s"] for each in rounds)
        rate = median(each[condition]["received_bytes_per_s"] for each in rounds)
        print(
            f"| {condition} | {seconds:.3f} | {value:.2f} ({low:.2f} to {high:.2f}) "
            f"| {rate / 1e6:.1f} |",
            flush=True,
        )
    least = 1 / (1 - _SHARE)
    if not given.quick:
        common = {"nodes": given.nodes, "link_bits_per_s": _LINK_BITS, "share": _SHARE}
        common |= {"tensor_bytes": _TENSOR_BYTES, "samples": _SAMPLES, "steal": steal()}
        _harness.record("allreduce", {**common, "slow_downs": slow_downs, **found})
    over = slow_downs["with rate"][0] / least
    holds = "holds" if over <= _GOAL else "FALLS SHORT"
    print(f"slow-down with rate: {over:.2f} of the least, {least:.2f}: {holds}, goal {_GOAL}")


if __name__ == "__main__":
    main()
