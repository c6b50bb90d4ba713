"""The hidden folder beside the target in which a pack grows, and how it becomes the target.

`.NAME.partial/` holds `data/`, which will become NAME, and `journal/`: the parameters, and a record
of each finished shard. A shard is written beside them, under a name that no other process has. It
is finished when it was written, synced and read back; only then it goes to `data/`, and its record
appears. Several processes may write one shard, as where a machine was thought to be dead: they
write the same bytes. Publishing:

1. the index is written into `data/`; `journal/publishing` names its fingerprint;
2. `data/` is renamed to NAME, or exchanged with it when an older pack is replaced;
3. `.NAME.partial/` is removed.

A crash before step 2 leaves the old state, after it the new one; the marker of step 1 tells the
next run which.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from headrace import _core
from headrace.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from headrace.formats.pack_format import PACK_INDEX_NAME
from headrace.pack._plan import U64
from headrace.pack._shard import Shard, ShardWriter

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class PartialPack:
    """The work of one `pack` command on one target, locked against a second one. Its tasks in other
    processes, which only write shards, do not enter the `with` block.

    Leaving the `with` block keeps the folder, for a restart, unless the pack was published.
    """

    is_remote = False
    """Whether finished shards are at the target, and `folder` is but for the way there."""

    def __init__(
        self, target: str | Path, overwrite: bool = False, folder: Path | None = None
    ) -> None:
        self.target = str(target)
        at = Path(target)
        self.folder = folder or at.parent / f".{at.name}.partial"
        self.data = self.folder / "data"
        self._journal = self.folder / "journal"
        self._overwrite = overwrite
        self._lock = -1

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise FailedPreconditionError(
                f"packing to {self.target}: another headrace pack is writing it now; wait for it, "
                "or stop it first"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._lock)

    @property
    def room(self) -> Path:
        """The folder of the disk that is written to."""
        return self.folder.parent

    def needed_room(self, left: int) -> int:
        """Bytes of the disk, of `left` that are still to be written."""
        return left

    def check_target(self) -> None:
        """Refuses a place where something is that is not to be replaced."""
        target = Path(self.target)
        if target.exists() and not self._overwrite and not is_empty(target):
            raise target_exists(self.target)

    def begin(self, parameters: dict[str, Any], restart: bool) -> None:
        """Continues an earlier run if it was begun with the same parameters."""
        noted = self._journal / "parameters.json"
        if restart:
            self._clear()
        elif noted.exists():
            before = json.loads(noted.read_text())
            if before != parameters and not self.has_finished_shards():
                self._clear()
            elif before != parameters:
                raise InvalidArgumentError(
                    f"packing to {self.target}: an interrupted run is kept in {self.folder}, but "
                    f"it was begun with other input: {_differences(before, parameters)}; repeat "
                    "it with those to continue, or pass --restart (restart=True) to begin again"
                )
        else:
            self._clear()
        self.data.mkdir(exist_ok=True)
        self._journal.mkdir(exist_ok=True)
        write_atomically(noted, json.dumps(parameters, indent=1, sort_keys=True).encode())

    def has_finished_shards(self) -> bool:
        """Whether a restart would save work."""
        return any(self._journal.glob("shard-*.npz"))

    def published(self) -> _core.Index | None:
        """The index of an earlier run that was stopped after step 2; forgets the marker if it was
        before."""
        marker = self._journal / "publishing"
        if not marker.exists():
            return None
        index = self._published_index()
        if index is not None and index.fingerprint == marker.read_text():
            return index
        marker.unlink()
        return None

    def _published_index(self) -> _core.Index | None:
        """That of the pack at the target; None: there is none, or it cannot be opened."""
        with contextlib.suppress(Exception):
            return _core.Index.open(os.path.join(self.target, PACK_INDEX_NAME))
        return None

    def shard_name(self, number: int, home: int | None, digest: int) -> str:
        """The path of a shard in the pack, '/' between its parts.

        It contains a digest: an index never matches the shards of another pack.
        """
        folder = "" if home is None else f"home-{home}/"
        return f"{folder}shard-{number:05d}-{digest:016x}.arrow"

    def write(self, writer: ShardWriter, number: int, home: int | None, blocks: list[U64]) -> Shard:
        """Writes, verifies and records shard `number`, which has these blocks."""
        with self._written(writer, number, blocks) as (temporary, shard):
            finished = self.data / self.shard_name(number, home, shard.digest)
            finished.parent.mkdir(exist_ok=True)
            temporary.rename(finished)
        try:
            self.store(number, shard)
        except BaseException:
            finished.unlink(missing_ok=True)  # A shard without a record is useless.
            raise
        return shard

    @contextlib.contextmanager
    def _written(
        self, writer: ShardWriter, number: int, blocks: list[U64]
    ) -> Iterator[tuple[Path, Shard]]:
        """A verified file of shard `number`, which the block moves away; after an error it is
        removed."""
        temporary = self.folder / f"shard-{number:05d}-{_unique()}.tmp"
        try:
            yield temporary, writer.write(str(temporary), blocks)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _is_there(self, name: str, file_bytes: int) -> bool:
        """Whether a shard of this name and size was finished."""
        file = self.data / name
        return file.exists() and file.stat().st_size == file_bytes

    def load(self, number: int, home: int | None) -> Shard | None:
        """The record of shard `number` if it was finished and its file is there."""
        path = self._record(number)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as record:
                file_bytes, digest = (int(v) for v in record["sizes"])
                names = json.loads(str(record["names"]))
                fields = {
                    name: (record[f"o{i}"], record[f"s{i}"], record[f"c{i}"])
                    for i, name in enumerate(names)
                }
                blocks = record["blocks"]
        except (OSError, ValueError, KeyError, EOFError):
            return None
        if not self._is_there(self.shard_name(number, home, digest), file_bytes):
            return None
        return Shard(file_bytes, digest, blocks[0], blocks[1], blocks[2], blocks[3], fields)

    def store(self, number: int, shard: Shard) -> None:
        """Records a verified shard as finished."""
        arrays: dict[str, Any] = {}
        for i, (offsets, sizes, checksums) in enumerate(shard.fields.values()):
            arrays |= {f"o{i}": offsets, f"s{i}": sizes, f"c{i}": checksums}
        with _replacing(self._record(number)) as file:
            np.savez(
                file,
                sizes=np.array([shard.file_bytes, shard.digest], np.uint64),
                names=np.array(json.dumps(list(shard.fields))),
                blocks=np.stack(
                    [
                        shard.block_samples,
                        shard.block_offsets,
                        shard.block_sizes,
                        shard.block_checksums,
                    ]
                ),
                **arrays,
            )

    def tidy(self, names: set[str]) -> None:
        """Removes unfinished files of an interrupted run; in `data/` all but `names`."""
        files = [path for path in self.data.rglob("*") if not path.is_dir()]
        unfinished = [path for path in files if str(path.relative_to(self.data)) not in names]
        for path in [*unfinished, *self.folder.glob("*.tmp")]:
            path.unlink(missing_ok=True)

    def _mark_published(self, fingerprint: str) -> None:
        """What tells the next run whether this one published its index."""
        write_atomically(self._journal / "publishing", fingerprint.encode())

    def publish(self, index: _core.Index) -> None:
        """Steps 1 to 3, with the index that lies in `data/`."""
        for folder in [*self.data.glob("*/"), self.data]:
            sync_folder(folder)
        self._mark_published(index.fingerprint)
        target = Path(self.target)
        if target.exists():
            _exchange(self.data, target)
        else:
            self.data.rename(target)
        sync_folder(target.parent)
        self.remove()

    def remove(self) -> None:
        """Step 3; also frees the name for the next run."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _record(self, number: int) -> Path:
        return self._journal / f"shard-{number:05d}.npz"

    def _clear(self) -> None:
        for folder in (self._journal, self.data):
            if folder.exists():
                shutil.rmtree(folder)


def is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def target_exists(target: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"packing to {target}: it exists already; choose another place, or pass --overwrite "
        "(overwrite=True) to replace it"
    )


def _unique() -> str:
    """A part of a name, which no other process of any machine takes."""
    return os.urandom(8).hex()


def _differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    keys = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    return ", ".join(f"{key} {before.get(key)!r} then, {now.get(key)!r} now" for key in keys)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces `path` by `data`, synced: a reader sees the old file or the new one."""
    with _replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path`, synced, when the block ends; not after an error."""
    temporary = path.with_name(f"{path.name}.{_unique()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes renames in `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exchange(new: Path, old: Path) -> None:
    """Atomically exchanges two folders, so that `old` is a whole pack at any time."""
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.renameat2(
        _AT_FDCWD,
        os.fsencode(new),
        _AT_FDCWD,
        os.fsencode(old),
        ctypes.c_uint(_RENAME_EXCHANGE),
    )
    if status == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS):
        raise UnavailableError(
            f"replacing {old}: {os.strerror(code)}; see what is there with `ls -la {old.parent}`, "
            "then run the command again"
        )
    aside = (
        new.parent / "replaced"
    )  # A file system without exchange: for a moment there is no pack.
    old.rename(aside)
    new.rename(old)
