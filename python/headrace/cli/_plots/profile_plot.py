"""The chart of `headrace profile --plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace import _charts
from headrace._units import format_bytes
from headrace.profile import MachineProfile, Rates, SizedRates

_WHAT = "headrace profile --plot"
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MEGABYTE = 1e6


def check(path: Path) -> None:
    """Checks that a chart can be drawn there, before minutes of measuring."""
    _charts.check(path, _WHAT)


def draw(path: Path, machine: MachineProfile) -> None:
    """Storage by size and depth, threads, and each tier; with bars from slowest to fastest."""
    rc_context, figure_class = _charts.matplotlib(_WHAT)
    with rc_context(_charts.STYLE):
        panels = 2 + len(machine.tiers)
        figure = figure_class(figsize=(1 + 4.2 * panels, 4.2), layout="constrained")
        axes = figure.subplots(1, panels)
        _draw_sizes(axes[0], machine.storage.rates, "in flight", "-")
        axes[0].set(title=f"Cold reads ({machine.storage.store})", ylabel="MB/s")
        _draw_rates(axes[1], machine.decode.rates, f"decode: {machine.decode.what}", 0)
        _draw_rates(axes[1], machine.copy, "memory copy", 1)
        axes[1].set(title="Threads", xlabel="threads", ylabel="MB/s", yscale="log")
        axes[1].legend(frameon=False)
        for axis, tier in zip(axes[2:], machine.tiers, strict=True):
            _draw_sizes(axis, tier.read, "reading", "-")
            _draw_sizes(axis, tier.write, "writing", ":")
            axis.set(title=f"{Path(tier.folder).name} ({tier.file_system})")
        for axis in (axes[0], *axes[2:]):
            axis.set_ylim(0, None)
        figure.suptitle(
            f"{machine.dataset.path} on {machine.dataset.file_system}, {machine.date:%Y-%m-%d}"
        )
        _charts.save(figure, path)


def _draw_sizes(axis: Any, sizes: Sequence[SizedRates], users: str, style: str) -> None:
    """A line for each number of users, over the size of reads."""
    counts = sorted({count for size in sizes for count in size.rates.users})
    for number, count in enumerate(counts):
        here = [size for size in sizes if count in size.rates.users]
        at = [size.rates.users.index(count) for size in here]
        rates = [
            size.rates.bytes_per_second[i] / _MEGABYTE for size, i in zip(here, at, strict=True)
        ]
        bars = [
            rate * size.rates.spread[i] / 2 for rate, size, i in zip(rates, here, at, strict=True)
        ]
        axis.errorbar(
            [size.read_bytes for size in here],
            rates,
            yerr=bars,
            fmt=f"o{style}",
            markersize=3,
            capsize=2,
            color=_COLOURS[number % len(_COLOURS)],
            label=f"{count} {users}",
        )
    ticks = sorted({size.read_bytes for size in sizes})
    axis.set(xscale="log", xlabel="bytes of a read", xticks=ticks)
    axis.set_xticklabels([format_bytes(tick) for tick in ticks], rotation=30)
    axis.minorticks_off()
    axis.legend(frameon=False, fontsize=7)


def _draw_rates(axis: Any, rates: Rates, label: str, number: int) -> None:
    axis.errorbar(
        rates.users,
        [rate / _MEGABYTE for rate in rates.bytes_per_second],
        yerr=[
            rate * spread / 2 / _MEGABYTE
            for rate, spread in zip(rates.bytes_per_second, rates.spread, strict=True)
        ],
        fmt="o-",
        markersize=3,
        capsize=2,
        color=_COLOURS[number],
        label=label,
    )
    axis.set_xticks(list(rates.users))
