"""What the stored bytes of a field are, in Python and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.formats._files.nested import Nesting


def decompressed(field: _core.Field, data: bytearray, decoded_bytes: int) -> npt.NDArray[np.uint8]:
    """The value of a compressed field, which has `decoded_bytes` bytes."""
    width = np.dtype(field.dtype).itemsize if field.is_shuffled else 1
    decoded = _core.decode_bytes(field.coding, data, field.header_bytes + decoded_bytes)
    value = decoded[field.header_bytes :]
    return _core.decode_bytes("stored", value, decoded_bytes, width) if width > 1 else value


def value_of(field: _core.Field, data: bytearray | npt.NDArray[np.uint8]) -> Any:
    """The value whose stored bytes are `data`."""
    if field.kind == "text":
        return bytes(data).decode()
    if field.kind in ("array", "list"):
        shape = field.shape if field.kind == "array" else (-1, *field.shape)
        values = np.frombuffer(data, dtype=field.dtype).reshape(shape)
        return values.astype(field.batch_dtype, copy=False)
    return bytes(data)


def describe_field(field: _core.Field) -> str:
    """ "image", "int64", "float32[3, 224, 224]", "float32[?, 4]", "uint16[1024] as int64, zstd"."""
    compressed = f", {field.coding}" if field.coding != "stored" else ""
    if field.kind not in ("array", "list"):
        return field.kind + compressed
    dimensions = ["?"] * (field.kind == "list") + [str(size) for size in field.shape]
    shape = f"[{', '.join(dimensions)}]" if dimensions else ""
    wide = f" as {field.batch_dtype}" if field.batch_dtype != field.dtype else ""
    return f"{field.dtype}{shape}{wide}{compressed}"


def describe_field_at(fields: Sequence[_core.Field], nesting: Nesting, position: int) -> str:
    """The same of a field at this position of the index; "int32[?, ?]", "text[?]" if nested."""
    field, nested = fields[position], nesting.field_at(position)
    if nested is None:
        return describe_field(field)
    if nested.is_text:
        return "text[?]"
    described = describe_field(field)
    return described.replace("[?", "[?, ?", 1) if field.kind == "list" else f"{described}[?]"
