"""Batches as torch tensors, NumPy arrays, or anything that takes DLPack: all without a copy."""

from __future__ import annotations

import functools
import keyword
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import _core
from headrace.errors import InvalidArgumentError

OUTPUTS = ("auto", "torch", "numpy", "dlpack")

Convert = Callable[[Any], Any]


def converter(output: str) -> Convert:
    """What turns a view of a batch's memory into what the user asked for."""
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
    if output == "dlpack":
        return lambda view: view
    return np.asarray


def batch_type(names: Sequence[str]) -> Callable[..., Any]:
    """A tuple with the fields' names, where they can be names in Python; else a plain tuple."""
    usable = all(
        name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
        for name in names
    )
    if not usable or len(set(names)) != len(names):
        return lambda *fields: fields
    kind: Callable[..., Any] = _named_tuple(tuple(names))
    return kind


@functools.cache
def _named_tuple(names: tuple[str, ...]) -> Any:
    named: Callable[..., Any] = namedtuple
    kind = named("Batch", names)
    # By its names: no module has this class.
    kind.__reduce__ = lambda self: (_make_named_tuple, (names, tuple(self)))
    return kind


def _make_named_tuple(names: tuple[str, ...], fields: tuple[Any, ...]) -> Any:
    return _named_tuple(names)(*fields)


def to_user(batch: _core.Batch, fields: int, with_ids: bool, convert: Convert) -> list[Any]:
    """The fields of a batch, converted."""
    converted = []
    for position in range(fields):
        view: Any = batch.field(position)
        converted.append(
            [convert(row) for row in view] if isinstance(view, list) else convert(view)
        )
    if with_ids:
        ids = batch.samples().astype(np.int64)
        converted.append(ids if convert is np.asarray else convert(ids))
    return converted
