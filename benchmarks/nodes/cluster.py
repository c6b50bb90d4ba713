"""Several nodes on one machine, with links and storage in the papers' ratio, beside torch.

    python benchmarks/nodes/cluster.py [--part beside|scaling|asks] [--quick]

tools/cluster makes the nodes: network namespaces, with a rate of each link by tc, and of each
node's reads by control groups. Storage reads a quarter of what a link carries, and random reads of
100 KB get a sixteenth of that: 256 MB/s, 64 MB/s, 40 reads a second. That is a tenth or less of a
real machine's, so that two cores are not what limits; their use is printed. Each node has storage
of its own speed, so storage scales with nodes.

Memory for caches is 25 and 40 % of the data, of all nodes together, also torch's: each of its nodes
keeps the first samples that it reads in memory, until its part is full. All read past the page
cache, which nodes on one machine would share.

`beside`: samples a second of `epoch` and of `exact`, each with a tier that the nodes share, and of
torch's DataLoader, on 3 and 5 nodes. `scaling`: `exact` on 1 to 4 nodes. The first epoch, which
fills the tiers, does not count. The rate of a job is that of its slowest node. `asks`: what
`Node(ask="plan")` and `ask="progress"`, NoPFS's guess, cost in the epoch that fills the tiers and
in the next, by placement: `frequency` is NoPFS's.

Goals: `epoch` at least 2 times torch's; `exact` on N nodes at least 0.9 of N times one node's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import _data
import _harness

from cluster.network import why_no_namespaces

ROOT = Path(__file__).resolve().parents[2]
_STORAGE = 64 * 10**6  # bytes/s of a node
_LINK = 4 * _STORAGE
_READS = _STORAGE // 16 // _data.MEAN_BYTES  # a second
_BATCH = 20  # of a node
_WORKERS = 2
_AHEAD = 8  # batches that any loader prepares ahead
_CACHES = (0.25, 0.40)
_NODES_BESIDE = (3, 5)
_NODES_SCALING = (1, 2, 3, 4)
_NODES_ASKS = 3
_PLACEMENTS = ("frequency", "coordinated")  # for `ask`; the first is NoPFS's
_SHARES_ASKS = (0.40, 1.05)
_EPOCHS_OF_EPOCH = 6  # It reads one in seconds.
_TORCH_S = 8.0
_RATIO_GOAL = 2.0
_EFFICIENCY_GOAL = 0.9
_RUN_S_MAX = 400.0


def _run(pack: Path, nodes: int, spec: dict[str, Any]) -> dict[str, Any]:
    """What the job gives; each node's own result is in `nodes`."""
    of_nodes = _nodes_of(pack, nodes, spec)
    seconds = max(each["seconds"] for each in of_nodes)
    return {
        "samples_per_s": sum(each["samples"] for each in of_nodes) / seconds,
        "seconds": seconds,
        "cores": sum(each["cpu_s"] / each["seconds"] for each in of_nodes),
        "nodes": of_nodes,
    }


def _nodes_of(pack: Path, nodes: int, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """What each node of a job prints."""
    with tempfile.TemporaryDirectory(prefix="headrace-cluster-", dir="/dev/shm") as folder:
        spec = {
            "pack": str(pack),
            "field": "image",
            "batch": _BATCH,
            "cache_folder": folder,
            **spec,
        }
        done = subprocess.run(
            [sys.executable, ROOT / "tools" / "cluster", "run", "-n", str(nodes),
             "--link", f"{_LINK / 1e6}MB/s", "--storage", f"{_STORAGE / 1e6}MB/s",
             "--reads", str(_READS), "--storage-path", pack,
             "--", sys.executable, Path(__file__).with_name("node_side.py"), json.dumps(spec)],
            capture_output=True, text=True, timeout=_RUN_S_MAX, check=False,
        )  # fmt: skip
    if done.returncode != 0 or "NOT limited" in done.stderr:
        raise SystemExit(f"{spec['kind']} on {nodes} nodes:\n{done.stdout}{done.stderr}")
    return [
        json.loads(line.partition("] result ")[2])
        for line in sorted(done.stdout.splitlines())
        if "] result " in line
    ]


def _spec(kind: str, samples: int, nodes: int, share: float, epochs: int) -> dict[str, Any]:
    """Of a job whose tiers hold `share` of the data together."""
    steps = samples // (nodes * _BATCH)  # an epoch
    tier = int(share * samples * _data.MEAN_BYTES / nodes)
    memory = max(64 * 2**20, tier + 32 * 2**20)  # with the tier
    common = {"kind": kind, "tier_bytes": tier, "memory": memory, "workers": _WORKERS}
    common["ahead"] = _AHEAD
    if kind == "torch":
        count = max(4, int(_TORCH_S * _READS / _BATCH))
        # Until its cache is full, at once; then a little more, so that all workers read.
        warm = min(int(share * samples / nodes / _BATCH) + 2 * _WORKERS, steps)
        return common | {"warm_steps": warm, "fill_steps": warm, "steps": count}
    return common | {"warm_steps": steps, "steps": epochs * steps}


def _beside(pack: Path, samples: int, cells: list[tuple[int, float]]) -> list[dict[str, Any]]:
    found = []
    for nodes, share in cells:
        runs = {
            kind: _run(pack, nodes, _spec(kind, samples, nodes, share, epochs))
            for kind, epochs in (("torch", 0), ("exact", 1), ("epoch", _EPOCHS_OF_EPOCH))
        }
        torch_rate = runs["torch"]["samples_per_s"]
        ratios = {kind: run["samples_per_s"] / torch_rate for kind, run in runs.items()}
        found.append({"nodes": nodes, "share": share, "runs": runs, "ratios": ratios})
        print(
            f"| {nodes} | {share:.0%} | {torch_rate:.0f} | "
            + " | ".join(
                f"{runs[kind]['samples_per_s']:.0f} ({ratios[kind]:.2f})"
                for kind in ("exact", "epoch")
            )
            + f" | {max(run['cores'] for run in runs.values()):.2f} |",
            flush=True,
        )
    return found


def _scaling(pack: Path, samples: int, counts: list[int], share: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for nodes in counts:
        run = _run(pack, nodes, _spec("exact", samples, nodes, share, 1))
        alone = found[0]["run"]["samples_per_s"] if found else run["samples_per_s"]
        efficiency = run["samples_per_s"] / (nodes * alone)
        found.append({"nodes": nodes, "share": share, "run": run, "efficiency": efficiency})
        print(
            f"| {nodes} | {share:.0%} | {run['samples_per_s']:.1f} | {efficiency:.2f} | "
            f"{run['cores']:.2f} |",
            flush=True,
        )
    return found


def _asks(pack: Path, samples: int, cells: list[tuple[str, float]]) -> list[dict[str, Any]]:
    found = []
    for placement, share in cells:
        for ask in ("plan", "progress"):
            spec = _spec("exact", samples, _NODES_ASKS, share, 1)
            spec |= {"placement": placement, "ask": ask, "epochs": 2}
            of_nodes = _nodes_of(pack, _NODES_ASKS, spec)
            for number in range(2):
                epochs = [each["epochs"][number] for each in of_nodes]
                sums = {name: sum(each[name] for each in epochs) for name in epochs[0]}
                sums["seconds"] = max(each["seconds"] for each in epochs)
                cell = {"placement": placement, "share": share, "ask": ask, "epoch": number}
                found.append(cell | sums)
                print(
                    f"| `{placement}`, {share:.0%} | {number + 1} | `{ask}` | {sums['asked']:,} | "
                    f"{sums['not_held']:,} | {sums['received']:,} | {sums['requests']:,} | "
                    f"{sums['asked'] / max(1, sums['requests']):.1f} | "
                    f"{sums['received_bytes'] / 1e6:.0f} | {sums['storage_bytes'] / 1e6:.0f} | "
                    f"{sums['seconds']:.1f} |",
                    flush=True,
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--part", choices=("beside", "scaling", "asks"), help="default: all")
    parser.add_argument("--quick", action="store_true", help="a little data: to see that it works")
    given = parser.parse_args()
    why = why_no_namespaces() or (None if _harness.can_throttle() else "no cgroup v1 with blkio")
    if why is not None:
        print(f"skipped: needs root, network namespaces and control groups: {why}")
        return
    samples = 400 if given.quick else 2000
    data = _data.raw_data(given.data, samples * _data.MEAN_BYTES)
    _harness.make_cold(data.files(data.pack))
    common = {"samples": samples, "storage": _STORAGE, "link": _LINK, "reads": _READS}
    verdicts = []
    if given.part in (None, "beside"):
        print("| nodes | caches | torch | `exact` | `epoch` | cores, most |")
        cells = [(nodes, share) for share in _CACHES for nodes in _NODES_BESIDE]
        beside = _beside(data.pack, samples, cells[:1] if given.quick else cells)
        least = min(cell["ratios"]["epoch"] for cell in beside)
        verdicts.append(("epoch of torch's", least, _RATIO_GOAL))
        if not given.quick:
            _harness.record("cluster", {**common, "part": "beside", "cells": beside})
    if given.part in (None, "scaling"):
        print("| nodes | caches | `exact`, samples/s | efficiency | cores |")
        counts = [1, 2] if given.quick else list(_NODES_SCALING)
        scaling = _scaling(data.pack, samples, counts, _CACHES[-1])
        least = min(cell["efficiency"] for cell in scaling)
        verdicts.append(("efficiency", least, _EFFICIENCY_GOAL))
        if not given.quick:
            _harness.record("cluster", {**common, "part": "scaling", "cells": scaling})
    if given.part in (None, "asks"):
        print(
            "| placement, tiers | epoch | ask | asked | not held | received | messages | samples a "
            "message | MB from nodes | MB from storage | s |"
        )
        cells = [(placement, share) for placement in _PLACEMENTS for share in _SHARES_ASKS]
        asks = _asks(data.pack, samples, cells[:1] if given.quick else cells)
        if not given.quick:
            _harness.record("cluster", {**common, "part": "asks", "cells": asks})
    for name, value, goal in verdicts:
        print(f"{name}: {value:.2f}: {'holds' if value >= goal else 'FALLS SHORT'}, goal {goal}")


if __name__ == "__main__":
    main()
