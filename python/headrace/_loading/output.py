"""Batches as torch tensors, NumPy or JAX arrays, or exporters of DLPack, without a copy."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._arguments import choice
from headrace._options.groups import Output
from headrace._signature import Arrays, Ragged, words
from headrace._workers._output import Convert, Padded
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._files.nested import NestedField, Nesting

Join = Callable[[Sequence[NDArray[Any]], _core.Batch, Convert], Any]

_OR_A_GROUP = ", or a headrace.Output(fields=[...]), which says what batches hold"


def converter(output: Arrays | Output) -> Convert:
    """Returns the function that converts a view of a batch's memory to the requested type."""
    name, form, arrays, hint = "output", "output={!r}", output, _OR_A_GROUP
    if isinstance(output, Output):
        name, form, arrays, hint = "Output.arrays", "Output({!r})", output.arrays, ""
    choice(name, arrays, words(Arrays), hint)
    if arrays in ("auto", "torch"):
        try:
            import torch
        except ImportError:
            if arrays == "torch":
                raise _not_installed("torch", form) from None
        else:
            return torch.utils.dlpack.from_dlpack
    if arrays == "jax":
        try:
            return cast(Convert, importlib.import_module("jax.dlpack").from_dlpack)
        except ImportError:
            raise _not_installed("jax", form) from None
    if arrays == "dlpack":
        return lambda view: view
    return np.asarray


def _not_installed(library: str, form: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{form.format(library)}: {library} is not installed; pip install {library}, or use "
        f"{form.format('numpy')}"
    )


def joins(kinds: Mapping[str, str], ragged: Ragged | None) -> dict[int, Join]:
    """How the rows of each field of lists become one value, by its position. By default they stay
    lists."""
    join = _JOINS.get(ragged)
    if join is None:
        return {}
    return {
        position: functools.partial(join, name)
        for position, (name, kind) in enumerate(kinds.items())
        if kind == "list"
    }


def to_user(
    batch: _core.Batch,
    nesting: Nesting,
    with_ids: bool,
    convert: Convert,
    joined: Mapping[int, Join],
) -> list[Any]:
    """The fields of a batch, converted; those at positions `joined` as one value."""
    converted: list[Any] = []
    for position in nesting.visible:
        view: Any = batch.field(position)
        nested = nesting.field_at(position)
        if nested is not None:
            converted.append(_nested(nested, view, batch, convert))
        elif position in joined:
            rows = [np.asarray(row) for row in view]
            converted.append(joined[position](rows, batch, convert))
        elif isinstance(view, list):
            converted.append([row if isinstance(row, str) else convert(row) for row in view])
        else:
            converted.append(convert(view))
    if with_ids:
        ids = batch.samples().astype(np.int64)
        converted.append(ids if convert is np.asarray else convert(ids))
    return converted


def _nested(nested: NestedField, rows: Any, batch: _core.Batch, convert: Convert) -> list[Any]:
    """The inner lists of each sample."""
    made: list[Any] = []
    convert_row = None if convert is np.asarray else convert
    hidden: Any = batch.field(nested.lengths)
    for row, lengths in zip(rows, hidden, strict=True):
        try:
            made.append(nested.row(np.asarray(row), np.asarray(lengths), convert_row))
        except DataLossError as error:
            raise DataLossError(f"sample {batch.samples()[len(made)]}: {error}") from None
    return made


def _pad(_: str, rows: Sequence[NDArray[Any]], batch: _core.Batch, convert: Convert) -> Padded:
    """Rows that differ in their first dimension, as one array with zeros behind their ends."""
    shapes = np.array([row.shape for row in rows], np.int64)
    data = np.zeros((len(rows), *shapes.max(axis=0)), rows[0].dtype)
    for place, row in zip(data, rows, strict=True):
        place[: len(row)] = row
    return Padded(convert(data), convert(shapes))


def _stack(name: str, rows: Sequence[NDArray[Any]], batch: _core.Batch, convert: Convert) -> Any:
    """Rows of one shape, as one array."""
    for row, sample in zip(rows, batch.samples(), strict=True):
        if row.shape != rows[0].shape:
            raise InvalidArgumentError(
                f"field {name!r} with Output(ragged='error'): sample {sample} has shape "
                f"{row.shape}, the first of its batch, sample {batch.samples()[0]}, "
                f"{rows[0].shape}; leave ragged out for a list of arrays, or give "
                "output=hr.Output(ragged='pad')"
            )
    return convert(np.stack(rows))


_JOINS: dict[str | None, Callable[..., Any]] = {"pad": _pad, "error": _stack}
