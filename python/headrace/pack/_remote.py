"""A pack that is written to an object store.

Shards are written to a folder of this machine first, as those of a local pack are, and read back;
then each is uploaded and its file removed. The folder lies in the cache folder, under the target's
URL, and has the same journal. Its room: a shard for each worker.

Publishing:

1. a list of the target tells that all shards are there, with their sizes;
2. `journal/publishing` names the index's fingerprint;
3. the index is written in one request, which fails if there is an index (If-None-Match), unless it
   is to be replaced: the pack appears whole;
4. shards of other packs that are below the target are deleted, and the folder is removed.

After a crash the next run finds the index of step 3 at the target, or goes on. Shards that were not
uploaded whole are written again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace import _core
from headrace._objects.uploading.uploads import Uploads
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from headrace.formats._base.cache import cache_folder
from headrace.formats.pack_format import PACK_INDEX_NAME
from headrace.pack._partial import PartialPack, target_exists
from headrace.pack._plan import U64
from headrace.pack._shard import Shard, ShardWriter

_SHARD = re.compile(r"(home-\d+/)?shard-\d{5,}-[0-9a-f]{16}\.arrow")


class RemotePack(PartialPack):
    """The work of one `pack` command on one URL, locked against a second one of this user here."""

    is_remote = True

    def __init__(self, url: str, overwrite: bool) -> None:
        url = url.rstrip("/")
        name = f"{re.sub(r'[^A-Za-z0-9._-]', '_', url)[-64:]}-{_core.hash64(url.encode()):016x}"
        folder = Path(cache_folder()) / "packs" / f"{name}.partial"
        super().__init__(url, overwrite, folder)
        self._uploads = Uploads()
        self._there: dict[str, int] = {}  # sizes of the target's objects when the run began

    @property
    def room(self) -> Path:
        return self.folder

    def needed_room(self, _left: int) -> int:
        """Not known: shards leave the folder as fast as they are uploaded."""
        return 0

    def __enter__(self) -> Self:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        super().__enter__()
        try:
            self._uploads.start()
            with self._named():
                self._there = self._uploads.sizes(self.target)
        except BaseException as error:
            if not self.has_finished_shards():
                self.remove()
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._uploads.close()
        finally:
            super().__exit__(kind, error, traceback)

    def check_target(self) -> None:
        """Refuses a place that has a pack, unless it is to be replaced, or something else."""
        if PACK_INDEX_NAME in self._there:
            if not self._overwrite:
                raise target_exists(self.target)
            return
        for name in self._there:
            if not _SHARD.fullmatch(name):
                raise InvalidArgumentError(
                    f"packing to {self.target}: there is {name}, which is not of a pack; choose "
                    "another place"
                )

    def write(self, writer: ShardWriter, number: int, home: int | None, blocks: list[U64]) -> Shard:
        """Writes, verifies, uploads and records shard `number`, which has these blocks."""
        with self._written(writer, number, blocks) as (path, shard):
            name = self.shard_name(number, home, shard.digest)
            data_bytes = sum(int(sizes.sum()) for _, sizes, _ in shard.fields.values())
            advance = _scaled(writer.progress, data_bytes, shard.file_bytes)
            with self._named():
                self._uploads.upload(str(path), self._url(name), advance)
            path.unlink()
        self.store(number, shard)
        return shard

    def _is_there(self, name: str, file_bytes: int) -> bool:
        return self._there.get(name) == file_bytes

    def tidy(self, _names: set[str]) -> None:
        """Removes unfinished files of an interrupted run."""
        for path in self.folder.glob("*.tmp"):
            path.unlink(missing_ok=True)

    def publish(self, index: _core.Index) -> None:
        with self._named():
            there = self._uploads.sizes(self.target)
        names: set[str] = set()
        for number in range(index.object_count):
            name, size = index.object(number)[:2]
            names.add(name)
            if there.get(name) != size:
                raise UnavailableError(
                    f"packing to {self.target}: {name} was uploaded with {size} bytes, and the "
                    f"store has {there.get(name, 0)}; is another program at work there? Run the "
                    "same command again, which uploads it again"
                )
        self._mark_published(index.fingerprint)
        self._put_index(index)
        if self._is_published(index):
            self._delete_others(there, names)
        self.remove()

    def published(self) -> _core.Index | None:
        index = super().published()
        if index is not None:
            names = {index.object(number)[0] for number in range(index.object_count)}
            self._delete_others(self._there, names)
        return index

    def _delete_others(self, there: dict[str, int], names: set[str]) -> None:
        """Shards that are not of this pack."""
        others = [name for name in there if name not in names and _SHARD.fullmatch(name)]
        with self._named():
            self._uploads.delete(self.target, others)

    def _put_index(self, index: _core.Index) -> None:
        try:
            with self._named():
                self._uploads.create(index.path, self._url(PACK_INDEX_NAME), self._overwrite)
        except FileExistsError:
            # Another pack, or this one: by a request whose answer was lost.
            if not self._is_published(index):
                raise target_exists(self.target) from None

    def _is_published(self, index: _core.Index) -> bool:
        """Whether the target has this index: another machine may have put its own."""
        found = self._published_index()
        return found is not None and found.fingerprint == index.fingerprint

    def _published_index(self) -> _core.Index | None:
        """A copy, which stays mapped when the folder is removed."""
        path = self.folder / "published.hri"
        with self._named():
            is_there = self._uploads.download(self._url(PACK_INDEX_NAME), str(path))
        with contextlib.suppress(DataLossError, FailedPreconditionError):
            return _core.Index.open(str(path)) if is_there else None
        return None

    def _url(self, name: str) -> str:
        return f"{self.target}/{name}"

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of requests, with what was done to which object."""
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            if error.filename is not None and not str(error.filename).startswith(self.target):
                raise  # Of a file here.
            kind = NotFoundError if isinstance(error, FileNotFoundError) else UnavailableError
            of = f"{error.filename}: " if error.filename not in (None, self.target) else ""
            cause = error.strerror or str(error)
            if ";" not in cause:
                cause += "; run the same command again when it answers, which continues"
            raise kind(f"packing to {self.target}: {of}{cause}") from error


def _scaled(
    progress: Callable[[int], None], data_bytes: int, file_bytes: int
) -> Callable[[int], None]:
    """Takes bytes of a file, and passes on their part of the data."""
    sent = passed = 0

    def advance(count: int) -> None:
        nonlocal sent, passed
        sent += count
        due = data_bytes * min(sent, file_bytes) // max(file_bytes, 1)
        passed, count = due, due - passed
        progress(count)

    return advance
