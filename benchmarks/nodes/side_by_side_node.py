"""One node of side_by_side.py, as tools/cluster starts it: takes batches, and prints what it cost.

    python side_by_side_node.py JSON

`kind` is "torch", or how a loader orders and keeps samples. All nodes take the same number of
batches in each of `phases`, begin a phase together, and end together. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from sides import Meeting, cluster_node, cpu_s, torch_batches, used

import headrace as hr


def _order(spec: dict[str, Any], nodes: int) -> Any:
    order = dict(spec["order"])
    name = order.pop("name")
    if name == "redox":
        return hr.orders.Redox(nodes=nodes, **order)
    if name == "epoch":
        return hr.orders.Epoch(**order)
    if name == "batch":
        samples = len(hr.open(spec["pack"]))
        return hr.orders.Batch(homes=hr.orders.dealt_homes(samples, nodes, 1))
    return name


def _loader(spec: dict[str, Any], node: int, nodes: int) -> hr.Loader[Any]:
    return hr.Loader(
        spec["pack"],
        spec["batch"],
        order=_order(spec, nodes),
        output=hr.Output("numpy", fields=[spec["field"]]),
        drop_last=True,
        memory=spec["memory"],
        engine=hr.EngineOptions(prefetch=spec["ahead"], io=spec["io"]),
        tiers=_tiers(spec),
        job=hr.Job(rank=node, world_size=nodes, node=cluster_node(spec["meet"])),
    )


def _tiers(spec: dict[str, Any]) -> hr.Cache | list[Any]:
    if spec["placement"] is None:
        return []
    return hr.Cache([hr.tiers.Ram(spec["tier_bytes"])], placement=spec["placement"])


def _batches(loader: hr.Loader[Any]) -> Iterator[Sequence[Any]]:
    while True:
        for (rows,) in loader:
            yield rows


def _phase(batches: Iterator[Sequence[Any]], phase: dict[str, Any]) -> dict[str, Any]:
    """Takes the batches of a phase, with a training step after each; `laps_s`: its epochs."""
    steps, step_s, lap = phase["steps"], phase["step_s"], round(phase["steps"] / phase["epochs"])
    before, used_s = used(), cpu_s()
    begin = time.perf_counter()
    stall = 0.0
    samples = size = 0
    laps = [begin]
    for step in range(1, steps + 1):
        asked = time.perf_counter()
        rows = next(batches)
        stall += time.perf_counter() - asked
        samples += len(rows)
        size += sum(row.nbytes for row in rows)
        if step_s:
            time.sleep(step_s)
        if step % lap == 0:
            laps.append(time.perf_counter())
    seconds = time.perf_counter() - begin
    counted = {name: value - before[name] for name, value in used().items()}
    return counted | {
        "samples": samples, "bytes": size, "seconds": seconds, "stall_s": stall,
        "cpu_s": cpu_s() - used_s, "laps_s": [b - a for a, b in pairwise(laps)],
    }  # fmt: skip


def _phases(
    batches: Iterator[Sequence[Any]], spec: dict[str, Any], wait: Callable[[], None]
) -> dict[str, Any]:
    found = {}
    for phase in spec["phases"]:
        wait()
        found[phase["name"]] = _phase(batches, phase)
    return found


def main(text: str) -> None:
    spec = json.loads(text)
    node, nodes = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])
    meeting = Meeting(node, nodes)
    if spec["order"]["name"] == "torch":
        phases = _phases(torch_batches(spec, node, nodes), spec, meeting.wait)
        meeting.wait()
        print("result", json.dumps({"phases": phases}), flush=True)
        os._exit(0)  # Workers end with it; their wait for the next batch is none of this.
    with _loader(spec, node, nodes) as loader:
        phases = _phases(_batches(loader), spec, meeting.wait)
        stats = loader.stats()
        meeting.wait()
    kept = ("bytes", "io", "sources", "nodes", "parcels")
    result = {"phases": phases, "stats": {name: stats.get(name) for name in kept}}
    result["resident_peak"] = stats["memory"]["resident_peak"]
    print("result", json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
