"""The chart: rates against the bound, where the time went, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from records import TITLES, Kind, Run
from summary import Figures, cause_shares

# Okabe and Ito's, which the colour-blind can tell apart.
_COLOURS: dict[Kind, str] = {"torch": "#D55E00", "folder": "#56B4E9", "pack": "#0072B2"}
_CAUSES = {
    "training": ("#D9D9D9", "training step"),
    "pause": ("#B9A7D1", "evicting pages"),
    "storage": ("#E69F00", "waiting: storage"),
    "decode": ("#009E73", "waiting: decode"),
    "consumer": ("#CC79A7", "waiting: consumer"),
    "start": ("#4D4D4D", "waiting: start and end"),
}


def draw(path: Path, found: Figures, runs: Sequence[Run], lines: list[str]) -> None:
    """Writes the chart as PNG."""
    with rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 7.5), layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.1))
        _rates(figure.add_subplot(grid[0, :]), found)
        _times(figure.add_subplot(grid[1, 0]), found, runs)
        _memory(figure.add_subplot(grid[1, 1]), runs)
        figure.suptitle(
            "One small network, fed by torch's DataLoader and by Headrace",
            fontsize=13,
            fontweight="bold",
        )
        figure.supxlabel("\n".join(lines), fontsize=7.5, color="#555555")
        figure.savefig(path, dpi=140)


def _rates(axes: Axes, found: Figures) -> None:
    rounds = 0
    for row, (kind, summary) in enumerate(found.loaders.items()):
        rates = np.array(summary.samples_per_second_runs)
        median, rounds = summary.samples_per_second, len(rates)
        axes.barh(row, median, height=0.6, color=_COLOURS[kind])
        if rounds > 1:
            below, above = median - rates.min(), rates.max() - median
            axes.errorbar(
                median,
                row,
                xerr=np.array([[below], [above]]),
                fmt="none",
                ecolor="#222222",
                elinewidth=1.2,
                capsize=5,
            )
            axes.plot(rates, [row] * rounds, "o", color="white", markersize=4, mec="#222222")
    axes.axvline(found.bound, color="#222222", linestyle="--", linewidth=1.4)
    axes.annotate(
        f"bound without I/O: {found.bound:,.0f} samples/s ",
        (found.bound, 1),
        xycoords=("data", "axes fraction"),
        ha="right",
        va="top",
    )
    labels = [
        f"{TITLES[kind]}\n{summary.samples_per_second:,.0f} samples/s\n"
        f"{found.share_of_bound(kind):.0%} of the bound"
        for kind, summary in found.loaders.items()
    ]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(found.loaders) - 0.5, -0.9)
    farthest = max(max(each.samples_per_second_runs) for each in found.loaders.values())
    axes.set(xlabel="samples/s", xlim=(0, max(found.bound, farthest) * 1.2))
    each = f"; bars: the median of {rounds} rounds, circles: each round" if rounds > 1 else ""
    axes.set_title(f"Throughput, every epoch from a cold cache{each}", loc="left")


def _times(axes: Axes, found: Figures, runs: Sequence[Run]) -> None:
    medians = [
        next(run for run in runs if run.kind == kind and run.round == summary.median_round)
        for kind, summary in found.loaders.items()
    ]
    split = [_milliseconds(run) for run in medians]
    titles = [TITLES[run.kind] for run in medians]
    left = np.zeros(len(medians))
    for cause, (colour, label) in _CAUSES.items():
        widths = np.array([times.get(cause, 0.0) for times in split])
        if widths.any():
            axes.barh(titles, widths, left=left, color=colour, label=label, height=0.62)
        left += widths
    for row, total in enumerate(left):
        axes.text(total, row, f"  {total:.2f}", va="center")
    axes.invert_yaxis()
    axes.set(xlabel="milliseconds a sample", xlim=(0, left.max() * 1.15))
    axes.set_title("Where the time of the median run goes", loc="left")
    axes.legend(
        frameon=False,
        fontsize=8,
        ncols=3,
        loc="upper center",
        bbox_to_anchor=(0.42, -0.17),
    )


def _milliseconds(run: Run) -> dict[str, float]:
    """Milliseconds a sample by what the time went for; they add up to 1000 / its rate."""
    shares = cause_shares(run)
    times = {cause: run.wait_seconds * share for cause, share in shares.items()}
    times["pause"] = sum(epoch.pause_seconds for epoch in run.epochs)
    times["training"] = run.seconds - run.wait_seconds - times["pause"]
    return {cause: seconds * 1000 / run.samples for cause, seconds in times.items()}


def _memory(axes: Axes, runs: Sequence[Run]) -> None:
    for run in runs:
        if not run.memory_series:
            continue
        when, sizes = np.array(run.memory_series).T
        axes.plot(
            when,
            sizes / 2**20,
            color=_COLOURS[run.kind],
            alpha=1.0 if run.round == 0 else 0.4,
            linewidth=1.8,
            label=TITLES[run.kind] if run.round == 0 else None,
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
    axes.set_title("Memory (proportional set size), a line a run", loc="left")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.grid(axis="y", color="#EEEEEE")
