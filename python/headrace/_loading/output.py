"""Batches as torch tensors, NumPy arrays, or anything that takes DLPack: all without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import _core
from headrace._arguments import choice
from headrace._signature import Output, words
from headrace._workers._output import Convert
from headrace.errors import InvalidArgumentError


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
    if output == "dlpack":
        return lambda view: view
    return np.asarray


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
