"""Statistics in a notebook: a table, and for each rank a bar of what its time went into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace._charts import COLOURS
from headrace._show import html

CAUSES = (
    ("storage", "waiting for storage"),
    ("decode", "waiting for decoding"),
    ("consumer", "waiting for memory that the loop holds"),
    ("ranks", "waiting for other ranks"),
)
"""The causes of a wait, in the order of a bar, with what a legend calls them."""

_TRAINING = html.Part("training", 0.0, "rgba(128,128,128,0.35)")
_RANKS_MAX = 16


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


def parts_of(shares: Mapping[str, float]) -> list[html.Part]:
    """A bar of a rank's time, of its newest steps: the waits by cause, and training."""
    waits = [
        html.Part(name, shares[cause], colour)
        for (cause, name), colour in zip(CAUSES, COLOURS, strict=False)
    ]
    waited = sum(part.share for part in waits)
    return [*waits, _TRAINING._replace(share=max(0.0, 1 - waited))]
