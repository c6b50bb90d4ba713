"""The index file of a dataset in a store of objects: the core maps it, so it is copied first."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from stat import S_ISREG

from headrace import _core, _places
from headrace._text import os_reason, unread_reason
from headrace.errors import DataLossError, FailedPreconditionError, NotFoundError, UnavailableError
from headrace.formats._base.cache import built, cache_path, cache_target
from headrace.formats._indexing.in_order import in_order

_PIECE_BYTES = 8 * 2**20
# The layout: `headrace docs index-format`.
_HEADER_BYTES, _ALIGNMENT, _ROOT = 128, 64, 2
_SECTIONS_MAX = 1 << 16  # More: it is no index, which the core says of the copy.
_SECTION = struct.Struct("<IIQQQQ")  # kind, field, offset, size, bytes of an entry, checksum
_BEFORE_SUMS, _HEADER_SUM_AT = 72, 120


def local_index(path: str) -> str:
    """The path of the index file for the core: itself on a disk, else that of a copy in the cache.

    The copy is used again while the object is of the same version. Where the index names its own
    folder as the root, the copy names that of the object.
    """
    if _places.is_local(path):
        return path
    try:
        status = _places.stat(path)
        if not S_ISREG(status.st_mode):
            raise IsADirectoryError(f"{path} is no object, but the begin of keys; name the index")
        with contextlib.closing(_places.reader(path)) as file:
            target = cache_path(path, f":copy={status.st_size},{status.st_mtime_ns}")
            if status.st_mtime_ns and os.path.exists(target):
                return target
            target = cache_target(path, target, lambda _: True)
            pieces = _moved(path, file.read, file.size)
            return built(path, target, lambda at: _write(at, pieces), named=False)
    except FileNotFoundError as error:
        raise NotFoundError(f"reading {path}: there is no such object") from error
    except OSError as error:
        if isinstance(error, (DataLossError, FailedPreconditionError)):
            raise
        raise FailedPreconditionError(f"reading {path}: {unread_reason(error)}") from error


def _write(path: str, pieces: Iterator[bytes]) -> None:
    """Raises UnavailableError: the disk does not take it."""
    temporary = f"{path}.{os.urandom(8).hex()}.partial"  # Others may copy it at the same time.
    try:
        with _of_disk(path):
            file = open(temporary, "xb")  # noqa: SIM115
        with file:
            for piece in pieces:
                with _of_disk(path):
                    file.write(piece)
            with _of_disk(path):
                file.flush()
                os.fsync(file.fileno())
        with _of_disk(path):
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


@contextlib.contextmanager
def _of_disk(path: str) -> Iterator[None]:
    """Errors of the disk, not of the store."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"writing {path}: {os_reason(error)}") from error


def _moved(path: str, read: Callable[[int, int], bytes], size: int) -> Iterator[bytes]:
    """The pieces of the file, whose root "." becomes the folder that the path names.

    The core checks them when it opens the copy.
    """
    head = read(0, _HEADER_BYTES)
    count = struct.unpack_from("<I", head, 12)[0] if len(head) == _HEADER_BYTES else 0
    table_bytes = count * _SECTION.size
    is_table = count <= _SECTIONS_MAX and _HEADER_BYTES + table_bytes <= size
    table = read(_HEADER_BYTES, table_bytes) if count and is_table else b""
    sections = [list(_SECTION.unpack_from(table, at)) for at in range(0, len(table), _SECTION.size)]
    at = next((place for place, section in enumerate(sections[:-1]) if section[0] == _ROOT), None)
    if at is None or read(sections[at][2], min(sections[at][3], 2)) != b".":
        yield from _read(read, 0, size)
        return
    root = os.fsencode(os.path.dirname(path))
    begin, rest = sections[at][2], next(x[2] for x in sections[at + 1 :])
    sections[at][3], sections[at][5] = len(root), _core.hash64(root)
    moved = _up(begin + len(root)) - rest
    for section in sections[at + 1 :]:
        section[2] += moved
    packed = b"".join(_SECTION.pack(*section) for section in sections)
    header = head[:16] + struct.pack("<Q", size + moved) + head[24:_BEFORE_SUMS]
    header += struct.pack("<Q", _core.hash64(packed)) + head[_BEFORE_SUMS + 8 : _HEADER_SUM_AT]
    yield header + struct.pack("<Q", _core.hash64(header)) + packed
    yield read(_HEADER_BYTES + len(packed), begin - _HEADER_BYTES - len(packed))
    yield root + bytes(rest + moved - begin - len(root))
    yield from _read(read, rest, size)


def _up(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _read(read: Callable[[int, int], bytes], begin: int, end: int) -> Iterator[bytes]:
    """Bytes of the file, several pieces at a time."""
    with contextlib.closing(
        in_order(lambda at: read(at, min(_PIECE_BYTES, end - at)), range(begin, end, _PIECE_BYTES))
    ) as pieces:
        yield from pieces
