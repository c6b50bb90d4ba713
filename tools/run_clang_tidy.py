"""Runs clang-tidy over everything that a build folder compiles. `make lint` and CI run it.

Usage: python3 tools/run_clang_tidy.py --build build/dev [--jobs 2] [FILE ...]

The tests of a folder are checked together, as one source that includes them: half of the work is
reading headers that they share. Every other file is checked alone, which also shows that it
includes what it uses.

A file that passed is not checked again until something it is made from changes: its command, its
text, the headers of the project that it includes, a package of the system, .clang-tidy, or
clang-tidy itself. What passed is noted by content in the user's cache folder
($XDG_CACHE_HOME/headrace/clang-tidy, else ~/.cache/headrace/clang-tidy), so that a fresh clone need
not check it again.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
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
TOGETHER_MAX = 10

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class Unit(NamedTuple):
    """What one run of clang-tidy checks."""

    sources: tuple[Path, ...]
    command: str  # of the first

    @property
    def name(self) -> str:
        first = os.path.relpath(self.sources[0], ROOT)
        return first if len(self.sources) == 1 else f"{os.path.dirname(first)}/*_test.cc"

    @property
    def options(self) -> list[str]:
        return [TEST_CHECKS] if TEST_SOURCE.search(str(self.sources[0])) else []

    @property
    def flags(self) -> list[str]:
        """What the compiler gets, without its name and files."""
        words = shlex.split(self.command)
        words = words[next(i for i, word in enumerate(words) if word.startswith("-")) :]
        taken = [i for i, word in enumerate(words) if word in ("-o", "-c")]
        return [word for i, word in enumerate(words) if i not in taken and i - 1 not in taken]


def units(build: Path) -> list[Unit]:
    """What the build compiles that a person of this project wrote."""
    entries = json.loads((build / "compile_commands.json").read_text())
    ours = set(cpp_files(ROOT))
    alone: dict[Path, Unit] = {}
    together: dict[tuple[Path, tuple[str, ...]], list[Unit]] = defaultdict(list)
    for entry in entries:
        source = Path(entry["directory"], entry["file"]).resolve()
        unit = Unit((source,), entry["command"])
        if source not in ours or source in alone:
            continue
        if source.name.endswith("_test.cc"):
            together[source.parent, tuple(unit.flags)].append(unit)
        else:
            alone[source] = unit
    joined = [
        Unit(tuple(unit.sources[0] for unit in part), part[0].command)
        for group in together.values()
        for part in (group[i : i + TOGETHER_MAX] for i in range(0, len(group), TOGETHER_MAX))
    ]
    return [*alone.values(), *joined]


def include_folders(command: str) -> list[Path]:
    """Where the project's own headers are looked for."""
    words = shlex.split(command)
    named = [word[2:] for word in words if word.startswith("-I") and len(word) > 2]
    named += [after for word, after in itertools.pairwise(words) if word in ("-I", "-isystem")]
    return [path for path in map(Path, named) if path.resolve().is_relative_to(ROOT)]


@functools.cache
def includes(source: Path) -> tuple[str, ...]:
    """What a file includes by `#include "..."`."""
    return tuple(INCLUDE.findall(source.read_text(encoding="utf-8", errors="replace")))


def own_headers(source: Path, folders: Iterable[Path]) -> set[Path]:
    """The headers of the project that a source includes, through others, too."""
    found: set[Path] = set()
    to_read = [source]
    while to_read:
        path = to_read.pop()
        for name in includes(path):
            header = next(
                (at / name for at in (path.parent, *folders) if (at / name).is_file()), None
            )
            if header is not None and header.resolve() not in found:
                found.add(header.resolve())
                to_read.append(header.resolve())
    return found


@functools.cache
def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def system_packages() -> bytes:
    """Names and versions of what is installed: headers of the system come from there."""
    try:
        return subprocess.run(["dpkg-query", "-W"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return b""


@functools.cache
def version(tool: str) -> bytes:
    """The text of a tool that pip installed says where its environment lies, and no version."""
    return subprocess.run([tool, "--version"], capture_output=True, check=True).stdout


def key(unit: Unit, tool: str) -> str:
    """Of everything that the verdict on a file depends on; not of where the project lies."""
    command = shlex.join([unit.command, *unit.options]).replace(str(ROOT), "")
    total = hashlib.sha256(command.encode() + system_packages() + version(tool))
    folders = include_folders(unit.command)
    headers = {header for source in unit.sources for header in own_headers(source, folders)}
    for path in [ROOT / ".clang-tidy", *unit.sources, *sorted(headers)]:
        total.update(digest(path))
    return total.hexdigest()


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "clang-tidy"


def check(unit: Unit, build: Path, tool: str) -> tuple[bool, str]:
    with contextlib.ExitStack() as stack:
        source = unit.sources[0]
        if len(unit.sources) > 1:
            source = Path(stack.enter_context(tempfile.TemporaryDirectory()), "joined_test.cc")
            lines = [f'#include "{each}"  // NOLINT\n' for each in unit.sources]
            source.write_text("".join(lines))
        command = [tool, "--quiet", *unit.options, f"--config-file={ROOT}/.clang-tidy", str(source)]
        command += ["--", *unit.flags]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=build)
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
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)

    begin = time.monotonic()
    chosen = [unit for unit in units(build) if not only or not only.isdisjoint(unit.sources)]
    marks = [(unit, cache / key(unit, tool)) for unit in chosen]
    to_check = [(unit, mark) for unit, mark in marks if not mark.exists()]

    def files(units: Iterable[Unit]) -> int:
        return sum(len(unit.sources) for unit in units)

    failed = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda item: check(item[0], build, tool), to_check)
        for (unit, mark), (passed, output) in zip(to_check, results, strict=True):
            if output.strip():
                print(output.rstrip(), flush=True)
            if passed:
                mark.touch()
            else:
                failed += 1
                print(f"clang-tidy: {unit.name} failed", flush=True)
    checked = files(unit for unit, _ in to_check)
    print(
        f"clang-tidy: {files(chosen)} files, {checked} checked, {failed} failed,"
        f" {time.monotonic() - begin:.1f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
