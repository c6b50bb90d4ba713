"""The chart of `loader.report()` and `headrace report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _charts
from headrace._observe._steps.trace import CAUSES
from headrace._units import format_bytes

_WHAT = "headrace report"
_BINS = 60

Column = NDArray[np.int64]


def check(path: Path) -> None:
    """That a chart can be drawn there."""
    _charts.check(path, _WHAT)


def draw(path: Path, observation: dict[str, Any]) -> None:
    """Of what a loader said: a snapshot with `steps` and `reuse`."""
    rc_context, figure_class = _charts.matplotlib(_WHAT)
    stats = observation["stats"]
    steps = {name: np.asarray(column, np.int64) for name, column in observation["steps"].items()}
    with rc_context(_charts.STYLE):
        figure = figure_class(figsize=(20, 8), layout="constrained")
        axes = figure.subplots(2, 4).flat
        first = stats["ranks"][0]["rank"]
        _draw_steps(axes[0], steps, first)
        _draw_waits(axes[1], steps, first)
        _draw_causes(axes[2], stats)
        _draw_imbalance(axes[3], stats["imbalance"])
        _draw_reuse(axes[4], observation["reuse"])
        _draw_bytes(axes[5], stats)
        _draw_sources(axes[6], stats)
        _draw_epochs(axes[7], stats)
        figure.suptitle(f"{observation['dataset']}: {stats['verdict']}", wrap=True)
        _charts.save(figure, path)


def step_seconds(steps: dict[str, Column], lane: int) -> tuple[Column, NDArray[np.float64]]:
    """Of a rank: which batches follow another of their run, and how long that took."""
    (at,) = np.nonzero(steps["lane"] == lane)
    follows = at[1:][steps["run"][at[1:]] == steps["run"][at[:-1]]]
    return follows, (steps["taken_ns"][follows] - steps["taken_ns"][follows - 1]) / 1e9


def wait_shares(
    steps: dict[str, Column], lane: int, edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of a rank: by bins of the time at which a batch was taken, the share of its steps' time that
    it waited; NaN where none was taken."""
    follows, seconds = step_seconds(steps, lane)
    waited = sum(steps[f"{cause}_ns"][follows] for cause in CAUSES) / 1e9
    taken = steps["taken_ns"][follows] / 1e9
    spent, _ = np.histogram(taken, edges, weights=seconds)
    lost, _ = np.histogram(taken, edges, weights=waited)
    share: NDArray[np.float64] = np.full(len(spent), np.nan)
    np.divide(lost, spent, out=share, where=spent > 0)
    return share


def _nothing(axis: Any, why: str) -> None:
    axis.text(0.5, 0.5, why, ha="center", va="center", transform=axis.transAxes, color="#8A8A8A")


def _lanes(steps: dict[str, Column]) -> list[int]:
    return [int(lane) for lane in np.unique(steps["lane"])]


def _draw_steps(axis: Any, steps: dict[str, Column], first: int) -> None:
    axis.set(title="Time from batch to batch", xlabel="ms", ylabel="batches")
    by_lane = {lane: step_seconds(steps, lane)[1] * 1e3 for lane in _lanes(steps)}
    every = np.concatenate([*by_lane.values(), np.empty(0)])
    every = every[every > 0]
    if not len(every):
        _nothing(axis, "no step was timed yet")
        return
    low, high = float(every.min()), float(every.max())
    bins = np.geomspace(low / 1.05, high * 1.05, _BINS)
    for lane, ms in by_lane.items():
        colour = _charts.COLOURS[lane % len(_charts.COLOURS)]
        axis.hist(ms, bins, histtype="step", color=colour, label=f"rank {first + lane}")
    axis.set(xscale="log")
    axis.legend(frameon=False)


def _draw_waits(axis: Any, steps: dict[str, Column], first: int) -> None:
    axis.set(title="Waiting, over time", xlabel="s", ylabel="share of the time", ylim=(-0.02, 1.02))
    if len(steps["lane"]) < 2:
        _nothing(axis, "no step was timed yet")
        return
    taken = steps["taken_ns"] / 1e9
    edges = np.linspace(taken.min(), taken.max() + 1e-9, _BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2 - edges[0]
    for lane in _lanes(steps):
        share = wait_shares(steps, lane, edges)
        known = ~np.isnan(share)
        colour = _charts.COLOURS[lane % len(_charts.COLOURS)]
        axis.plot(
            middle[known],
            share[known],
            ".-",
            markersize=3,
            color=colour,
            label=f"rank {first + lane}",
        )
    axis.legend(frameon=False)


def _draw_causes(axis: Any, stats: dict[str, Any]) -> None:
    axis.set(title="Waiting, by cause", ylabel="share of the newest steps", xlabel="rank")
    names = [str(rank["rank"]) for rank in stats["ranks"]]
    below = np.zeros(len(names))
    for number, cause in enumerate(CAUSES):
        shares = np.array([rank["stall_shares"][cause] for rank in stats["ranks"]])
        axis.bar(names, shares, bottom=below, width=0.6, color=_charts.COLOURS[number], label=cause)
        below += shares
    axis.set(xlim=(-1, len(names)), ylim=(0, max(0.05, float(below.max()) * 1.4)))
    axis.legend(frameon=False, ncols=2, loc="upper right")


def _draw_imbalance(axis: Any, imbalance: dict[str, Any] | None) -> None:
    axis.set(title="Ranks apart by more than theta", ylabel="share of iterations")
    if imbalance is None:
        _nothing(axis, "one rank, or no two steps of all ranks")
        return
    at = np.arange(len(imbalance["thetas"]))
    axis.bar(at - 0.2, imbalance["late"], 0.4, color=_charts.COLOURS[0], label="batch was late")
    axis.bar(
        at + 0.2, imbalance["busy"], 0.4, color=_charts.COLOURS[4], label="loading and decoding"
    )
    axis.set_xticks(at, [f"{theta:.0%} of a step" for theta in imbalance["thetas"]])
    axis.set_ylim(0, 1.02)
    axis.legend(frameon=False)


def _draw_reuse(axis: Any, reuse: dict[str, Any] | None) -> None:
    axis.set(title="Steps until used again", ylabel="uses")
    if reuse is None or not reuse["bins"]:
        _nothing(axis, "not known" if reuse is None else "nothing is used twice")
        return
    axis.bar(np.arange(len(reuse["bins"])), reuse["bins"], color=_charts.COLOURS[2])
    axis.set(xlabel=f"steps; {reuse['of']}, in {reuse['steps']:,} steps of the plan")
    axis.set_xticks(
        np.arange(len(reuse["bins"])), [f"{2**power:,}" for power in range(len(reuse["bins"]))]
    )
    axis.tick_params(axis="x", rotation=45)


def _draw_bytes(axis: Any, stats: dict[str, Any]) -> None:
    sources = {
        "read": stats["bytes"]["read"],
        "of it direct": stats["bytes"]["direct"],
        "of it page cache": stats["bytes"]["page_cache"],
        "pinned": stats["bytes"]["pinned"],
    } | {tier["name"]: tier["use_bytes"] for tier in stats["tiers"]}
    axis.barh(list(sources), list(sources.values()), color=_charts.COLOURS[0])
    axis.invert_yaxis()
    for place, count in enumerate(sources.values()):
        axis.text(count, place, f" {format_bytes(count)}", va="center")
    axis.set(title="Bytes by source", xticks=[], xlim=(0, max(1, *sources.values()) * 1.25))


def sources_by_epoch(stats: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Of this rank: by source, the share of the samples of each epoch."""
    names = [tier["name"] for tier in stats["tiers"]]
    rows = [
        [epoch["storage"], epoch["nodes"], *epoch["tiers"], *[0] * len(names)][: 2 + len(names)]
        for epoch in stats["epochs"]
    ]
    counts = np.array(rows, np.float64).reshape(-1, 2 + len(names))
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return dict(zip(["storage", "other nodes", *names], shares.T, strict=True))


def _draw_sources(axis: Any, stats: dict[str, Any]) -> None:
    axis.set(title="Sources of samples, by epoch", ylabel="share of the samples", xlabel="epoch")
    _stack(axis, [epoch["epoch"] for epoch in stats["epochs"]], sources_by_epoch(stats))


def _draw_epochs(axis: Any, stats: dict[str, Any]) -> None:
    axis.set(title="Waiting, by epoch", ylabel="s", xlabel="epoch")
    waits = {
        cause: np.array([epoch["stall"][cause] for epoch in stats["epochs"]]) for cause in CAUSES
    }
    _stack(axis, [epoch["epoch"] for epoch in stats["epochs"]], waits)


def _stack(axis: Any, epochs: list[int], parts: dict[str, NDArray[np.float64]]) -> None:
    """A bar for each epoch, of these parts."""
    if not epochs:
        _nothing(axis, "no batch was taken yet")
        return
    below = np.zeros(len(epochs))
    names = [str(epoch) for epoch in epochs]
    for number, (name, heights) in enumerate(parts.items()):
        if heights.any():
            colour = _charts.COLOURS[number % len(_charts.COLOURS)]
            axis.bar(names, heights, bottom=below, width=0.8, color=colour, label=name)
            below += heights
    axis.set(ylim=(0, max(1e-3, float(below.max()) * 1.3)))
    step = -(-len(names) // 8)
    axis.set_xticks(range(0, len(names), step), names[::step])
    if below.any():
        axis.legend(frameon=False, ncols=2, loc="upper right")
