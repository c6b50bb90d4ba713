"""The page of `headrace simulate --html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace import _charts
from headrace import _html as html
from headrace._text import os_reason
from headrace.cli._parts.simulated import Grid, Swept, grids, headline, outcomes, remarks
from headrace.errors import InvalidArgumentError
from headrace.simulation import Outcome, Simulation
from headrace.simulation.bounds import BOUNDED
from headrace.simulation.simulate import SOURCES

_WHAT = "headrace simulate --html"
TIMES = {
    "compute": "compute_seconds",
    "stall": "stall_seconds",
    "barrier": "barrier_seconds",
    "allreduce": "allreduce_seconds",
    "before the first step": "setup_seconds",
}
_STYLES = dict(zip(BOUNDED, ("-", "--", ":"), strict=True))
_POINTS = 500  # of a distribution
_OUTLIERS = 0.001  # of the slowest steps, that a distribution leaves out


def check(path: Path, what: str = _WHAT) -> None:
    """Checks that a page can be written there, before long work. `what`: of which command."""
    _charts.matplotlib(what)
    if path.suffix.lower() != ".html":
        raise InvalidArgumentError(f"--html {path}: must be a file of suffix .html")
    _charts.check_place(path, "page")


def write(path: Path, simulation: Simulation, beside: str = "") -> None:
    """Of one scenario: times, bytes, steps, tables. `beside`: what differs from its file."""
    ran = outcomes(simulation)
    charts: dict[str, Any] = {}
    if ran:
        charts = {
            "Time by policy: where it goes, mean of the nodes": _times(ran, simulation.bounds),
            "Bytes by source": _bytes(ran),
            f"Time of a step, without the slowest {_OUTLIERS:.1%}; lines: p50, p99": _steps(ran),
        }
    name, source = headline(simulation) + beside, simulation.scenario.source
    write_page(path, name, source, charts, [*grids(simulation)], [*remarks(simulation)])


def write_sweep(path: Path, name: str, source: str, swept: Swept) -> None:
    """Of a sweep: seconds by one key, or heat maps by two; and the tables."""
    figure = _heat_maps(swept) if len(swept.axes) == 2 else _lines(swept)
    charts = {f"Seconds by {' and '.join(swept.axes)}": figure}
    write_page(path, name, source, charts, [*swept.grids()], [*swept.remarks()])


def write_page(
    path: Path,
    name: str,
    source: str,
    charts: Mapping[str, Any],
    tables: Sequence[Grid],
    notes: Sequence[str],
) -> None:
    """A page of any name. `charts`: figures by their captions."""
    parts = [html.title(name), html.paragraph(source)]
    parts += [html.chart(_charts.svg_address(one), caption) for caption, one in charts.items()]
    for grid in tables:
        parts += [html.paragraph(grid.title), html.table(grid.rows, grid.head)]
    page = html.page(name, *parts, html.listed(notes))
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise OSError(
            f"writing the page {path}: {os_reason(error)}; give --html another path"
        ) from error


def figure_of(rows: float, columns: int = 1, lines: int = 1) -> tuple[Any, Any]:
    """A figure with axes; `rows`: inches of the height."""
    rc_context, figure_class = _charts.matplotlib(_WHAT)
    with rc_context(_charts.STYLE):
        figure = figure_class(figsize=(11, rows), layout="constrained")
        return figure, figure.subplots(lines, columns, squeeze=False)


def _stacked(axis: Any, ran: Sequence[Outcome], parts: Mapping[str, Sequence[float]]) -> None:
    names = [outcome.policy.name for outcome in ran]
    left = np.zeros(len(ran))
    for number, (name, values) in enumerate(parts.items()):
        axis.barh(names, values, left=left, color=_charts.COLOURS[number], label=name)
        left += np.array(values)
    axis.invert_yaxis()
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _times(ran: Sequence[Outcome], bounds: dict[str, float]) -> Any:
    figure, axes = figure_of(1.2 + 0.32 * len(ran))
    axis = axes[0, 0]
    for order, seconds in bounds.items():
        style = _STYLES[order]
        axis.axvline(
            seconds, color="black", linewidth=1, linestyle=style, label=f"bound of {order}"
        )
    parts = {name: [getattr(run, field) for run in ran] for name, field in TIMES.items()}
    _stacked(axis, ran, parts)
    axis.set(xlabel="s")
    return figure


def _bytes(ran: Sequence[Outcome]) -> Any:
    figure, axes = figure_of(1 + 0.32 * len(ran))
    parts = {source: [run.fetched[source].bytes / 1e9 for run in ran] for source in SOURCES}
    _stacked(axes[0, 0], ran, parts)
    axes[0, 0].set(xlabel="GB that nodes used")
    return figure


def _steps(ran: Sequence[Outcome]) -> Any:
    figure, axes = figure_of(4)
    axis = axes[0, 0]
    shares = np.linspace(0, 1 - _OUTLIERS, _POINTS)
    steps = [_varied(np.quantile(run.step_seconds, shares)) for run in ran]
    axis.violinplot(steps, widths=0.8, showextrema=False)
    for at, run in enumerate(ran, start=1):
        for percentile in np.percentile(run.step_seconds, (50, 99)):
            axis.hlines(percentile, at - 0.3, at + 0.3, color=_charts.COLOURS[1], linewidth=1)
    axis.set_xticks(range(1, len(ran) + 1), [run.policy.name for run in ran], rotation=20)
    axis.set(ylabel="s", ylim=(0, None))
    return figure


def _varied(values: Any) -> Any:
    """Equal values but for rounding are equal: a density has no width for less."""
    return values if np.ptp(values) > 1e-6 * values.max() else np.full_like(values, values.max())


def _lines(swept: Swept) -> Any:
    figure, axes = figure_of(4.5)
    axis = axes[0, 0]
    ((key, values),) = swept.axes.items()
    for number, (name, line) in enumerate(swept.lines().items()):
        colour = _charts.COLOURS[number % len(_charts.COLOURS)]
        style = "-o" if number < len(_charts.COLOURS) else "--s"
        axis.plot(values, _known(line), style, color=colour, label=name)
    axis.set(xlabel=key, ylabel="s", ylim=(0, None))
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _heat_maps(swept: Swept) -> Any:
    lines = swept.lines()
    (down, names), (across, head) = swept.axes.items()
    columns = min(len(lines), 2)
    rows = -(-len(lines) // columns)
    figure, axes = figure_of(rows * (1.2 + 0.35 * len(names)), columns, rows)
    for axis in axes.flat[len(lines) :]:
        axis.axis("off")
    for axis, (name, line) in zip(axes.flat, lines.items(), strict=False):
        values = _known(line).reshape(len(names), len(head))
        image = axis.imshow(values, aspect="auto", cmap="viridis_r")
        axis.set_xticks(range(len(head)), head, rotation=30)
        axis.set_yticks(range(len(names)), names)
        axis.set(title=name, xlabel=across, ylabel=down)
        if len(head) <= 8:
            _numbers(axis, values)
        figure.colorbar(image, ax=axis, label="s")
    return figure


def _known(line: Sequence[float | None]) -> Any:
    """NaN where a policy refused."""
    return np.array([np.nan if seconds is None else seconds for seconds in line])


def _numbers(axis: Any, values: Any) -> None:
    known = values[~np.isnan(values)]
    middle = (known.min() + known.max()) / 2 if len(known) else 0
    for (row, column), seconds in np.ndenumerate(values):
        word = "refused" if np.isnan(seconds) else f"{seconds:,.4g}"
        colour = "white" if seconds > middle else "black"
        axis.text(column, row, word, ha="center", va="center", color=colour, fontsize=7)
