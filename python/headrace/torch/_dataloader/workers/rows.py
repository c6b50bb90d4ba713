"""Samples as rows of a batch, for what `torch.utils.data.default_collate` makes rows of.

Several workers write the rows of a batch, each its own, where the batch lies. They do so for types
of which this module knows what default_collate makes. All other samples go to default_collate.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate

from headrace._workers.results.rows import Columns, ResultError
from headrace._workers.results.tree import LEAF, Skeleton, flattener, listed, noted

_NUMBERS_AND_TEXTS = (bool, int, float, str, bytes)
_KNOWN = (torch.Tensor, np.ndarray, float, int, str, bytes, (np.bool_, np.number, np.object_))
_CONTAINERS = (dict, list, tuple)


def is_known() -> bool:
    """Whether default_collate treats these types as torch wrote it, and no user changed it."""
    functions = torch_collate.default_collate_fn_map
    home = torch_collate.__name__
    if any(getattr(functions.get(types), "__module__", "") != home for types in _KNOWN):
        return False
    users = [types for types in functions if types not in _KNOWN]
    kinds = [kind for types in users for kind in (types if isinstance(types, tuple) else (types,))]
    return not any(map(_may_be_met, kinds))


def _may_be_met(kind: type) -> bool:
    """Whether a value that is written in rows, or has such values, may be of this type."""
    of_rows = (*_CONTAINERS, *_NUMBERS_AND_TEXTS, torch.Tensor, np.ndarray, np.generic)
    return issubclass(kind, (*_CONTAINERS, np.generic)) or any(
        issubclass(row_type, kind) for row_type in of_rows
    )


def as_rows(samples: Sequence[Any]) -> Columns | None:
    """What default_collate makes of a part of a batch, leaf by leaf; None: call it to know."""
    if not all(map(_is_known, samples)):
        return None
    try:
        made = Columns.of_rows(samples)
    except ResultError:
        return None
    # default_collate refuses an array after a tensor, and takes a tensor after an array.
    leaves_of = flattener(made.skeleton)
    are_tensors = {
        tuple(isinstance(leaf, torch.Tensor) for leaf in leaves_of(sample) or ())
        for sample in samples
    }
    if len(are_tensors) > 1:
        return None
    made.are_tensors = are_tensors.pop()
    # It makes lists of tuples. The note is for the other parts of the batch.
    made.batch_skeleton = noted(listed(made.skeleton), made.are_tensors)
    return made


def _is_known(sample: Any) -> bool:
    kind = type(sample)
    if kind is torch.Tensor:
        return sample.layout is torch.strided and not (
            sample.requires_grad or sample.is_nested or sample.is_quantized
        )
    if kind is np.ndarray:
        return _is_torchs(sample.dtype)
    if kind in _NUMBERS_AND_TEXTS:
        return True
    if kind is dict:
        return all(map(_is_known, sample.values()))
    if kind is list or kind is tuple or (isinstance(sample, tuple) and hasattr(kind, "_fields")):
        return all(map(_is_known, sample))
    return issubclass(kind, np.generic) and _keeps_dtype(np.dtype(kind))


@functools.cache
def _is_torchs(dtype: np.dtype[Any]) -> bool:
    try:
        return bool(torch.from_numpy(np.zeros(1, dtype)).numpy().dtype == dtype)
    except (TypeError, RuntimeError, ValueError):
        return False


@functools.cache
def _keeps_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether default_collate makes a tensor of this dtype of its numbers."""
    try:
        made = default_collate([dtype.type(1)])
        return isinstance(made, torch.Tensor) and bool(made.numpy().dtype == dtype)
    except (TypeError, RuntimeError, ValueError):
        return False


def with_tuples_of_texts(made: Any, skeleton: Skeleton) -> Any:
    """A batch, with tuples in place of the lists of texts that are members of sequences: what
    default_collate makes of them."""
    if skeleton is LEAF or not isinstance(made, (list, tuple, dict)):
        return made
    _, _, members = skeleton
    parts = made.values() if isinstance(made, dict) else made
    changed = [
        tuple(part)
        if member is LEAF and type(part) is list and not isinstance(made, dict)
        else with_tuples_of_texts(part, member)
        for part, member in zip(parts, members, strict=True)
    ]
    if isinstance(made, dict):
        return dict(zip(made, changed, strict=True))
    return changed if isinstance(made, list) else type(made)(*changed)
