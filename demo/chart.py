"""The chart: rates over time, where the time went, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from records import TITLES, Kind, Run
from summary import Summary, cause_shares

# Okabe and Ito's, which the colour-blind can tell apart.
_COLOURS: dict[Kind, str] = {
    "torch": "#D55E00",
    "folder": "#56B4E9",
    "pack": "#0072B2",
    "synthetic": "#8A8A8A",
}
_CAUSES = {
    "training": ("#D9D9D9", "training step"),
    "pause": ("#B9A7D1", "evicting pages"),
    "storage": ("#E69F00", "waiting: storage"),
    "decode": ("#009E73", "waiting: decode"),
    "consumer": ("#CC79A7", "waiting: consumer"),
    "start": ("#4D4D4D", "waiting: start and end"),
}
_WINDOW_SECONDS_MAX = 1.0


def draw(path: Path, summaries: dict[Kind, Summary], runs: Sequence[Run], lines: list[str]) -> None:
    """Writes the chart as PNG."""
    with rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 8), layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(1.15, 1))
        _rates(figure.add_subplot(grid[0, :]), summaries, runs)
        _times(figure.add_subplot(grid[1, 0]), runs)
        _memory(figure.add_subplot(grid[1, 1]), runs)
        figure.suptitle(
            "One small network, two ways to feed it: torch's DataLoader and Headrace",
            fontsize=13,
            fontweight="bold",
        )
        figure.supxlabel("\n".join(lines), fontsize=7.5, color="#555555")
        figure.savefig(path, dpi=140)


def _rates(axes: Axes, summaries: dict[Kind, Summary], runs: Sequence[Run]) -> None:
    seen: set[Kind] = set()
    window = min(_WINDOW_SECONDS_MAX, min(run.seconds for run in runs) / 4)
    for run in runs:
        ends, counts = np.array(run.step_ends, dtype=float).T
        when = np.arange(window / 2, ends[-1], window / 10)
        so_far = np.concatenate([[0.0], np.cumsum(counts)])
        clock = np.concatenate([[0.0], ends])
        low = np.clip(when - window / 2, 0, ends[-1])
        high = np.clip(when + window / 2, 0, ends[-1])
        rate = (np.interp(high, clock, so_far) - np.interp(low, clock, so_far)) / (high - low)
        mean = summaries[run.kind].samples_per_second
        axes.plot(
            when,
            rate,
            color=_COLOURS[run.kind],
            linestyle="--" if run.kind == "synthetic" else "-",
            linewidth=1.8,
            alpha=1.0 if run.round == 0 else 0.4,
            label=None if run.kind in seen else f"{TITLES[run.kind]}: {mean:,.0f} samples/s",
        )
        seen.add(run.kind)
        axes.plot(ends[-1], rate[-1], "o", color=_COLOURS[run.kind], markersize=4)
    axes.set(
        xlabel="seconds since the loader was made",
        ylabel=f"samples/s, over {window:.1g} s",
        ylim=(0, None),
        xlim=(0, None),
    )
    later = "; later runs paler" if max(run.round for run in runs) else ""
    axes.set_title(f"Throughput; the dot is the end of the last epoch{later}", loc="left")
    axes.legend(frameon=False, loc="upper right")
    axes.grid(axis="y", color="#EEEEEE")


def _times(axes: Axes, runs: Sequence[Run]) -> None:
    kinds = [kind for kind in TITLES if any(run.kind == kind for run in runs)]
    left = np.zeros(len(kinds))
    split = [_milliseconds([run for run in runs if run.kind == kind]) for kind in kinds]
    for cause, (colour, label) in _CAUSES.items():
        widths = np.array([times.get(cause, 0.0) for times in split])
        if widths.any():
            axes.barh(
                [TITLES[kind] for kind in kinds],
                widths,
                left=left,
                color=colour,
                label=label,
                height=0.62,
            )
        left += widths
    for row, total in enumerate(left):
        axes.text(total, row, f"  {total:.2f}", va="center")
    axes.invert_yaxis()
    axes.set(xlabel="milliseconds a sample", xlim=(0, left.max() * 1.12))
    axes.set_title("Where the time goes (torch: split as its workers' time)", loc="left")
    axes.legend(
        frameon=False,
        fontsize=8,
        ncols=3,
        loc="upper center",
        bbox_to_anchor=(0.42, -0.17),
    )


def _milliseconds(runs: list[Run]) -> dict[str, float]:
    """Milliseconds a sample by what the time went for."""
    samples = sum(run.samples for run in runs)
    waited = sum(run.wait_seconds for run in runs)
    paused = sum(epoch.pause_seconds for run in runs for epoch in run.epochs)
    shares = cause_shares(runs, waited)
    times = {cause: waited * share for cause, share in shares.items()}
    times["pause"] = paused
    times["training"] = sum(run.seconds for run in runs) - waited - paused
    return {cause: seconds * 1000 / samples for cause, seconds in times.items()}


def _memory(axes: Axes, runs: Sequence[Run]) -> None:
    for run in runs:
        if not run.memory_series:
            continue
        when, sizes = np.array(run.memory_series).T
        axes.plot(
            when,
            sizes / 2**20,
            color=_COLOURS[run.kind],
            linestyle="--" if run.kind == "synthetic" else "-",
            alpha=1.0 if run.round == 0 else 0.4,
            linewidth=1.8,
        )
    before = np.median([run.memory_before for run in runs]) / 2**20
    axes.axhline(before, color="#333333", linewidth=0.8, linestyle=":")
    axes.annotate(
        "torch and the network, no loader",
        (1, before),
        xycoords=("axes fraction", "data"),
        xytext=(0, -4),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
    )
    axes.set(xlabel="seconds", ylabel="MiB, all processes", ylim=(0, None), xlim=(0, None))
    axes.set_title("Memory (proportional set size), colours as above", loc="left")
    axes.grid(axis="y", color="#EEEEEE")
