"""The interface of a dataset format: a row of the table in `headrace.formats.table`."""

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
    """An index, and where it comes from."""

    index: _core.Index
    named: str | None = None  # the index file, if the user named it
    is_new: bool = False  # built by this call


@dataclass(frozen=True)
class Wanted:
    """The arguments of `headrace.open` beside the path."""

    index: str | os.PathLike[str] | None = None  # path of the index; None: chosen by the format
    skip: tuple[str, ...] | None = None  # patterns, sorted; None: not given
    progress: Progress | None = None


class Format(ABC):
    """Recognises, indexes and checks the datasets of one format.

    Thread safety: stateless; every method may be called from any thread.
    """

    name: ClassVar[str]
    """The value of the attribute "format" of its indexes."""

    opens: ClassVar[str]
    """A noun phrase with its article, for the list of what headrace opens."""

    file_a_sample: ClassVar[bool] = False
    """Whether each sample is a file of its own."""

    @abstractmethod
    def recognises(self, path: str) -> bool:
        """Whether `path`, which exists, is such a dataset. OSError: it cannot be read."""

    @abstractmethod
    def open(self, path: str, wanted: Wanted) -> Opened:
        """Returns the index of the dataset at `path`; builds it if there is none or it is stale."""

    def build(self, path: str, wanted: Wanted) -> tuple[_core.Index, str]:
        """Builds the index even if there is one. Returns it and the path of its file."""
        raise InvalidArgumentError(
            f"indexing {path}: this is {self.opens}, which has its index already"
        )

    def is_current(self, index: _core.Index) -> bool:
        """Whether the index still lists the files that exist. Stores check each file they open."""
        return True

    @abstractmethod
    def remedy(self, index: _core.Index) -> str:
        """What to do when a file is gone or is not as it was indexed."""

    def leave_out(self, index: _core.Index, kind: str) -> str:
        """What to do about an unreadable file of a kind of `skip=`, such as ":special"."""
        return self.remedy(index)

    def source_folder(self, index: _core.Index) -> str | None:
        """The folder in which every added file becomes a sample; None if there is none."""
        return None

    def file_fault(
        self, index: _core.Index, number: int, read: Callable[[int, int], bytes | bytearray]
    ) -> str | None:
        """A fault of a file whose samples are valid; None if there is none.

        `read(offset, size)` reads the file.
        """
        return None

    def hint(self, suffixes: Set[str]) -> str:
        """Advice for a folder that is not a dataset and has files with these suffixes."""
        return ""

    @abstractmethod
    def own_samples(self, path: str) -> Iterator[Sample]:
        """Yields each sample, read by the format's own library. Tests compare it with headrace."""


def refuse_skip(doing: str, skip: tuple[str, ...] | None) -> None:
    """Raises if there are patterns, for datasets whose samples are fixed."""
    if skip:
        raise InvalidArgumentError(
            f"{doing}: skip={list(skip)!r} was given, but its samples are fixed; leave skip "
            "out, or open the folder of images with it"
        )


def remedies(row: Format, index: _core.Index) -> tuple[str, str, str]:
    """Advice for the core's errors: a changed file, a broken link, a file that is not regular."""
    return (
        row.remedy(index),
        row.leave_out(index, ":broken_link"),
        row.leave_out(index, ":special"),
    )
