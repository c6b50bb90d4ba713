"""The form of a batch of results for the training loop."""

from __future__ import annotations

import functools
import pickle
from collections import namedtuple
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._workers.results.rows import BFLOAT16, storage_dtype
from headrace._workers.results.tree import Skeleton, load_skeleton, unflatten
from headrace._workers.worker import protocol
from headrace.errors import InvalidArgumentError

Convert = Callable[[Any], Any]


SAMPLE_ID = "sample_id"
"""The name of the samples' numbers in a batch, with `Output(ids=True)`."""


def check_ids(path: str, fields: Collection[str]) -> None:
    """Raises if a batch has a field of the name that the samples' numbers have."""
    if SAMPLE_ID in fields:
        others = tuple(name for name in fields if name != SAMPLE_ID)
        leave_out = f"leave it out, Output(fields={others!r}, ids=True), or " if others else ""
        raise InvalidArgumentError(
            f"Output(ids=True): {path} has a field {SAMPLE_ID!r}, which is the name of the "
            f"samples' numbers in a batch; {leave_out}leave ids out"
        )


def batch_type(names: Sequence[str]) -> Callable[..., Any]:
    """A named tuple of the fields, which also takes their names in brackets: `batch["label"]`.

    A name that Python does not allow as an attribute, such as "st.w", is for brackets only. If two
    are equal it is a plain tuple.
    """
    if len(set(names)) != len(names):
        return lambda *fields: fields
    kind: Callable[..., Any] = _named_tuple(tuple(names))
    return kind


def dict_type(names: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """Makes a dict of the fields, with these names."""
    return lambda *fields: dict(zip(names, fields, strict=True))


@functools.cache
def _named_tuple(names: tuple[str, ...]) -> Any:
    named: Callable[..., Any] = namedtuple
    kind = named("Batch", names, rename=True)
    places = {name: place for place, name in enumerate(names)}

    def member(self: Any, key: Any) -> Any:
        if isinstance(key, str):
            if key not in places:
                raise KeyError(f"a batch has no field {key!r}; it has {', '.join(names)}")
            key = places[key]
        return tuple.__getitem__(self, key)

    kind._fields = names
    kind.__getitem__ = member
    # Pickled by its names: no module has this class.
    kind.__reduce__ = lambda self: (_make_named_tuple, (names, tuple(self)))
    return kind


def _make_named_tuple(names: tuple[str, ...], fields: tuple[Any, ...]) -> Any:
    return _named_tuple(names)(*fields)


class Padded(NamedTuple):
    """A leaf of samples that differ in shape, with `Output(ragged="pad")`."""

    data: Any
    """Of shape (samples, *largest shape); zero beyond the end of a sample."""
    shape: Any
    """The shape of each sample, int64, of shape (samples, dimensions)."""


class BatchConverter:
    """Makes the user's batches from arrays."""

    def __init__(
        self, convert: Convert, with_ids: bool, batch: Callable[..., Any] | None = None
    ) -> None:
        """`batch`: of a result's members, if they are a sample's fields, and the numbers."""
        self._convert = convert
        self._with_ids = with_ids
        self._batch = batch
        self._tree = b""
        self._skeleton: Skeleton = None  # of `_tree`

    def array(self, name: str, array: NDArray[Any]) -> Any:
        """An array in the user's type; `name` is the name of its dtype."""
        if array.dtype.kind in "mM" and self._convert is not np.asarray:
            return array  # Only NumPy has such dtypes.
        if name != BFLOAT16:
            return self._convert(array)
        import torch

        return torch.from_numpy(array).view(torch.bfloat16)

    def with_ids(self, batch: Any, samples: NDArray[np.uint64]) -> Any:
        """The batch, with the numbers of its samples if requested: as the last member of a tuple, a
        dict's `sample_id`, or the second of a pair.
        """
        if not self._with_ids:
            return self._batch(*batch) if self._batch is not None else batch
        ids = self.array("int64", samples.astype(np.int64))
        if isinstance(batch, dict):
            if SAMPLE_ID in batch:
                raise InvalidArgumentError(
                    f"Output(ids=True): the transform's dict has {SAMPLE_ID!r}, which is the name "
                    "of the samples' numbers in a batch; rename it in the transform, or leave ids "
                    "out"
                )
            return batch | {SAMPLE_ID: ids}
        if type(batch) is tuple:
            return self._batch(*batch, ids) if self._batch is not None else (*batch, ids)
        return batch, ids

    def of_workers(self, batch: _core.TransformedBatch, whole: bool) -> Any:
        """What workers made."""
        chunks = [pickle.loads(data) if data else [] for data in batch.objects()]
        rows = len(batch.samples())
        leaves = self._leaves(batch, chunks, None if whole else rows)
        if batch.tree != self._tree:
            self._tree, self._skeleton = batch.tree, load_skeleton(batch.tree)
        made = unflatten(self._skeleton, leaves)
        return self.with_ids(made, batch.samples())

    def _leaves(
        self, batch: _core.TransformedBatch, chunks: list[Any], rows: int | None
    ) -> Iterator[Any]:
        objects = 0
        for position in range(batch.leaf_count):
            kind, *rest = batch.leaf(position)
            if kind == protocol.OBJECT:
                values = [value for chunk in chunks for value in chunk[objects]]
                objects += 1
                yield values if rows is not None else values[0]
            elif kind == protocol.LIST:
                name, parts = rest
                dtype = storage_dtype(name)
                yield [self.array(name, data.view(dtype).reshape(shape)) for shape, data in parts]
            else:
                name, dims, data, row_dims = rest
                shape = dims if rows is None else (rows, *dims)
                array = self.array(name, data.view(storage_dtype(name)).reshape(shape))
                if kind == protocol.PADDED:
                    shapes = row_dims.astype(np.int64).reshape(rows, len(dims))
                    array = Padded(array, self.array("int64", shapes))
                yield array
