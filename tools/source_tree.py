"""The files of this project as the tools that check them see them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CPP_SUFFIXES = frozenset({".h", ".cc"})

# Folders that hold what was built, fetched or made, at any depth.
_NOT_SOURCE = frozenset({"build", "dist", "out", "__pycache__", "node_modules"})
# Files: of a worktree, and what is built beside the package.
_NOT_SOURCE_FILES = frozenset({".git", "headrace-node"})
# Folders whose name begins with a dot are skipped but for these.
_HIDDEN_SOURCE = frozenset({".ci"})


def source_files(root: Path) -> Iterator[Path]:
    """Yields every file below `root` that a person wrote, sorted within its folder."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _NOT_SOURCE
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name in _HIDDEN_SOURCE)
        )
        yield from (Path(folder, name) for name in sorted(names) if name not in _NOT_SOURCE_FILES)


@cache
def syntax_nodes(text: str) -> list[ast.AST]:
    """All nodes of a Python source, in any order; none where it does not parse: ruff reports it."""
    try:
        return list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return []


def cpp_files(root: Path) -> list[Path]:
    return [path for path in source_files(root) if path.suffix in CPP_SUFFIXES]
