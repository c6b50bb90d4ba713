"""Which lines of src/ the C++ tests execute: `make coverage`.

Usage: python3 tools/line_coverage.py [--only-print]

Builds the preset `coverage`, runs its tests and prints a row a folder: lines with code, and how
many of them were executed. Tests and test doubles are not counted. `--only-print` prints again what
the last run executed. Exits with 1 if a test failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidy_classes import is_shipped

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "coverage"
OBJECTS_AT_ONCE = 8

Lines = dict[int, bool]  # by number: executed


def run_tests() -> bool:
    """Builds what is not built, and runs all tests; whether they passed."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (["cmake", "--preset"], ["cmake", "--build", "--preset"]):
        subprocess.run([*command, "coverage"], cwd=ROOT, env=environment, check=True)
    for counts in BUILD.rglob("*.gcda"):
        counts.unlink()
    tests = ["ctest", "--preset", "coverage"]
    return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode == 0


def executed_of(objects: list[Path]) -> dict[str, Lines]:
    """What gcov says of the sources that are compiled into `objects`."""
    command = ["gcov", "--json-format", "--stdout", *map(str, objects)]
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, check=True)
    found: dict[str, Lines] = defaultdict(dict)
    for line in done.stdout.splitlines():
        for source in json.loads(line)["files"]:
            path = os.path.relpath(os.path.join(BUILD, source["file"]), ROOT)
            if not path.startswith(("include/", "src/")) or not is_shipped(path):
                continue
            lines = found[path]
            for each in source["lines"]:
                number = each["line_number"]
                lines[number] = lines.get(number, False) or each["count"] > 0
    return found


def executed() -> dict[str, Lines]:
    """By source; a line of a header counts as executed if it is in any object."""
    objects = sorted(BUILD.rglob("*.gcno"))
    parts = [objects[i : i + OBJECTS_AT_ONCE] for i in range(0, len(objects), OBJECTS_AT_ONCE)]
    merged: dict[str, Lines] = defaultdict(dict)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for found in threads.map(executed_of, parts):
            for path, lines in found.items():
                for number, was in lines.items():
                    merged[path][number] = merged[path].get(number, False) or was
    return merged


def main() -> int:
    passed = sys.argv[1:] == ["--only-print"] or run_tests()
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, lines in executed().items():
        for name in (path.rpartition("/")[0], "together"):
            rows[name][0] += len(lines)
            rows[name][1] += sum(lines.values())
    print(f"{'folder':24} {'lines':>6} {'executed':>8}")
    for name in sorted(rows, key=lambda name: (name == "together", name)):
        count, hit = rows[name]
        print(f"{name:24} {count:6} {hit:8} {100 * hit / count:6.1f} %")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
