"""Converts results of a transform to rows of a batch: types, shapes, and the copy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._workers.results.tree import Skeleton, flatten, flattener

Shape = tuple[int, ...]

BFLOAT16 = "bfloat16"
"""NumPy has no such dtype: rows of uint16 have this name."""
_KINDS = "biufcmM"  # of NumPy's dtypes: numbers and times
_ITEM_BYTES_MAX = _core.WorkerChannel.ITEM_BYTES_MAX
_LEAVES_MAX = _core.WorkerChannel.LEAVES_MAX
SCALARS: dict[type, str] = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
"""The dtype of Python's own numbers."""


class ResultError(TypeError):
    """A result cannot become part of a batch: has the row in its task and the reason.

    Its cause is the error of the result's own code, if that is the reason.
    """

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row

    def __reduce__(self) -> tuple[Any, ...]:
        return ResultError, (self.row, str(self))


@dataclass(slots=True)
class Column:
    """One leaf of the results of some samples."""

    dtype: str
    """NumPy's name; "" for objects, which are pickled."""
    item_bytes: int
    rank: int
    shape: Shape | None
    """The shape of every row; None if shapes differ."""
    rows: Sequence[Any]
    """Arrays, or numbers, or objects."""

    @property
    def is_object(self) -> bool:
        return not self.dtype

    @property
    def shapes(self) -> list[Shape]:
        """Of each row."""
        if self.shape is not None:
            return [self.shape] * len(self.rows)
        return [row.shape for row in self.rows]

    def write(self, out: NDArray[Any]) -> None:
        """Copies the rows into `out`, of (rows, *shape)."""
        if self.rank == 0:
            out[...] = self.rows
        elif out.size:
            assert self.shape is not None
            flat = out.reshape(len(self.rows) * self.shape[0], *self.shape[1:])
            np.concatenate(self.rows, out=flat, casting="no")

    def write_padded(self, out: NDArray[Any]) -> None:
        """The same if rows are smaller than their places: the rest of a place becomes zero."""
        out[...] = 0
        for place, row in zip(out, self.rows, strict=True):
            place[tuple(map(slice, row.shape))] = row


def storage_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of this dtype's values in memory."""
    return np.dtype("uint16" if name == BFLOAT16 else name)


class Columns:
    """Results of the samples of one task, leaf by leaf."""

    def __init__(self, skeleton: Skeleton, columns: list[Column], rows: int) -> None:
        self.skeleton = skeleton
        self.batch_skeleton: Any = skeleton
        """Of the batch that they are rows of."""
        self.are_tensors: Sequence[bool | None] = [None] * len(columns)
        """Whether all rows of a leaf are torch tensors, or none is; None: they may differ."""
        self.columns = columns
        self.rows = rows

    @classmethod
    def of_rows(cls, results: Sequence[Any]) -> Columns:
        """One result for each sample. Raises ResultError if they differ in more than shapes."""
        first: list[Any] = []
        skeleton = flatten(results[0], first)
        if not first:
            raise ResultError(0, f"the transform returned {results[0]!r}, which holds no values")
        _check_count("the transform", first)
        leaves_of = flattener(skeleton)
        rows = []
        for number, result in enumerate(results):
            leaves = leaves_of(result)
            if leaves is None:
                raise ResultError(
                    number,
                    f"the transform returned {_brief(result)}, and for the sample before "
                    f"{_brief(results[number - 1])}: results of one structure make a batch",
                )
            rows.append(leaves)
        columns = [_column(values) for values in zip(*rows, strict=True)]
        return cls(skeleton, columns, len(results))

    @classmethod
    def of_batch(cls, result: Any) -> Columns:
        """`result` is a whole batch; leaves that are not arrays are pickled."""
        leaves: list[Any] = []
        skeleton = flatten(result, leaves)
        _check_count("collate_fn", leaves)
        columns = []
        for leaf in leaves:
            array = _converted(0, leaf, "collate_fn") if _is_array(leaf) else None
            if array is None:
                columns.append(Column("", 0, 0, (), [leaf]))
            else:
                columns.append(_array_column(array[0], [array[1]]))
        return cls(skeleton, columns, 1)

    def objects(self) -> list[Sequence[Any]]:
        """The rows of each leaf that is not an array."""
        return [column.rows for column in self.columns if column.is_object]


def _check_count(who: str, leaves: Sequence[Any]) -> None:
    if len(leaves) > _LEAVES_MAX:
        raise ResultError(
            0,
            f"{who} returned {len(leaves):,} values in lists, tuples or dicts, at most "
            f"{_LEAVES_MAX:,} can be: return an array of them",
        )


def to_array(leaf: Any) -> tuple[str, NDArray[Any]] | None:
    """A leaf as an array, and the name of its dtype; None if it is not an array."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        tensor = leaf.detach() if leaf.requires_grad else leaf
        if tensor.dtype == torch.bfloat16:
            return BFLOAT16, tensor.contiguous().view(torch.uint16).numpy()
        array = tensor.numpy()
    elif (
        isinstance(leaf, (np.ndarray, np.generic))
        or hasattr(leaf, "__array_interface__")
        or hasattr(leaf, "__array__")
    ):
        array = np.asarray(leaf)
    else:
        name = SCALARS.get(type(leaf))
        if name is None:
            return None
        array = np.asarray(leaf, name)
    if array.dtype.kind not in _KINDS or array.dtype.itemsize > _ITEM_BYTES_MAX:
        return None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array.dtype.name, array


def _converted(row: int, leaf: Any, who: str = "the transform") -> tuple[str, NDArray[Any]] | None:
    """As `to_array`; if the conversion fails, raises a ResultError of its row."""
    try:
        return to_array(leaf)
    except (Exception, SystemExit) as error:
        what = f"{who} returned {_brief(leaf)}, which cannot become an array"
        raise ResultError(row, what) from error


def _is_array(leaf: Any) -> bool:
    """As `to_array` for a whole batch: numbers are not converted."""
    return type(leaf) not in SCALARS


def _column(values: Sequence[Any]) -> Column:
    first = values[0]
    kind = type(first)
    if kind is np.ndarray and first.dtype.kind in _KINDS and first.dtype.isnative:
        dtype, shape = first.dtype, first.shape
        if all(type(v) is np.ndarray and v.dtype == dtype and v.shape == shape for v in values):
            return Column(dtype.name, dtype.itemsize, len(shape), shape, values)
    elif kind in SCALARS or issubclass(kind, np.generic):
        converted = _converted(0, first)
        if converted is not None and all(type(value) is kind for value in values):
            if kind is int and not -(2**63) <= min(values) <= max(values) < 2**63:
                for number, value in enumerate(values):  # The first that is too large raises.
                    _converted(number, value)
            return Column(converted[0], converted[1].dtype.itemsize, 0, (), values)
    elif kind is str or kind is bytes:
        _check_all(values, lambda value: type(value) is kind)
        return Column("", 0, 0, (), values)
    return _mixed_column(values)


def _mixed_column(values: Sequence[Any]) -> Column:
    """A column of arrays of any type, of one dtype and rank."""
    arrays = []
    name, rank = "", 0
    for number, value in enumerate(values):
        converted = _converted(number, value)
        if converted is None:
            raise ResultError(
                number,
                f"the transform returned {_brief(value)}: a batch is made of arrays, torch "
                "tensors, numbers, str and bytes, and tuples, lists or dicts of them; for "
                "anything else give a collate_fn",
            )
        if number == 0:
            name, rank = converted[0], converted[1].ndim
        elif converted[0] != name or converted[1].ndim != rank:
            raise ResultError(
                number,
                f"the transform returned {converted[0]} of {converted[1].ndim} dimensions, and for "
                f"the samples before {name} of {rank}: rows of a batch have one dtype",
            )
        arrays.append(converted[1])
    return _array_column(name, arrays)


def _array_column(name: str, arrays: Sequence[NDArray[Any]]) -> Column:
    shape: Shape | None = arrays[0].shape
    if any(array.shape != shape for array in arrays):
        shape = None
    return Column(name, arrays[0].dtype.itemsize, arrays[0].ndim, shape, arrays)


def _check_all(values: Sequence[Any], holds: Callable[[Any], bool]) -> None:
    for number, value in enumerate(values):
        if not holds(value):
            raise ResultError(
                number,
                f"the transform returned {_brief(value)}, and for the samples before "
                f"{_brief(values[0])}: rows of a batch have one type",
            )


def _brief(value: Any) -> str:
    """A description of the value in one line."""
    if isinstance(value, dict):
        inside: Iterable[str] = (f"{key!r}: {_brief(member)}" for key, member in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of ({', '.join(map(_brief, value))})"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    try:
        text = " ".join(repr(value).split())
    except Exception:
        return type(value).__name__
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
