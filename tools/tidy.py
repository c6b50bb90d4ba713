"""The house rules that no compiler checks. Run as the test `tidy`.

Usage: python3 tools/tidy.py [ROOT]

Prints `file:line: rule` for each violation and exits 1 if there is one. A rule is a function of
the Tree that yields findings, or a row of tidy_rules/bans.py. tests/test_tidy.py plants each
violation once.
"""

from __future__ import annotations

import ast
import gc
import posixpath
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import resolve_name
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import tidy_classes
from source_tree import source_files, syntax_nodes
from tidy_rules import bans, places, words
from tidy_rules import floors as floor_rules
from tidy_rules.bans import CPP, PYTHON, TEXT

LINES_MAX = {".h": 300, ".cc": 600, ".py": 500}
ARCHITECTURE_LINES_MAX = 300
MODULES_MAX = 15  # a header with its source is one module

# These two quote what is banned.
QUOTING = frozenset({"tools/tidy_rules/bans.py", "tests/test_tidy.py"})

INCLUDE = re.compile(r'\s*#\s*include\s*["<]([^">]+)')

TEST_NAME = re.compile(
    r"(_test|_fuzz|_bench)\.cc$|_conformance\.(h|cc)$|^test_\w+\.py$|^conftest\.py$"
)


class Finding(NamedTuple):
    file: str
    line: int
    rule: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}"


def folder_of(path: str) -> str | None:
    """The folder of `path`; that of test doubles is the one that they are made for."""
    folder = "/".join(part for part in path.split("/")[:-1] if part != "testing")
    return folder or None


@dataclass(frozen=True)
class SourceFile:
    path: str  # relative to the root, '/' between its parts
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def includes(self) -> list[tuple[int, str]]:
        """What it includes: the lines and the paths."""
        found = ((number, INCLUDE.match(line)) for number, line in enumerate(self.lines, 1))
        return [(number, match[1]) for number, match in found if match]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def suffix(self) -> str:
        return "." + self.name.rpartition(".")[2] if "." in self.name.lstrip(".") else ""

    @property
    def source_folder(self) -> str | None:
        """The folder below src/ that the file belongs to, if it belongs to one."""
        return folder_of(self.path.removeprefix("src/")) if self.path.startswith("src/") else None

    @property
    def is_test(self) -> bool:
        return bool(TEST_NAME.search(self.name))

    @property
    def is_test_double(self) -> bool:
        return "testing" in self.path.split("/")[:-1]


class Tree:
    """All files that a person wrote. Pure once read: rules touch no disk."""

    def __init__(self, root: Path) -> None:
        self.files: dict[str, SourceFile] = {}
        for path in source_files(root):
            if path.suffix in TEXT and not path.is_symlink():
                name = path.relative_to(root).as_posix()
                text = path.read_text(encoding="utf-8", errors="replace")
                self.files[name] = SourceFile(name, text)

    def of(self, suffixes: frozenset[str]) -> Iterator[SourceFile]:
        return (file for file in self.files.values() if file.suffix in suffixes)

    @cached_property
    def may_use(self) -> dict[str, set[str]]:
        """Which layer may use which: the table that CMake reads, so that there is one truth."""
        table = self.files.get("cmake/Headrace.cmake")
        row = re.compile(r'^set\(HEADRACE_MAY_USE_(\w+) ([\w "]*)\)', re.M)
        rows = row.finditer(table.text if table else "")
        return {row[1]: set(row[2].replace('"', "").split()) for row in rows}

    @cached_property
    def public(self) -> dict[str, str]:
        """The layer of each public header, by what an #include says: of the table beside it."""
        table = self.files.get("cmake/Headrace.cmake")
        rows = re.findall(
            r"^set\(HEADRACE_PUBLIC_(\w+) ([\w ]*)\)", table.text if table else "", re.M
        )
        return {f"headrace/{name}.h": layer for layer, names in rows for name in names.split()}

    def layer_of_include(self, included: str) -> str | None:
        return self.public.get(included) or self.layer_of(folder_of(included))

    def layer_of(self, folder: str | None) -> str | None:
        """The row of a folder below src/: its own ("a_b" for a/b), or else its parent's."""
        while folder:
            row = folder.replace("/", "_")
            if row in self.may_use:
                return row
            folder = folder.rpartition("/")[0]
        return None


Rule = Callable[[Tree], Iterator[tuple[str, int, str]]]  # as Finding


def layers(tree: Tree) -> Iterator[Finding]:
    for file in tree.of(CPP):
        layer = tree.public.get(file.path.removeprefix("include/"))
        if layer is None and file.source_folder is None:
            continue
        layer = layer or tree.layer_of(file.source_folder)
        if layer is None:
            top = (file.source_folder or "").partition("/")[0]
            yield Finding(file.path, 1, f"layer '{top}' has no row in cmake/Headrace.cmake")
            continue
        may_use = tree.may_use[layer]
        if file.is_test or file.is_test_double:  # They may use more where a row says so.
            may_use = may_use | tree.may_use.get(f"{layer}_testing", set())
        for number, included in file.includes:
            used = tree.layer_of_include(included)
            if used is None or used == layer or used in may_use:
                continue
            allowed = " ".join(sorted(may_use)) or "nothing"
            rule = f"layer '{layer}' may not use '{used}' (allowed: {allowed})"
            yield Finding(file.path, number, rule)


def public_headers(tree: Tree) -> Iterator[Finding]:
    """They include each other only, and examples/ include only them: the rest is private."""
    for file in tree.of(CPP):
        if file.path.startswith("include/"):
            if file.path.removeprefix("include/") not in tree.public:
                rule = "public header without a row HEADRACE_PUBLIC_* in cmake/Headrace.cmake"
                yield Finding(file.path, 1, rule)
            what = "public header"
        elif file.path.startswith("examples/"):
            what = "example"
        else:
            continue
        for number, included in file.includes:
            is_ours = "/" in included and tree.layer_of_include(included.removeprefix("headrace/"))
            if included not in tree.public and (is_ours or included.startswith("headrace/")):
                yield Finding(file.path, number, f"{what} includes the private {included}")
    for included in tree.public:
        if f"include/{included}" not in tree.files:
            yield Finding("cmake/Headrace.cmake", 1, f"public header {included} is not there")


def circle_in(arrows: Mapping[str, Collection[str]]) -> list[str]:
    """A shortest way along `arrows` that ends where it began; empty: there is none."""
    circles: list[list[str]] = []
    for start in sorted(arrows):
        ways = [[start]]
        seen: set[str] = set()
        while ways:
            way = ways.pop(0)
            for to in sorted(arrows.get(way[-1], ())):
                if to == start:
                    circles.append([*way, to])
                    ways = []
                    break
                if to not in seen:
                    seen.add(to)
                    ways.append([*way, to])
    return min(circles, key=len, default=[])


def no_circle_of_layers(tree: Tree) -> Iterator[Finding]:
    if circle := circle_in(tree.may_use):
        yield Finding("cmake/Headrace.cmake", 1, f"layers in a circle: {' -> '.join(circle)}")


def no_circle_of_folders(tree: Tree) -> Iterator[Finding]:
    """Folders of one library are layers as well. Tests may include all that the library may use.

    Public headers are in no circle: they include no header of a folder (public_headers)."""
    arrows: dict[str, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for file in tree.of(CPP):
        folder = file.source_folder
        if folder is None or file.is_test:
            continue
        for number, included in file.includes:
            to = folder_of(included)
            same_layer = tree.layer_of(to) == tree.layer_of(folder) is not None
            if to is not None and to != folder and same_layer:
                arrows[folder][to].append((file.path, number))
    yield from rarest_of_circles(arrows, "folders")


def rarest_of_circles(
    arrows: dict[str, dict[str, list[tuple[str, int]]]], what: str
) -> Iterator[Finding]:
    """Of each circle the arrow that is easiest to take away. Takes them away."""
    while circle := circle_in(arrows):
        places = [arrows[a][b] for a, b in pairwise(circle)]
        rarest = min(places, key=lambda of_arrow: (len(of_arrow), of_arrow))
        yield Finding(*min(rarest), f"{what} in a circle: {' -> '.join(circle)}")
        for a, b in pairwise(circle):  # Cut here, so that the next circle is another one.
            if arrows[a][b] is rarest:
                del arrows[a][b]


def doubles_in_tests_only(tree: Tree) -> Iterator[Finding]:
    for file in tree.of(CPP):
        shipped = file.path.startswith(("include/", "src/", "bindings/"))
        if file.is_test or file.is_test_double or not shipped:
            continue
        for number, included in file.includes:
            if "testing" in included.split("/")[:-1]:
                yield Finding(file.path, number, "test double outside tests")


def sizes(tree: Tree) -> Iterator[Finding]:
    for file in tree.files.values():
        limit = LINES_MAX.get(file.suffix)
        if file.path == "ARCHITECTURE.md":
            limit = ARCHITECTURE_LINES_MAX
        if limit is not None and len(file.lines) > limit:
            yield Finding(file.path, limit + 1, f"{len(file.lines)} lines, limit {limit}: split it")


def folder_sizes(tree: Tree) -> Iterator[Finding]:
    modules: dict[str, set[str]] = defaultdict(set)
    for file in tree.of(CPP | {".py"}):
        if not file.is_test:
            modules[file.folder].add(file.stem)
    for folder, stems in modules.items():
        if len(stems) > MODULES_MAX:
            rule = f"{len(stems)} modules in one folder, limit {MODULES_MAX}: split it"
            yield Finding(folder or ".", 1, rule)


def pragma_once(tree: Tree) -> Iterator[Finding]:
    for file in tree.of(frozenset({".h"})):
        if not re.search(r"^#pragma once$", file.text, re.M):
            yield Finding(file.path, 1, "header without #pragma once")


def sources_named(tree: Tree) -> Iterator[Finding]:
    """A source that no CMakeLists names is not built, and a test that none names never runs."""
    makers = {"_test": "headrace_test", "_fuzz": "headrace_fuzz", "_bench": "headrace_bench"}

    def kind_of(stem: str) -> str:
        return "_" + stem.rpartition("_")[2]

    named = set()
    for lists in tree.files.values():
        if lists.name != "CMakeLists.txt":
            continue
        text = re.sub(r"#.*", "", lists.text).replace("${headrace_SOURCE_DIR}/", "/")
        for source in re.findall(r"[\w./-]+\.cc\b", text):
            named.add(posixpath.normpath(posixpath.join("/", lists.folder, source)))
        for maker, stem in re.findall(r"\b(headrace_\w+)\(\s*(\w+)", text):
            if makers.get(kind_of(stem)) == maker:
                named.add(posixpath.join("/", lists.folder, f"{stem}.cc"))
    for file in tree.of(frozenset({".cc"})):
        if f"/{file.path}" not in named:
            maker = makers.get(kind_of(file.stem))
            how = f": {maker}({file.stem} ...)" if maker else ""
            yield Finding(file.path, 1, f"not named in a CMakeLists.txt{how}")


def python_tests_found(tree: Tree) -> Iterator[Finding]:
    for file in tree.of(frozenset({".py"})):
        found = file.path.startswith("tests/") and file.name.startswith("test_")
        for number, line in enumerate(file.lines, 1):
            if not found and re.match(r"\s*(async )?def test_\w*\(", line):
                yield Finding(file.path, number, "pytest reads only tests/**/test_*.py")


def imports(name: str, file: SourceFile, modules: Collection[str]) -> Iterator[tuple[str, int]]:
    """The modules of this tree that a module imports anywhere in it, each with its line."""
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    for node in syntax_nodes(file.text):
        if isinstance(node, ast.Import):
            wanted = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            named = [f"{base}.{each.name}" for each in node.names]
            wanted = [each if each in modules else base for each in named]
        else:
            continue
        for each in wanted:
            if each in modules and each != name:
                yield each, node.lineno


def python_modules(tree: Tree) -> dict[str, SourceFile]:
    """By the name of each module under python/."""
    files: dict[str, SourceFile] = {}
    for file in tree.of(PYTHON | {".pyi"}):
        if file.path.startswith("python/"):
            path = file.path.removeprefix("python/").rpartition(".")[0]
            files[path.removesuffix("/__init__").replace("/", ".")] = file
    return files


@cache
def python_imports(tree: Tree) -> list[floor_rules.Arrow]:
    """Which module under python/ imports which, and where."""
    files = python_modules(tree)
    return [
        (file.path, line, name, imported)
        for name, file in files.items()
        for imported, line in imports(name, file, files)
    ]


def floors(tree: Tree) -> Iterator[Finding]:
    """Rooms of the package import downwards, and not in a circle: tidy_rules/floors.py."""
    files, arrows = python_modules(tree), python_imports(tree)
    yield from (Finding(*found) for found in floor_rules.upward_imports(arrows))
    yield from rarest_of_circles(floor_rules.room_arrows(arrows), "rooms")
    folders = {name: file.folder for name, file in files.items()}
    yield from rarest_of_circles(floor_rules.folder_arrows(arrows, folders), "folders")


def import_circles(tree: Tree) -> Iterator[Finding]:
    """Modules under python/ that import each other, for a type checker only or in a function, too.

    A module of a package does not count as importing the package's __init__.py.
    """
    files = python_modules(tree)
    graph: dict[str, dict[str, int]] = {name: {} for name in files}
    for _, line, name, imported in python_imports(tree):
        graph[name][imported] = line
    while circle := circle_in(graph):
        first, second = circle[:2]
        rule = f"modules import each other: {' -> '.join(circle)}"
        yield Finding(files[first].path, graph[first].pop(second), rule)  # The next is another one.


def banned(tree: Tree) -> Iterator[Finding]:
    compiled = [
        (re.compile(ban.pattern), re.compile(ban.allowed or r"$^"), ban) for ban in bans.BANNED
    ]
    for file in tree.files.values():
        if file.path in QUOTING:
            continue
        here = [
            (pattern, ban.rule)
            for pattern, allowed, ban in compiled
            if file.suffix in ban.files and not allowed.search(file.path)
        ]
        for number, line in enumerate(file.lines, 1):
            for pattern, rule in here:
                if pattern.search(line):
                    yield Finding(file.path, number, rule)


def class_sizes(tree: Tree) -> Iterator[Finding]:
    texts = {path: file.text for path, file in tree.files.items() if tidy_classes.is_shipped(path)}
    return (Finding(*found) for found in tidy_classes.findings(texts))


RULES: list[Rule] = [
    layers,
    no_circle_of_layers,
    no_circle_of_folders,
    public_headers,
    doubles_in_tests_only,
    sizes,
    folder_sizes,
    pragma_once,
    sources_named,
    python_tests_found,
    import_circles,
    floors,
    class_sizes,
    banned,
    places.by_places,
    words.phrases,
    words.identifiers,
    words.names,
]


def check(root: Path) -> list[Finding]:
    tree = Tree(root)
    return sorted(Finding(*found) for rule in RULES for found in rule(tree))


def main() -> int:
    gc.disable()  # The trees of all sources live until the end: looking through them takes long.
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    findings = check(root)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
