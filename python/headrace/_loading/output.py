"""Batches as torch tensors, NumPy or JAX arrays, or exporters of DLPack, without a copy."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._arguments import choice
from headrace._signature import Output, words
from headrace._workers._output import Convert, Padded
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._files.nested import NestedField, Nesting


def converter(output: str) -> Convert:
    """Returns the function that converts a view of a batch's memory to the requested type."""
    choice("output", output, words(Output))
    if output in ("auto", "torch"):
        try:
            import torch
        except ImportError:
            if output == "torch":
                raise InvalidArgumentError(
                    "output='torch': torch is not installed; pip install torch, or use "
                    "output='numpy'"
                ) from None
        else:
            return torch.utils.dlpack.from_dlpack
    if output == "jax":
        try:
            return cast(Convert, importlib.import_module("jax.dlpack").from_dlpack)
        except ImportError:
            raise InvalidArgumentError(
                "output='jax': jax is not installed; pip install jax, or use output='numpy'"
            ) from None
    if output == "dlpack":
        return lambda view: view
    return np.asarray


def padded_fields(kinds: Mapping[str, str], ragged: str) -> frozenset[int]:
    """The positions of the fields whose samples differ in length and are padded."""
    lists = (position for position, kind in enumerate(kinds.values()) if kind == "list")
    return frozenset(lists) if ragged == "pad" else frozenset()


def to_user(
    batch: _core.Batch,
    nesting: Nesting,
    with_ids: bool,
    convert: Convert,
    padded: Set[int] = frozenset(),
) -> list[Any]:
    """The fields of a batch, converted; those at positions `padded` as one array."""
    converted: list[Any] = []
    for position in nesting.visible:
        view: Any = batch.field(position)
        nested = nesting.field_at(position)
        if nested is not None:
            converted.append(_nested(nested, view, batch, convert))
        elif position in padded:
            converted.append(_pad([np.asarray(row) for row in view], convert))
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
    each = None if convert is np.asarray else convert
    hidden: Any = batch.field(nested.lengths)
    for row, lengths in zip(rows, hidden, strict=True):
        try:
            made.append(nested.row(np.asarray(row), np.asarray(lengths), each))
        except DataLossError as error:
            raise DataLossError(f"sample {batch.samples()[len(made)]}: {error}") from None
    return made


def _pad(rows: Sequence[NDArray[Any]], convert: Convert) -> Padded:
    """Rows that differ in their first dimension, as one array with zeros behind their ends."""
    shapes = np.array([row.shape for row in rows], np.int64)
    data = np.zeros((len(rows), *shapes.max(axis=0)), rows[0].dtype)
    for place, row in zip(data, rows, strict=True):
        place[: len(row)] = row
    return Padded(convert(data), convert(shapes))
