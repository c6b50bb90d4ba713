"""What the core would say of made-up loaders, for tests of what is made of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

CAUSES = ("storage", "decode", "consumer", "ranks")
READS = ("tier_read_ns", "node_read_ns", "storage_read_ns")


def lane(
    stall: dict[str, float] | None = None, *, steps: int = 200, seconds: float = 100.0, **more: Any
) -> dict[str, Any]:
    """A lane of the core's stats, with its figures; `stall`: seconds by cause, of its newest steps
    and of all."""
    ns = [int((stall or {}).get(cause, 0) * 1e9) for cause in CAUSES]
    made = {
        "batches": steps + 1,
        "samples": 8 * (steps + 1),
        "sample_bytes": 0,
        "decode_ns": 0,
        **dict.fromkeys(READS, 0),
        "busy_ns": 0,
        "stall_ns": ns,
        "held_up_ns": 0,
        "ready": 2,
        "steps_in_work": 1,
        "queued_reads": 5,
        "gone": False,
        "figures": {
            "step": _quantiles(steps, 500_000_000, 600_000_000, 700_000_000),
            "wait": _quantiles(steps, 0, 0, 0),
            "spanned_ns": int(seconds * 1e9),
            "stall_ns": ns,
        },
    }
    assert not set(more) - set(made)
    return made | more


def _quantiles(count: int, *ns: int) -> dict[str, int]:
    return {"count": count, **dict(zip(("p50_ns", "p95_ns", "p99_ns"), ns, strict=True))}


def core(lanes: list[dict[str, Any]], *, rank: int = 0, number: int = 0, **more: Any) -> Any:
    """What verdicts are made of; the loader's rank is in lane `number`."""
    resident = {"capacity_units": more.pop("resident_budget", 0)}
    made = {
        "engine": {"lanes": lanes, "resident": resident},
        "figures": [each["figures"] for each in lanes],
        "lane": number,
        "rank": rank,
        "tiers": [],
        "awaited": [],
        "threads": 1,
        "cores": 8,
    }
    return made | more


def full_core() -> dict[str, Any]:
    """Every figure that the core has, each with another value: two lanes, two tiers, workers."""
    number = itertools.count(1001)

    def counts(*names: str) -> dict[str, Any]:
        return {name: next(number) for name in names}

    def pool() -> dict[str, Any]:
        return counts(
            "capacity_bytes",
            "used_bytes",
            "used_bytes_peak",
            "beyond_bytes",
            "beyond_bytes_peak",
            "beyond_count",
        )

    def times() -> list[int]:
        return [10**9 + next(number) * 10**6 for _ in range(4)]

    def percentiles() -> dict[str, Any]:
        return counts("count", "p50_ns", "p95_ns", "p99_ns")

    def lane() -> dict[str, Any]:
        return {
            **counts("batches", "samples", "sample_bytes", "copied_bytes", "decode_ns", "busy_ns"),
            **{name: (at + 2) * 10**9 for at, name in enumerate(READS)},
            "stall_ns": times(),
            **counts("held_up_ns", "ready", "steps_in_work", "queued_reads"),
            "gone": False,
            "batch": pool(),
        }

    def figures() -> dict[str, Any]:
        return {
            "step": percentiles(),
            "wait": percentiles(),
            "spanned_ns": 10**11 + next(number),
            "stall_ns": times(),
        }

    def tier(name: str, degraded: bool) -> dict[str, Any]:
        return {
            "name": name,
            "stats": {
                **counts(
                    "capacity_bytes",
                    "used_bytes",
                    "used_bytes_peak",
                    "entries",
                    "entries_inherited",
                    "inserts",
                    "inserts_refused",
                    "inserts_failed",
                    "erased",
                    "read_bytes",
                    "written_bytes",
                    "corrupt",
                    "reads_failed",
                ),
                "degraded": degraded,
                "degraded_reason": "no space left" if degraded else "",
            },
        }

    def uses() -> dict[str, Any]:
        ahead = next(number)
        return {"samples": 5 * ahead, "bytes": next(number), "ahead": ahead}

    def workers() -> dict[str, Any]:
        made = counts("rows", "tasks", "busy_ns")
        return made | {
            "memory": counts(
                "used_bytes",
                "used_bytes_peak",
                "capacity_bytes",
                "beyond_bytes",
                "beyond_bytes_peak",
            )
        }

    return {
        "lane": 1,
        "delivered": {
            **counts("batches", "samples", "substituted"),
            "substitutions": [
                {"epoch": 1, "step": 2, "slot": 3, "wanted": 4, "given": 5, "reason": 'bad "bytes"'}
            ],
            "epochs": [
                {
                    "epoch": 6 + at,
                    "batches": 45 + at,
                    "samples": 150 + at,
                    "from_storage": 46 + at,
                    "from_nodes": 47,
                    "from_tiers": [48, 9],
                    "stall_ns": [10**9 * (49 + at), 0, 5 * 10**8, 0],
                    "sample_sum": 2**64 - 1 - at,
                    "in_sequence": at == 0,
                    "next_step": 3,
                }
                for at in range(2)
            ],
        },
        "engine": {
            **counts("reads", "read_bytes", "substituted"),
            "substitutions": [],
            "blocks": counts(
                "reads",
                "bytes",
                "reread_bytes",
                "kept_bytes",
                "pinned_reads",
                "pinned_bytes",
            )
            | {"left_in_storage": 12}
            | dict.fromkeys(
                (
                    "parcels",
                    "parcel_samples",
                    "parcel_bytes",
                    "sent_parcels",
                    "sent_samples",
                    "sent_bytes",
                ),
                0,
            ),
            **counts("reads_in_flight", "steps_in_work"),
            "staging": pool(),
            "batch": pool(),
            "resident": counts("unit_bytes", "capacity_units", "used_units", "used_units_peak"),
            "pinned": pool(),
            "scratch": counts("capacity_bytes", "used_bytes", "used_bytes_peak", "large_count"),
            "tiers": {
                "uses": [uses(), uses()],
                **counts(
                    "storage_uses", "waits", "fetched_ahead", "moved", "not_kept", "fallbacks"
                ),
                "node_uses": 26,
                "node_bytes": 27,
                "node_fallbacks": 28,
                "brought": 29,
                "tiers_passed": 30,
                "nodes_passed": 31,
                "planned": [next(number), next(number), next(number)],
            },
            "lanes": [lane(), lane()],
        },
        "store": {
            "name": "threads",
            "note": "io_uring: EPERM",
            **counts("reads", "bytes", "bytes_direct", "bytes_page_cache", "retries", "failures"),
            **counts("hedges", "slow_downs"),
            "request_bytes": 26,
            "request_bytes_peak": 27,
            "held_bytes": 23,
            "held_bytes_peak": 24,
            "share_reads": 26,
            "share_bytes": 27,
        },
        "budget": counts(
            "staging_bytes",
            "batch_bytes",
            "batches_max",
            "resident_bytes",
            "pinned_bytes",
            "scratch_bytes",
            "results_bytes",
        )
        | {"decoded_bytes": 25, "request_bytes": 28},
        **counts("threads", "cores", "message_bytes"),
        "running_ns": 10**10 + next(number),
        **counts("device_read_bytes", "index_bytes"),
        "awaited": [],
        "tiers": [tier("RAM", False), tier("SSD /cache", True)],
        "nodes": {
            "node": 1,
            "nodes": 3,
            "received_samples": 30,
            "received_bytes": 31,
            "asked_samples": 44,
            "requests": 42,
            "answers": 43,
            "not_held": 32,
            "failed": 33,
            "asked_second": 38,
            "second_gave": 39,
            "given_samples": 34,
            "given_bytes": 35,
            "not_given": 36,
            "bad_messages": 37,
            "compared_steps": 38,
            "down": [2],
        },
        "schedule": {
            "name": "lobster",
            **counts("stragglers", "corrections", "planned_steps", "decode_threads"),
        },
        "figures": [figures(), figures(), figures()],
        "first_epoch": {
            "step": {"count": 50, "p50_ns": 10**8, "p95_ns": 2 * 10**8, "p99_ns": 3 * 10**8},
            "wait": {"count": 50, "p50_ns": 10**7, "p95_ns": 2 * 10**7, "p99_ns": 3 * 10**7},
            "spanned_ns": 10**10,
            "stall_ns": [0, 0, 0, 0],
        },
        "imbalance": {
            "iterations": next(number),
            "late": [0.5, 0.25, 0.0],
            "busy": [1.0, 0.75, 0.5],
        },
        "thetas": [0.05, 0.1, 0.2],
        "workers": workers(),
    }


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
