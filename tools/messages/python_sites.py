"""The places of python/headrace that make an error.

A place is an expression that constructs an exception of headrace's tree, a `raise` of any other
class, or a call with text of a function that only makes errors: one whose annotation says that it
returns an error, or nothing (`NoReturn`). Two functions of one name are not told apart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from messages.sites import HOLE, ROOT, Site, joined, numbered

PACKAGE = ROOT / "python" / "headrace"
BASE = "HeadraceError"
# Raised for Python's own protocols; their text is Python's.
_PROTOCOL = {"AttributeError", "StopIteration", "NotImplementedError", "KeyboardInterrupt"}
_PROTOCOL |= {"StopAsyncIteration", "SystemExit", "GeneratorExit"}
_TEXT_MAX = 6  # names followed from a `raise` to what was assigned

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_sites(package: Path = PACKAGE, root: Path = ROOT) -> list[Site]:
    trees = {path: ast.parse(path.read_bytes()) for path in sorted(package.rglob("*.py"))}
    classes = _subclasses(trees.values())
    makers = {name for tree in trees.values() for name in _makers(tree, classes)}
    ends = {name for tree in trees.values() for name in _makers(tree, {"NoReturn"})}
    sites = []
    for path, tree in trees.items():
        if path.name != "errors.py":
            reader = _Reader(str(path.relative_to(root)), classes, makers, ends)
            reader.visit(tree)
            sites += reader.sites
    return numbered(sites)


def _subclasses(trees: Iterable[ast.AST]) -> set[str]:
    bases: dict[str, set[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(_last_name(b) for b in node.bases)
    found = {BASE}
    while more := {name for name, of in bases.items() if of & found} - found:
        found |= more
    return found


def _makers(tree: ast.AST, results: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, _Function) or node.returns is None or not node.args.args:
            continue
        ends = "NoReturn" in results  # names of others may be those of calls that do return
        if _last_name(node.returns) in results and (node.name.startswith("_") or not ends):
            yield node.name


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.split(r"\W", node.value)[-1]
    return ""


class _Reader(ast.NodeVisitor):
    def __init__(self, file: str, classes: set[str], makers: set[str], ends: set[str]) -> None:
        self._file = file
        self._classes = classes
        self._makers = makers
        self._ends = ends
        self._names: list[str] = []
        self._functions: list[_Function] = []
        self.sites: list[Site] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions.append(node)
        self._inside(node)
        self._functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def _inside(self, node: ast.ClassDef | _Function) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    def visit_Raise(self, node: ast.Raise) -> None:
        call = node.exc
        if isinstance(call, ast.Call):
            name = _last_name(call.func)
            other = name.endswith(("Error", "Exception")) and name not in _PROTOCOL
            if name not in self._classes and (other or name in self._makers):
                self._add(name, call)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _last_name(node.func)
        if name in self._classes or name in self._ends:
            self._add(name, node)
        self.generic_visit(node)

    def _add(self, kind: str, call: ast.Call) -> None:
        arguments = [*call.args, *(word.value for word in call.keywords)]
        texts = [joined(self._pieces(each, 0)) for each in arguments]
        template = joined(f"{HOLE}".join(texts)) if len(texts) > 1 else "".join(texts)
        if kind in self._makers | self._ends and not re.search(r"\w", template):
            return
        where = (call.lineno, call.end_lineno or call.lineno)
        self.sites.append(Site(self._file, ".".join(self._names), kind, template, where))

    def _pieces(self, node: ast.expr, depth: int) -> Iterator[str]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            for value in node.values:
                yield from self._pieces(value, depth)
        elif isinstance(node, ast.FormattedValue):
            named = isinstance(node.value, ast.Name) and node.conversion == -1
            yield from self._pieces(node.value, depth) if named else (HOLE,)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from self._pieces(node.left, depth)
            yield from self._pieces(node.right, depth)
        elif isinstance(node, ast.Name) and (given := self._assigned(node.id)) is not None:
            yield from self._pieces(given, depth + 1) if depth < _TEXT_MAX else (HOLE,)
        else:
            yield HOLE

    def _assigned(self, name: str) -> ast.expr | None:
        """The text that the function gives this name, if it does so once."""
        if not self._functions:
            return None
        given = []
        for node in ast.walk(self._functions[-1]):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
                targets = [node.target]
            if any(isinstance(each, ast.Name) and each.id == name for each in targets):
                given.append(node)
        if len(given) != 1 or not isinstance(given[0], ast.Assign):
            return None
        value = given[0].value
        return value if isinstance(value, ast.JoinedStr | ast.Constant | ast.BinOp) else None
