"""Reads parts of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace import _places
from headrace._text import unread_reason
from headrace.errors import FailedPreconditionError, HeadraceError, NotFoundError
from headrace.formats._files.npy import Read


@contextmanager
def file_reader(path: str) -> Iterator[tuple[Read, int]]:
    """`read(offset, size)` of the file, which returns fewer bytes at its end, and its size.

    An OSError becomes the error of headrace that says the same.
    """
    with open_file(path) as file:
        yield file.read, file.size


@contextmanager
def open_file(path: str) -> Iterator[_places.Reader]:
    """The file; errors as those of `file_reader`."""
    try:
        file = _places.reader(path)
    except FileNotFoundError as error:
        raise NotFoundError(f"reading {path}: no such file") from error
    except OSError as error:
        raise FailedPreconditionError(f"reading {path}: {unread_reason(error)}") from error
    try:
        yield file
    except HeadraceError:
        raise  # Some are OSErrors, too.
    except OSError as error:
        raise FailedPreconditionError(f"reading {path}: {unread_reason(error)}") from error
    finally:
        file.close()
