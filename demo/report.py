"""What the runs come to: a table, a chart, and everything as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from io import StringIO
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import chart
from records import EPOCHS_MIN, TITLES, Run, RunPlan
from runner import machine
from summary import Figures, Summary, compare, figures, median_run, to_json

_TEXT_COLUMNS = 110


@dataclass(frozen=True)
class Dataset:
    """What was trained on."""

    folder: str
    pack: str
    samples: int
    classes: int
    bytes: int


def write(
    out: Path, dataset: Dataset, plans: Sequence[RunPlan], runs: Sequence[Run], console: Console
) -> None:
    """Prints the table; leaves demo.txt, demo.json and demo.png in `out`."""
    found = figures(runs, dataset.bytes, plans[0].workers)
    date = datetime.now(UTC)
    context = [_machine_line(date), _work_line(dataset, plans, found)]
    results = _results(found, runs)
    text = StringIO()
    for target in (console, Console(file=text, width=_TEXT_COLUMNS)):
        target.print()
        target.print(_table(found))
        for heading, lines in (
            ("Result", results),
            ("How it was measured", [*context, *_notes(plans[0], found, runs)]),
        ):
            target.print(f"{heading}:", highlight=False)
            for line in lines:
                target.print(f"- {line}", highlight=False)
            target.print()
    (out / "demo.txt").write_text(text.getvalue(), encoding="utf-8")
    content = {
        "version": 2,
        "date": date.isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {name: version(name) for name in ("torch", "numpy", "pillow")},
        "dataset": asdict(dataset),
        "settings": {key: value for key, value in asdict(plans[0]).items() if key in _SETTINGS},
        "bound": found.bound,
        "summary": to_json(found),
        "runs": [asdict(run) | {"samples_per_second": run.samples_per_second} for run in runs],
    }
    (out / "demo.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    chart.draw(out / "demo.png", found, runs, context)
    for name, what in (
        ("dataset", "JPEG files, a folder for each class"),
        ("pack", "the same, packed and shuffled: Arrow files"),
        ("demo.txt", "this table"),
        ("demo.png", "the chart"),
        ("demo.json", "all figures"),
    ):
        console.print(f"{what:<44}{out / name}", soft_wrap=True)


def say_what_is_next(console: Console) -> None:
    """One command, as it can be pasted."""
    command = Path(os.path.relpath(Path(sys.executable).with_name("headrace")))
    console.print("Next, your own images, in a folder with one folder for each class:")
    console.print(f"    {command} pack IMAGES PACK", soft_wrap=True)


_SETTINGS = ("batch_size", "image_side", "workers", "trainer_threads")


def _machine_line(date: datetime) -> str:
    found = machine()
    return (
        f"{date:%Y-%m-%d %H:%M} UTC. {found['cpu']}, {found['cores']} cores, "
        f"{int(found['memory_bytes']) / 2**30:.0f} GiB; Linux {found['kernel']}, Python "
        f"{found['python']}, torch {version('torch')}, Pillow {version('pillow')}."
    )


def _work_line(dataset: Dataset, plans: Sequence[RunPlan], found: Figures) -> str:
    rounds = 1 + max(plan.round for plan in plans)
    epochs = ", ".join(f"{each.epochs} ({kind})" for kind, each in found.loaders.items())
    return (
        f"{dataset.samples:,} JPEG images, {dataset.bytes / 1e6:,.0f} MB. {rounds} "
        f"run{'s' * (rounds > 1)} of each loader, in turns; epochs a run: {epochs}. Batches of "
        f"{plans[0].batch_size}, crops of {plans[0].image_side} x {plans[0].image_side} pixels."
    )


def _results(found: Figures, runs: Sequence[Run]) -> list[str]:
    """What one may conclude, and no more."""
    once = all(each.each_sample_once for each in found.loaders.values())
    epochs = sum(len(run.epochs) for run in runs)
    return [
        compare(found, "folder", "torch"),
        compare(found, "pack", "torch"),
        compare(found, "pack", "folder"),
        _against_bound(found, runs),
        f"Each sample exactly once in each of the {epochs} epochs, by its number: "
        f"{'yes' if once else 'NO'}.",
    ]


def _against_bound(found: Figures, runs: Sequence[Run]) -> str:
    """Says what else kept the loader below the bound, if the machine was not idle."""
    share = found.share_of_bound("pack")
    median = median_run([run for run in runs if run.kind == "pack"])
    others = median.others_cpu_share
    busy = f", while other processes used {others:.0%} of its cores" if others > 0.05 else ""
    return f"{TITLES['pack']}: {share:.0%} of the bound without I/O{busy}."


def _notes(plan: RunPlan, found: Figures, runs: Sequence[Run]) -> list[str]:
    resident = max(each.resident_share for each in found.loaders.values())
    names = (
        "file names too"
        if all(run.names_forgotten for run in runs)
        else "file names were not (that needs root)"
    )
    least, most = found.others_cpu_share
    threads = f"{plan.trainer_threads} thread{'s' * (plan.trainer_threads > 1)}"
    return [
        "samples/s: the median run, and the slowest to the fastest. The start of the loader is "
        "included. The other columns are of the median run; memory is the largest of all runs.",
        "bound: training and decoding (Headrace's) alone, with samples in memory, at the fastest "
        f"of {len(runs)} measurements between the runs, shared by all cores without loss.",
        "stall: share of the time spent waiting for the next batch. Cause: what Headrace waited "
        "for; torch cannot tell, so ~ is how its workers' time divides.",
        "memory: of all processes of the run (proportional set size). + is what the loader adds to "
        f"torch and the network. loss, accuracy: in epoch {EPOCHS_MIN}, mean of the runs.",
        f"torch: {plan.workers} persistent workers, one a core, decoding with Pillow. Headrace: "
        "defaults; it decodes a JPEG at a lower resolution where the crop needs no more, Pillow "
        f"decodes all of it here. Both train on {threads}.",
        f"cold: the files were dropped from the page cache before each epoch, {names}. At most "
        f"{resident:.1%} of the bytes were in memory then, read ahead by Headrace.",
        f"Other processes used {least:.0%} to {most:.0%} of the cores during the runs.",
    ]


def _table(found: Figures) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    names = ("", "samples/s", "x torch", "of bound", "device\nMB/s", "stall", "cause", "memory")
    for name in names:
        table.add_column(name, justify="left" if name in ("", "cause") else "right", no_wrap=True)
    table.add_column("loss,\naccuracy", justify="right", no_wrap=True)
    torch = found.loaders["torch"]
    for kind, summary in found.loaders.items():
        table.add_row(*_row(summary, torch, found.share_of_bound(kind)))
    ratio = found.bound / torch.samples_per_second
    bound = ("bound without I/O", f"{found.bound:,.0f}", f"{ratio:.2f}", "100%")
    table.add_row(*bound, *["-"] * (len(table.columns) - len(bound)))
    return table


def _row(summary: Summary, torch: Summary, share_of_bound: float) -> list[str]:
    rates = summary.samples_per_second_runs
    spread = f"\n{min(rates):,.0f} to {max(rates):,.0f}" if len(rates) > 1 else ""
    about = "~" if summary.causes_are == "workers" else ""
    causes = (
        f"{cause} {about}{share * summary.stall_share:.0%}"
        for cause, share in summary.stall_causes.items()
        if share * summary.stall_share >= 0.005
    )
    return [
        summary.title,
        f"{summary.samples_per_second:,.0f}{spread}",
        f"{summary.samples_per_second / torch.samples_per_second:.2f}",
        f"{share_of_bound:.0%}",
        "?" if summary.device_mb_per_second is None else f"{summary.device_mb_per_second:.1f}",
        f"{summary.stall_share:.0%}",
        "\n".join(causes),
        f"{summary.memory_peak / 2**20:.0f} MiB\n+{summary.memory_of_loader / 2**20:.0f}",
        f"{summary.loss:.2f}\n{summary.accuracy:.0%}",
    ]
