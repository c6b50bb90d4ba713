"""`make demo`: the same small network, fed by torch's DataLoader and by Headrace, side by side.

Makes a JPEG dataset (once), packs it (once), then trains: torch's DataLoader on the folder, and
Headrace on the folder and on the pack. Every epoch starts with the dataset out of the page cache.
After each run it measures what training and decoding take alone, which gives the bound that no
storage can pass. Ends with a table, a chart and all figures as JSON under --out.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

import headrace as hr
import runner
from dataset import CLASSES, DatasetParameters, make_dataset
from headrace.pack import write_pack
from records import EPOCHS_MIN, Kind, Run, RunPlan

# Interleaved, and the other way round in every other round: a drift of the machine meets all.
KINDS: tuple[Kind, ...] = ("torch", "folder", "pack")
BATCH_SIZE = 32
IMAGE_SIDE = 64
QUICK_SIZE_MB = 20
_PLAIN_COLUMNS = 110  # where there is no terminal

console = Console(highlight=False)
if not console.is_terminal:
    console.width = _PLAIN_COLUMNS


@dataclass(frozen=True)
class Options:
    """Of the command line."""

    out: Path
    size_mb: int
    seconds: float
    rounds: int
    quick: bool
    only_prepare: bool


def parse_options() -> Options:
    """Or exits, with what is wrong."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.split("\n\n")[0])
    default_out = Path(__file__).resolve().parent / "out"
    parser.add_argument("--out", type=Path, default=default_out, help="where everything goes")
    parser.add_argument("--size-mb", type=int, default=200, help="of the dataset (default 200)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=6,
        help=f"of each run (default 6): so many epochs, at least {EPOCHS_MIN}",
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each loader (default 3)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_SIZE_MB} MB, one round of {EPOCHS_MIN} epochs: does it work?",
    )
    parser.add_argument("--only-prepare", action="store_true", help="dataset and pack, no training")
    given = parser.parse_args()
    for name in ("size_mb", "seconds", "rounds"):
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: must be at least 1")
    return Options(
        out=given.out.resolve(),
        size_mb=QUICK_SIZE_MB if given.quick else given.size_mb,
        seconds=given.seconds,
        rounds=1 if given.quick else given.rounds,
        quick=given.quick,
        only_prepare=given.only_prepare,
    )


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two at a time would spoil each other's figures, and files."""
    out.mkdir(parents=True, exist_ok=True)
    with open(out / ".lock", "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"demo: another one is running in {out}") from None
        yield


@contextmanager
def _bar(what: str, *amount: ProgressColumn) -> Iterator[Callable[[int, int], object]]:
    columns = (TextColumn("{task.description:<42}"), BarColumn(), *amount, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def prepare(options: Options) -> hr.Dataset:
    """The folder, indexed, and its pack beside it; what is there already is used again."""
    folder, pack = options.out / "dataset", options.out / "pack"
    with _bar("making JPEG images", MofNCompleteColumn()) as progress:
        made = make_dataset(folder, DatasetParameters.of_size(options.size_mb), progress)
    dataset = hr.open(folder, index=options.out / "dataset.hri")
    sizes = dataset.index.extents(0)[2]
    console.print(
        f"dataset  {len(dataset):,} JPEG images in {len(dataset.classes)} classes, "
        f"{sizes.sum() / 1e6:,.0f} MB, {sizes.min() / 1e3:.0f} to {sizes.max() / 1e3:.0f} kB each: "
        f"{folder}{'' if made else ' (found)'}"
    )
    source = dataset.fingerprint
    found = (pack / "pack.hri").exists() and hr.open(pack).index.attributes["source_fingerprint"]
    if found != source:
        with _bar("packing", DownloadColumn(), TransferSpeedColumn()) as progress:
            write_pack(dataset, pack, overwrite=bool(found), progress=progress)
        os.sync()  # Pages that are not yet written cannot be dropped from the cache later.
    console.print(f"pack     shuffled: {pack}{' (found)' if found == source else ''}")
    return dataset


def make_plans(options: Options, dataset: hr.Dataset) -> list[RunPlan]:
    """All runs, in their order."""
    cores = len(os.sched_getaffinity(0))
    folder, pack = options.out / "dataset", options.out / "pack"
    return [
        RunPlan(
            kind=kind,
            round=number,
            images=folder,
            source=pack if kind == "pack" else folder,
            index=options.out / "dataset.hri",
            samples=len(dataset),
            classes=len(CLASSES),
            epochs=EPOCHS_MIN if options.quick else None,
            seconds=options.seconds,
            batch_size=BATCH_SIZE,
            image_side=IMAGE_SIDE,
            workers=cores,
            trainer_threads=max(1, cores // 2),
            seed=number,
        )
        for number in range(options.rounds)
        for kind in (KINDS if number % 2 == 0 else KINDS[::-1])
    ]


def train_all(options: Options, plans: list[RunPlan]) -> list[Run]:
    """Runs the plans. All rounds of a loader have as many epochs as its first found out."""
    runs: list[Run] = []
    for plan in plans:
        epochs = {run.kind: len(run.epochs) for run in runs}
        known = replace(plan, epochs=epochs.get(plan.kind, plan.epochs))
        runs.append(runner.run(known, options.rounds, console))
    return runs


def run(options: Options) -> None:
    """The whole demo."""
    began = time.perf_counter()
    dataset = prepare(options)
    if options.only_prepare:
        return
    plans = make_plans(options, dataset)
    console.print(
        f"training {options.rounds} run{'s' * (options.rounds > 1)} of each loader, in turns; "
        "before every epoch the dataset is dropped from the page cache"
    )
    runs = train_all(options, plans)

    import report  # With matplotlib, which no run is to share memory with.

    described = report.Dataset(
        folder=str(options.out / "dataset"),
        pack=str(options.out / "pack"),
        samples=len(dataset),
        classes=len(dataset.classes),
        bytes=int(dataset.index.extents(0)[2].sum()),
    )
    report.write(options.out, described, plans, runs, console)
    console.print(f"The demo took {time.perf_counter() - began:.0f} s.")
    report.say_what_is_next(console)


def main() -> None:
    """From the command line."""
    options = parse_options()
    try:
        with _alone(options.out):
            run(options)
    except KeyboardInterrupt:
        raise SystemExit("demo: stopped; run it again to go on from here") from None
    except hr.HeadraceError as error:
        raise SystemExit(f"demo: {error}") from error


if __name__ == "__main__":
    main()
