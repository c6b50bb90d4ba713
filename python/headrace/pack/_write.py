"""Writes a pack: checks the source and the target, has the shards written, and publishes them."""

from __future__ import annotations

import errno
import json
import os
import resource
import shlex
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import _core
from headrace._arguments import given_path, integer, refuse_url, shown
from headrace._dataset import Dataset, image_folder, left_out_of
from headrace._dataset.left_out import hash_of
from headrace._objects.clients.addresses import CLOUDS
from headrace._text import os_reason
from headrace._units import format_bytes
from headrace.errors import (
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from headrace.formats._base.outside import check_outside
from headrace.formats._files.objects import is_decoded
from headrace.formats.pack_format import FIELD_ORDER, PACK_INDEX_NAME, pack_attributes
from headrace.pack._partial import PartialPack, is_empty, target_exists
from headrace.pack._plan import U64, PackParameters, PackPlan, make_plan
from headrace.pack._remote import RemotePack
from headrace.pack._shard import Shard
from headrace.pack._work import PackWork, WriteShards, free_bytes, writing_threads

_WORKERS_MAX = 64

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class PackResult:
    """The result of `write_pack`."""

    path: str
    samples: int
    blocks: int
    shards: int
    shards_continued: int  # finished by an earlier, interrupted run
    homes: int  # folders home-0, home-1, ... of `PackParameters.shards_over`; 1: there are none
    data_bytes: int
    file_bytes: int
    fingerprint: str


def write_pack(
    source: Dataset,
    target: str | os.PathLike[str],
    parameters: PackParameters | None = None,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: Progress | None = None,
    on: WriteShards | None = None,
) -> PackResult:
    """Writes `source` as a pack to the folder `target`, which appears whole or not at all. Or to a
    URL, `s3://BUCKET/PACK`, `gs://`, `az://`.

    The bytes written depend on the source and `parameters` only, not on `workers` (default: two
    for each core, at most 8), and not on `on`: None for threads of this process, or
    `headrace.ray.pack_tasks()` for tasks of a Ray cluster. An interrupted run
    leaves its finished shards in `.NAME.partial` beside the target; the same call continues it,
    `restart` discards it. Of a URL they are at the target, and what they are is noted in the cache
    folder, which needs room for a shard for each worker. `progress` is called with bytes done and
    bytes in all, of a URL those uploaded, too; an exception from it stops the work.

    Memory: three blocks for each worker, and about 100 bytes for each sample. To shuffle a
    source that is decoded as a whole, samples are first copied to a temporary file beside the
    target.
    """
    if not isinstance(cast(object, source), Dataset):
        raise InvalidArgumentError(
            f"packing {shown(source)}: must be a dataset: write_pack(headrace.open(...), ...)"
        )
    parameters = parameters or PackParameters()
    write = _writing(workers, on)
    _check_source(source)
    partial = _partial_of(source, target, overwrite, on is not None)
    packer: _Packer | None = None
    try:
        with partial:
            published = partial.published()
            if published is not None:
                partial.remove()
                return _result(partial.target, published, continued=0)
            partial.check_target()
            partial.begin(_input_of(source, parameters), restart)
            try:
                packer = _Packer(source, parameters, partial, progress)
                packer.check_room()
                return packer.run(write)
            except BaseException as error:
                _keep_or_remove(partial, error)
                raise
    except _NoRoomError as error:
        raise _with_notes(ResourceExhaustedError(str(error)), error) from None
    except ResourceExhaustedError as error:
        raise _stopped_by(error, partial, packer) from error
    except HeadraceError:
        raise
    except OSError as error:
        raise _stopped_by(error, partial, packer) from error


def _writing(workers: int | None, on: WriteShards | None) -> WriteShards:
    """What writes the shards.

    Raises:
        InvalidArgumentError: `on` writes nothing, or has its own number of workers.
    """
    if on is None:
        if workers is None:
            workers = min(8, 2 * (os.cpu_count() or 1))
        return writing_threads(integer("pack workers", workers, 1, _WORKERS_MAX))
    if not callable(on):
        raise InvalidArgumentError(
            f"pack on: got {shown(on)}, must be what headrace.ray.pack_tasks() returns, or None"
        )
    if workers is not None:
        raise InvalidArgumentError(
            f"pack workers: got {workers} beside on=: give the number to "
            f"headrace.ray.pack_tasks(workers={workers})"
        )
    return on


def _input_of(source: Dataset, parameters: PackParameters) -> dict[str, Any]:
    """Everything that determines the bytes of a pack: shards of two inputs are never mixed."""
    facts: dict[str, Any] = parameters.to_dict() | {
        "source_fingerprint": source.fingerprint,
        "pyarrow": pa.__version__,
    }
    left_out = left_out_of(source)
    return facts if left_out is None else facts | {"left_out": hash_of(left_out)}


def _check_source(source: Dataset) -> None:
    left_out = left_out_of(source)
    if len(source) == (0 if left_out is None else len(left_out)):
        raise InvalidArgumentError(f"packing {source.path}: it has no samples")
    if all(field.is_inline for field in source.index.fields):
        raise InvalidArgumentError(
            f"packing {source.path}: all its fields are inline in the index: nothing to "
            "pack; open it as it is"
        )


def _decodes_often(index: _core.Index, parameters: PackParameters) -> bool:
    """Whether random reads would decode files, or parts of them, for nearly every sample."""
    if not is_decoded(index) or parameters.order == "source":
        return False
    total = sum(index.object(number)[1] for number in range(index.object_count))
    return total > _core.decoded_bytes_kept  # Else each is decoded once anyway.


def _partial_of(
    source: Dataset, target: str | os.PathLike[str], overwrite: bool, by_tasks: bool
) -> PartialPack:
    """Where the pack grows, once all that can be checked at once has been."""
    text = target if isinstance(target, str) else ""
    if text.partition("://")[0] in CLOUDS:
        if by_tasks:
            raise InvalidArgumentError(
                f"packing to {text} by tasks of Ray: what is uploaded is written by this process; "
                "leave --on (on=) out"
            )
        _check_not_below(image_folder(source), text)
        return RemotePack(text, overwrite)
    refuse_url("packing to", target, f"headrace pack {shlex.quote(source.path)}")
    where = Path(os.path.abspath(given_path("packing into", target)))
    _check_target(where, overwrite)
    check_outside("packing to", where, image_folder(source), is_folder=True)
    return PartialPack(where, overwrite)


def _check_not_below(root: str | None, target: str) -> None:
    if root is not None and f"{target}/".startswith(f"{root.rstrip('/')}/"):
        raise InvalidArgumentError(
            f"packing to {target}: it lies in the dataset {root}, where each folder is a class; "
            "name a place outside it"
        )


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.parent.is_dir():
        raise NotFoundError(f"packing to {target}: there is no folder {target.parent}; create it")
    if not target.exists():
        return
    is_pack = (target / PACK_INDEX_NAME).exists()
    if not is_pack and not is_empty(target):
        raise InvalidArgumentError(
            f"packing to {target}: it exists and is not a pack, so it is not replaced; choose "
            "another place"
        )
    if is_pack and not overwrite and not (target.parent / f".{target.name}.partial").exists():
        raise target_exists(str(target))


def _keep_or_remove(partial: PartialPack, error: BaseException) -> None:
    """Keeps finished shards for a restart, adds a note of that to `error`, removes other files."""
    if partial.has_finished_shards():
        kept_in = partial.target if partial.is_remote else partial.folder
        error.add_note(
            f"finished shards are kept in {kept_in}: run the same command again to "
            "continue, or with --restart (restart=True) to begin again"
        )
    else:
        partial.remove()


class _NoRoomError(ResourceExhaustedError):
    """The disk cannot hold the pack: checked before writing."""


def _with_notes(error: HeadraceError, of: BaseException) -> HeadraceError:
    for note in getattr(of, "__notes__", ()):
        error.add_note(note)
    return error


def _no_room(partial: PartialPack, needed: int | None, before: str = "") -> str:
    """The space needed, the space free, and the remedy."""
    free = free_bytes(partial.room)
    there = f"{format_bytes(free)} are free" if free is not None else "the free space is not known"
    other = "name another disk with XDG_CACHE_HOME=FOLDER"
    if not partial.is_remote:
        other = "pack to another disk"
    if needed is None:
        return f"{before}{there} in {partial.room}; make room, or {other}"
    return (
        f"{before}at least {format_bytes(needed)} are needed, {there} in {partial.room}; "
        f"make room, or {other}"
    )


def _stopped_by(error: OSError, partial: PartialPack, packer: _Packer | None) -> HeadraceError:
    what = f"packing to {partial.target}: {os_reason(error)}"
    stopped: HeadraceError
    if error.errno == errno.EFBIG:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        known = f"; a file may have {format_bytes(limit)} (ulimit -f)" if limit > 0 else ""
        stopped = ResourceExhaustedError(
            f"{what}{known}: raise the limit, or make smaller shards with --shard-size "
            "(PackParameters(shard_bytes=))"
        )
    elif error.errno in (errno.ENOSPC, errno.EDQUOT) or isinstance(error, ResourceExhaustedError):
        needed = packer.bytes_left() if packer is not None else None
        stopped = ResourceExhaustedError(_no_room(partial, needed, f"{what}: "))
    else:
        stopped = UnavailableError(what)
    return _with_notes(stopped, error)


class _Packer:
    """One run: what an earlier one finished, the rest, the index."""

    def __init__(
        self,
        source: Dataset,
        parameters: PackParameters,
        partial: PartialPack,
        progress: Progress | None,
    ) -> None:
        self._source = source
        self._parameters = parameters
        self._partial = partial
        self._progress = progress
        self._plan: PackPlan = make_plan(source.index, parameters, left_out_of(source))
        self._gathers = _decodes_often(source.index, parameters)
        self._size = int(self._plan.shard_data_bytes.sum())
        self._lock = threading.Lock()
        self._passes = 2 if partial.is_remote else 1  # written, and uploaded
        self._done = 0  # bytes; guarded by _lock
        self._kept = self._finished()
        self._total = self._size * self._passes + (self.bytes_left() if self._gathers else 0)

    def _finished(self) -> dict[int, Shard]:
        """The shards of an interrupted run."""
        return {
            number: shard
            for number in range(self._plan.shard_count)
            if (shard := self._partial.load(number, self._plan.shard_homes[number])) is not None
        }

    def bytes_left(self) -> int:
        """The least bytes to write: the values of the shards that are not finished."""
        return self._size - sum(self._plan.data_bytes(number) for number in self._finished())

    def check_room(self) -> None:
        """Refuses a disk that cannot hold the pack, before hours of work."""
        names = {self._name(number, shard) for number, shard in self._kept.items()}
        self._partial.tidy(names)  # Discarded files take no room.
        needed = self._partial.needed_room(self.bytes_left())
        free = free_bytes(self._partial.room)
        if free is not None and needed > free:
            where = f"packing to {self._partial.target}: "
            raise _NoRoomError(_no_room(self._partial, needed, where))

    def _name(self, number: int, shard: Shard) -> str:
        return self._partial.shard_name(number, self._plan.shard_homes[number], shard.digest)

    def run(self, write: WriteShards) -> PackResult:
        shards = dict(self._kept)
        continued = len(shards)
        kept = sum(self._plan.data_bytes(number) for number in shards)
        self._advance(kept * self._passes)
        missing = [n for n in range(self._plan.shard_count) if n not in shards]
        work = PackWork(
            self._source, self._partial, self._plan, missing, self._advance, self._gathers
        )
        shards |= write(work)
        return self._publish([shards[number] for number in sorted(shards)], continued)

    def _advance(self, count: int) -> None:
        with self._lock:
            self._done += count
            if self._progress is not None:
                self._progress(self._done, self._total)

    def _publish(self, shards: list[Shard], continued: int) -> PackResult:
        contents = self._index_contents(shards)
        path = str(self._partial.data / PACK_INDEX_NAME)
        _core.write_index(contents, path)
        index = _core.Index.open(path)
        self._partial.publish(index)
        return _result(self._partial.target, index, continued)

    def _index_contents(self, shards: list[Shard]) -> _core.IndexContents:
        source = self._source.index
        contents = _core.IndexContents(len(self._plan.order), ".")
        names = [self._name(number, shard) for number, shard in enumerate(shards)]
        sizes = np.array([shard.file_bytes for shard in shards], np.uint64)
        # A copied pack is the same pack: name, size and checksums identify its shards.
        contents.add_objects(names, sizes, np.zeros(len(shards), np.int64))
        sample_counts = [int(shard.block_samples.sum()) for shard in shards]
        numbers = np.arange(len(shards), dtype=np.uint64)
        samples = self._plan.stored_samples
        objects = _placed(np.repeat(numbers, sample_counts), samples)
        for position, field in enumerate(source.fields):
            kind = (field.kind, field.dtype, field.shape)
            if field.is_inline and field.kind != "array":
                values, lengths = _reordered(source, position, self._plan.order)
                contents.add_inline_field(field.name, kind, values, lengths)
                continue
            if field.is_inline:
                values = source.inline_values(position)[self._plan.order]
                contents.add_inline_field(field.name, kind, np.ascontiguousarray(values))
                continue
            offsets, lengths, checksums = (
                _placed(
                    np.concatenate([shard.fields[field.name][part] for shard in shards]), samples
                )
                for part in range(3)
            )
            contents.add_extent_field(
                field.name, kind, (objects, offsets, lengths), checksums, field.batch_dtype
            )
            decoded = source.decoded_sizes(position) if field.has_decoded_sizes else None
            contents.set_decoding(
                (field.coding, field.is_shuffled, field.header_bytes, field.has_decoded_sizes),
                None if decoded is None else decoded[self._plan.order],
            )
        self._add_blocks(contents, shards)
        for key, value in self._attributes().items():
            contents.set_attribute(key, value)
        return contents

    def _add_blocks(self, contents: _core.IndexContents, shards: list[Shard]) -> None:
        """All blocks in the order of their samples."""
        numbers = np.arange(len(shards), dtype=np.uint64)
        columns = (
            np.concatenate([shard.block_samples for shard in shards]),
            np.repeat(numbers, [len(shard.block_samples) for shard in shards]),
            np.concatenate([shard.block_offsets for shard in shards]),
            np.concatenate([shard.block_sizes for shard in shards]),
            np.concatenate([shard.block_checksums for shard in shards]),
        )
        counts, *extents, checksums = (_placed(column, self._plan.blocks) for column in columns)
        contents.add_blocks(counts, (extents[0], extents[1], extents[2]), checksums)

    def _attributes(self) -> dict[str, str]:
        attributes = pack_attributes(self._parameters.to_dict())
        attributes["source_fingerprint"] = self._source.fingerprint
        for key in ("classes", "report"):
            if key in self._source.index.attributes:
                attributes[key] = self._source.index.attributes[key]
        fields = self._source.fields
        if fields != self._source.nesting.stored_names:
            attributes[FIELD_ORDER] = json.dumps(fields)
        return attributes


def _placed(values: U64, numbers: U64) -> U64:
    """The values by number; `numbers` has the number of each."""
    placed = np.empty_like(values)
    placed[numbers] = values
    return placed


def _reordered(
    source: _core.Index, position: int, order: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
    """Inline values of variable length in another order: all end to end, and their lengths."""
    values, lengths = source.inline_ragged(position)
    ends = np.cumsum(lengths, dtype=np.uint64)
    moved = np.empty(int(lengths[order].sum()), values.dtype)
    end = 0
    for sample in order.tolist():
        begin, end = end, end + int(lengths[sample])
        moved[begin:end] = values[int(ends[sample] - lengths[sample]) : int(ends[sample])]
    return moved, lengths[order]


def _result(path: str, index: _core.Index, continued: int) -> PackResult:
    data_bytes = sum(
        int(index.extents(position)[2].sum())
        for position, field in enumerate(index.fields)
        if not field.is_inline
    )
    return PackResult(
        path=path,
        samples=index.sample_count,
        blocks=index.block_count,
        shards=index.object_count,
        shards_continued=continued,
        homes=_core.Homes.of(index).count,
        data_bytes=data_bytes,
        file_bytes=sum(index.object(i)[1] for i in range(index.object_count)) + index.file_bytes,
        fingerprint=index.fingerprint,
    )
