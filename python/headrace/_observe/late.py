"""The late rank of a job, and why: from what all its loaders answer, and what they answered before.

Ranks that train together take their batches at the same pace, as they wait for each other in their
training steps. So the one that is late is behind, or waits for its loader while the others do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace._observe._steps.trace import CAUSES

WAIT_SHARE_MIN = 0.1
"""Of the time since the look before, that a rank has to wait to be called late."""
_MEANING = {
    "storage": "storage",
    "decode": "decoding",
    "consumer": "memory that its training loop holds",
}


@dataclass(frozen=True)
class Look:
    """What was seen of a rank."""

    rank: int
    epoch: int
    step: int
    seconds: float  # that its runs took so far
    waited: Mapping[str, float]  # seconds, by cause
    ready: int  # batches
    down: tuple[int, ...]  # nodes that its node does not ask now
    held_by: int | None  # the rank of its node that held the others up most

    @property
    def at(self) -> tuple[int, int]:
        """Its position."""
        return self.epoch, self.step


def look_at(snapshot: Mapping[str, Any]) -> Look | None:
    """What a loader says of its own rank."""
    stats = snapshot["stats"]
    own = [rank for rank in stats["ranks"] if rank["rank"] == snapshot["rank"]]
    if not own:
        return None
    others = [rank for rank in stats["ranks"] if rank["rank"] != snapshot["rank"]]
    most = max(others, key=lambda rank: rank.get("held_up", 0.0), default=None)
    return Look(
        rank=snapshot["rank"],
        epoch=stats["epoch"],
        step=stats["step"],
        seconds=stats["seconds"],
        waited={cause: own[0]["stall"][cause] for cause in CAUSES},
        ready=own[0]["ready"],
        down=tuple((stats.get("nodes") or {}).get("down", ())),
        held_by=None if most is None else most["rank"],
    )


def late_rank(
    now: Iterable[Look], before: Iterable[Look], silent: Iterable[Look] = ()
) -> str | None:
    """One line about the rank that holds the job up; None if no rank does.

    Args:
        now: of the ranks of one job that answer.
        before: the same, some time before; of a rank that is not in it the whole run counts.
        silent: of ranks that give no answer, what was seen last.
    """
    ranks = sorted(now, key=lambda look: look.rank)
    was = {look.rank: look for look in before}
    lost = min(silent, key=lambda look: (look.at, look.rank), default=None)
    if lost is not None:
        others = max((look.at for look in ranks), default=lost.at)
        return (
            f"rank {lost.rank} gives no answer, {_behind(lost.at, others)}: it is stopped or busy"
        )
    if len(ranks) < 2:
        return None
    most = max(look.at for look in ranks)
    shares = {look.rank: _shares(look, was.get(look.rank)) for look in ranks}
    # A step is no lateness: while one rank takes a batch, another has taken it.
    behind = [look for look in ranks if _steps_behind(look.at, most) > 1]
    if not behind:
        waiting = [look for look in ranks if sum(shares[look.rank].values()) >= WAIT_SHARE_MIN]
        if not waiting or len(waiting) == len(ranks):
            return None  # Nobody, or all alike: the verdicts say for what.
        late = max(waiting, key=lambda look: sum(shares[look.rank].values()))
        return f"rank {late.rank} waits most: {_reason(late, shares[late.rank])}"
    late = min(behind, key=lambda look: (look.at, look.rank))
    return f"rank {late.rank} is late, {_behind(late.at, most)}: {_reason(late, shares[late.rank])}"


def _shares(now: Look, before: Look | None) -> dict[str, float]:
    """Of the time since then that it waited for a batch, by cause."""
    seconds = now.seconds - (before.seconds if before else 0.0)
    if seconds <= 0:
        return dict.fromkeys(CAUSES, 0.0)
    waited = {
        cause: now.waited[cause] - (before.waited[cause] if before else 0.0) for cause in CAUSES
    }
    return {cause: max(0.0, time) / seconds for cause, time in waited.items()}


def _reason(look: Look, shares: Mapping[str, float]) -> str:
    share = sum(shares.values())
    if share < WAIT_SHARE_MIN:
        return f"it is in its training step, with {look.ready} batches ready"
    cause = max(CAUSES, key=lambda cause: shares[cause])
    if cause == "storage" and look.down:
        nodes = " and ".join(f"node {node}" for node in look.down)
        return f"waiting {share:.0%} of the time for {nodes}, which does not answer, and storage"
    if cause == "ranks":
        return f"waiting {share:.0%} of the time for rank {look.held_by} of its node"
    return f"waiting {share:.0%} of the time for {_MEANING[cause]}"


def _steps_behind(at: tuple[int, int], most: tuple[int, int]) -> float:
    """Of an epoch before, any number is many."""
    return most[1] - at[1] if at[0] == most[0] else float("inf")


def _behind(at: tuple[int, int], most: tuple[int, int]) -> str:
    position = f"epoch {at[0]} step {at[1]:,}"
    if at >= most:
        return f"at {position}"
    return f"at {position}, others at epoch {most[0]} step {most[1]:,}"
