"""The chart of `headrace order --plot`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from headrace import _charts, _core
from headrace.cli._parts.orders import Ids, Source

_POINTS_MAX = 20_000
_PREFIX_GROUPS = 64
_PREFIX_POINTS = 512
_WINDOW_MIN = 16


def draw(path: Path, source: Source, ids: Ids, result: dict[str, Any]) -> None:
    """Position against source, inflation against window, prefix discrepancy; of one epoch."""
    rc_context, figure_class = _charts.matplotlib("headrace order --plot")
    with rc_context(_charts.STYLE):
        figure = figure_class(figsize=(13, 4.2), layout="constrained")
        places, inflation, prefix = figure.subplots(1, 3)
        chosen = np.linspace(0, len(ids) - 1, min(len(ids), _POINTS_MAX)).astype(np.int64)
        places.plot(chosen, ids[chosen], ",", color="#0072B2")
        places.set(title="Where samples come from", xlabel="position", ylabel="place on storage")

        vif = _inflation(source, ids)
        inflation.plot(list(vif), list(vif.values()), "o-", color="#D55E00", markersize=3)
        inflation.axhline(1, color="#8A8A8A", linewidth=1)
        inflation.set(
            xscale="log",
            yscale="log",
            title=f"Variance inflation ({result['verdict']})",
            xlabel="window, samples",
            ylabel="times a uniform permutation's",
        )

        at, deviation = _prefix(source, ids)
        prefix.plot(at, deviation, color="#009E73")
        prefix.set(
            title="Prefix discrepancy",
            xlabel="position",
            ylabel="largest of 64 neighbourhoods, sd",
        )
        figure.suptitle(f"One epoch of {len(ids):,} samples, {source.blocks.block_count:,} blocks")
        _charts.save(figure, path)


def _inflation(source: Source, ids: Ids) -> dict[int, float]:
    windows = [1 << power for power in range(4, 40) if _WINDOW_MIN <= 1 << power <= len(ids) // 4]
    meter = _core.QualityMeter(source.blocks, windows=windows or [2], partial=True)
    meter.add(ids)
    meter.end_epoch()
    return {int(window): value for window, value in meter.report()["vif"].items()}


def _prefix(source: Source, ids: Ids) -> tuple[Any, Any]:
    """The largest deviation of any neighbourhood's running count, over a uniform one's final sd."""
    count = len(ids)
    groups = (ids.astype(np.float64) * _PREFIX_GROUPS / source.samples).astype(np.int64)
    at = np.linspace(0, count, min(count, _PREFIX_POINTS) + 1).astype(np.int64)
    totals = np.bincount(groups, minlength=_PREFIX_GROUPS)
    running = np.zeros(_PREFIX_GROUPS)
    deviation = [0.0]
    share = totals / count
    scale = np.sqrt(np.maximum(count * share * (1 - share), 1e-9))
    for begin, end in itertools.pairwise(at.tolist()):
        running += np.bincount(groups[begin:end], minlength=_PREFIX_GROUPS)
        deviation.append(float(np.max(np.abs(running - end * share) / scale)))
    return at, np.array(deviation)
