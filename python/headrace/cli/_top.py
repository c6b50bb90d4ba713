"""The table of `headrace top`: what loaders say now, and since they were last asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace._observe.monitor import Address
from headrace._observe.trace import CAUSES

Snapshots = dict[Address, dict[str, Any]]

_COLUMNS = (
    *("loader", "rank", "epoch", "step", "samples/s", "waiting", *CAUSES),
    *("ready", "step p50", "p99", "apart", "tiers"),
)


def ask_all(addresses: Iterable[Address], request: str = "stats") -> Snapshots:
    """Of those that answer."""
    answers = {address: address.ask(request) for address in addresses}
    return {address: answer for address, answer in answers.items() if answer is not None}


def rank_rows(
    address: Address,
    now: dict[str, Any],
    before: dict[str, Any] | None,
    elsewhere: Collection[int] = (),
) -> list[dict[str, str]]:
    """A row for each rank of a loader but those `elsewhere`: rates since `before`, or since it was
    made."""
    stats = now["stats"]
    was = {rank["rank"]: rank for rank in before["stats"]["ranks"]} if before else {}
    seconds = stats["seconds"] - (before["stats"]["seconds"] if before else 0.0)
    rows = []
    for rank in stats["ranks"]:
        own = rank["rank"] == now["rank"]
        if not own and rank["rank"] in elsewhere:
            continue
        made = _change(rank, was.get(rank["rank"]), "samples")
        if own:  # What it took is known of the rank itself only; it may be asked of others later.
            made = stats["samples"] - (before["stats"]["samples"] if before else 0)
        stall = {
            cause: _change(rank["stall"], was.get(rank["rank"], {}).get("stall"), cause)
            for cause in CAUSES
        }
        rows.append(
            {
                "loader": f"{address.pid}.{address.ordinal}",
                "rank": f"{rank['rank']}{' (gone)' if rank['gone'] else ''}",
                "epoch": str(stats["epoch"]) if own else "",
                "step": f"{stats['step']:,}" if own else "",
                "samples/s": f"{made / seconds:,.0f}" if seconds > 0 else "",
                "waiting": _share(sum(stall.values()), seconds),
                **{cause: _share(stall[cause], seconds) for cause in CAUSES},
                "ready": str(rank["ready"]),
                "step p50": _ms(rank["step"], "p50"),
                "p99": _ms(rank["step"], "p99"),
                "apart": _apart(stats["imbalance"]),
                "tiers": _hits(stats["sources"]),
            }
        )
    return rows


def _change(now: Mapping[str, Any], before: Mapping[str, Any] | None, name: str) -> float:
    """Since `before`; a counter that went back is another loader's."""
    change: float = now[name] - (before[name] if before else 0)
    return max(change, 0)


def _share(part: float, seconds: float) -> str:
    return f"{min(part / seconds, 1):.0%}" if seconds > 0 else ""


def _ms(quantiles: Mapping[str, Any], name: str) -> str:
    return f"{quantiles[name] * 1e3:,.1f} ms" if quantiles["count"] else ""


def _apart(imbalance: Mapping[str, Any] | None) -> str:
    """Iterations with ranks further apart than a tenth of a step."""
    return "" if imbalance is None else f"{imbalance['late'][1]:.0%}"


def _hits(sources: Mapping[str, Any] | None) -> str:
    """Samples that did not come from storage."""
    if sources is None or not sources["tiers"] + sources["storage"]:
        return ""
    return f"{sources['tiers'] / (sources['tiers'] + sources['storage']):.0%}"


def render(now: Snapshots, before: Snapshots) -> RenderableType:
    """The table, and under it a verdict of each loader."""
    if not now:
        return Text(
            "no loader of this user is monitored: Loader(monitor=True) or HEADRACE_MONITOR=1"
        )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "loader" else "right", no_wrap=True)
    verdicts: dict[str, str] = {}  # Ranks of a node say the same of it: once is enough.
    for address, snapshot in now.items():
        for row in rank_rows(address, snapshot, before.get(address), _elsewhere(now, address)):
            table.add_row(*(row[name] for name in _COLUMNS))
        verdicts.setdefault(snapshot["stats"]["verdict"], f"{address.pid}.{address.ordinal}")
    return Group(table, Text(), *(Text(f"{who}: {said}") for said, who in verdicts.items()))


def _elsewhere(now: Snapshots, here: Address) -> set[int]:
    """Ranks of a loader's job whose own processes are listed."""
    job = [now[here][name] for name in ("dataset", "world_size")]
    return {
        snapshot["rank"]
        for address, snapshot in now.items()
        if address != here and [snapshot[name] for name in ("dataset", "world_size")] == job
    }
