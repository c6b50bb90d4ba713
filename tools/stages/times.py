"""How long each test function takes: `tests/times.json`, from which pytest sorts and divides tests.

`python tools/stages times` writes it from what the last runs of `make test` and `make check` left.
Seconds are of all cases of a function together. Those below one second have no line of their own:
a line without a function is what is left of its file, and each file that ran has one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

LEAST_S = 1.0
LONG_S = 2.5  # `make test` leaves a function that takes longer to `make check`

Times = dict[str, float]  # by function: "tests/python/test_x.py::test_y"; or by file, the rest


def read(path: Path) -> Times:
    """Of a file that `write` made; empty if there is none."""
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def function_of(name: str) -> str:
    """Of the node of a test: without its parameters."""
    return name.partition("[")[0]


def file_of(name: str) -> str:
    """Of the node of a test, or of a line of `Times`."""
    return name.partition("::")[0]


def of_files(times: Times) -> Times:
    """By file, of all its functions. A file that is not there never ran."""
    sums: dict[str, float] = defaultdict(float)
    for name, seconds in times.items():
        sums[file_of(name)] += seconds
    return dict(sums)


def of_runs(junits: Iterable[Path], before: Times, root: Path) -> Times:
    """`before`, with the functions that ran anew: of pytest's junit files of family xunit1. Without
    the files that are not below `root` any more."""
    sums: dict[str, float] = defaultdict(float)
    for junit in junits:
        for case in ElementTree.parse(junit).getroot().iter("testcase") if junit.is_file() else ():
            if case.find("skipped") is None:
                function = f"{case.get('file')}::{function_of(case.get('name') or '')}"
                sums[function] += float(case.get("time") or 0)
    long = {name: seconds for name, seconds in sums.items() if seconds >= LEAST_S}
    short = sums.keys() - long.keys()
    whole = {file_of(name) for name in short - before.keys()}  # `make test` runs these, too.
    rests = {file: 0.0 if file in whole else before.get(file, 0.0) for file in map(file_of, sums)}
    for name in short:
        rests[file_of(name)] += sums[name]
    kept = {
        name: seconds
        for name, seconds in before.items()
        if name not in sums and (root / file_of(name)).is_file()
    }
    times = {name: round(seconds, 1) for name, seconds in (kept | long | rests).items()}
    return dict(sorted(times.items()))


def write(path: Path, times: Times) -> None:
    path.write_text(json.dumps(times, indent=0) + "\n")
