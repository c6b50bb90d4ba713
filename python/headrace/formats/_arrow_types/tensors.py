"""Arrays that Arrow tables hold as lists, and the shapes that their types say."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

_NAME, _METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"
_HUGGING_FACE = tuple(f"datasets.features.features.Array{n}DExtensionType" for n in (2, 3, 4, 5))
_FEATURES = ("Array2D", "Array3D", "Array4D", "Array5D")
_RAY = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")

IN_ORDER = (
    "write it in C order: "
    "pyarrow.FixedShapeTensorArray.from_numpy_ndarray(numpy.ascontiguousarray(values))"
)


@dataclass(frozen=True)
class Tensor:
    """An array that is stored as lists of numbers."""

    shape: tuple[Any, ...]
    """The first dimension is None if it varies."""
    lists: tuple[Any, ...]
    """The lengths of the lists that it is stored as, from the outside; None: any."""


def tensor_of(field: Any, feature: Any) -> Tensor | None:
    """What the column of a schema is, by its feature or its type's extension; None: no tensor.

    `feature`: that of Hugging Face, as JSON.
    """
    if _is_array(feature):
        return tensor_of_feature(feature)
    metadata = field.metadata or {}
    name = metadata.get(_NAME, b"").decode(errors="replace")
    text: Any = metadata.get(_METADATA, b"")
    if not name:  # The type is registered in this process.
        name = getattr(field.type, "extension_name", "")
        shape = getattr(field.type, "shape", None)
    else:
        try:
            shape = json.loads(text)
        except ValueError:
            return None
        if name in _HUGGING_FACE:
            shape = shape[0] if isinstance(shape, list) and shape else None
    if not isinstance(shape, (list, tuple)) or not all(
        type(size) in (int, type(None)) for size in shape
    ):
        return None
    if name in _HUGGING_FACE:
        return Tensor(tuple(shape), tuple(shape))
    if name in _RAY and None not in shape:
        return Tensor(tuple(shape), (math.prod(shape),))
    return None


def tensor_of_feature(feature: Any) -> Tensor | None:
    """What a feature of Hugging Face says alone; None: it is of no array, or says no shape."""
    shape = feature.get("shape") if _is_array(feature) else None
    return Tensor(tuple(shape), tuple(shape)) if isinstance(shape, (list, tuple)) else None


def kind_of_feature(feature: Any) -> Any:
    """What a feature of Hugging Face says that it is: "Image"; None: it says nothing."""
    return feature.get("_type") if isinstance(feature, dict) else None


def _is_array(feature: Any) -> bool:
    return kind_of_feature(feature) in _FEATURES


def permutation_of(tensor: Any) -> tuple[int, ...] | None:
    """Of a fixed_shape_tensor, the physical dimension of each logical one; None: it is in order."""
    permutation = tensor.permutation
    is_ordered = permutation is None or list(permutation) == sorted(permutation)
    return None if is_ordered else tuple(permutation)


def is_swap(permutation: tuple[int, ...]) -> bool:
    """Whether it is its own inverse: writers and readers disagree which of both others mean."""
    return all(permutation[stored] == dimension for dimension, stored in enumerate(permutation))
