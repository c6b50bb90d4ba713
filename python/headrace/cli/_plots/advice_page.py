"""The page of `headrace advise --html`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace import _charts
from headrace._units import counted
from headrace.cli._parts.advised import grids, headline, remarks
from headrace.cli._plots import simulation_page
from headrace.simulation import Advice, Candidate
from headrace.simulation.advise import setup_text

_WHAT = "headrace advise --html"
_ROWS_MAX = 24  # candidates of a chart


def check(path: Path) -> None:
    """Checks that a page can be written there, before long work."""
    simulation_page.check(path, _WHAT)


def write(path: Path, advice: Advice) -> None:
    shown = list(advice.candidates[:_ROWS_MAX])
    if advice.chosen not in shown:
        shown.append(advice.chosen)
    charts = {
        f"Seconds of an epoch, with the range; the {len(shown)} fastest": _times(advice, shown),
        "The bill of an epoch: bytes from storage and between nodes": _bill(advice, shown),
        "The time that is saved by a resource twice as fast": _gains(advice),
    }
    simulation_page.write_page(
        path, headline(advice), "", charts, [*grids(advice)], [*remarks(advice)]
    )


def _names(advice: Advice, shown: Sequence[Candidate]) -> list[str]:
    """Each different: bars of one name would lie on each other."""
    return [
        f"{setup_text(one.setup)}, {counted(one.setup.threads, 'thread')}, "
        f"{one.setup.prefetch} ahead{' (chosen)' if one is advice.chosen else ''}"
        for one in shown
    ]


def _times(advice: Advice, shown: Sequence[Candidate]) -> Any:
    figure, axes = simulation_page.figure_of(1.2 + 0.32 * len(shown))
    axis = axes[0, 0]
    names = _names(advice, shown)
    left = np.zeros(len(shown))
    for number, (part, field) in enumerate(simulation_page.TIMES.items()):
        values = np.array([getattr(one.outcome, field) / advice.work.epochs for one in shown])
        axis.barh(names, values, left=left, color=_charts.COLOURS[number], label=part)
        left += values
    middle = np.array([one.seconds for one in shown])
    ends = np.array([one.range for one in shown]).T
    away = np.abs(ends - middle)
    axis.errorbar(middle, names, xerr=away, fmt="none", color="black", capsize=3, label="range")
    _finish(axis, "s an epoch")
    return figure


def _bill(advice: Advice, shown: Sequence[Candidate]) -> Any:
    figure, axes = simulation_page.figure_of(1 + 0.32 * len(shown), columns=2)
    names = _names(advice, shown)
    stored = np.array([one.bill.storage_bytes for one in shown]) / 1e9
    sent = np.array([one.bill.link_bytes for one in shown]) / 1e9
    axis = axes[0, 0]
    axis.barh(names, stored, color=_charts.COLOURS[0], label="from storage")
    axis.barh(names, sent, left=stored, color=_charts.COLOURS[1], label="over links")
    _finish(axis, "GB an epoch")
    axis = axes[0, 1]
    axis.barh(names, [one.bill.requests for one in shown], color=_charts.COLOURS[2])
    axis.set_yticks([])
    axis.invert_yaxis()
    axis.set(xlabel="requests to storage an epoch")
    return figure


def _gains(advice: Advice) -> Any:
    figure, axes = simulation_page.figure_of(1 + 0.3 * len(advice.gains))
    axis = axes[0, 0]
    axis.barh(list(advice.gains), [100 * gain for gain in advice.gains.values()])
    axis.set(xlabel="% less time", xlim=(0, 50))
    return figure


def _finish(axis: Any, label: str) -> None:
    axis.invert_yaxis()
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axis.set(xlabel=label)
