"""The places of include/, src/ and bindings/ that make a failed Status, or throw.

A place is an expression that names a StatusCode beside its message, a `throw` of text, or a call of
a function that only makes errors: it returns a Status, and none of its returns is a success.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from messages.sites import HOLE, ROOT, Site, joined, numbered

FOLDERS = ("include", "src", "bindings")
_TESTS = re.compile(r"_(test|stress|stress_test|fuzz|bench)\.cc$|conformance|/testing/|^src/sim/")

_LITERAL = re.compile(r'(?:u8|L)?"((?:[^"\\\n]|\\.)*)"')
_TOKENS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:[^"\\\n]|\\.)*"|(?<!\w)'(?:[^'\\\n]|\\.)+'""",
    re.DOTALL,
)
_FUNCTION = re.compile(
    r"(?P<result>[\w:>&*\]]+)\s+(?P<name>[\w:~]+)\((?P<rest>[^;{}]*)\)\s*(?:const\s*|noexcept\s*|override\s*)*"
    r"(?::\s[^;{}]*)?\{"
)
_ERROR = re.compile(r"\b(?:(?P<maker>\w+)(?P<open>[({])|(?:return|throw)\s*(?P<braces>\{))")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


class Function(NamedTuple):
    """A definition; its body lies between the brackets at `start` and `end`."""

    result: str
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """Text without comments, in which each literal is blanked: both have the same offsets."""

    text: str
    blank: str

    @staticmethod
    def of(text: str) -> Source:
        def without_comment(found: re.Match[str]) -> str:
            part = found.group()
            return _spaces(part) if part.startswith(("//", "/*")) else part

        plain = _TOKENS.sub(without_comment, text)

        def without_literal(found: re.Match[str]) -> str:
            part = found.group()
            return part[0] + "_" * (len(part) - 2) + part[-1]

        return Source(plain, _TOKENS.sub(without_literal, plain))

    @cached_property
    def functions(self) -> list[Function]:
        return [
            Function(found["result"], found["name"], found.end() - 1, self.end_of(found.end() - 1))
            for found in _FUNCTION.finditer(self.blank)
        ]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer(r"\n", self.blank))]

    def line_of(self, place: int) -> int:
        return bisect_right(self._starts, place)

    def end_of(self, at: int) -> int:
        """The place of the bracket that closes the one at `at`."""
        depth = 0
        for place in range(at, len(self.blank)):
            if self.blank[place] in "([{":
                depth += 1
            elif self.blank[place] in ")]}":
                depth -= 1
                if depth == 0:
                    return place
        return len(self.blank) - 1

    def parts(self, start: int, end: int, by: str) -> Iterator[tuple[int, int]]:
        """What lies between those of `by` outside brackets."""
        depth, begin = 0, start
        for place in range(start, end):
            mark = self.blank[place]
            depth += (mark in "([{") - (mark in ")]}")
            if mark in by and depth == 0:
                yield begin, place
                begin = place + 1
        yield begin, end


def _spaces(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)


def literals(source: Source, start: int, end: int) -> str:
    return "".join(unescaped(found[1]) for found in _LITERAL.finditer(source.text, start, end))


def core_sites(root: Path = ROOT) -> list[Site]:
    sources = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix in (".cc", ".h") and not _TESTS.search(name):
                sources[name] = Source.of(path.read_text())
    makers = {"Status", "ThrowStatus"}
    while more := {n for source in sources.values() for n in _makers(source, makers)} - makers:
        makers |= more
    return numbered(
        site for name, source in sources.items() for site in _Reader(name, source, makers).sites()
    )


def _makers(source: Source, makers: set[str]) -> Iterator[str]:
    for function in source.functions:
        if function.result.endswith("Status"):
            body = source.blank[function.start : function.end]
            returned = re.findall(r"\breturn\b\s*([^;]*)", body)
            if returned and all(
                "StatusCode::k" in one or _named(one) in makers for one in returned
            ):
                yield function.name.rpartition("::")[2]


def _named(call: str) -> str:
    """The function that is called, with arguments."""
    found = re.match(r"(?:\w+::)*(\w+)\((?!\))", call)
    return found[1] if found else ""


class _Reader:
    def __init__(self, file: str, source: Source, makers: set[str]) -> None:
        self._file = file
        self._source = source
        self._makers = makers

    def sites(self) -> Iterator[Site]:
        blank = self._source.blank
        last = 0
        for found in _ERROR.finditer(blank):
            opened = found.end() - 1
            if opened < last:
                continue
            end = self._source.end_of(opened)
            inside = blank[opened + 1 : end]
            maker = found["maker"]
            codes = re.findall(r"StatusCode::k(\w+)", inside)
            throws = re.search(r"throw\s+(nb::|nanobind::|std::)?$", blank[: found.start()])
            direct = bool(codes) and (maker is None or maker.endswith("Status"))
            if not direct and not (maker in self._makers and found["open"] == "(") and not throws:
                continue
            if maker == "WithContext" or self._is_definition(opened, end):
                continue
            template = joined(self._arguments(opened + 1, end))
            if re.search(r"\w", template.replace(HOLE, "")):
                kind = codes[0] if codes else maker or ""
                lines = self._line(found.start()), self._line(end)
                yield Site(self._file, self._function(opened), kind, template, lines)
                last = end

    def _is_definition(self, opened: int, end: int) -> bool:
        """`Status Name(const std::string& what) {`, not a call."""
        behind = re.compile(r"\)\s*(const\s*)?\{").match(self._source.blank, end)
        return behind is not None and any(
            opened < end < each.start == behind.end() - 1 for each in self._source.functions
        )

    def _line(self, place: int) -> int:
        return self._source.line_of(place)

    def _around(self, place: int) -> Function | None:
        """The innermost."""
        around = [each for each in self._source.functions if each.start < place < each.end]
        return max(around, key=lambda each: each.start, default=None)

    def _function(self, place: int) -> str:
        around = self._around(place)
        return around.name if around else ""

    def _arguments(self, start: int, end: int) -> Iterator[str]:
        first = True
        for begin, stop in self._source.parts(start, end, ","):
            if "StatusCode::" in self._source.blank[begin:stop] and first:
                continue
            yield "" if first else HOLE
            first = False
            text = "".join(self._text(begin, stop))
            yield text
            if HOLE in text and self._is_literal(begin, stop):
                return  # a format: the arguments behind it are in its holes

    def _is_literal(self, start: int, end: int) -> bool:
        return re.fullmatch(r'(\s*"[^"]*"\s*)+', self._source.blank[start:end]) is not None

    def _text(self, start: int, end: int) -> Iterator[str]:
        for begin, stop in self._source.parts(start, end, "+"):
            text = self._source.text[begin:stop].strip()
            if self._is_literal(begin, stop):
                yield re.sub(r"\{[^{}]*\}", HOLE, literals(self._source, begin, stop))
                continue
            inner = re.match(
                r"\s*(?:fmt::format|std::string|Status|\w*Error|\w*Argument)?[({]",
                self._source.blank[begin:stop],
            )
            if inner and not re.search(r"\?", self._source.blank[begin:stop]):
                opened = begin + inner.end() - 1
                close = self._source.end_of(opened)
                if '"' in self._source.blank[opened:close]:
                    yield from self._arguments(opened + 1, close)
                    continue
            name = re.fullmatch(r"(?:std::move\()?(\w+)\)?", text)
            yield from self._appended(name[1], begin) if name else (HOLE,)

    def _appended(self, name: str, before: int) -> Iterator[str]:
        """What the function put into the string `name` until here."""
        around = self._around(before)
        start = around.start if around else before
        put = re.compile(rf"\b{name}(?:\.append\(|\s*\+?=(?!=)\s*|[({{])([^;]*)")
        literal = False
        for found in put.finditer(self._source.blank, start, before):
            if '"' in found[1] and "?" not in found[1]:
                literal = True
                yield HOLE + self._put(*found.span(1)) + HOLE
        if not literal:
            yield HOLE

    def _put(self, start: int, end: int) -> str:
        """A sum of strings, or what stands in a call of append()."""
        if self._source.blank[:start].rstrip().endswith("="):
            return "".join(self._text(start, end))
        return re.sub(r"\{[^{}]*\}", HOLE, literals(self._source, start, end))
