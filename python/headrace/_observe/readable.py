"""Statistics that read well where a notebook or a shell shows them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import _html as html
from headrace._charts import COLOURS
from headrace._units import counted, format_bytes

_LEGEND = {
    "storage": "waiting for storage",
    "decode": "waiting for decoding",
    "consumer": "waiting for memory that the loop holds",
    "ranks": "waiting for other ranks",
}
"""What a legend calls the causes of a wait, in the order of a bar."""

_TRAINING = html.BarPart("training", 0.0, "rgba(128,128,128,0.35)")
_RANKS_MAX = 16


class ReadableStats(dict[str, Any]):
    """A dict of what `stats()` returns; its repr is a short report.

    It turns into JSON as any dict, and pickles as a plain one.
    """

    def __repr__(self) -> str:
        """The figures that most people look for, a line each. ``dict(stats)`` shows all of them."""
        try:
            return "\n".join(f"{name:<11} {text}" for name, text in _lines(self) if text)
        except (KeyError, TypeError, ValueError):  # Somebody changed it.
            return super().__repr__()

    def _repr_html_(self) -> str | None:
        """For notebooks: with a bar of who waited for what. None: as text."""
        try:
            return stats_html(self, [line for line in _lines(self) if line[1]])
        except (KeyError, TypeError, ValueError):  # Somebody changed it.
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        """As a dict that torch.load() takes without headrace: it knows no other subclass."""
        return OrderedDict, (), None, None, iter(self.items())


def _lines(stats: dict[str, Any]) -> list[tuple[str, str]]:
    memory, moved, io = stats["memory"], stats["bytes"], stats["io"]
    stall = ", ".join(
        f"{name} {seconds:.2f} s" for name, seconds in stats["stall"].items() if seconds >= 0.005
    )
    lines = [
        ("verdict", stats["verdict"]),
        ("position", f"epoch {stats['epoch']}, step {stats['step']}"),
        (
            "delivered",
            f"{counted(stats['batches'], 'batch', 'batches')}, "
            f"{counted(stats['samples'], 'sample')} in {stats['seconds']:.1f} s: "
            f"{stats['samples_per_second']:,.0f} samples/s",
        ),
        ("waited", f"{stats['stall_share']:.1%} of the time" + (f" ({stall})" if stall else "")),
        (
            "read",
            f"{format_bytes(moved['read'])} by {io['store']} in {counted(io['reads'], 'read')}, "
            f"for {format_bytes(moved['samples'])} of samples",
        ),
        (
            "memory",
            ", ".join(
                f"{use} {format_bytes(memory[f'{use}_peak'])} of "
                f"{format_bytes(memory[f'{use}_budget'])}"
                for use in ("staging", "batches", "resident", "scratch", "results", "decoded")
                if memory[f"{use}_budget"]
            )
            + (f", beyond {format_bytes(memory['beyond_peak'])}" if memory["beyond_peak"] else ""),
        ),
    ]
    for tier in stats["tiers"]:
        lines.append(
            (
                "tier",
                f"{tier['name']}: {format_bytes(tier['used'])} of "
                f"{format_bytes(tier['capacity'])}, {counted(tier['uses'], 'use')}",
            )
        )
    if stats["substituted"]:
        lines.append(("substituted", counted(stats["substituted"], "sample")))
    return lines


def stats_html(stats: Mapping[str, Any], lines: Sequence[tuple[str, str]]) -> html.Html:
    """`lines`: the report's, as text."""
    return html.block(
        html.title("headrace statistics"),
        html.paragraph(stats["verdict"]),
        waits_html(stats),
        html.table([line for line in lines if line[0] != "verdict"]),
    )


def waits_html(stats: Mapping[str, Any]) -> html.Html:
    """Who waited for what: of each rank that timed a step."""
    timed = [rank for rank in stats["ranks"] if rank["step"]["count"]]
    if not timed:
        return html.Html("")
    timed.sort(key=lambda rank: -rank["stall_share"])
    shown = timed[:_RANKS_MAX]
    rows = [
        (
            f"rank {rank['rank']}",
            html.bar(parts_of(rank["stall_shares"]), f"time of rank {rank['rank']}"),
            f"{rank['stall_share']:.1%} waiting",
        )
        for rank in shown
    ]
    left = len(timed) - len(shown)
    more = html.paragraph(f"and {left} ranks that wait less") if left else html.Html("")
    return html.joined(html.table(rows), more, html.legend(parts_of(shown[0]["stall_shares"])))


def parts_of(shares: Mapping[str, float]) -> list[html.BarPart]:
    """A bar of a rank's time, of its newest steps: the waits by cause, and training."""
    waits = [
        html.BarPart(name, shares[cause], colour)
        for (cause, name), colour in zip(_LEGEND.items(), COLOURS, strict=False)
    ]
    waited = sum(part.share for part in waits)
    return [*waits, _TRAINING._replace(share=max(0.0, 1 - waited))]
