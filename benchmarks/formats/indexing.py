"""Indexing beside the system's own tools: tars beside `tar tf`, tables and folders beside `find`.

    python benchmarks/formats/indexing.py [--quick] [--data FOLDER] [--files N] [--only TEXT]

Cases, each warm and cold:

- tars of images of 100 KB, and of members of 4 KB, beside `tar tf` on one after the other;
- a CSV table with a path and a class a row, beside `find FOLDER -type f -printf '%s %T@ %p\\n'` and
  the parse of the table by Python's csv module, in one process each, added;
- a folder of class folders, beside the same `find`.

Headrace runs in a process that has it imported, and writes the index. Rounds are interleaved; each
has all runs in an order of its own, and each ratio is of one round. `memory`: what the process of
Headrace had at most, less what it had before.

Cold: the files of tars are evicted from the page cache, of tables and folders also what the system
knows of names and files (/proc/sys/vm/drop_caches; root alone, else only warm is measured).

Discard rule, fixed beforehand: a round while which the host took more than 2 % of the processors is
repeated, twice as often at most as asked for.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _data
import _harness

from headrace.formats import Format, Manifest, WebDataset
from headrace.formats._base.format import Wanted
from headrace.formats.folder import Folder

_GOAL = 1.2
_STEAL_MAX = 0.02
_TARS = 8
_FOLDERS = 100
_CACHES = Path("/proc/sys/vm/drop_caches")

Run = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """What is indexed, and what else goes through the same files."""

    name: str
    path: Path
    row: Format
    others: dict[str, Run]
    """Their times are added."""
    evict: Callable[[], object]


def _headrace(case: Case, target: Path, jobs: int | None) -> dict[str, Any]:
    Path("/proc/self/clear_refs").write_text("5")  # The peak begins here.
    before = _memory("VmRSS")
    begin = time.perf_counter()
    index, _ = case.row.build(str(case.path), Wanted(target, jobs=jobs))
    seconds = time.perf_counter() - begin
    samples = index.sample_count
    return {"seconds": seconds, "memory": _memory("VmHWM") - before, "samples": samples}


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}")


def _tool(commands: list[list[str]]) -> dict[str, Any]:
    begin = time.perf_counter()
    for command in commands:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return {"seconds": time.perf_counter() - begin}


def _parse(table: Path) -> dict[str, Any]:
    begin = time.perf_counter()
    with open(table, newline="", encoding="utf-8") as file:
        rows = sum(1 for _ in csv.reader(file))
    return {"seconds": time.perf_counter() - begin, "rows": rows}


def _evict_names() -> None:
    os.sync()
    _CACHES.write_text("3")


def _tars(root: Path, members: int, size: int) -> Path:
    folder = root / f"tars-{members}x{size}"
    if not folder.exists():
        print(f"making {folder}: {_TARS * members * size / 1e6:.0f} MB", flush=True)
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        data = random.Random(0).randbytes(size)
        for number in range(_TARS):
            with tarfile.open(part / f"{number:03}.tar", "w") as tar:
                for member in range(members // 2):
                    for suffix, content in (("jpg", data), ("cls", b"%d" % (member % 10))):
                        info = tarfile.TarInfo(f"{number:03}/{member:06}.{suffix}")
                        info.size = len(content)
                        tar.addfile(info, io.BytesIO(content))
        part.rename(folder)
        os.sync()
    return folder


def _files(root: Path, count: int) -> tuple[Path, Path]:
    """A folder of class folders, and a table that names its files."""
    folder = root / f"files-{count}"
    table = root / f"files-{count}.csv"
    if not table.exists():
        print(f"making {folder}: {count} files", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        names = [f"{number % _FOLDERS:03}/{number:07}.jpg" for number in range(count)]
        for number in range(_FOLDERS):
            (folder / f"{number:03}").mkdir(parents=True)
        for number, name in enumerate(names):
            (folder / name).write_bytes(b"x" * (number % 100 + 1))
        part = table.with_suffix(".part")
        with open(part, "w", encoding="utf-8") as file:
            file.write("path,label\n")
            file.writelines(f"{name},class {name[:3]}\n" for name in names)
        part.rename(table)
        os.sync()
    return folder, table


def _cases(root: Path, files: int, quick: bool) -> list[Case]:
    cases = []
    for members, size in ((200 if quick else 2_000, 100_000), (2_000 if quick else 20_000, 4_000)):
        folder = _tars(root, members, size)
        tars = sorted(folder.iterdir())
        commands = [["tar", "tf", str(each)] for each in tars]
        cases.append(
            Case(
                f"tars of {size // 1000} KB",
                folder,
                WebDataset(),
                {"tar tf": lambda commands=commands: _tool(commands)},
                lambda tars=tars: _harness.make_cold(tars),
            )
        )
    folder, table = _files(root, files)
    find = ["find", str(folder), "-type", "f", "-printf", "%s %T@ %p\\n"]
    others: dict[str, Run] = {"find": lambda: _tool([find])}
    cases.append(Case("folder", folder, Folder(), others, _evict_names))
    row = Manifest(folder=folder.name)
    both = others | {"csv": lambda: _parse(table)}
    cases.append(Case("table", table, row, both, _evict_names))
    return cases


def _round(case: Case, target: Path, cold: bool, jobs: int | None) -> dict[str, dict[str, Any]]:
    runs: dict[str, Run] = case.others | {"headrace": lambda: _headrace(case, target, jobs)}
    found = {}
    for name in random.sample(list(runs), len(runs)):
        if cold:
            case.evict()
        found[name] = _harness.in_child(runs[name])
    return found


def _measure(case: Case, target: Path, cold: bool, arguments: Any) -> dict[str, Any]:
    rounds: list[dict[str, dict[str, Any]]] = []
    discarded = 0
    if not cold:
        _round(case, target, cold, arguments.jobs)  # It warms the caches.
    while len(rounds) < arguments.rounds and discarded < 2 * arguments.rounds:
        steal = _harness.steal_share()
        found = _round(case, target, cold, arguments.jobs)
        if steal() <= _STEAL_MAX:
            rounds.append(found)
        else:
            discarded += 1
    if not rounds:
        raise SystemExit("every round was discarded: the machine is too busy to measure on")
    ratios = [
        each["headrace"]["seconds"] / sum(each[name]["seconds"] for name in case.others)
        for each in rounds
    ]
    ratio = _harness.median_and_interval(ratios)
    seconds = {
        name: round(sorted(each[name]["seconds"] for each in rounds)[len(rounds) // 2], 4)
        for name in rounds[0]
    }
    memory = max(each["headrace"]["memory"] for each in rounds)
    state = "cold" if cold else "warm"
    print(
        f"{case.name}, {state}: {ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}] of "
        f"{' + '.join(case.others)}; goal {_GOAL}: "
        f"{'holds' if ratio[0] <= _GOAL else 'FALLS SHORT'}; seconds {seconds}; "
        f"{memory / 1e6:.0f} MB at most",
        flush=True,
    )
    return {
        "case": case.name,
        "state": state,
        "ratio": ratio,
        "seconds": seconds,
        "memory": memory,
        "discarded": discarded,
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--files", type=int, help="of folder and table; default: 100,000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, help="of Headrace; default: its own")
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--quick", action="store_true", help="2 rounds of few files")
    arguments = parser.parse_args()
    files = arguments.files or (5_000 if arguments.quick else 100_000)
    if arguments.quick:
        arguments.rounds = 2
    target = arguments.data / "indexing.hri"
    arguments.data.mkdir(parents=True, exist_ok=True)
    found = []
    for case in _cases(arguments.data, files, arguments.quick):
        for cold in (False, True):
            needs_root = cold and case.evict is _evict_names
            if arguments.only not in case.name or (needs_root and not os.access(_CACHES, os.W_OK)):
                continue
            found.append(_measure(case, target, cold, arguments))
    if not arguments.quick:
        _harness.record("indexing", {"files": files, "jobs": arguments.jobs, "cases": found})


if __name__ == "__main__":
    main()
