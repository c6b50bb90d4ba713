"""The tables of docs/benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import _harness
from cells import CELLS, HEADRACE

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
WON, LOST = 1.02, 0.98

Rounds = Sequence[dict[str, dict[str, Any]]]


def ratios(rounds: Rounds) -> dict[str, dict[str, list[float]]]:
    """Of each order's rate to each other loader's: median, low and high of the interval."""
    found: dict[str, dict[str, list[float]]] = {}
    ours = {peer.name: order for order, peer in HEADRACE.items()}
    for name in sorted({name for runs in rounds for name in runs} - set(ours)):
        found[name] = {}
        for own, order in ours.items():
            pairs = [
                runs[own]["rate"] / runs[name]["rate"]
                for runs in rounds
                if own in runs and name in runs
            ]
            if pairs:
                values = _harness.median_and_interval(pairs)
                found[name][order] = [round(value, 4) for value in values]
    return found


def verdict(of_orders: dict[str, list[float]]) -> str:
    """By the better order: "won", "lost", or "even" where the interval decides neither."""
    _, low, high = max(of_orders.values(), key=lambda value: value[0])
    return "won" if low > WON else "lost" if high < LOST else "even"


def table(result: dict[str, Any]) -> str:
    """The table of one cell."""
    cold = CELLS[result["cell"]].cold
    lines = [
        "| loader | shuffle | settings | samples/s | MB/s | CPU s/GB | first batch | memory, peak "
        "(at rest) | `exact` to it | `epoch` to it |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    runs_of: dict[str, list[dict[str, Any]]] = {}
    for runs in result["rounds"]:
        for name, run in runs.items():
            runs_of.setdefault(name, []).append(run)
    size = result["data"]["payload_bytes"] / result["data"]["samples"]
    for name, loader in result["loaders"].items():
        if name not in runs_of:
            lines.append(f"| {name} {loader['version']} | | every run was void |" + " |" * 7)
            continue
        runs = runs_of[name]
        rate = median(run["rate"] for run in runs)
        stored_gb = [run["samples"] * size / 1e9 for run in runs]
        cpu = median(run["cpu_s"] / gb for run, gb in zip(runs, stored_gb, strict=True))
        peak, rest = (median(run[key] for run in runs) for key in ("peak_bytes", "before_bytes"))
        first = median(run["first_batch_s"] for run in runs)
        ratio = [_shown(result["ratios"].get(name, {}).get(order)) for order in HEADRACE]
        lines.append(
            f"| {name} {loader['version']} | {loader['shuffle']} | {_settings(loader)} | "
            f"{rate:,.0f} | {rate * size / 1e6:,.0f} | {cpu:.1f} | {first:.2f} s | "
            f"{peak / 2**20:,.0f} MiB ({rest / 2**20:,.0f}) | {ratio[0]} | {ratio[1]} |"
        )
    counted = {name: len(runs) for name, runs in runs_of.items()}
    short = {name: count for name, count in counted.items() if count < len(result["rounds"])}
    lines += ["", *_sentences(result, short)]
    if cold:
        lines[-1] += " Rates count from the first read, not from the start of worker processes."
    return "\n".join(lines)


def _sentences(result: dict[str, Any], short: dict[str, int]) -> list[str]:
    verdicts = {name: verdict(of) for name, of in result["ratios"].items() if of}
    lines = []
    for what in ("lost", "even"):
        if names := [name for name, found in verdicts.items() if found == what]:
            lines.append(f"Not won ({what}): {', '.join(names)}.")
    if verdicts and set(verdicts.values()) == {"won"}:
        lines.append("Won over every loader of the table.")
    for name, reason in result["absent"].items():
        lines.append(f"Left out: {name}: {reason.replace('|', '/')}")
    if short:
        counts = ", ".join(f"{name} {count}" for name, count in short.items())
        lines.append(f"Rounds that count, where fewer than all: {counts}.")
    data = result["data"]
    lines.append(
        f"{len(result['rounds'])} rounds, batches of {result['batch']}, {data['samples']:,} "
        f"samples, {data['payload_bytes'] / 1e6:,.0f} MB."
    )
    return ["  \n".join(lines)]


def _settings(loader: dict[str, Any]) -> str:
    shown = {k: v for k, v in loader["settings"].items() if k not in ("order", "epochs")}
    return ", ".join(f"{key} {value}" for key, value in shown.items()) or "defaults"


def _shown(ratio: list[float] | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"


def text(recorded: dict[str, Any]) -> str:
    """The cell's part of the page."""
    return (
        f"{table(recorded)}\n\n`{recorded['command']}`, {recorded['date'][:10]}, revision "
        f"{recorded['revision']}, {recorded['machine']}, load {recorded['load']} at the end."
    )


def write(recorded: dict[str, Any]) -> None:
    """Replaces the cell's part of the page."""
    begin, end = marks(recorded["cell"])
    _harness.replace_generated(PAGE, begin, end, text(recorded))


def marks(cell: str) -> tuple[str, str]:
    """What stands before and after the cell's part of the page."""
    return f"<!-- peers {cell} -->", f"<!-- end {cell} -->"


def newest() -> dict[str, dict[str, Any]]:
    """The newest recorded result of each cell."""
    path = _harness.RESULTS / "peers.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {result["cell"]: result for result in map(json.loads, lines)}
