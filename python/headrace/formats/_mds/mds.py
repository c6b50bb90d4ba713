"""MDS: shards of MosaicML Streaming, which an index.json lists."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from headrace import _core, _places
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError
from headrace.formats._base.builder import Builder
from headrace.formats._base.format import Format
from headrace.formats._fields.order import FieldType, data_first
from headrace.formats._files.npy import NAMES
from headrace.formats._shards.array_headers import MdsHeader
from headrace.formats._shards.filling import (
    add_samples,
    choose,
    damaged,
    making_shards,
    read_index,
    refused,
)
from headrace.formats._shards.shard_columns import (
    ArrayColumn,
    DigitColumn,
    ExtentColumn,
    HeadedColumn,
    NumberColumn,
    ShardColumn,
)
from headrace.formats._shards.source import AGAIN, ShardFile, begins_with, inside

_INDEX = "index.json"
_BEGIN = re.compile(rb'\s*\{\s*("version"\s*:\s*\d+\s*,\s*)?"shards"\s*:')
_CODINGS: dict[str, Literal["zstd", "gzip"]] = {"zstd": "zstd", "gz": "gzip"}
_BYTES_MAX = 2**32  # Offsets in a shard have four bytes.

_NUMBERS = {"int": "int64", "uint64": "uint64"} | {
    name: name for name in NAMES if name != "bool"
}  # fmt: skip
_KINDS: dict[str, Literal["bytes", "text", "image"]] = {
    "bytes": "bytes",
    "str": "text",
    "json": "text",
    "str_decimal": "text",
    "jpeg": "image",
    "png": "image",
}
_REFUSED = {
    "pkl": "unpickling runs code of whoever wrote it, so headrace never does",
    "pil": "it has pixels of any size and mode behind a header",
    **dict.fromkeys(
        ("jpeg_array", "jpegarray", "list[pil]", "list[jpeg]", "list[png]"),
        "a sample has several images",
    ),
}


@dataclass(frozen=True, kw_only=True)
class MDS(Format):
    """Shards that MosaicML Streaming's MDSWriter wrote: `headrace docs formats/mds`.

    >>> hr.open("train", format=MDS(columns=("image", "label")))
    """

    name: ClassVar[str] = "mds"
    opens: ClassVar[str] = "a folder of MDS shards (MosaicML Streaming)"

    columns: tuple[str, ...] | None = None
    """The columns to take; None: all."""
    raw: tuple[str, ...] = ()
    """Columns whose values stay bytes, whatever they are."""

    def recognises(self, path: str) -> bool:
        return begins_with(os.path.join(path, _INDEX), _BEGIN)

    def hint(self, suffixes: Set[str]) -> str:
        if ".mds" not in suffixes:
            return ""
        return f"; its shards of MDS need {_INDEX}, which is missing or damaged: copy all again"

    def decodes(self, path: str) -> bool:
        return any(shard.coding != "stored" for shard in _Dataset(path).shards)

    def fill(self, path: str, builder: Builder) -> None:
        builder.depends_on(os.path.join(path, _INDEX))
        dataset = _Dataset(path)
        chosen = choose(dataset.index, dataset.stored, self.columns, self.raw, _column)
        add_samples(dataset.shards, dataset.widths, chosen, builder)

    def field_order(self, index: _core.Index, fields: Sequence[FieldType]) -> Sequence[str]:
        return data_first(fields)  # MDSWriter sorts the names of columns.


class _Dataset:
    """What an index.json says, checked."""

    def __init__(self, folder: str) -> None:
        self.index = os.path.join(folder, _INDEX)
        self.shards: list[ShardFile] = []
        self.stored: dict[str, str] = {}
        self.widths: list[int | None] = []
        content = read_index(self.index, "shards")
        with making_shards(folder, self.index, "shard", self.shards):
            shards = content["shards"]
            if content["version"] != 2 or not isinstance(shards, list):
                raise self._damaged(f"it has version {content['version']!r:.50}, MDS has 2")
            for number, shard in enumerate(shards):
                self._add(folder, number, shard)

    def _damaged(self, why: str) -> DataLossError:
        return damaged(self.index, why)

    def _add(self, folder: str, number: int, shard: dict[str, Any]) -> None:
        if shard["format"] != "mds":
            raise InvalidArgumentError(
                f"indexing {self.index}: shard {number} has the format {shard['format']!r:.50}; "
                "headrace reads 'mds': write the dataset with MDSWriter"
            )
        names, encodings = shard["column_names"], shard["column_encodings"]
        sizes = shard["column_sizes"]
        texts = all(isinstance(name, str) for name in [*names, *encodings])
        whole = all(size is None or _is_count(size) for size in sizes)
        if not texts or not whole or not len(set(names)) == len(encodings) == len(sizes):
            raise self._damaged(f"shard {number}: its columns are {names!r:.200}")
        stored = dict(zip(names, encodings, strict=True))
        widths = [size or None for size in sizes]
        if not self.shards:
            self.stored, self.widths = stored, widths
        elif (stored, widths) != (self.stored, self.widths):
            raise InvalidArgumentError(
                f"indexing {self.index}: the columns of shard {number} are {stored}, those of the "
                f"first {self.stored}; open shards of the same columns together"
            )
        self.shards.append(self._file(folder, number, shard))

    def _file(self, folder: str, number: int, shard: dict[str, Any]) -> ShardFile:
        """The decompressed file if there is one, as Streaming leaves it; else the compressed."""
        raw, packed, samples = shard["raw_data"], shard.get("zip_data"), shard["samples"]
        counts = [samples, raw["bytes"], *([packed["bytes"]] if packed else [])]
        if not all(_is_count(count) and count < _BYTES_MAX for count in counts):
            raise self._damaged(f"shard {number}: its samples and bytes are {counts!r:.100}")
        path = inside(folder, raw["basename"])
        is_raw = _places.exists(path)
        if packed and not is_raw:
            path = inside(folder, packed["basename"])
        if not _places.exists(path):
            raise NotFoundError(f"indexing {path}: no such file, which {self.index} lists")
        if is_raw or not packed:
            return ShardFile(path, "stored", raw["bytes"], raw["bytes"], samples)
        how = str(shard["compression"]).partition(":")[0]
        if how not in _CODINGS:
            raise InvalidArgumentError(
                f"indexing {path}: it is compressed as {how!r:.50}; headrace reads zstd and gz: "
                f"decompress the shards once, each to {raw['basename']!r} and the like beside "
                "it, or write the dataset with compression='zstd'"
            )
        return ShardFile(path, _CODINGS[how], packed["bytes"], raw["bytes"], samples)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _column(index: str, name: str, how: str, names: list[str]) -> ShardColumn:
    """How the values of an encoding become a field."""
    if how in _NUMBERS:
        stored = _NUMBERS[how]
        return NumberColumn(name, stored, "int64" if stored == "uint64" else None)
    if how in _KINDS:
        return ExtentColumn(name, _KINDS[how])
    if how == "str_int":
        return DigitColumn(name, "int64")
    if how == "str_float":
        return DigitColumn(name, "float64")
    if how.partition(":")[0] == "ndarray":
        dtype, shape = _array(index, how)
        if dtype not in (*NAMES, None):
            raise refused(index, name, how, f"batches hold {', '.join(NAMES)}", names)
        if dtype is None or shape is None:
            return HeadedColumn(name, MdsHeader(dtype))
        return ArrayColumn(name, dtype, shape)
    why = _REFUSED.get(how, "headrace does not know this encoding")
    raise refused(index, name, how, why, names)


def _array(index: str, how: str) -> tuple[str | None, tuple[int, ...] | None]:
    """Of "ndarray:DTYPE:SHAPE": both, as far as they are given."""
    parts = how.split(":")[1:]
    shape = parts[1].split(",") if len(parts) == 2 else []
    known = not parts or parts[0] in MdsHeader.dtypes.values()
    if len(parts) > 2 or not known or not all(re.fullmatch("[1-9][0-9]{0,9}", x) for x in shape):
        raise DataLossError(f"indexing {index}: the encoding {how!r:.100} is no array's; {AGAIN}")
    return (parts[0] if parts else None), (tuple(map(int, shape)) if shape else None)


def _decoded(how: str, value: bytes) -> Any:
    """A value, as headrace delivers it."""
    if how in _NUMBERS:
        number = np.frombuffer(value, _NUMBERS[how])[0]
        return np.int64(number) if how == "uint64" else number
    if _KINDS.get(how) == "text":
        return value.decode()
    if how in ("str_int", "str_float"):
        return np.int64(value.decode()) if how == "str_int" else np.float64(value.decode())
    if not how.startswith("ndarray"):
        return value
    dtype, shape = _array("", how)
    at = 0
    if dtype is None:
        dtype, at = MdsHeader.dtypes[value[0]], 1
    if shape is None:
        rank, width = value[at] >> 2, 1 << (value[at] & 3)
        shape = tuple(np.frombuffer(value, f"<u{width}", rank, at + 1).tolist())
        at += 1 + rank * width
    return np.frombuffer(value, dtype, offset=at).reshape(shape)
