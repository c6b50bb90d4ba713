"""What the runs come to: a table, a chart, and everything as JSON."""

from __future__ import annotations

import json
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
from records import Kind, Run, RunPlan
from runner import machine
from summary import Summary, io_share, summarize, to_json

_TEXT_COLUMNS = 110
_OTHERS_SHARE_MAX = 0.05


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
    summaries = summarize(runs, dataset.bytes)
    date = datetime.now(UTC)
    context = [_machine_line(date), _work_line(dataset, plans), *_notes(plans[0], runs, summaries)]
    table = _table(summaries)
    text = StringIO()
    for target in (console, Console(file=text, width=_TEXT_COLUMNS)):
        target.print()
        target.print(table)
        for line in context:
            target.print(line, highlight=False)
    (out / "demo.txt").write_text(text.getvalue(), encoding="utf-8")
    content = {
        "version": 1,
        "date": date.isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {name: version(name) for name in ("torch", "numpy", "pillow")},
        "dataset": asdict(dataset),
        "settings": {key: value for key, value in asdict(plans[0]).items() if key in _SETTINGS},
        "summary": to_json(summaries),
        "runs": [asdict(run) | {"samples_per_second": run.samples_per_second} for run in runs],
    }
    (out / "demo.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    chart.draw(out / "demo.png", summaries, runs, [*context[:2], *_others(runs)])
    console.print()
    for name, what in (
        ("dataset", "JPEG files, a folder for each class"),
        ("pack", "the same, packed and shuffled: Arrow files"),
        ("demo.txt", "this table"),
        ("demo.png", "the chart"),
        ("demo.json", "all figures"),
    ):
        console.print(f"{what:<44}{out / name}", soft_wrap=True)


_SETTINGS = ("epochs", "batch_size", "image_side", "workers", "trainer_threads")


def _machine_line(date: datetime) -> str:
    found = machine()
    return (
        f"{date:%Y-%m-%d %H:%M} UTC. {found['cpu']}, {found['cores']} cores, "
        f"{int(found['memory_bytes']) / 2**30:.0f} GiB; Linux {found['kernel']}, Python "
        f"{found['python']}, torch {version('torch')}, Pillow {version('pillow')}"
    )


def _work_line(dataset: Dataset, plans: Sequence[RunPlan]) -> str:
    rounds = 1 + max(plan.round for plan in plans)
    return (
        f"{dataset.samples:,} JPEG images, {dataset.bytes / 1e6:,.0f} MB; {plans[0].epochs} cold "
        f"epochs a run, {rounds} run{'s' * (rounds > 1)} a loader; batches of "
        f"{plans[0].batch_size}, {plans[0].image_side} x {plans[0].image_side} crops"
    )


def _notes(plan: RunPlan, runs: Sequence[Run], summaries: dict[Kind, Summary]) -> list[str]:
    """What one has to know to believe the table."""
    resident = max(summary.resident_share for summary in summaries.values())
    forgotten = all(run.names_forgotten for run in runs)
    names = "names and inodes dropped" if forgotten else "names and inodes not (needs root)"
    once = all(summary.each_sample_once for summary in summaries.values())
    return [
        f"torch: {plan.workers} persistent workers (forked), one a core, default prefetch, Pillow. "
        "Headrace: defaults; where a crop is much larger than wanted its JPEG decoder scales, "
        f"Pillow's does not. Trainer, in all runs: {plan.trainer_threads} thread"
        f"{'s' * (plan.trainer_threads > 1)}.",
        "stall: share of the time spent in next(), the first with making the loader. Cause: what "
        "Headrace waited for; for torch (~) split as its workers' own time.",
        "memory: proportional set size of all processes of the run, sampled; + is what the loader "
        "adds to torch and the network.",
        f"cold: the dataset's pages were evicted before each epoch, at most {resident:.1%} found "
        f"in memory then (mincore), read ahead by Headrace; {names}.",
        f"each sample delivered exactly once in every epoch: {'yes' if once else 'NO'}. No-I/O "
        "gives made-up samples: nothing to learn.",
        *_against_no_io(summaries),
        *_others(runs),
    ]


def _against_no_io(summaries: dict[Kind, Summary]) -> list[str]:
    """Nothing where noise is larger than the difference."""
    pack, bound = summaries["pack"], summaries["synthetic"]
    share = io_share(summaries, "pack")
    if max(pack.samples_per_second_runs) < min(bound.samples_per_second_runs):
        return [f"I/O: {share:.0%} of the time of Headrace on the pack, which No-I/O does without."]
    return [
        f"I/O: {max(0.0, share):.0%} of the time of Headrace on the pack, counted against No-I/O; "
        "less than the noise."
    ]


def _others(runs: Sequence[Run]) -> list[str]:
    """A warning if the machine was not ours."""
    shares = [run.others_cpu_share for run in runs]
    if max(shares) < _OTHERS_SHARE_MAX:
        return []
    return [
        f"CAUTION: other processes used {min(shares):.0%} to {max(shares):.0%} of the cores during "
        "the runs: run this again on a quiet machine before you believe a ratio."
    ]


def _table(summaries: dict[Kind, Summary]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "samples/s", "x torch", "device MB/s", "stall", "cause", "memory peak"):
        table.add_column(name, justify="left" if name in ("", "cause") else "right", no_wrap=True)
    table.add_column("loss,\naccuracy", justify="right")
    for kind, summary in summaries.items():
        table.add_row(*_row(kind, summary, summaries["torch"]))
    return table


def _row(kind: Kind, summary: Summary, torch: Summary) -> list[str]:
    rates = summary.samples_per_second_runs
    spread = f"\n{min(rates):,.0f} to {max(rates):,.0f}" if len(rates) > 1 else ""
    about = "~" if summary.causes_are == "workers" else ""
    causes = (
        f"{cause} {about}{share * summary.stall_share:.0%}"
        for cause, share in summary.stall_causes.items()
        if share * summary.stall_share >= 0.005
    )
    learns = kind != "synthetic"
    return [
        summary.title,
        f"{summary.samples_per_second:,.0f}{spread}",
        f"{summary.samples_per_second / torch.samples_per_second:.2f}",
        "?" if summary.device_mb_per_second is None else f"{summary.device_mb_per_second:.1f}",
        f"{summary.stall_share:.0%}",
        "\n".join(causes),
        f"{summary.memory_peak / 2**20:.0f} MiB\n+{summary.memory_of_loader / 2**20:.0f}",
        f"{summary.loss[-1]:.2f}\n{summary.accuracy[-1]:.0%}" if learns else "-",
    ]
