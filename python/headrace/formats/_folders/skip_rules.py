"""What `skip=` leaves out of class folders: as src/index/folder/skip_rules.h, which has the rules.

For folders that are listed here, because they do not lie on a disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headrace.errors import InvalidArgumentError

_FAILING = (":empty", ":broken_link", ":special", ":unreadable")


class SkipRules:
    """Patterns and kinds of files."""

    def __init__(self, skip: Sequence[str]) -> None:
        """Raises InvalidArgumentError for an empty pattern, or an unknown kind."""
        self._kinds = {text for text in skip if text.startswith(":")}
        unknown = sorted(self._kinds - {":undecodable", ":hidden", *_FAILING})
        if unknown:
            raise InvalidArgumentError(
                f"skip: got {unknown[0]!r}, a kind is one of :undecodable, {', '.join(_FAILING)}, "
                ":hidden"
            )
        self._patterns = [(text, _parts(text)) for text in skip if text not in self._kinds]
        self._matched: set[str] = set()

    def leaves_out(self, path: str) -> bool:
        """Whether the path, below the root, is left out with all below it. Patterns that match it,
        or what may lie below, then count as used."""
        name = path.rpartition("/")[2]
        hidden = ":hidden" in self._kinds and name.startswith(".")
        if not hidden and not any(is_of(path, name) for _, (is_of, _) in self._patterns):
            return False
        for text, (is_of, may_be_below) in self._patterns:
            if is_of(path, name) or may_be_below(path):
                self._matched.add(text)
        return True

    def leaves_out_kind(self, kind: str) -> bool:
        """Whether files of this kind are left out: "empty", or an extension that is not decoded."""
        return ":undecodable" in self._kinds or f":{kind}" in self._kinds

    @property
    def unmatched(self) -> list[str]:
        """The patterns that matched nothing, as given."""
        return [text for text, _ in self._patterns if text not in self._matched]


def _parts(text: str) -> tuple[Callable[[str, str], bool], Callable[[str], bool]]:
    """Whether a path matches; and whether something below it might."""
    bare = text.strip("/")
    if not bare:
        raise InvalidArgumentError(
            f"skip: got {text!r}, must be the name of a file or folder, a path below the root, or "
            "a pattern of them with * and ?"
        )
    is_path = "/" in bare or text.startswith("/")
    whole = _compiled(bare)
    parts = bare.split("/")
    return (
        lambda path, name: whole.fullmatch(path if is_path else name) is not None,
        lambda path: _is_above(parts, path),
    )


def _is_above(parts: Sequence[str], path: str) -> bool:
    depth = path.count("/") + 1
    return len(parts) > depth and _compiled("/".join(parts[:depth])).fullmatch(path) is not None


def _compiled(pattern: str) -> re.Pattern[str]:
    """ "*" stands for any characters but "/", "?" for one of them."""
    wild = {"*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wild.get(c) or re.escape(c) for c in pattern), re.DOTALL)
