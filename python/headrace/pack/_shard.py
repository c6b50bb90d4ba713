"""One shard of a pack: written block by block, then read back and compared.

Memory: the block being written and the next one being read; and, until the shard has been compared,
16 bytes for each of its samples and field, and the values that the index holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import _core
from headrace._dataset import Dataset
from headrace.errors import DataLossError, InternalError
from headrace.formats._files.objects import object_path
from headrace.formats.pack_format import file_digest
from headrace.pack._gather import Samples
from headrace.pack._plan import ALIGNMENT, U64

_SUSPECT = "the disk or its memory is at fault: check it, then run the command again"
_PAD_KEY = b"headrace.pad"
_READS_A_BLOCK = 8  # parallel reads while a block is gathered


@dataclass(frozen=True)
class Shard:
    """A written shard, as found by reading the file again."""

    file_bytes: int
    digest: int  # file_digest()
    block_samples: U64
    block_offsets: U64
    block_sizes: U64
    block_checksums: U64
    fields: dict[str, tuple[U64, U64, U64]]  # extent fields: offsets, sizes, checksums


@dataclass(frozen=True)
class BlockColumn:
    """A field of one block."""

    field: _core.Field
    values: npt.NDArray[Any]  # of a fixed type: one a sample; else the end of each value, from 0 on
    data: bytearray  # the values end to end, if they have no fixed type
    checksums: U64  # of extent fields


Block = list[BlockColumn]


def schema_of(index: _core.Index) -> pa.Schema:
    """Inline arrays become fixed types; all other fields large_binary."""
    fields = []
    for field in index.fields:
        metadata = {"headrace.kind": field.kind}
        if field.kind in ("array", "list"):
            metadata |= {"headrace.dtype": field.dtype, "headrace.shape": json.dumps(field.shape)}
        if field.coding != "stored":
            metadata["headrace.coding"] = field.coding
            metadata["headrace.shuffled"] = json.dumps(field.is_shuffled)
            metadata["headrace.header_bytes"] = str(field.header_bytes)
        arrow_type = _inline_type(field) if _has_fixed_type(field) else pa.large_binary()
        fields.append(pa.field(field.name, arrow_type, nullable=False, metadata=metadata))
    metadata = {"headrace.pack": "1"}
    if "classes" in index.attributes:
        metadata["classes"] = index.attributes["classes"]
    return pa.schema(fields, metadata=metadata)


def _has_fixed_type(field: _core.Field) -> bool:
    return field.is_inline and field.kind == "array"


def _inline_type(field: _core.Field) -> pa.DataType:
    arrow_type = pa.from_numpy_dtype(np.dtype(field.dtype))
    return pa.fixed_shape_tensor(arrow_type, list(field.shape)) if field.shape else arrow_type


class ShardWriter:
    """Writes shards of one pack. Thread safety: every method may be called from any thread.

    `samples` reads those of `source`, on threads of `readers`. `progress` is called with the bytes
    of each block when it is written and may raise to stop.
    """

    def __init__(
        self,
        source: Dataset,
        samples: Samples,
        readers: Executor,
        progress: Callable[[int], None],
    ) -> None:
        index = source.index
        self._source = source
        self._samples = samples
        self._index = index
        self._fields = index.fields
        self._schema = schema_of(index)
        self._schema_bytes = len(b"ARROW1\0\0") + self._schema.serialize().size
        self._readers = readers
        self.progress = progress
        self._headers: dict[int, int] = {}  # by padding; any thread may add entries

    def write(self, path: str, blocks: list[U64]) -> Shard:
        """Writes the source samples of each of `blocks` to `path`, syncs, and verifies."""
        checksums: list[Block] = []
        options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V5)
        with pa.OSFile(os.fsencode(path), "wb") as sink:  # pyarrow knows no surrogates
            with pa.ipc.new_file(sink, self._schema, options=options) as writer:
                for block in self._gather(blocks):
                    position = max(sink.tell(), self._schema_bytes)
                    batch = self._batch(block)
                    pad = self._padding(position + self._offset_in_body(block))
                    writer.write_batch(batch, custom_metadata={_PAD_KEY: b" " * pad})
                    written = sum(len(column.data) for column in block)
                    checksums.append([_to_compare(column) for column in block])
                    self.progress(written)
            sink.flush()
        return self._verify(path, checksums)

    def _gather(self, blocks: list[U64]) -> Iterator[Block]:
        """The blocks with their bytes; the next one is read while one is written."""
        ahead = self._start(blocks[0])
        for position in range(len(blocks)):
            current = ahead
            if position + 1 < len(blocks):
                ahead = self._start(blocks[position + 1])
            block, reads = current
            for read in reads:
                read.result()
            self._check_source(blocks[position], block)
            yield block

    def _start(self, samples: U64) -> tuple[Block, list[Future[None]]]:
        """Lays the block out in memory and starts its reads."""
        block: Block = []
        reads: list[Future[None]] = []
        for position, field in enumerate(self._fields):
            if field.is_inline and not _has_fixed_type(field):
                block.append(self._inline_column(position, field, samples))
                continue
            if _has_fixed_type(field):
                values = np.stack(
                    [self._index.inline_values(position, int(s), 1)[0] for s in samples]
                )
                block.append(BlockColumn(field, values, bytearray(), np.empty(0, np.uint64)))
                continue
            objects, offsets, sizes = self._samples.extents(position, samples)
            ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
            data = bytearray(int(ends[-1]))
            block.append(BlockColumn(field, ends, data, np.empty(len(samples), np.uint64)))
            for part in np.array_split(np.arange(len(samples)), min(_READS_A_BLOCK, len(samples))):
                reads.append(
                    self._readers.submit(
                        self._read, block[-1], part, (objects[part], offsets[part], sizes[part])
                    )
                )
        return block, reads

    def _inline_column(self, position: int, field: _core.Field, samples: U64) -> BlockColumn:
        """The values of an inline field that differ in length."""
        values = [self._index.inline_ragged(position, int(s), 1)[0] for s in samples]
        sizes = [len(value) for value in values]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        data = bytearray(np.concatenate(values).tobytes())
        return BlockColumn(field, ends, data, np.empty(0, np.uint64))

    def _read(
        self, column: BlockColumn, part: npt.NDArray[np.intp], extents: tuple[U64, U64, U64]
    ) -> None:
        start, end = int(column.values[part[0]]), int(column.values[part[-1] + 1])
        self._samples.read_into(extents, memoryview(column.data)[start:end])
        first, last = int(part[0]), int(part[-1]) + 1
        column.checksums[first:last] = _core.hash64_ranges(
            column.data,
            column.values[first:last].astype(np.uint64),
            np.diff(column.values[first : last + 1]).astype(np.uint64),
        )

    def _check_source(self, samples: U64, block: Block) -> None:
        """Compares with the source's own checksums, if it has them."""
        for position, column in enumerate(block):
            if not column.field.is_inline:
                self._samples.check(position, samples, column.checksums)
            if not column.field.has_checksums:
                continue
            for sample, checksum in zip(samples.tolist(), column.checksums.tolist(), strict=True):
                expected = self._index.checksums(position, sample, 1)
                if expected is not None and int(expected[0]) != checksum:
                    object_id = int(self._index.extents(position, sample, 1)[0][0])
                    raise DataLossError(
                        f"packing sample {sample} ({column.field.name}) of "
                        f"{object_path(self._index, object_id)}: its bytes are not those that were "
                        f"indexed (checksum {checksum:016x}, indexed {int(expected[0]):016x}); "
                        f"{self._source.format_row.remedy(self._index)}"
                    )

    def _batch(self, block: Block) -> pa.RecordBatch:
        arrays = []
        for column, arrow_field in zip(block, self._schema, strict=True):
            if _has_fixed_type(column.field):
                arrays.append(_inline_array(column, arrow_field.type))
                continue
            arrays.append(_binary_array(column))
        return pa.record_batch(arrays, schema=self._schema)

    def _offset_in_body(self, block: Block) -> int:
        """The position of the first bytes of extent fields in the batch's body; else its end."""
        offset = 0
        for column in block:
            if not _has_fixed_type(column.field):
                offset += len(column.values) * 8
                if column.data and not column.field.is_inline:
                    return offset
                offset += -(-len(column.data) // 8) * 8
                continue
            bits = column.values.dtype == np.bool_
            size = -(-column.values.size // 8) if bits else column.values.nbytes
            offset += -(-size // 8) * 8
        return offset

    def _padding(self, position: int) -> int:
        """Bytes of metadata that align the data at `position`, without the header."""
        pad = -(position + self._header_bytes(0)) % ALIGNMENT
        if (position + self._header_bytes(pad)) % ALIGNMENT != 0:
            raise InternalError(f"padding a batch at {position}: {pad} bytes do not align it")
        return pad

    def _header_bytes(self, pad: int) -> int:
        """Bytes of a batch's message before its body. They do not depend on the batch."""
        known = self._headers.get(pad)
        if known is None:
            tiny = pa.record_batch(
                [_one_value(arrow_field.type) for arrow_field in self._schema], schema=self._schema
            )
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self._schema) as writer:
                writer.write_batch(tiny, custom_metadata={_PAD_KEY: b" " * pad})
                end = sink.tell()
            stream = pa.BufferReader(sink.getvalue())
            reader = pa.ipc.MessageReader.open_stream(stream)
            reader.read_next_message()  # the schema
            start = stream.tell()
            known = end - start - int(reader.read_next_message().body.size)
            self._headers[pad] = known
        return known

    def _verify(self, path: str, written: list[Block]) -> Shard:
        """Reads the shard from the device and compares each sample with the source."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
            size = os.fstat(fd).st_size
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # from the device, not from memory
            digest = file_digest(lambda offset, count: os.pread(fd, count, offset), size)
            return _locate(fd, path, size, digest, written)
        except pa.ArrowException as error:
            raise DataLossError(
                f"verifying {path}: what was read back is not an Arrow file ({error}); {_SUSPECT}"
            ) from error
        finally:
            os.close(fd)


def _to_compare(column: BlockColumn) -> BlockColumn:
    """What a column read back is compared with: of extent fields the checksums."""
    if column.field.is_inline:
        return column
    return BlockColumn(column.field, column.values, bytearray(), column.checksums)


def _binary_array(column: BlockColumn) -> pa.Array:
    buffers = [None, pa.py_buffer(column.values), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.large_binary(), len(column.values) - 1, buffers)


def _inline_array(column: BlockColumn, arrow_type: pa.DataType) -> pa.Array:
    if not column.field.shape:
        return pa.array(column.values, arrow_type)
    flat = pa.array(column.values.reshape(-1), arrow_type.value_type)
    width = int(np.prod(column.field.shape))
    return pa.ExtensionArray.from_storage(
        arrow_type, pa.FixedSizeListArray.from_arrays(flat, width)
    )


def _bits(array: pa.Array) -> pa.Array:
    """For comparisons: a NaN is not equal to itself, and -0.0 is equal to 0.0."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage.flatten()
    if pa.types.is_floating(array.type):
        array = array.view(f"int{array.type.bit_width}")
    return array


def _one_value(arrow_type: pa.DataType) -> pa.Array:
    if arrow_type == pa.large_binary():
        return pa.array([b"x"], arrow_type)
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        width = int(np.prod(arrow_type.shape))
        flat = pa.array(np.zeros(width, arrow_type.value_type.to_pandas_dtype()))
        return pa.ExtensionArray.from_storage(
            arrow_type, pa.FixedSizeListArray.from_arrays(flat, width)
        )
    return pa.array(np.zeros(1, arrow_type.to_pandas_dtype()), arrow_type)


def _locate(fd: int, path: str, size: int, digest: int, written: list[Block]) -> Shard:
    """Finds every value in the file through Arrow's own reader, and compares it."""
    blocks: list[tuple[int, int, int, int]] = []
    parts: dict[str, list[tuple[U64, U64, U64]]] = {}
    with pa.memory_map(os.fsencode(path)) as mapped:
        whole = mapped.read_buffer(size)
        file = pa.ipc.open_file(pa.BufferReader(whole))
        if file.num_record_batches != len(written):
            raise DataLossError(
                f"verifying {path}: {file.num_record_batches} of {len(written)} blocks are there; "
                f"{_SUSPECT}"
            )
        for number, block in enumerate(written):
            batch = file.get_batch(number)
            stored: list[tuple[BlockColumn, int, npt.NDArray[np.int64]]] = []
            for column, array in zip(block, batch.columns, strict=True):
                if column.field.is_inline:
                    expected = (
                        _inline_array(column, array.type)
                        if _has_fixed_type(column.field)
                        else _binary_array(column)
                    )
                    if not _bits(array).equals(_bits(expected)):
                        raise _not_as_written(path, number, column.field.name)
                    continue
                _, ends, data = array.buffers()
                read = np.frombuffer(ends, np.int64)[: len(array) + 1]
                if not np.array_equal(read, column.values):
                    raise _not_as_written(path, number, column.field.name)
                stored.append((column, data.address - whole.address, read))
            # The buffer of a column of empty values is somewhere in memory, not in the file.
            spans = [(base, base + int(read[-1])) for _, base, read in stored if read[-1]]
            start = min((begin for begin, _ in spans), default=0)
            end = max((end for _, end in spans), default=0)
            if start % ALIGNMENT:
                raise InternalError(f"verifying {path}: block {number} lies at {start}, unaligned")
            for column, base, read in stored:
                offsets = (read[:-1] + (base if read[-1] else start)).astype(np.uint64)
                sizes = np.diff(read).astype(np.uint64)
                parts.setdefault(column.field.name, []).append((offsets, sizes, column.checksums))
            data_bytes = os.pread(fd, end - start, start)
            _compare(path, number, start, data_bytes, [p[-1] for p in parts.values()])
            blocks.append((batch.num_rows, start, end - start, _core.hash64(data_bytes)))
    columns = np.array(blocks, np.uint64).T.copy()
    fields = {
        name: (
            np.concatenate([p[0] for p in pieces]),
            np.concatenate([p[1] for p in pieces]),
            np.concatenate([p[2] for p in pieces]),
        )
        for name, pieces in parts.items()
    }
    return Shard(size, digest, columns[0], columns[1], columns[2], columns[3], fields)


def _compare(
    path: str, block: int, start: int, data: bytes, values: list[tuple[U64, U64, U64]]
) -> None:
    for offsets, sizes, checksums in values:
        hashes = _core.hash64_ranges(data, offsets - np.uint64(start), sizes)
        if not np.array_equal(hashes, checksums):
            raise _not_as_written(path, block, "data")


def _not_as_written(path: str, block: int, what: str) -> DataLossError:
    return DataLossError(
        f"verifying {path}: block {block} ({what}) reads back other bytes than were written; "
        f"{_SUSPECT}"
    )
