"""What `stats()` says of each rank, and in one line of all."""

from __future__ import annotations

from typing import Any

from headrace._observe.advice import (
    DataFacts,
    decode_advice,
    storage_advice,
    transform_advice,
)
from headrace._observe.figures import Core, make
from headrace._observe.stats import Imbalance, Rank, Stall
from headrace._units import counted

SHARE_MIN = 0.01
"""Of its time that a rank has to wait before its causes are named."""
ADVICE_MIN = 0.05
"""Of its time that it has to wait for one cause before anything is advised."""
_LITTLE = "that is too little to change anything for"


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
    made: Rank = make(
        Rank,
        {**lane, "figures": figures},
        rank=rank,
        stall_share=stall_seconds(shares),
        stall_shares=shares,
    )
    return made


def make_imbalance(core: Core) -> Imbalance | None:
    """None of a single rank, or before two steps."""
    told = core["imbalance"]
    made: Imbalance = make(Imbalance, {**told, "thetas": core["thetas"]})
    return made if told["iterations"] else None


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
    told = causes[:1] + [each for each in causes[1:] if each[1] >= 0.005]
    parts = ", ".join(f"{_percent(part)} {cause}" for cause, part in told)
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
