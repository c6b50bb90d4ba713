"""What `stats()` returns, from the core's counters: of each rank, of all, and in one line."""

from __future__ import annotations

from typing import Any, cast

from headrace._observe.advice import (
    DataFacts,
    decode_advice,
    storage_advice,
    transform_advice,
)
from headrace._observe.figures import Core, make
from headrace._observe.readable import ReadableStats
from headrace._observe.stats import Imbalance, Rank, Stall, Stats
from headrace._units import counted

SHARE_MIN = 0.01
"""Of its time that a rank has to wait before its causes are named."""
ADVICE_MIN = 0.05
"""Of its time that it has to wait for one cause before anything is advised."""
_LITTLE = "that is too little to change anything for"
_NO_RESULTS = {"used_bytes": 0, "used_bytes_peak": 0, "beyond_bytes": 0, "beyond_bytes_peak": 0}


def make_stats(core: Core, epoch: int, step: int, rank: int, data: DataFacts) -> Stats:
    """From the core's counters; `rank` is the loader's, `data` what it delivers."""
    workers = core.get("workers")
    results = workers["memory"] if workers else _NO_RESULTS
    core = {**core, "rank": rank, "workers": workers, "results": results}
    seconds = core["running_ns"] / 1e9
    ranks = make_ranks(core)
    own = ranks[core["lane"]]
    stats = make(
        Stats,
        core,
        epoch=epoch,
        step=step,
        samples_per_second=core["delivered"]["samples"] / seconds if seconds else 0.0,
        verdict=make_verdict(core, ranks, data),
        stall=own["stall"].copy(),
        stall_share=stall_seconds(own["stall"]) / seconds if seconds else 0.0,
        step_times=own["step"],
        ranks=ranks,
        awaited=core["awaited"],
        imbalance=make_imbalance(core),
        # As declared already; there may be thousands.
        substitutions=core["delivered"]["substitutions"],
    )
    return cast(Stats, ReadableStats(stats))


def stall_seconds(stall: Stall) -> float:
    """Of all causes."""
    return stall["storage"] + stall["decode"] + stall["consumer"] + stall["ranks"]


def make_ranks(core: Core) -> list[Rank]:
    """From the core's counters of lanes."""
    first = core["rank"] - core["lane"]
    lanes = zip(core["engine"]["lanes"], core["figures"], strict=False)
    return [_make_rank(lane, figures, first + at) for at, (lane, figures) in enumerate(lanes)]


def _make_rank(lane: Core, figures: Core, rank: int) -> Rank:
    spanned: Any = make(Stall, figures["stall_ns"])
    seconds = figures["spanned_ns"] / 1e9
    shares: Any = {cause: of / seconds if seconds else of for cause, of in spanned.items()}
    result: Rank = make(
        Rank,
        {**lane, "figures": figures},
        rank=rank,
        stall_share=stall_seconds(shares),
        train_share=1 - stall_seconds(shares) if seconds else 0.0,
        stall_shares=shares,
    )
    return result


def make_imbalance(core: Core) -> Imbalance | None:
    """None of a single rank, or before two steps."""
    counters = core["imbalance"]
    imbalance: Imbalance = make(Imbalance, {**counters, "thetas": core["thetas"]})
    return imbalance if counters["iterations"] else None


def make_verdict(core: Core, ranks: list[Rank], data: DataFacts) -> str:
    """One line: which rank waits most, for what, and what may be done about it."""
    if core["awaited"]:
        names = ", ".join(map(str, core["awaited"]))
        return f"the node waits for rank {names} to begin: look at what it does before its loop"
    timed = [rank for rank in ranks if rank["step"]["count"]]
    if not timed:
        return "no step was timed yet: take two batches"
    worst = max(timed, key=lambda rank: rank["stall_share"])
    share = worst["stall_share"]
    loop_share = core.get("loop_share", 0.0)  # of this rank, with its Python transform
    in_python = loop_share - ranks[core["lane"]]["stall_share"]
    if data.workers is not None and in_python >= max(share, SHARE_MIN):
        own = ranks[core["lane"]]
        causes = [("its Python transform", in_python), *_causes(own)]
        advice = transform_advice(core, data.workers) if in_python >= ADVICE_MIN else _LITTLE
        return f"{_waited(own, loop_share, causes)}; {advice}"
    name = f"rank {worst['rank']}"
    if share < SHARE_MIN:
        steps = counted(worst["step"]["count"], "step")
        over = f"{_percent(share, 1)} of the time, over the last {steps}"
        if len(timed) == 1:
            return f"{name} is not waiting: {over}"
        return f"{len(timed)} ranks are not waiting: {name} most, {over}"
    causes = _causes(worst)
    cause, of_cause = causes[0]
    advice = _advice(cause, core, ranks, worst, data) if of_cause >= ADVICE_MIN else _LITTLE
    return f"{_waited(worst, share, causes)}; {advice}"


def _causes(rank: Rank) -> list[tuple[str, float]]:
    """What a rank waited for in its engine, and the share of its time: the largest first."""
    shares = rank["stall_shares"]
    by_cause = {
        "storage": shares["storage"],
        "decode": shares["decode"],
        "its own training loop": shares["consumer"],
        "other ranks": shares["ranks"],
    }
    return sorted(by_cause.items(), key=lambda cause: -cause[1])


def _waited(rank: Rank, share: float, causes: list[tuple[str, float]]) -> str:
    shown = causes[:1] + [(cause, part) for cause, part in causes[1:] if part >= 0.005]
    parts = ", ".join(f"{_percent(part)} {cause}" for cause, part in shown)
    return f"rank {rank['rank']} waited {_percent(share)} of the time: {parts}"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _advice(cause: str, core: Core, ranks: list[Rank], worst: Rank, data: DataFacts) -> str:
    if cause == "storage":
        return storage_advice(core, data)
    if cause == "decode":
        return decode_advice(core, data)
    if cause == "other ranks":
        others = [rank for rank in ranks if rank is not worst]
        held = max(others, key=lambda rank: rank["held_up"], default=worst)
        return (
            f"rank {held['rank']} held the others up for {held['held_up']:.1f} s: look at what its "
            "training loop does, or raise EngineOptions.prefetch"
        )
    return "it holds batches for which there is no other memory: let go of them, or raise memory="
