"""One node of cluster.py, as tools/cluster starts it: reads a pack in one way, and prints a result.

    python node_side.py JSON

`kind` is "torch", or the order of a loader with tiers that nodes share. All nodes take the same
number of batches, and none ends before all have taken theirs. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sides import Meeting, cluster_node, cpu_s, torch_batches, used

import headrace as hr


def _loader(spec: dict[str, Any], node: int, nodes: int) -> hr.Loader[Any]:
    this = cluster_node(nodes > 1, ask=spec.get("ask", "plan"))
    return hr.Loader(
        spec["pack"],
        spec["batch"],
        order=spec["kind"],
        output=hr.Output("numpy", fields=[spec["field"]]),
        drop_last=True,
        memory=spec["memory"],
        engine=hr.EngineOptions(prefetch=spec["ahead"]),
        tiers=hr.Cache(
            hr.tiers.Ram(spec["tier_bytes"]), placement=spec.get("placement", "coordinated")
        ),
        job=hr.Job(rank=node, world_size=nodes, node=this),
    )


def _batches(loader: hr.Loader[Any]) -> Iterator[Sequence[Any]]:
    while True:
        for (rows,) in loader:
            yield rows


def _measured(
    batches: Iterator[Sequence[Any]], spec: dict[str, Any], wait: Callable[[], None]
) -> dict[str, Any]:
    for _ in range(spec["warm_steps"]):
        next(batches)
    wait()
    for _ in range(spec["ahead"]):  # What was read while others were waited for.
        next(batches)
    begin, used = time.perf_counter(), cpu_s()
    samples = size = 0
    for _ in range(spec["steps"]):
        rows = next(batches)
        samples += len(rows)
        size += sum(row.nbytes for row in rows)
    seconds = time.perf_counter() - begin
    return {"samples": samples, "bytes": size, "seconds": seconds, "cpu_s": cpu_s() - used}


def _epochs(
    loader: hr.Loader[Any], spec: dict[str, Any], wait: Callable[[], None]
) -> list[dict[str, Any]]:
    """What each epoch took, from the first on, in which tiers fill."""
    batches = _batches(loader)
    found = []
    before: dict[str, Any] = _counted(loader)
    for _ in range(spec["epochs"]):
        wait()
        begin = time.perf_counter()
        for _ in range(spec["steps"]):
            next(batches)
        seconds = time.perf_counter() - begin
        after = _counted(loader)
        found.append({name: after[name] - before[name] for name in after} | {"seconds": seconds})
        before = after
    return found


def _counted(loader: hr.Loader[Any]) -> dict[str, Any]:
    nodes = loader.stats()["nodes"]
    assert nodes is not None
    names = ("asked", "not_held", "received", "received_bytes", "requests", "answers", "failed")
    return {name: nodes[name] for name in names} | {  # type: ignore[literal-required]
        "storage_bytes": used()["storage_bytes"]
    }


def main(text: str) -> None:
    spec = json.loads(text)
    node, nodes = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])
    meeting = Meeting(node, nodes)
    if spec["kind"] == "torch":
        result = _measured(torch_batches(spec, node, nodes), spec, meeting.wait)
        meeting.wait()
        print("result", json.dumps(result), flush=True)
        os._exit(0)  # Workers end with it; their wait for the next batch is none of this.
    with _loader(spec, node, nodes) as loader:
        if "epochs" in spec:
            epochs = _epochs(loader, spec, meeting.wait)
            meeting.wait()
            print("result", json.dumps({"epochs": epochs}), flush=True)
            return
        result = _measured(_batches(loader), spec, meeting.wait)
        stats = loader.stats()
        result |= {
            "io": stats["io"],
            "sources": stats["sources"],
            "nodes": stats["nodes"],
            "resident_peak": stats["memory"]["resident_peak"],
        }
        meeting.wait()
    print("result", json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
