"""LitData: chunks of samples or tokens, which an index.json lists."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from headrace._arguments import integer
from headrace.errors import InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._base.format import Format
from headrace.formats._files.npy import NAMES
from headrace.formats._litdata.arrow_rows import add_rows
from headrace.formats._litdata.chunk_index import ChunkIndex
from headrace.formats._shards.array_headers import LitDataHeader
from headrace.formats._shards.filling import add_file, add_samples, add_shards, choose, refused
from headrace.formats._shards.sample_table import table_end
from headrace.formats._shards.shard_columns import (
    ArrayColumn,
    BoolColumn,
    ExtentColumn,
    HeadedColumn,
    NumberColumn,
    ShardColumn,
)
from headrace.formats._shards.source import ShardFile, begins_with, open_shard

_INDEX = "index.json"
_BEGIN = re.compile(rb'\s*\{\s*"(chunks|config)"\s*:')
_WINDOW_MAX = 2**31
_WINDOWS_AT_ONCE = 2**20
_TOKENS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")

# The codes of litdata/constants.py.
_TENSORS = (
    *("float32", "float32", "float64", "float64", "complex64", "complex64", "complex128"),
    *("complex128", "float16", "float16", "bfloat16", "uint8", "int8", "int16", "int16"),
    *("int32", "int32", "int64", "int64", "bool", "uint16"),
)
_ARRAYS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"),
    *("float32", "float64", "complex64", "complex128", "bool", "object", "bytes", "str", "void"),
)
_HEADED = {"tensor": LitDataHeader(_TENSORS, ">"), "numpy": LitDataHeader(_ARRAYS, "<")}
_HEADLESS = {"no_header_tensor": _TENSORS, "no_header_numpy": _ARRAYS}
_NUMBERS = {"int": "int64", "float": "float64"}
_BOOLS = ("bool", "boolean")
_KINDS: dict[str, Literal["bytes", "text", "image"]] = {
    "str": "text",
    "text": "text",
    "jpeg": "image",
    "image": "image",
    **dict.fromkeys(
        ("bytes", "file", "video", "audio", "pdf", "nifti", "mesh", "tiff", "tifffile"), "bytes"
    ),
}
_REFUSED = {
    "pickle": "unpickling runs code of whoever wrote it, so headrace never does",
    "json": "it is a nested list or dict in a form of LitData's own",
    "pil": "it has pixels of any size and mode behind a header",
    "jpeg_array": "a sample has several images",
    "graph": "it is a graph in a form of LitData's own",
}


@dataclass(frozen=True, kw_only=True)
class LitData(Format):
    """Chunks that litdata.optimize wrote: `headrace docs formats/litdata`.

    >>> hr.open("tokens", format=LitData(block_size=2048))
    """

    name: ClassVar[str] = "litdata"
    opens: ClassVar[str] = "a folder of LitData chunks"
    chooses: ClassVar[tuple[str, ...]] = ()

    columns: tuple[str, ...] | None = None
    """The parts of a sample to take; None: all."""
    raw: tuple[str, ...] = ()
    """Parts whose values stay bytes, whatever they are."""
    block_size: int | None = None
    """Tokens of a sample, for datasets that were written for LitData's TokensLoader."""
    batch_dtype: str | None = "int64"
    """Type of the tokens in batches; None: the stored type."""

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        if self.block_size is not None:
            integer("litdata block_size", self.block_size, 1, _WINDOW_MAX)

    def recognises(self, path: str) -> bool:
        return begins_with(os.path.join(path, _INDEX), _BEGIN)

    def decodes(self, path: str) -> bool:
        return any(shard.coding != "stored" for shard in ChunkIndex(path).shards)

    def fill(self, path: str, builder: Builder) -> None:
        builder.depends_on(os.path.join(path, _INDEX))
        chunks = ChunkIndex(path)
        if chunks.are_tokens:
            self._add_windows(chunks, builder)
            return
        if chunks.are_rows:
            if self.raw:
                raise InvalidArgumentError(
                    f"indexing {chunks.index}: raw={self.raw!r}: its rows are tables of Arrow, "
                    "whose columns have a type each; leave raw out"
                )
            add_rows(chunks.shards, self.columns, builder)
            return
        if self.block_size is not None:
            raise InvalidArgumentError(
                f"indexing {chunks.index}: block_size={self.block_size} was given, but it was not "
                "written for TokensLoader: leave block_size out, a sample is an item"
            )
        chosen = choose(chunks.index, chunks.stored, self.columns, self.raw, _column)
        add_samples(chunks.shards, [None] * len(chunks.stored), chosen, builder)

    def _add_windows(self, chunks: ChunkIndex, builder: Builder) -> None:
        """Windows as LitData's TokensLoader gives them: they do not cross chunks."""
        if self.block_size is None:
            raise InvalidArgumentError(
                f"opening {os.path.dirname(chunks.index)}: the length of a sample of tokens is not "
                "in the files; give it, as hr.open(path, format=hr.formats.LitData("
                "block_size=2048))"
            )
        dtype = _token_dtype(chunks)
        width, window = dtype.itemsize, self.block_size
        batch = dtype if self.batch_dtype is None else np.dtype(self.batch_dtype)
        builder.add_field("tokens", "array", dtype, [window], batch_dtype=batch)
        are_decoded = any(shard.coding != "stored" for shard in chunks.shards)
        of_path = {
            shard.path: tokens for shard, tokens in zip(chunks.shards, chunks.tokens, strict=True)
        }

        def describe(shard: ShardFile, part: Builder) -> None:
            number, tokens = add_file(shard, part), of_path[shard.path]
            _check_tokens(shard, tokens, width)
            count = tokens // window
            for first in range(0, count, _WINDOWS_AT_ONCE):
                windows = np.arange(first, min(count, first + _WINDOWS_AT_ONCE), dtype=np.uint64)
                offsets = np.uint64(table_end(shard.samples)) + windows * np.uint64(window * width)
                part.add_extents("tokens", number, offsets, window * width)
                part.tell(first + len(windows))
            if are_decoded and count:
                part.add_blocks([count], number, 0, shard.decoded_bytes)

        if add_shards(chunks.shards, describe, builder) == 0:
            raise InvalidArgumentError(
                f"indexing {chunks.index}: block_size={window}: a sample has {window:,} tokens, "
                f"the largest chunk {max(chunks.tokens):,}; give a smaller block_size"
            )


def _column(index: str, name: str, how: str, names: list[str]) -> ShardColumn:
    """How the values of a serializer become a field."""
    kind = how.partition(":")[0]
    if kind in _NUMBERS:
        return NumberColumn(name, _NUMBERS[kind])
    if kind in _BOOLS:
        return BoolColumn(name)
    if kind in _KINDS:
        return ExtentColumn(name, _KINDS[kind])
    if kind in _HEADED:
        return HeadedColumn(name, _HEADED[kind])
    if kind in _HEADLESS:
        dtype = _dtype(how)
        if dtype not in NAMES:
            why = f"its values are {dtype}, batches hold {', '.join(NAMES)}"
            raise refused(index, name, how, why, names)
        return ArrayColumn(name, dtype, [None])
    why = _REFUSED.get(kind, "headrace does not know this serializer")
    raise refused(index, name, how, why, names)


def _dtype(how: str) -> str:
    """Of "no_header_tensor:CODE"."""
    kind, _, code = how.partition(":")
    dtypes = dict(enumerate(_HEADLESS.get(kind, ())))
    return dtypes.get(int(code) if re.fullmatch("[0-9]{1,3}", code) else -1, f"unknown ({how})")


def _token_dtype(chunks: ChunkIndex) -> np.dtype[Any]:
    (how,) = chunks.stored.values()
    dtype = _dtype(how)
    if dtype not in _TOKENS:
        raise InvalidArgumentError(
            f"indexing {chunks.index}: its tokens are {dtype}, tokens are one of "
            f"{', '.join(_TOKENS)}"
        )
    return np.dtype(dtype)


def _check_tokens(shard: ShardFile, tokens: int, width: int) -> None:
    """The chunk must have the number of items and of tokens that index.json says."""
    with open_shard(shard) as source:
        needed = table_end(shard.samples) + tokens * width
        if source.size != needed:
            raise source.damaged(
                source.size,
                f"the chunk ends here; {shard.samples} items and {tokens} tokens of {width} bytes "
                f"end at byte {needed}",
            )
        items = int(source.part(0, 4).view("<u4")[0])
        if items != shard.samples:
            raise source.damaged(0, f"the chunk has {items} items, index.json says {shard.samples}")


def _decoded(how: str, value: bytes) -> Any:
    """A value, as headrace delivers it."""
    kind = how.partition(":")[0]
    if kind in _NUMBERS:
        return np.frombuffer(value, _NUMBERS[kind])[0]
    if kind in _BOOLS:
        return np.bool_(value[0])
    if _KINDS.get(kind) == "text":
        return value.decode()
    if kind in _HEADLESS:
        return np.frombuffer(value, _dtype(how))
    if kind not in _HEADED:
        return value
    order = ">u4" if kind == "tensor" else "<u4"
    code, rank = np.frombuffer(value, order, 2).tolist()
    shape = np.frombuffer(value, order, rank, 8).tolist()
    dtype = (_TENSORS if kind == "tensor" else _ARRAYS)[code]
    return np.frombuffer(value, dtype, offset=8 + 4 * rank).reshape(shape)
