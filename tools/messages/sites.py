"""A place that makes an error, and its message as far as the source says it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HOLE = "{}"  # what the source does not say: a value, or text that another place makes
_LEAST = 8  # letters of the longest literal part; a message with fewer is known by its place only


@dataclass(frozen=True)
class Site:
    """`key` has no number of a line: it stays while others change the file."""

    file: str  # below the root of the project
    function: str  # its qualified name
    kind: str  # the class of the error, the status code, or the function that makes the error
    template: str  # literal text with HOLE between
    lines: tuple[int, int]  # the first and the last
    number: int = 1  # of those in the function that say the same

    @property
    def key(self) -> str:
        again = f"#{self.number}" if self.number > 1 else ""
        return f"{self.file}::{self.function}::{self.template}{again}"

    @property
    def place(self) -> str:
        return f"{self.file}:{self.lines[0]}"

    @cached_property
    def letters(self) -> int:
        """How much of the message the source says."""
        return letters_of(self.template.replace(HOLE, ""))

    @cached_property
    def pieces(self) -> list[str]:
        """The literal parts that tell the message from others."""
        pieces = [piece.strip() for piece in self.template.split(HOLE)]
        return [piece for piece in pieces if letters_of(piece) >= 2]

    @cached_property
    def telling(self) -> str:
        """The literal part that tells the message from others; empty: nothing does."""
        longest = max(self.pieces, key=len, default="")
        return longest if letters_of(longest) >= _LEAST and " " in longest else ""

    @cached_property
    def _form(self) -> re.Pattern[str] | None:
        """Of a place of the core without a telling part, which all of its parts together tell."""
        if self.file.endswith(".py") or self.template.startswith(HOLE) or self.letters < 4:
            return None
        hole = ".+" if self.letters >= _LEAST else r"\S+"  # in the middle
        *parts, end = map(re.escape, self.template.split(HOLE))
        return re.compile("(?:^|: )" + hole.join(parts) + ".+" * bool(parts) + end)

    def says(self, text: str) -> bool:
        """Whether `text` may be its message; in what order the parts stand is not known."""
        if not self.telling:
            return self._form is not None and self._form.search(text) is not None
        return all(piece in text for piece in self.pieces)


def letters_of(text: str) -> int:
    """How many letters and digits it has."""
    return len(re.sub(r"\W", "", text))


def numbered(sites: Iterable[Site]) -> list[Site]:
    """Sites that say the same get a number each."""
    seen: Counter[str] = Counter()
    made = []
    for site in sites:
        seen[site.key] += 1
        made.append(replace(site, number=seen[site.key]))
    return made


def joined(pieces: Iterable[str]) -> str:
    """Of literal pieces and holes: holes side by side are one."""
    text = re.sub(r"(\{\}){2,}", HOLE, "".join(pieces))
    return re.sub(r"\s+", " ", text).strip()


def best(text: str, sites: Iterable[Site]) -> Site | None:
    """The one that made `text`: of those that say so, the one that says most."""
    return max((site for site in sites if site.says(text)), key=lambda s: s.letters, default=None)
