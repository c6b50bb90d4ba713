"""What `stats()` says of each rank, and in one line of all."""

from __future__ import annotations

from typing import Any, TypedDict

from headrace._observe.advice import DataFacts, decode_advice, storage_advice
from headrace._units import counted

SHARE_MIN = 0.01
"""Of its time that a rank has to wait before anything is advised."""


class Stall(TypedDict):
    """Seconds that the training loop waited for a batch, by what it waited for."""

    storage: float
    decode: float
    consumer: float
    ranks: float
    """another rank of the node took no batches, so that the plan could not go on"""


class Quantiles(TypedDict):
    """Seconds, of the newest batches, at most 4,096 a rank."""

    count: int
    p50: float
    p95: float
    p99: float


class Rank(TypedDict):
    """One rank of those that the loader's engine serves. Times in seconds."""

    rank: int
    batches: int
    """decoded and handed over, taken or not"""
    samples: int
    stall: Stall
    stall_share: float
    """of the time of the newest batches, the first of each run left out"""
    stall_shares: Stall
    """the same by cause"""
    held_up: float
    """that other ranks waited because this one took no batches"""
    step: Quantiles
    """from one batch taken to the next"""
    wait: Quantiles
    """for a batch"""
    ready: int
    """batches that wait for it"""
    in_work: int
    """batches being read and decoded"""
    queued_reads: int
    gone: bool
    """its process left"""


class Imbalance(TypedDict):
    """How unevenly ranks get on: shares of iterations in which the slowest differs from the fastest
    by more than theta times what training takes."""

    iterations: int
    """the newest, of which every rank's batch is known"""
    thetas: list[float]
    late: list[float]
    """by theta; in how long after the step before began their batches were done"""
    busy: list[float]
    """by theta; in what reading and decoding took them, whoever waits for it"""


def make_stall(ns: dict[str, int]) -> Stall:
    """From nanoseconds by cause."""
    return Stall(
        storage=ns["storage"] / 1e9,
        decode=ns["decode"] / 1e9,
        consumer=ns["consumer"] / 1e9,
        ranks=ns["ranks"] / 1e9,
    )


def stall_seconds(stall: Stall) -> float:
    """Of all causes."""
    return stall["storage"] + stall["decode"] + stall["consumer"] + stall["ranks"]


def make_ranks(core: dict[str, Any]) -> list[Rank]:
    """From the core's counters of lanes."""
    first = core["rank"] - core["lane"]
    return [_make_rank(lane, first + number) for number, lane in enumerate(core["lanes"])]


def _make_rank(lane: dict[str, Any], rank: int) -> Rank:
    shares = make_stall(lane["spanned_stall_ns"])
    seconds = lane["spanned_ns"] / 1e9
    if seconds:
        shares = Stall(
            storage=shares["storage"] / seconds,
            decode=shares["decode"] / seconds,
            consumer=shares["consumer"] / seconds,
            ranks=shares["ranks"] / seconds,
        )
    return Rank(
        rank=rank,
        batches=lane["batches"],
        samples=lane["samples"],
        stall=make_stall(lane["stall_ns"]),
        stall_share=stall_seconds(shares),
        stall_shares=shares,
        held_up=lane["held_up_ns"] / 1e9,
        step=_quantiles(lane["step"]),
        wait=_quantiles(lane["wait"]),
        ready=lane["ready"],
        in_work=lane["in_work"],
        queued_reads=lane["queued_reads"],
        gone=lane["gone"],
    )


def _quantiles(core: tuple[int, int, int, int]) -> Quantiles:
    count, *ns = core
    p50, p95, p99 = (value / 1e9 for value in ns)
    return Quantiles(count=count, p50=p50, p95=p95, p99=p99)


def make_imbalance(core: dict[str, Any]) -> Imbalance | None:
    """None of a single rank, or before two steps."""
    told = core["imbalance"]
    if not told["iterations"]:
        return None
    return Imbalance(
        iterations=told["iterations"],
        thetas=list(told["thetas"]),
        late=list(told["late"]),
        busy=list(told["busy"]),
    )


def make_verdict(core: dict[str, Any], ranks: list[Rank], data: DataFacts) -> str:
    """One line: which rank waits most, for what, and what may be done about it."""
    if core["awaited"]:
        names = ", ".join(str(ranks[lane]["rank"]) for lane in core["awaited"])
        return f"the node waits for rank {names} to begin: look at what it does before its loop"
    timed = [rank for rank in ranks if rank["step"]["count"]]
    if not timed:
        return "no step was timed yet: take two batches"
    worst = max(timed, key=lambda rank: rank["stall_share"])
    share = worst["stall_share"]
    name = f"rank {worst['rank']}"
    if share < SHARE_MIN:
        steps = counted(worst["step"]["count"], "step")
        over = f"{_percent(share, 1)} of the time, over the last {steps}"
        if len(timed) == 1:
            return f"{name} is not waiting: {over}"
        return f"{len(timed)} ranks are not waiting: {name} most, {over}"
    shares = worst["stall_shares"]
    by_cause = {
        "storage": shares["storage"],
        "decode": shares["decode"],
        "its own training loop": shares["consumer"],
        "other ranks": shares["ranks"],
    }
    told = sorted(by_cause.items(), key=lambda cause: -cause[1])
    told = told[:1] + [each for each in told[1:] if each[1] >= 0.005]
    parts = [f"{_percent(part)} {cause}" for cause, part in told]
    advice = _advice(told[0][0], core, ranks, worst, data)
    return f"{name} waited {_percent(share)} of the time: {', '.join(parts)}; {advice}"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _advice(
    cause: str, core: dict[str, Any], ranks: list[Rank], worst: Rank, data: DataFacts
) -> str:
    if cause == "storage":
        return storage_advice(core, data)
    if cause == "decode":
        return decode_advice(core, data)
    if cause == "other ranks":
        others = [rank for rank in ranks if rank is not worst]
        held = max(others, key=lambda rank: rank["held_up"], default=worst)
        return (
            f"rank {held['rank']} held the others up for {held['held_up']:.1f} s: look at what its "
            "training loop does, or raise Engine.prefetch"
        )
    return "it holds batches for which there is no other memory: let go of them, or raise memory="
