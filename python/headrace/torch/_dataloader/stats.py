"""The statistics of a DataLoader: how long the loop waited for batches, and what that says."""

from __future__ import annotations

from typing import Any

from headrace.torch._dataloader.reading.pool_size import PoolAdvice, ReadWaits

_FEW = 0.05
"""Share of the time: a loop that waits less gains little by faster reading."""

_REMEDIES = {
    "loop": "samples are read in the loop itself; give num_workers=, or worker_method='thread' "
    "where __getitem__ waits for files or the network",
    "threads": "the threads read more slowly than the loop takes; raise pool_size=, or give "
    "pool_size='auto', where "
    "__getitem__ waits for files or the network, or leave worker_method out where it computes",
    "processes": "the worker processes read more slowly than the loop takes; raise num_workers= up "
    "to the number of cores, or pool_size= where __getitem__ waits for files or the network",
    "engine": "the engine reads more slowly than the loop takes",
}


def figures(waits: ReadWaits, reader: str) -> dict[str, Any]:
    """The statistics of all iterations of a DataLoader. `reader`: who reads the samples: "loop",
    "threads", "processes" or "engine"."""
    waited, worked = waits.seconds()
    advice = waits.advice if reader == "processes" else None
    return {
        "reader": reader,
        "batches": waits.batches,
        "waited_seconds": waited,
        "worked_seconds": worked,
        "pool_size": waits.chosen,
        "advised": advice._asdict() if advice is not None else None,
        "verdict": _verdict(reader, waits.share(), advice),
    }


def _verdict(reader: str, share: float | None, advice: PoolAdvice | None) -> str:
    if share is None:
        return "No verdict: the loop got no second batch yet."
    said = f"The loop waited {share:.0%} of the time for batches"
    if share < _FEW:
        return f"{said}: reading keeps up."
    return f"{said}: {_REMEDIES[reader] if advice is None else advice}."
