"""The table of `headrace top`: figures of loaders, and rates since the last update."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headrace._observe._steps.trace import CAUSES
from headrace._observe.late import Look, late_rank, look_at
from headrace._observe.monitor import Address

Snapshots = dict[Address, dict[str, Any]]

_WHERE = ("loader", "rank", "epoch", "step", "samples/s")
_TIMES = ("ready", "step p50", "p99")
_WIDE = (*_WHERE, "waiting", *CAUSES, *_TIMES, "apart", "tiers")
_NARROW = (*_WHERE, "waits for", *_TIMES)  # of 80 columns
_ASKED_MAX = 64  # at a time
_ENDED_MAX = 8  # number of ended loaders shown: the last ones


def ask_all(addresses: Iterable[Address], request: str = "stats") -> Snapshots:
    """The snapshots of loaders that answer; waits for all of them concurrently."""
    loaders = list(addresses)
    with ThreadPoolExecutor(_ASKED_MAX) as threads:
        answers = list(threads.map(lambda address: address.ask(request), loaders))
    pairs = zip(loaders, answers, strict=True)
    return {address: answer for address, answer in pairs if answer is not None}


def rank_rows(
    address: Address,
    now: dict[str, Any],
    before: dict[str, Any] | None,
    elsewhere: Collection[int] = (),
) -> list[dict[str, str]]:
    """A row for each rank of a loader except those `elsewhere`: rates since `before`, or since it
    was made."""
    stats = now["stats"]
    was = {rank["rank"]: rank for rank in before["stats"]["ranks"]} if before else {}
    seconds = stats["seconds"] - (before["stats"]["seconds"] if before else 0.0)
    rows = []
    for rank in stats["ranks"]:
        own = rank["rank"] == now["rank"]
        if not own and rank["rank"] in elsewhere:
            continue
        made = _change(rank, was.get(rank["rank"]), "samples")
        if own:  # Only the rank itself knows what it took; other ranks' figures may be newer.
            made = stats["samples"] - (before["stats"]["samples"] if before else 0)
        stall = {
            cause: _change(rank["stall"], was.get(rank["rank"], {}).get("stall"), cause)
            for cause in CAUSES
        }
        most = max(CAUSES, key=lambda cause: stall[cause])
        rows.append(
            {
                "loader": _named(address),
                "rank": str(rank["rank"]),
                "epoch": str(stats["epoch"]) if own else "",
                "step": f"{stats['step']:,}" if own else "",
                "samples/s": f"{made / seconds:,.0f}" if seconds > 0 else "",
                "waiting": _share(sum(stall.values()), seconds),
                **{cause: _share(stall[cause], seconds) for cause in CAUSES},
                "waits for": f"{_share(stall[most], seconds)} {most}" if stall[most] else "nothing",
                "ready": str(rank["ready"]),
                "step p50": _ms(rank["step"], "p50"),
                "p99": _ms(rank["step"], "p99"),
                "apart": _apart(stats["imbalance"]),
                "tiers": _hits(stats["sources"]),
            }
            | (_waits_no_more("gone") if rank["gone"] else {})
        )
    return rows


def _waits_no_more(state: str) -> dict[str, str]:
    """The columns of waiting for a rank or loader without figures."""
    return dict.fromkeys((*CAUSES, "ready"), "") | {"waiting": state, "waits for": state}


def _change(now: Mapping[str, Any], before: Mapping[str, Any] | None, name: str) -> float:
    """The difference to `before`; a counter that went back belongs to another loader."""
    change: float = now[name] - (before[name] if before else 0)
    return max(change, 0)


def _share(part: float, seconds: float) -> str:
    return f"{min(part / seconds, 1):.0%}" if seconds > 0 else ""


def _ms(quantiles: Mapping[str, Any], name: str) -> str:
    if not quantiles["count"]:
        return ""
    return (
        f"{quantiles[name]:,.1f} s" if quantiles[name] >= 1 else f"{quantiles[name] * 1e3:.1f} ms"
    )


def _apart(imbalance: Mapping[str, Any] | None) -> str:
    """Iterations with ranks further apart than a tenth of a step."""
    return "" if imbalance is None else f"{imbalance['late'][1]:.0%}"


def _hits(sources: Mapping[str, Any] | None) -> str:
    """Samples that did not come from storage."""
    if sources is None or not sources["tiers"] + sources["storage"]:
        return ""
    return f"{sources['tiers'] / (sources['tiers'] + sources['storage']):.0%}"


class Board:
    """Snapshots of loaders, update by update. One that has ended keeps its last snapshot."""

    def __init__(self) -> None:
        self._now: Snapshots = {}  # of all that are shown, the last
        self._before: Snapshots = {}
        self._silent: dict[Address, str] = {}  # the reason: shown after the others, without rates
        self._unheard: dict[str, str] = {}  # machines that gave no answer, and why

    def look(
        self,
        here: Collection[Address],
        elsewhere: Snapshots | None = None,
        unheard: Mapping[str, str] | None = None,
    ) -> None:
        """Asks the loaders `here`; those of other machines answered already, if they do."""
        answers = ask_all(here) | (elsewhere or {})
        self._unheard = dict(unheard or {})
        gone = [at for at in self._now if at not in here and at not in answers]
        lost = [at for at in gone if at.node in self._unheard]
        ended = [at for at in gone if at not in lost][-_ENDED_MAX:]
        self._silent = dict.fromkeys(ended, "ended")
        self._silent |= {at: "no answer" for at in here if at not in answers}
        self._silent |= dict.fromkeys(lost, "no answer")
        self._before = self._now
        self._now = {at: self._before[at] for at in self._silent if at in self._before} | answers

    def render(self, console: Console) -> RenderableType:
        """The table, and under it a verdict of each loader."""
        if not self._now and not self._silent:
            nothing = (
                "no loader of this user is monitored now: none was made with "
                "EngineOptions(monitor=True) or HEADRACE_MONITOR=1, or each was closed"
            )
            return Text("\n".join([nothing, *self._unheard_lines()]))
        rows = self._rows()
        unbounded = console.options.update(max_width=10**6)
        table = _table(_WIDE, rows)
        if Measurement.get(console, unbounded, table).maximum > console.width:
            table = _table(_NARROW, rows)
        return Group(table, Text(), *map(Text, self._verdicts()))

    def _rows(self) -> list[dict[str, str]]:
        live = {at: snapshot for at, snapshot in self._now.items() if at not in self._silent}
        rows = []
        for address, snapshot in live.items():
            before = self._before.get(address)
            rows += rank_rows(address, snapshot, before, _elsewhere(live, address))
        for address, state in self._silent.items():
            row = {"loader": _named(address)}
            if address in self._now:
                last = self._now[address]
                others = {rank["rank"] for rank in last["stats"]["ranks"]} - {last["rank"]}
                (row,) = rank_rows(address, last, None, others)
            rows.append(row | _waits_no_more(state))
        return rows

    def _verdicts(self) -> list[str]:
        by_text: dict[str, str] = {}  # Ranks of a node report the same about it: show it once.
        for address, snapshot in self._now.items():
            if address not in self._silent:
                by_text.setdefault(snapshot["stats"]["verdict"], _named(address))
        lines = [f"{who}: {text}" for text, who in by_text.items()]
        for address, state in self._silent.items():
            line = f"{_named(address)}: " + _MEANING[state]
            if address in self._now:
                line += f"; it said last: {self._now[address]['stats']['verdict']}"
            lines.append(line)
        return lines + self.late() + self._unheard_lines()

    def _unheard_lines(self) -> list[str]:
        return [f"{name}: no answer: {reason}" for name, reason in self._unheard.items()]

    def unanswered(self) -> list[str]:
        """Lines for loaders that have given no answer yet, whose ranks are not known, and for
        machines that give none."""
        lines = [
            f"{_named(address)}: {_MEANING[state]}"
            for address, state in self._silent.items()
            if address not in self._now
        ]
        return lines + self._unheard_lines()

    def batches(self) -> int | None:
        """That the training loops shown took, all together; None if none of them runs."""
        if all(self._silent.get(address) == "ended" for address in self._now):
            return None
        return sum(int(snapshot["stats"]["batches"]) for snapshot in self._now.values())

    def late(self) -> list[str]:
        """A line for each job that a rank holds up."""
        jobs: dict[tuple[Any, Any], dict[str, list[Look]]] = {}
        for address, snapshot in self._now.items():
            state = self._silent.get(address, "now")
            kinds = jobs.setdefault((snapshot["dataset"], snapshot["world_size"]), {})
            kinds.setdefault(state, []).extend(_looks([snapshot]))
            if (was := self._before.get(address)) is not None:
                kinds.setdefault("before", []).extend(_looks([was]))
        lines = []
        for of_job in jobs.values():
            if _is_several(of_job.get("now", [])):
                continue
            silent = of_job.get("no answer", [])
            line = late_rank(of_job.get("now", []), of_job.get("before", []), silent)
            if line is not None:
                lines.append(line)
        return lines


_MEANING = {
    "ended": "it has ended: it was closed, or its process is gone",
    "no answer": "it gives no answer: it is stopped, busy, or just being closed",
}


def _is_several(looks: Iterable[Look]) -> bool:
    """Whether ranks occur twice: loaders of several jobs, or of several purposes, over one dataset.

    Nothing tells which of them belong together.
    """
    ranks = [look.rank for look in looks]
    return len(set(ranks)) < len(ranks)


def _looks(snapshots: Iterable[dict[str, Any]]) -> list[Look]:
    return [look for snapshot in snapshots if (look := look_at(snapshot)) is not None]


def _named(address: Address) -> str:
    machine = f"{address.node}:" if address.node else ""
    return f"{machine}{address.pid}.{address.ordinal}"


def _table(columns: Iterable[str], rows: Iterable[Mapping[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name == "loader" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row.get(name, "") for name in columns))
    return table


def _elsewhere(now: Snapshots, here: Address) -> set[int]:
    """Ranks of a loader's job whose own processes are listed."""
    job = [now[here][name] for name in ("dataset", "world_size")]
    return {
        snapshot["rank"]
        for address, snapshot in now.items()
        if address != here and [snapshot[name] for name in ("dataset", "world_size")] == job
    }
