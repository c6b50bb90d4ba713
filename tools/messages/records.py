"""What tests have seen of each site: messages that they made, and text that they compare with."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from messages.core_sites import Source, unescaped
from messages.python_sites import PACKAGE
from messages.sites import ROOT, Site, best, letters_of

RECORDED = ROOT / "build" / "messages"
_TEXTS_MAX = 20  # kept of a site, for the judgement
_LITERALS = re.compile(r'"((?:[^"\\\n]|\\.)*)"(?:\s*"((?:[^"\\\n]|\\.)*)")*')
_ONE = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ALIKE_MAX = 3
_PART_MAX = 200  # characters
_COLON = re.compile(": ")
_REMEDY = re.compile("; ")
_DIGITS = re.compile(r"\d+")
_LEAST = 8  # letters of the part of a message that a test compares with


@dataclass
class Seen:
    """Messages of each site, by its key; and sites whose text stands in a test."""

    texts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    named: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)  # files that changed since

    def has(self, site: Site) -> bool:
        return bool(self.texts.get(site.key)) or site.key in self.named

    def add(self, site: Site, text: str) -> None:
        texts = self.texts[site.key]
        if len(texts) < _TEXTS_MAX and text not in texts:
            texts.append(text)


def seen(
    python: list[Site], core: list[Site], folder: Path = RECORDED, package: Path = PACKAGE
) -> Seen:
    """Of all files that the tests left in `folder`; those of the core leave texts alone."""
    found = Seen()
    of_file: dict[str, list[Site]] = defaultdict(list)
    for site in python:
        of_file[site.file].append(site)
    texts: set[str] = set()
    as_now: set[str] = set()
    for path in sorted(folder.glob("*.json")):
        recorded = json.loads(path.read_text())
        digests = recorded["files"].items()
        changed = {file for file, was in digests if _digest(package / file) != was}
        found.changed |= changed
        as_now |= {*recorded["files"]} - changed
        texts.update(recorded["printed"])
        for made in recorded["made"]:
            texts.update(made["texts"])
            for file, line in made["frames"]:
                for site in of_file[f"python/headrace/{file}"] if file not in changed else ():
                    if site.lines[0] <= line <= site.lines[1]:
                        for text in made["texts"]:
                            found.add(site, text)
    found.changed -= as_now
    # Of the core, of other processes and of classes that are not headrace's the place is not known.
    _match(texts, python + core, found)
    return found


def whole(texts: Iterable[str]) -> dict[str, str]:
    """Each text, and the longest that it stands in, between context before and a remedy behind:
    users read all of it. Numbers are not compared."""
    of_text = {text: _DIGITS.sub("", text) for text in sorted(texts, key=len)}
    around = {part: text for text, plain in of_text.items() for part in _parts(plain)}
    return {text: around.get(plain, text) for text, plain in of_text.items()}


def _parts(text: str) -> Iterator[str]:
    begins = [0, *(colon.end() for colon in _COLON.finditer(text))]
    ends = [*(remedy.start() for remedy in _REMEDY.finditer(text)), len(text)]
    for begin in begins:
        yield from (text[begin:end] for end in ends if begin < end and end - begin < len(text))


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _match(texts: Iterable[str], sites: list[Site], found: Seen) -> None:
    """Sites that say the same are not told apart."""
    same: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        same[site.template].append(site)
    alone = [each[0] for each in same.values()]
    for text, read in whole(texts).items():
        one = best(text, alone)
        for site in same[one.template] if one is not None else ():
            found.add(site, read)


def named_by_tests(sites: Iterable[Site], root: Path = ROOT) -> set[str]:
    """Keys of the sites of which a test of C++ or Python has the longest literal part; or a piece
    of it that no more than _ALIKE_MAX sites have."""
    texts = {*_python_texts(root / "tests"), *_core_texts(root)}
    everything = "\n".join(texts)
    sites = list(sites)
    of_part: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        for part in site.pieces:
            of_part[part].append(site)
    found = set()
    for site in sites:
        if site.telling and site.telling in everything:
            found.add(site.key)
    templates = "\n".join(of_part)
    for text in texts:
        worth = _LEAST <= len(text) < _PART_MAX and " " in text.strip()
        if worth and letters_of(text) >= _LEAST and text in templates:
            alike = {site for part, of in of_part.items() if text in part for site in of}
            found |= {site.key for site in alike if len(alike) <= _ALIKE_MAX}
    return found


def _python_texts(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
                if "\\" in node.value:
                    yield re.sub(r"\\(.)", r"\1", node.value)  # a pattern for `match=`


def _core_texts(root: Path) -> Iterator[str]:
    for folder in ("src", "bindings"):
        for path in sorted((root / folder).rglob("*.cc")):
            if path.name.endswith("_test.cc") or "testing" in path.parts:
                text = Source.of(path.read_text()).text
                for found in _LITERALS.finditer(text):
                    yield "".join(unescaped(each[1]) for each in _ONE.finditer(found[0]))
        for path in sorted((root / folder).rglob("*_conformance.h")):
            for found in _LITERALS.finditer(Source.of(path.read_text()).text):
                yield "".join(unescaped(each[1]) for each in _ONE.finditer(found[0]))
