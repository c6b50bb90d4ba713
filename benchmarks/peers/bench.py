"""Headrace beside other loaders, cell by cell; `make bench` runs all cells.

    python benchmarks/peers/bench.py --cell raw100k-cold [--peers torch webdataset] [--quick]

--cell and --peers: these, instead of all; with a part of the peers nothing is recorded.

Each loader is the real package in an environment of its own (environments.py), reads its own format
as its own writer made it from the same samples, delivers to a loop that does nothing, and runs in a
process of its own (run_one.py). First each is run once with each of its settings, then the fastest
with twice the prefetch, for half the time of a run, and the fastest is kept. With these it is
checked: the sum of the checksums of what an epoch delivered has to be that of the samples (of
decoded images: their number, and a mean brightness near the middle). Then come rounds: in each,
every loader runs once, in random order. A ratio is that of the rates of one round; medians, and a
bootstrap 95 % interval.

Cold: the pages of the files are evicted before a run, and that none is left is checked. One epoch.
The clock starts when the loader's processes have read 1 MiB, and stops with the last batch, or
after a limit: so the start of worker processes does not count, and what is read ahead does. Warm:
the files' pages are locked in memory while a run lasts, as this kernel may take pages that nobody
maps at any time, and that all are there is checked; whole epochs from the second on, for some
seconds at least.

Memory is the peak of anonymous and shared memory of all processes of a run, the interpreter and its
modules included; "at rest" is what they had before the loader was made.

Discard rules, fixed beforehand. A run is void if the host took more than 2 % of the processors, if
a warm run read more than 1 % of its bytes from storage, or if it failed. A void run is repeated,
twice at most; then it is left out, and its round counts for the other loaders. A cell is won over a
peer if the interval of the better order is above 1.02, and lost if it is below 0.98.

What peers' writers wrote is removed when no further cell needs it, 15 GB at most; the environments,
8 GB, stay.

--quick: small data, one round, no sweep; writes neither results nor the page.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _data
import _harness
from cells import ABSENT, CELLS, HEADRACE, PEERS, Cell, Peer
from environments import NotInstalledError
from runs import Contestant, RunError, Runs

import report

_STEAL_MAX = 0.02
_READ_WARM_MAX = 0.01
_REPEATS = 2
_PART_TRIED = 0.5  # of a run's time: a sweep has to find the fastest, not its rate


class Campaign:
    """One cell's loaders and their runs."""

    def __init__(self, cell: Cell, runs: Runs, quick: bool) -> None:
        self._cell = cell
        self._runs = runs
        self._quick = quick
        self.contestants: dict[str, Contestant] = {}
        self.absent: dict[str, str] = dict(ABSENT)
        self.sweeps: dict[str, list[dict[str, Any]]] = {}

    def enter(self, peer: Peer, settings: dict[str, Any], tune: bool) -> None:
        """Installs, prepares, checks and tunes a loader; a failure is kept as its reason."""
        try:
            contestant = self._runs.contestant(peer, settings)
            if tune:
                self._tune(contestant)
            elif contestant.choices:
                contestant.settings |= contestant.choices[-1]
            self._runs.check(contestant)
        except (NotInstalledError, _harness.NotResidentError, RunError) as error:
            self.absent[peer.name] = str(error)
            print(f"  {peer.name}: left out: {error}", flush=True)
            return
        self.contestants[peer.name] = contestant

    def _tune(self, contestant: Contestant) -> None:
        """Finds the fastest settings. A choice that does not work here is left out."""
        tried: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        for settings in contestant.choices:
            try:
                tried.append(self._try(contestant, settings))
            except RunError as error:
                failed.append({"settings": settings, "error": str(error)})
                print(f"  {contestant.peer.name} {settings}: {error}", flush=True)
        if not contestant.choices:
            return
        if not tried:
            raise RunError(failed[-1]["error"])
        best = max(tried, key=lambda run: run["rate"])["settings"]
        if "prefetch" in best:
            tried.append(self._try(contestant, best | {"prefetch": 2 * best["prefetch"]}))
            best = max(tried, key=lambda run: run["rate"])["settings"]
        kept = [{"settings": run["settings"], "rate": round(run["rate"], 1)} for run in tried]
        self.sweeps[contestant.peer.name] = kept + failed
        contestant.settings |= best

    def _try(self, contestant: Contestant, settings: dict[str, Any]) -> dict[str, Any]:
        run = self._runs.read(contestant, settings, _PART_TRIED)
        self._print(contestant, run, "tried")
        return run | {"settings": settings}

    def round(self, number: int) -> dict[str, dict[str, Any]]:
        """A run of each loader, less those that were void each time."""
        names = [*self.contestants]
        kept = {}
        for name in random.Random(number).sample(names, len(names)):
            for _ in range(1 + _REPEATS):
                try:
                    run = self._runs.read(self.contestants[name])
                except (_harness.NotResidentError, RunError) as error:
                    print(f"  {name}: void: {error}", flush=True)
                    continue
                void = self._void(run)
                self._print(self.contestants[name], run, void or "kept")
                if not void:
                    kept[name] = run
                    break
        return kept

    def _void(self, run: dict[str, Any]) -> str:
        if run["steal"] > _STEAL_MAX and not self._quick:
            return "void: steal"
        if not self._cell.cold and run["read_bytes"] > _READ_WARM_MAX * run["stored_bytes"]:
            return "void: storage was read"
        return ""

    def _print(self, contestant: Contestant, run: dict[str, Any], what: str) -> None:
        print(
            f"  {contestant.peer.name} {run['settings']}: {run['rate']:,.0f} samples/s, "
            f"{run['seconds']:.2f} s, first batch {run['first_batch_s']:.2f} s, CPU "
            f"{run['cpu_s']:.1f} s, read {run['read_bytes'] / 1e6:,.0f} MB, "
            f"peak {run['peak_bytes'] / 2**20:,.0f} MiB, steal {run['steal']:.1%} ({what})",
            flush=True,
        )

    def result(self, rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
        """What is recorded."""
        return {
            "command": f"python benchmarks/peers/bench.py --cell {self._cell.name}",
            "cell": self._cell.name,
            "batch": self._cell.batch,
            "data": self._runs.facts(),
            "loaders": {
                name: {
                    "version": contestant.version,
                    "shuffle": contestant.shuffle,
                    "settings": contestant.settings,
                    "format": contestant.format,
                }
                for name, contestant in self.contestants.items()
            },
            "absent": self.absent,
            "sweeps": self.sweeps,
            "ratios": report.ratios(rounds),
            "rounds": rounds,
        }


def _measure(cell: Cell, arguments: argparse.Namespace) -> Path:
    """Measures a cell; returns the folder of the formats that were written for it."""
    print(f"{cell.name}: {cell.title}", flush=True)
    runs = Runs(cell, arguments.data, arguments.quick)
    campaign = Campaign(cell, runs, arguments.quick)
    tune = not (arguments.prepare or arguments.quick)
    for order, peer in HEADRACE.items():
        campaign.enter(peer, {"order": order, "epochs": 1 if cell.cold else None}, tune)
    for name in arguments.peers:
        if name in cell.peers:
            campaign.enter(PEERS[name], {}, tune)
    if arguments.prepare:
        return runs.formats
    wanted = 1 if arguments.quick else arguments.rounds
    rounds = [campaign.round(number) for number in range(wanted)]
    result = campaign.result(rounds)
    print(report.table(result))
    if not arguments.quick and not arguments.dry and len(arguments.peers) == len(PEERS):
        report.write(_harness.record("peers", result))
    return runs.formats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cell", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prepare", action="store_true", help="only install, write and check")
    parser.add_argument("--keep", action="store_true", help="keep what peers' writers wrote")
    parser.add_argument("--dry", action="store_true", help="write neither results nor the page")
    parser.add_argument("--quick", action="store_true", help="small: to see that it works")
    arguments = parser.parse_args()
    written: set[Path] = set()
    for name in arguments.cell:
        formats = _measure(CELLS[name], arguments)
        if not arguments.keep and not arguments.prepare:
            _remove(written - {formats})
        written.add(formats)
    if not arguments.keep and not arguments.prepare:
        _remove(written)


def _remove(folders: set[Path]) -> None:
    """Frees their disk space; a folder may be gone already."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
