"""What the core would say of made-up loaders, for tests of what is made of it."""

from __future__ import annotations

from typing import Any

import numpy as np

CAUSES = ("storage", "decode", "consumer", "ranks")


def lane(
    stall: dict[str, float] | None = None, *, steps: int = 200, seconds: float = 100.0, **more: Any
) -> dict[str, Any]:
    """A lane of the core's stats; `stall`: seconds by cause, of its newest steps and of all."""
    ns = {cause: int((stall or {}).get(cause, 0) * 1e9) for cause in CAUSES}
    made = {
        "batches": steps + 1,
        "samples": 8 * (steps + 1),
        "sample_bytes": 0,
        "decode_ns": 0,
        "busy_ns": 0,
        "stall_ns": dict(ns),
        "held_up_ns": 0,
        "ready": 2,
        "in_work": 1,
        "queued_reads": 5,
        "gone": False,
        "step": (steps, 500_000_000, 600_000_000, 700_000_000),
        "wait": (steps, 0, 0, 0),
        "spanned_ns": int(seconds * 1e9),
        "spanned_stall_ns": ns,
    }
    assert not set(more) - set(made)
    return made | more


def core(lanes: list[dict[str, Any]], *, rank: int = 0, number: int = 0, **more: Any) -> Any:
    """What verdicts are made of; the loader's rank is in lane `number`."""
    imbalance = {
        "iterations": 0,
        "thetas": (0.05, 0.1, 0.2),
        "late": (0.0,) * 3,
        "busy": (0.0,) * 3,
    }
    made = {
        "lanes": lanes,
        "lane": number,
        "rank": rank,
        "imbalance": imbalance,
        "tiers": [],
        "awaited": [],
        "threads": 1,
        "cores": 8,
        "resident_budget": 0,
    }
    return made | more


def training(lanes: int, steps: int, seed: int = 0) -> dict[str, Any]:
    """Columns of ranks that train in step, in two runs, some of their batches late."""
    random = np.random.Generator(np.random.PCG64(seed))
    rows: list[list[dict[str, int]]] = [[] for _ in range(lanes)]
    now = 10**12
    for number in range(steps):
        run = 1 + int(number >= steps // 2)
        ends = []
        for of in range(lanes):
            waited = random.integers(0, 4 * 10**6, 4) * (random.random(4) < 0.4)
            handed = now + int(waited.sum()) if waited.any() else now - int(random.integers(10**6))
            done = handed - int(random.integers(10**5))
            read = done - int(random.integers(1, 2 * 10**6))
            row = {
                "run": run,
                "epoch": run - 1,
                "step": number % (steps // 2),
                "lane": of,
                "admitted_ns": read - int(random.integers(1, 9 * 10**6)),
                "read_ns": read,
                "done_ns": done,
                "busy_ns": int(random.integers(10**6)),
                "handed_ns": handed,
                "taken_ns": max(handed, now) + int(random.integers(1000)),
                "samples": 8,
                "bytes": int(random.integers(10**5)),
            }
            row |= {f"{cause}_ns": int(ns) for cause, ns in zip(CAUSES, waited, strict=True)}
            rows[of].append(row)
            ends.append(row["taken_ns"])
        now = max(ends) + 5 * 10**6
    every = [row for of_lane in rows for row in of_lane]
    return {name: np.array([row[name] for row in every], np.int64) for name in every[0]}
