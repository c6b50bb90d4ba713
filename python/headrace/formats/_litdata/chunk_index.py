"""What an index.json of LitData says."""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import Any

from headrace import _places
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError
from headrace.formats._files.reading import file_reader
from headrace.formats._indexing.in_order import in_order
from headrace.formats._litdata.arrow_rows import TAIL_BYTES
from headrace.formats._shards.filling import damaged, making_shards, read_index
from headrace.formats._shards.sample_table import table_end
from headrace.formats._shards.source import (
    AGAIN,
    LEVELS,
    ZSTD_FRONT_BYTES,
    ShardFile,
    inside,
    zstd_content_bytes,
)

_BYTES_MAX = 2**32  # Offsets in a chunk have four bytes.
_KEYED = ("builtins.dict", "collections.OrderedDict")
_DEPTH_MAX = 100
_VALUE = "value"
_ARROW_MAGIC = b"LDARW01\0"


class ChunkIndex:
    """The chunks, and the parts of a sample, checked."""

    def __init__(self, folder: str) -> None:
        self.index = os.path.join(folder, "index.json")
        self.shards: list[ShardFile] = []
        self.tokens: list[int] = []
        self.stored: dict[str, str] = {}
        self.are_rows = False
        """Whether the rows are tables of Arrow, and the samples have no bytes before them."""
        content = read_index(self.index, "chunks")
        with making_shards(folder, self.index, "chunk", self.shards):
            config = content["config"]
            self._refuse(config)
            self.stored = self._parts(config)
            self.are_tokens = self._for_tokens(config, content["chunks"])
            chunks = content["chunks"]
            found_files = in_order(
                lambda numbered: self._file(folder, config, *numbered), enumerate(chunks)
            )
            with closing(found_files) as files:
                for number, (chunk, file) in enumerate(zip(chunks, files, strict=True)):
                    self.tokens.append(self._count(number, chunk["dim"]) if self.are_tokens else 0)
                    self.shards.append(file)

    def _damaged(self, why: str) -> DataLossError:
        return damaged(self.index, why)

    def _count(self, number: int, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _BYTES_MAX:
            raise self._damaged(f"chunk {number}: a number is {value!r:.50}")
        return value

    def _refuse(self, config: dict[str, Any]) -> None:
        """Refuses what no extents of files can describe."""
        loader = config.get("item_loader") or "PyTreeLoader"
        level = config.get("compression_level") or "chunk"
        if config.get("encryption"):
            why = "it is encrypted; write it without encryption="
        elif loader not in ("PyTreeLoader", "TokensLoader"):
            remedy = "open the Parquet files" if loader == "ParquetLoader" else "write the items"
            why = (
                f"it is for {loader!r:.50}, headrace reads PyTreeLoader and TokensLoader; {remedy}"
            )
        elif level not in LEVELS:
            why = (
                f"its compression_level is {level!r:.50}; headrace reads chunk, batch and sample: "
                "write the dataset with one of these"
            )
        else:
            return
        raise InvalidArgumentError(f"indexing {self.index}: {why}")

    def _parts(self, config: dict[str, Any]) -> dict[str, str]:
        """By the name of the field: the serializer of each leaf of a sample."""
        formats = config["data_format"]
        if not formats or not all(isinstance(serializer, str) for serializer in formats):
            raise self._damaged(f"its data_format is {formats!r:.100}")
        paths: list[tuple[str, ...]] = [(str(number),) for number in range(len(formats))]
        if config.get("data_spec"):
            paths = _leaves(json.loads(config["data_spec"])[1], (), _DEPTH_MAX)
        if len(paths) != len(formats):
            raise self._damaged(f"its data_spec has {len(paths)} leaves, not {len(formats)}")
        return dict(zip(_names(paths), formats, strict=True))

    def _for_tokens(self, config: dict[str, Any], chunks: list[dict[str, Any]]) -> bool:
        loader = config.get("item_loader")
        if loader is None:  # Older than that entry.
            return all(chunk.get("dim") is not None for chunk in chunks)
        if loader == "TokensLoader" and len(self.stored) != 1:
            raise self._damaged(f"it is for TokensLoader, but has {len(self.stored)} parts")
        return bool(loader == "TokensLoader")

    def _file(
        self, folder: str, config: dict[str, Any], number: int, chunk: dict[str, Any]
    ) -> ShardFile:
        """The decompressed file if there is one, as LitData leaves it; else the compressed."""
        path = inside(folder, chunk["filename"])
        samples = self._count(number, chunk["chunk_size"])
        size = self._count(number, chunk["chunk_bytes"])
        packed = str(config.get("compression") or "")
        level: Any = config.get("compression_level") or "chunk"
        if packed and level != "chunk":
            self._check_packed(path, packed)
            return ShardFile(path, "zstd", size, 0, samples, level)
        plain = path.replace(f".{packed}.bin", ".bin") if packed else path
        if _places.exists(plain):
            file_bytes = _places.stat(plain).st_size
            # Older versions count the items only, without the table before them.
            if file_bytes not in (size, size + table_end(samples)):
                raise DataLossError(
                    f"indexing {plain}: the file has {file_bytes} bytes, index.json says {size}; "
                    f"{AGAIN}"
                )
            end = self._samples_end(plain, file_bytes, samples)
            return ShardFile(plain, "stored", file_bytes, end, samples)
        self._check_packed(path, packed)
        with file_reader(path) as (read, _):
            decoded = zstd_content_bytes(path, 0, read(0, ZSTD_FRONT_BYTES))
        decoded = size if decoded is None else decoded
        if decoded not in (size, size + table_end(samples)):
            raise DataLossError(
                f"indexing {path}: it decodes to {decoded} bytes, index.json says {size}; {AGAIN}"
            )
        return ShardFile(path, "zstd", None, decoded, samples)

    def _check_packed(self, path: str, packed: str) -> None:
        if not _places.exists(path):
            raise NotFoundError(f"indexing {path}: no such file, which {self.index} lists")
        if packed.partition(":")[0] != "zstd":
            raise InvalidArgumentError(
                f"indexing {path}: it is compressed as {packed!r:.50}; headrace reads zstd: "
                "write it with compression='zstd'"
            )

    def _samples_end(self, path: str, size: int, samples: int) -> int:
        """Where the samples end; behind them the rows may follow as a file of Arrow."""
        tail_begin = size - TAIL_BYTES
        with file_reader(path) as (read, _):
            tail = read(max(tail_begin, 0), TAIL_BYTES)
            if tail[4:] != _ARROW_MAGIC:
                return size
            end = tail_begin - int.from_bytes(tail[:4], "little")
            if end < table_end(samples):
                raise DataLossError(
                    f"indexing {path}: byte {tail_begin}: the table of Arrow that ends here would "
                    f"begin at byte {end}, the offsets of samples end at {table_end(samples)}; "
                    f"{AGAIN}"
                )
            if read(4, 4) == read(table_end(samples) - 4, 4):
                self.are_rows = True
        return end


def _leaves(spec: Any, above: tuple[str, ...], depth: int) -> list[tuple[str, ...]]:
    """The path of each leaf in a tree of dicts, lists and tuples."""
    if depth == 0:
        raise ValueError("nested too deep")
    children = spec["children_spec"]
    if spec["type"] is None:
        return [above]
    names = [str(number) for number in range(len(children))]
    if spec["type"] in _KEYED:
        names = [str(key) for key in json.loads(spec["context"])]
    return [
        leaf
        for name, child in zip(names, children, strict=True)
        for leaf in _leaves(child, (*above, name), depth - 1)
    ]


def _names(paths: list[tuple[str, ...]]) -> list[str]:
    """A field's name for each path: "boxes_0"; with dots if that is not unique."""
    for between in ("_", "."):
        names = [between.join(path) for path in paths]
        names = [f"{_VALUE}_{name}" if name[:1].isdigit() else name or _VALUE for name in names]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"two parts of a sample have one name: {paths!r:.100}")
