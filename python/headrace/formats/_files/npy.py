"""The header of a .npy file: dtype and shape, without its values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import DataLossError, InvalidArgumentError

MAGIC = b"\x93NUMPY"
_PARSES_MAX = 10
_HEADER_BYTES_MAX = 64 * 1024  # NumPy itself refuses more than 10,000.
_AGAIN = "copy or write the file again"

Read = Callable[[int, int], bytes]
"""`read(offset, size)`: these bytes of a file, fewer at its end."""


@dataclass(frozen=True)
class NpyHeader:
    """What a .npy file holds."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data_offset: int
    """Where the values begin, from the beginning of the header."""


def read_npy_header(read: Read, size: int, what: str) -> NpyHeader:
    """Reads and checks the header of the `size` bytes that begin at offset 0 of `read`.

    `what` names them in errors. Arrays that batches cannot hold are refused: Fortran order, other
    byte order, Python objects.
    """

    def damaged(offset: int, why: str) -> DataLossError:
        return DataLossError(f"reading {what}: byte {offset}: {why}; {_AGAIN}")

    front = read(0, 12)
    if front[:6] != MAGIC or len(front) < 10:
        raise damaged(0, "not a .npy file: wrong first bytes")
    if front[6] not in (1, 2, 3):
        raise damaged(6, f".npy of version {front[6]}, there are 1 to 3")
    start = 10 if front[6] == 1 else 12
    length = int.from_bytes(front[8:start], "little")
    if len(front) < start or length > _HEADER_BYTES_MAX or start + length > size:
        raise damaged(8, f"its header has {length} bytes, the file {size}")
    text = read(start, length)
    if len(text) != length:
        raise damaged(start, "the header is cut short")
    try:
        parsed = _literal(text.decode("utf-8" if front[6] == 3 else "latin1").strip())
        descr, fortran, shape = (parsed[key] for key in ("descr", "fortran_order", "shape"))
        dtype = np.lib.format.descr_to_dtype(descr)
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError) as error:
        raise damaged(start, f"its header cannot be read ({type(error).__name__})") from error
    if not isinstance(shape, tuple) or not all(
        isinstance(dimension, int) and not isinstance(dimension, bool) and dimension >= 0
        for dimension in shape
    ):
        raise damaged(start, f"its shape is {shape!r:.200}")
    header = NpyHeader(dtype, shape, start + length)
    _check_layout(header, bool(fortran), what)
    needed = header.data_offset + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if needed != size:
        raise damaged(start, f"dtype and shape need {needed} bytes, the file has {size}")
    return header


def _literal(text: str) -> Any:
    """The value that a text of Python has.

    CPython before 3.11.8 and 3.12.2 raises SystemError by chance where two threads parse at a time,
    as files are indexed and as programs do: github.com/python/cpython/issues/106905.
    """
    for _ in range(_PARSES_MAX - 1):
        with suppress(SystemError):
            return ast.literal_eval(text)
    return ast.literal_eval(text)


def _check_layout(header: NpyHeader, fortran: bool, what: str) -> None:
    dtype, shape = header.dtype, header.shape
    if dtype.hasobject:
        raise InvalidArgumentError(
            f"reading {what}: it holds Python objects, whose bytes only Python can read; save an "
            "array of numbers"
        )
    if fortran and len(shape) > 1:
        raise InvalidArgumentError(
            f"reading {what}: it is stored in Fortran order, so a row is not one range of bytes; "
            "save numpy.ascontiguousarray(array)"
        )
    check_native(dtype, what)


def check_native(dtype: np.dtype[Any], what: str) -> None:
    """Refuses elements that are not numbers or bools of this machine's byte order."""
    for name, part in _parts(dtype):
        of = f" of field {name!r}" if name else ""
        base = part.subdtype[0] if part.subdtype is not None else part
        if not base.isnative:
            raise InvalidArgumentError(
                f"reading {what}: its values{of} are big-endian ({base.str}); save "
                "array.astype(array.dtype.newbyteorder('<'))"
            )
        if base.name not in NAMES:
            raise InvalidArgumentError(
                f"reading {what}: its values{of} have dtype {base}; batches hold {', '.join(NAMES)}"
                ": convert them to one of these (numpy.ndarray.astype)"
            )


NAMES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32)),
    "int64",
    "float16",
    "float32",
    "float64",
    "bool",
)
"""The dtypes of arrays in an index."""


def _parts(dtype: np.dtype[Any]) -> list[tuple[str, np.dtype[Any]]]:
    if dtype.fields is None:
        return [("", dtype)]
    return [(name, dtype.fields[name][0]) for name in dtype.names or ()]
