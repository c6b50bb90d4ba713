"""Formats list, stat and open files by headrace/_places alone: they know no scheme of a path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from source_tree import syntax_nodes

LOCAL = {
    "_dataset/left_out.py": "lists of skip=",
    "formats/_base/cache.py": "indexes are local",
    "formats/_base/findings.py": "where the package itself lies",
    "formats/_base/index_copy.py": "copies of indexes, in the cache",
    "formats/_base/outside.py": "indexes and packs, as they are written",
    "formats/_huggingface/open_datasets.py": "/proc, and what this process has mapped",
    "formats/_indexing/unfinished.py": "unfinished indexes are local",
}
"""The files that are about local files only, and why."""

_ROOMS = re.compile(r"^python/headrace/((?:formats|_dataset)/.*\.py)$")
_MODULES = frozenset({"glob", "pathlib"})
_CALLS = frozenset(
    {
        "open",
        "io.open",
        "np.memmap",
        *(
            f"os.{name}"
            for name in ("access", "listdir", "lstat", "open", "scandir", "stat", "walk")
        ),
        *(
            f"os.path.{name}"
            for name in (
                *("abspath", "exists", "getmtime", "getsize", "isdir", "isfile", "islink"),
                *("lexists", "normpath", "realpath", "samefile"),
            )
        ),
    }
)


def by_places(tree: Any) -> Iterator[tuple[str, int, str]]:
    """Such a name is right where `local_path()` is an argument: a call that needs a local path."""
    for file in tree.files.values():
        match = _ROOMS.match(file.path)
        if match is None or match[1] in LOCAL:
            continue
        nodes = syntax_nodes(file.text)
        local = {id(x.func) for x in nodes if isinstance(x, ast.Call) and _takes_local_path(x)}
        called = {id(x.func) for x in nodes if isinstance(x, ast.Call)}
        for node in nodes:
            name = _module_of(node) or _dotted(node)
            is_name = isinstance(node, ast.Name) and id(node) not in called  # a variable
            if name in _MODULES or (name in _CALLS and id(node) not in local and not is_name):
                rule = f"{name}: a format reads files by headrace/_places, wherever they lie"
                yield file.path, getattr(node, "lineno", 1), rule


def _takes_local_path(call: ast.Call) -> bool:
    return any(
        isinstance(x, ast.Call) and _dotted(x.func) == "_places.local_path" for x in call.args
    )


def _module_of(node: ast.AST) -> str:
    """The module that a statement imports, if it is one of those."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [name.name for name in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [node.module or ""]
    return next((name for name in names if name in _MODULES), "")


def _dotted(node: ast.AST) -> str:
    """`os.path.exists` of the expression that is so written."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        above = _dotted(node.value)
        return f"{above}.{node.attr}" if above else ""
    return ""
