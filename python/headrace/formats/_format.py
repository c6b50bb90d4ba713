"""What headrace knows of a dataset's format: one row of the table in `headrace.formats.table`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace import _core
from headrace.errors import InvalidArgumentError

INDEX_SUFFIX = ".hri"

Progress = Callable[[int], object]
"""Called with the number of files found."""

Sample = dict[str, Any]
"""By field: the bytes as they are stored, or a NumPy value."""


@dataclass(frozen=True)
class Opened:
    """An index, and how it was come by."""

    index: _core.Index
    named: str | None = None  # the index file, if the user named it
    is_new: bool = False  # made now


@dataclass(frozen=True)
class Wanted:
    """What a user asks for beside the path."""

    index: str | os.PathLike[str] | None = None  # where it is kept; None: where the format says
    skip: tuple[str, ...] | None = None  # patterns, sorted; None: not given
    progress: Progress | None = None


class Format(ABC):
    """A format: how its datasets are recognised, indexed, checked and repaired."""

    name: ClassVar[str]
    """What the attribute "format" of its indexes says."""

    opens: ClassVar[str]
    """What it is, with an article: for the list of what headrace opens."""

    file_a_sample: ClassVar[bool] = False
    """Whether each sample is a file of its own."""

    @abstractmethod
    def recognises(self, path: str) -> bool:
        """Whether `path`, which exists, is such a dataset. OSError: it cannot be read."""

    @abstractmethod
    def open(self, path: str, wanted: Wanted) -> Opened:
        """The index of the dataset at `path`, made if there is none that is true."""

    def build(self, path: str, wanted: Wanted) -> tuple[_core.Index, str]:
        """Makes the index anew, whatever there is: it, and its file."""
        raise InvalidArgumentError(
            f"indexing {path}: this is {self.opens}, which has its index already"
        )

    def is_current(self, index: _core.Index) -> bool:
        """Whether the index still lists what is there. Files are checked when they are opened."""
        return True

    @abstractmethod
    def remedy(self, index: _core.Index) -> str:
        """What to do when a file is gone or is not as it was indexed."""

    def leave_out(self, index: _core.Index, kind: str) -> str:
        """What to do about a file of a kind (":special") that cannot be read."""
        return self.remedy(index)

    def source_folder(self, index: _core.Index) -> str | None:
        """The folder in which each file that is added becomes a sample; None: there is none."""
        return None

    def file_fault(
        self, index: _core.Index, number: int, read: Callable[[int, int], bytes]
    ) -> str | None:
        """What is wrong with a file whose samples are good. `read(offset, size)` reads it."""
        return None

    def hint(self, suffixes: Set[str]) -> str:
        """What to say of a folder that is no dataset, with files of these suffixes."""
        return ""

    @abstractmethod
    def own_samples(self, path: str) -> Iterator[Sample]:
        """Each sample, read without headrace: by the format's own library, to compare with."""


def refuse_skip(doing: str, skip: tuple[str, ...] | None) -> None:
    """For datasets whose samples are fixed."""
    if skip:
        raise InvalidArgumentError(
            f"{doing}: skip={list(skip)!r} was given, but its samples are fixed; leave skip "
            "out, or open the folder of images with it"
        )


def remedies(row: Format, index: _core.Index) -> tuple[str, str, str]:
    """What the core's errors advise: of a file that changed, a link to nothing, no regular file."""
    return (
        row.remedy(index),
        row.leave_out(index, ":broken_link"),
        row.leave_out(index, ":special"),
    )
