"""Runs clang-tidy over everything that a build folder compiles. `make lint` and CI run it.

Usage: python3 tools/run_clang_tidy.py --build build/dev [--jobs 2] [FILE ...]

A file that passed is not checked again until something it is made from changes: its command, its
text, the headers it includes (as ninja recorded them when it was last built), .clang-tidy, or
clang-tidy itself. Build before you run it: without a record of headers a file is always checked.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from source_tree import cpp_files

ROOT = Path(__file__).resolve().parent.parent

# gtest's macros give the path-sensitive checks three times the work, for code that every sanitizer
# runs anyway.
TEST_SOURCE = re.compile(r"(_test|_conformance)\.cc$|/testing/")
TEST_CHECKS = "--checks=-clang-analyzer-*"


class Unit(NamedTuple):
    source: Path
    output: str  # relative to the build folder, as ninja names it
    command: str

    @property
    def options(self) -> list[str]:
        return [TEST_CHECKS] if TEST_SOURCE.search(str(self.source)) else []


def units(build: Path) -> list[Unit]:
    """What the build compiles that a person of this project wrote."""
    entries = json.loads((build / "compile_commands.json").read_text())
    ours = set(cpp_files(ROOT))
    found = []
    for entry in entries:
        source = Path(entry["directory"], entry["file"]).resolve()
        if source in ours:
            words = shlex.split(entry["command"])
            found.append(Unit(source, words[words.index("-o") + 1], entry["command"]))
    return found


def recorded_headers(build: Path) -> dict[str, list[Path]]:
    """Which files each output was made from, from ninja's log of the last build."""
    command = ["ninja", "-C", str(build), "-t", "deps"]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    headers: dict[str, list[Path]] = {}
    current: list[Path] = []
    for line in log.splitlines():
        if line.startswith("    "):
            header = build / line.strip()
            if header.exists():
                current.append(header)
            else:  # As stale as a record can be.
                headers = {name: made for name, made in headers.items() if made is not current}
        elif ": #deps" in line:
            # STALE: a later edit may include other headers, so the record proves nothing.
            current = []
            if line.endswith("(VALID)"):
                headers[line.partition(": #deps")[0]] = current
    return headers


@functools.cache
def digest(path: Path) -> bytes:
    """A file of ours by its content, one of the system by its size and time."""
    if path.resolve().is_relative_to(ROOT):
        return hashlib.sha256(path.read_bytes()).digest()
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}".encode()


def key(unit: Unit, headers: Iterable[Path], tool: str) -> str:
    total = hashlib.sha256(shlex.join([unit.command, *unit.options]).encode())
    for path in [Path(tool).resolve(), ROOT / ".clang-tidy", unit.source, *headers]:
        total.update(digest(path))
    return total.hexdigest()


def check(unit: Unit, build: Path, tool: str) -> tuple[bool, str]:
    command = [tool, "--quiet", *unit.options, "-p", str(build), str(unit.source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    # On stderr it counts the warnings of system headers that it does not show.
    noise = " warnings generated."
    lines = [line for line in run.stderr.splitlines() if not line.endswith(noise)]
    return run.returncode == 0, run.stdout + "\n".join(lines if run.returncode else [])


def main() -> int:
    parser = argparse.ArgumentParser(description="Run clang-tidy on what changed.")
    parser.add_argument("--build", type=Path, required=True, help="folder of a configured build")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("files", nargs="*", type=Path, help="check only these")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    only = {path.resolve() for path in arguments.files}
    tool = str(Path(sys.executable).with_name("clang-tidy"))
    cache = build / "clang_tidy_passed"
    cache.mkdir(exist_ok=True)
    headers = recorded_headers(build)

    begin = time.monotonic()
    to_check: list[tuple[Unit, Path | None]] = []
    chosen = [unit for unit in units(build) if not only or unit.source in only]
    for unit in chosen:
        made_from = headers.get(unit.output)
        mark = None if made_from is None else cache / key(unit, made_from, tool)
        if mark is None or not mark.exists():
            to_check.append((unit, mark))

    failed = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda item: check(item[0], build, tool), to_check)
        for (unit, mark), (passed, output) in zip(to_check, results, strict=True):
            if output.strip():
                print(output.rstrip(), flush=True)
            if passed and mark is not None:
                mark.touch()
            elif not passed:
                failed += 1
                print(f"clang-tidy: {os.path.relpath(unit.source, ROOT)} failed", flush=True)
    print(
        f"clang-tidy: {len(chosen)} files, {len(to_check)} checked, {failed} failed,"
        f" {time.monotonic() - begin:.1f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
