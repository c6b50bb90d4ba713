"""The findings of indexing a folder: files that cannot be decoded, and others.

The walk (src/index/folder/folder_report.h) writes them into the index; this module describes them.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import _core
from headrace._arguments import shown
from headrace._units import counted
from headrace.errors import DataLossError, InvalidArgumentError

if TYPE_CHECKING:
    from headrace.formats._base.builder import Builder

TAR_LINK, TAR_SPECIAL, TAR_TWICE = "tar_link", "tar_special", "tar_twice"
TAR_OTHER = "tar_other"
"""Kinds of findings in tars."""
ANNOTATION_MEMBER = "annotation_member"

_EXAMPLES = 5

_HIDDEN = "hidden (a part of the path begins with '.'), read like all others"
_NO_FAULT = {  # of one file, and of several
    "hidden": (_HIDDEN, _HIDDEN),
    "loop": (
        "link to a folder that contains it, not followed",
        "links to folders that contain them, not followed",
    ),
    "skipped": ("left out, as asked", "left out, as asked"),
    ANNOTATION_MEMBER: (
        "member of annotations that is left out",
        "members of annotations that are left out",
    ),
    TAR_LINK: (
        "link to what is no file in its tar, left out",
        "links to what is no file in their tars, left out",
    ),
    TAR_TWICE: (
        "sample with a key that an earlier one of its tar has, read like all others",
        "samples with a key that an earlier one of their tar has, read like all others",
    ),
    TAR_OTHER: (
        "file or sample in a tar with none of members=, left out",
        "files or samples in tars with none of members=, left out",
    ),
    TAR_SPECIAL: ("pipe or device in a tar, left out", "pipes or devices in tars, left out"),
    "beside": (
        "file beside an image or a sound of the same name, left out (of the first files)",
        "files beside images or sounds of the same names, left out (of the first files)",
    ),
    "incomplete": (
        "set of files of which some are missing or are there twice",
        "sets of files of which some are missing or are there twice",
    ),
    # Of a table: what may be a mistake.
    "blanks": ("column name with blanks around it", "column names with blanks around them"),
    "rows_in_quotes": (
        "quoted value over lines that look like rows",
        "quoted values over lines that look like rows",
    ),
    "numbers_as_text": (
        "word for no value, which makes a column of numbers text",
        "words for no value, which make columns of numbers text",
    ),
    "member_twice": (
        "member that an object of JSON has twice, whose last value counts",
        "members that an object of JSON has twice, whose last value counts",
    ),
    "infinite": (
        "number that float64 cannot hold, which became infinite",
        "numbers that float64 cannot hold, which became infinite",
    ),
    "too_large": (
        "number that float32 cannot hold, which became infinite",
        "numbers that float32 cannot hold, which became infinite",
    ),
    "spellings": (
        "number that is written in two ways, which became one value",
        "numbers that are written in two ways, which became one value each",
    ),
}
_FAULTS = {
    "empty": ("of zero bytes", "of zero bytes"),
    "broken_link": ("link to nothing", "links to nothing"),
    "special": ("pipe, socket or device", "pipes, sockets or devices"),
    "unreadable": ("not readable", "not readable"),
}


# Of an index that an earlier version made.
_DECODED_SINCE = (".webp", *((".tif", ".tiff") if _core.decodes_tiff else ()))


@dataclass(frozen=True)
class Finding:
    """Files of one kind that indexing a folder found."""

    kind: str
    """An extension (".bmp": a format that headrace does not decode), "empty" (zero bytes),
    "broken_link", "special" (a pipe, socket or device), "unreadable"; or "hidden", "loop" (a link
    to a folder that contains it, not followed), "skipped" (left out by `skip=`). In tars "tar_link"
    (a link to what is no file there) and "tar_special" (a pipe or device), which are left out, and
    "tar_twice" (a sample whose key an earlier one of its tar has), which is read, and "tar_other"
    (what has none of `members=`), which is left out. In COCO files
    "annotation_member" (a member of annotations that is left out). "incomplete": a set of files, as
    x-00000-of-00002, of which some are missing; "beside": a caption beside an image of a class
    folder. Of a table no files, but
    "blanks", "rows_in_quotes", "infinite", "too_large", "spellings", "numbers_as_text",
    "member_twice": `headrace docs formats/manifests`."""
    count: int
    examples: tuple[str, ...]
    """The first few, as paths below the dataset's folder."""

    @property
    def has_bytes(self) -> bool:
        """Whether these files have bytes to read, decodable or not."""
        return self.kind not in _FAULTS

    @property
    def can_be_decoded(self) -> bool:
        """Whether headrace's own decoder may be able to decode these files."""
        return self.kind in _NO_FAULT

    def __str__(self) -> str:
        what = _NO_FAULT.get(self.kind) or _FAULTS.get(self.kind)
        if what is None:
            what = (f"of a format that headrace does not decode ({self.kind})",) * 2
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{counted(self.count, *what)}: {', '.join(map(repr, self.examples))}{more}"


class FindingCounts:
    """Counts what indexing finds by kind, such as the extension of sounds that headrace does not
    decode, with the first few names."""

    def __init__(self) -> None:
        self.by_kind: dict[str, tuple[int, list[str]]] = {}

    def add(self, kind: str, name: str) -> None:
        count, names = self.by_kind.get(kind, (0, []))
        self.by_kind[kind] = (count + 1, [*names, name][:_EXAMPLES])

    def add_json(self, text: str) -> None:
        """Adds what another one found, by its `json`."""
        for kind, more, others in json.loads(text):
            count, names = self.by_kind.get(kind, (0, []))
            self.by_kind[kind] = (count + more, [*names, *others][:_EXAMPLES])

    def json(self) -> str:
        """For the attribute "report", which `Dataset.report` shows."""
        return json.dumps([[kind, *counted] for kind, counted in sorted(self.by_kind.items())])

    def as_findings(self) -> list[Finding]:
        """As `Dataset.report` shows them."""
        return [
            Finding(kind, count, tuple(names))
            for kind, (count, names) in sorted(self.by_kind.items())
        ]

    def report(self, builder: Builder) -> None:
        """Sets that attribute, if there are any."""
        if self.by_kind:
            builder.set_attribute("report", self.json())


def findings_of(index: _core.Index, path: str) -> tuple[Finding, ...]:
    """The findings in the index; none in an index of an old version, or not of a folder."""
    try:
        return tuple(
            Finding(str(kind), int(count), tuple(map(str, names)))
            for kind, count, names in json.loads(index.attributes.get("report", "[]"))
            if kind not in _DECODED_SINCE
        )
    except (ValueError, TypeError) as error:
        raise DataLossError(
            f"opening {path}: its report is damaged: {error}; make the index again"
        ) from error


def skip_of(index: _core.Index) -> tuple[str, ...]:
    """The `skip` of the index."""
    try:
        return tuple(map(str, json.loads(index.attributes.get("skip", "[]"))))
    except (ValueError, TypeError):
        return ()  # The index is checked when it is opened.


def skip_patterns(skip: str | Iterable[str]) -> tuple[str, ...]:
    """The argument, sorted and without duplicates, neither of which changes its effect."""
    wanted: object = skip
    if isinstance(wanted, bytes) or not isinstance(wanted, Iterable):
        raise _not_patterns(wanted)
    patterns: Sequence[object] = [wanted] if isinstance(wanted, str) else list(wanted)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise _not_patterns(pattern)
    return tuple(sorted({str(pattern) for pattern in patterns}))


def _not_patterns(patterns: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"skip: got {shown(patterns)}, must be patterns: skip=['*.bmp', '/src']"
    )


def unmatched_skip(index: _core.Index) -> str | None:
    """A sentence about the patterns of `skip=` that match nothing; None if each matches."""
    try:
        patterns = [
            str(pattern) for pattern in json.loads(index.attributes.get("skip_unmatched", "[]"))
        ]
    except (ValueError, TypeError):
        return None  # As for `skip`.
    if not patterns:
        return None
    named = ", ".join(map(repr, patterns))
    return (
        f"skip: no class folder of {index.root}, and nothing that was read in one, matches {named} "
        "(a folder that is left out is not read); check the spelling: * and ? are the wildcards; a "
        "pattern without '/' is a name, at any depth, one with '/' a path, where a leading '/' is "
        "the dataset's folder"
    )


def warn_of_skip(index: _core.Index) -> None:
    """Warns of patterns of `skip=` that match nothing."""
    unmatched = unmatched_skip(index)
    if unmatched is not None:
        warnings.warn(f"headrace: {unmatched}", RuntimeWarning, stacklevel=callers_level())


WAY_OUT = (
    'leave them out with skip=":undecodable" in hr.open() (on the command line: --skip '
    ':undecodable), or replace them with Loader(on_error="substitute"); what Pillow '
    "reads, it decodes for a Python transform="
)


SOUNDS = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".aiff", ".m4a")
OTHER_SOUND = ".sound"
"""The kind of a sound without one of these extensions."""
_SOUNDS = (*SOUNDS, OTHER_SOUND)
_WAY_OUT_OF_SOUNDS = (
    "write them as WAV or FLAC of 16 bits, replace them with "
    'Loader(on_error="substitute"), or decode the bytes in a Python transform='
)


def callers_level() -> int:
    """The `stacklevel` of a warning that this function's caller gives: the caller of headrace."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level


_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_warned: set[tuple[str, str]] = set()


def warn_of(findings: Iterable[Finding], index: _core.Index, path: str, doing: str) -> None:
    """Warns, once for each dataset and process, of files that will fail, if there are any."""
    wrong = list(findings)
    key = (path, index.fingerprint)
    if not wrong or key in _warned:
        return
    _warned.add(key)
    way_out = _WAY_OUT_OF_SOUNDS if all(finding.kind in _SOUNDS for finding in wrong) else WAY_OUT
    warnings.warn(
        f"headrace: {doing} {path}: files that cannot be decoded: {'; '.join(map(str, wrong))}. "
        f"Each is a sample, which fails when it is read: {way_out}",
        RuntimeWarning,
        stacklevel=callers_level(),
    )
