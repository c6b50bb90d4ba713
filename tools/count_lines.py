"""Lines of all that is shipped, by folder; tests and test doubles are not counted.

Usage: python3 tools/count_lines.py [COMMIT]    of the working tree, or of a commit

Prints a table: of each folder all lines, and those that are neither blank nor only a comment. A
docstring is code here: it is what `help()` prints.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from source_tree import source_files
from tidy_classes import is_shipped

ROOT = Path(__file__).resolve().parent.parent


def texts(commit: str | None) -> Iterator[tuple[str, str]]:
    """(path, text) of every source that is shipped."""
    if commit is None:
        for path in source_files(ROOT):
            name = path.relative_to(ROOT).as_posix()
            if is_shipped(name):
                yield name, path.read_text(encoding="utf-8")
        return
    listed = _git("ls-tree", "-r", "--name-only", commit)
    for name in listed.splitlines():
        if is_shipped(name):
            yield name, _git("show", f"{commit}:{name}")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def is_code(line: str, suffix: str) -> bool:
    stripped = line.strip()
    return bool(stripped) and not stripped.startswith("#" if suffix == "py" else "//")


def main() -> int:
    commit = sys.argv[1] if len(sys.argv) > 1 else None
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, text in texts(commit):
        parts = name.split("/")
        depth = {"bindings": 1, "include": 2, "src": 2, "python": 3}[parts[0]]
        folder = "/".join(parts[:-1][:depth])
        text_lines = text.splitlines()
        counts[folder][0] += 1
        counts[folder][1] += len(text_lines)
        counts[folder][2] += sum(is_code(line, name.rpartition(".")[2]) for line in text_lines)
    print(f"{'folder':28} {'files':>6} {'lines':>7} {'code':>7}")
    for folder, (files, lines, code) in sorted(counts.items()):
        print(f"{folder:28} {files:6} {lines:7} {code:7}")
    total = [sum(each) for each in zip(*counts.values(), strict=True)]
    print(f"{'together':28} {total[0]:6} {total[1]:7} {total[2]:7}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
