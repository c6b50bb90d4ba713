"""How much one class declares: a rule of tools/tidy.py, and a table of the largest.

Usage: python3 tools/tidy_classes.py [COUNT]    prints the classes over a limit, or COUNT classes

A class has about 15 public and 30 private declarations at most (protected ones are private), and
its methods are in one source; it is refused from a fifth above. A declaration is a method, an
attribute or a type. What is `= default` or `= delete` is none, and neither are the fields of a
`struct` or a dataclass. In Python an attribute is what a method assigns to `self`.

A class that has to be larger says why in the comment above it, or in its docstring: `Large: WHY`.
EXCEPTIONS are those that were larger when this rule came, each with its counts, which may not grow.
The list only shrinks: tests/test_tidy.py refuses an entry that is not needed any more.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from source_tree import source_files, syntax_nodes

PUBLIC_MAX = 18
PRIVATE_MAX = 36
SOURCES_MAX = 1


class Counts(NamedTuple):
    public: int
    private: int
    sources: int = 1

    def within(self, limits: Counts) -> bool:
        return all(count <= limit for count, limit in zip(self, limits, strict=True))


LIMITS = Counts(PUBLIC_MAX, PRIVATE_MAX, SOURCES_MAX)

EXCEPTIONS: dict[str, Counts] = {}


@dataclass(frozen=True)
class Class:
    name: str
    file: str
    line: int
    counts: Counts
    reason: bool  # a comment gives the reason for the size

    @property
    def is_large(self) -> bool:
        return not self.counts.within(LIMITS)


def findings(texts: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    """(file, line, rule) of each class beyond its limits, of sources by path."""
    for each in classes(texts):
        allowed = Counts(*map(max, LIMITS, EXCEPTIONS.get(each.name, LIMITS)))
        if each.reason or each.counts.within(allowed):
            continue
        counts = each.counts
        yield (
            each.file,
            each.line,
            f"class {each.name}: {counts.public} public and {counts.private} private declarations "
            f"in {counts.sources} sources, limits {allowed.public}, {allowed.private} and "
            f"{allowed.sources}: divide it by responsibility",
        )


def classes(texts: Mapping[str, str]) -> Iterator[Class]:
    """Every class of the C++ and Python files in `texts`."""
    defined_in = _sources_of_methods(texts)
    for file, text in texts.items():
        if file.endswith(".py"):
            yield from _python_classes(file, text)
        elif file.endswith((".h", ".cc")):
            for each in _cpp_classes(file, text):
                sources = defined_in[each.name] if file.endswith(".h") else set()
                folder = file.rpartition("/")[0]
                near = sum(source.rpartition("/")[0] == folder for source in sources)
                yield Class(
                    each.name, file, each.line, each.counts._replace(sources=near), each.reason
                )


# C++, by its punctuation.

_STRINGS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.S,
)
_CLASS = re.compile(
    r"\b(?P<kind>class|struct)\s+(?:\[\[[^\]]*\]\]\s*)?(?:(?:alignas|HEADRACE_\w+)(?:\([^)]*\))?\s+)?"
    r"(?P<name>\w+(?:::\w+)*)(?:\s+final)?(?:\s*:(?!:)[^;{]*)?\s*\{"
)
_ACCESS = re.compile(r"\s*(public|private|protected)\s*:(?!:)")
_REASON = re.compile(r"\bLarge: *\w")


def _blanked(text: str) -> str:
    """The text without comments and strings, every line where it was."""
    return _STRINGS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _cpp_classes(file: str, text: str) -> Iterator[Class]:
    code = re.sub(
        r"(?m)^\s*#.*(?:\\\n.*)*", lambda match: "\n" * match[0].count("\n"), _blanked(text)
    )
    lines = text.splitlines()
    for match in _CLASS.finditer(code):
        if re.search(r"(enum|<|,|friend)\s*$", code[: match.start()]):
            continue  # A scoped enum, or a template's parameter.
        line = code.count("\n", 0, match.start()) + 1
        public, private = _count_body(match, code)
        above = line - 2
        while above >= 0 and lines[above].lstrip().startswith(("//", "template")):
            above -= 1
        reason = any(_REASON.search(comment) for comment in lines[above + 1 : line - 1])
        yield Class(match["name"], file, line, Counts(public, private), reason)


def _count_body(match: re.Match[str], code: str) -> tuple[int, int]:
    counted = {"public": 0, "private": 0}
    access = "private" if match["kind"] == "class" else "public"
    for declaration in _declarations(code, match.end()):
        while (named := _ACCESS.match(declaration)) is not None:
            access = "public" if named[1] == "public" else "private"
            declaration = declaration[named.end() :]
        if _is_field_of_struct(match["kind"], access, declaration) or not _counts(declaration):
            continue
        counted[access] += 1
    return counted["public"], counted["private"]


def _declarations(code: str, begin: int) -> Iterator[str]:
    """The declarations of the class body that begins there, what is in braces left out."""
    declaration, at = "", begin
    while at < len(code):
        character = code[at]
        if character == "}":
            if declaration.strip():
                yield declaration
            return
        if character == ";":
            yield declaration
            declaration = ""
        elif character == "{":
            at = _closing(code, at)
            if not re.match(r"\s*[;,{)]", code[at + 1 :]):  # The body of a function.
                yield declaration + "{}"
                declaration = ""
        elif character == "(":
            end = _closing(code, at)
            declaration += "()"
            at = end
        else:
            declaration += character
        at += 1


def _closing(code: str, at: int) -> int:
    """Where the bracket that opens there is closed."""
    opening, closing = code[at], {"(": ")", "{": "}"}[code[at]]
    depth = 0
    for place in range(at, len(code)):
        depth += (code[place] == opening) - (code[place] == closing)
        if depth == 0:
            return place
    return len(code)


def _counts(declaration: str) -> bool:
    text = declaration.strip()
    if not text or text == "{}":
        return False
    return not re.match(r"friend\b|static_assert\b", text) and not re.search(
        r"=\s*(default|delete)$", text
    )


def _is_field_of_struct(kind: str, access: str, declaration: str) -> bool:
    if kind != "struct" or access != "public":
        return False
    text = re.sub(r"\b(HEADRACE_\w+|alignas|explicit|noexcept)\s*\(\)", "", declaration)
    previous = ""
    while previous != text:
        previous, text = text, re.sub(r"<[^<>]*>", "", text)
    is_type = re.match(r"\s*(using|struct|class|enum|template|friend)\b", declaration)
    return is_type is None and "operator" not in text and "(" not in text.split("=")[0]


def _sources_of_methods(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """By class, the sources that define methods of it."""
    found: dict[str, set[str]] = defaultdict(set)
    method = re.compile(r"^(?![ \t#}/]).*?\b(\w+(?:::\w+)*)::(?:~?\w+|operator\S+)\(", re.M)
    for file, text in texts.items():
        if file.endswith(".cc"):
            for match in method.finditer(_blanked(text)):
                found[match[1]].add(file)
    return found


# Python.


def _python_classes(file: str, text: str) -> Iterator[Class]:
    for node in syntax_nodes(text):
        if isinstance(node, ast.ClassDef):
            names = set(_python_names(node))
            private = sum(name.startswith("_") and not name.endswith("__") for name in names)
            public = sum(not name.startswith("_") for name in names)
            reason = bool(_REASON.search(ast.get_docstring(node) or ""))
            name = f"{node.name} (Python)"
            yield Class(name, file, node.lineno, Counts(public, private), reason)


def _python_names(node: ast.ClassDef) -> Iterator[str]:
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    bases = " ".join(map(ast.unparse, node.bases))
    holds_fields = "dataclass" in decorators or re.search(r"NamedTuple|TypedDict|Enum", bases)
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
            yield from _assigned_to_self(each)
        elif isinstance(each, ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.AnnAssign) and not holds_fields:
            yield ast.unparse(each.target)
        elif isinstance(each, ast.Assign) and not holds_fields:
            yield from map(ast.unparse, each.targets)


def _assigned_to_self(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def shipped(root: Path) -> dict[str, str]:
    """What the rule reads: the sources that leave the house."""
    texts = {}
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        if is_shipped(name):
            texts[name] = path.read_text(encoding="utf-8", errors="replace")
    return texts


def is_shipped(path: str) -> bool:
    """Neither a test nor a test double."""
    if not re.match(r"(include|src|bindings|python/headrace)/.*\.(h|cc|py)$", path):
        return False
    return not re.search(r"/testing/|_(test|fuzz|bench)\.cc$|_conformance\.(h|cc)$", path)


def main() -> int:
    found = sorted(classes(shipped(Path(__file__).resolve().parent.parent)), key=_rank)
    shown = found[: int(sys.argv[1])] if len(sys.argv) > 1 else [x for x in found if x.is_large]
    print(f"{'class':28} {'public':>6} {'private':>7} {'sources':>7}  file")
    for each in shown:
        public, private, sources = each.counts
        print(f"{each.name:28} {public:6} {private:7} {sources:7}  {each.file}:{each.line}")
    return 0


def _rank(each: Class) -> tuple[int, str, int]:
    return -(each.counts.public + each.counts.private), each.file, each.line


if __name__ == "__main__":
    sys.exit(main())
