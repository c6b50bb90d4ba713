"""The arrays of a .npz file: a zip of .npy files."""

from __future__ import annotations

import zipfile

from headrace import _places
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._files.npy import NpyHeader, Read, read_npy_header
from headrace.formats._files.reading import file_reader

_LOCAL_HEADER_BYTES = 30
_END_BYTES = 22  # of the directory's end
_AGAIN = "copy or write the file again"


def npz_members(path: str) -> list[tuple[str, NpyHeader, int]]:
    """Of each array: its name, its header, and where in the file that begins."""
    with file_reader(path) as (read, size):
        read(max(0, size - _END_BYTES), _END_BYTES)  # zipfile says no cause of what it cannot read.
        try:
            with _places.open(path) as file, zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise DataLossError(
                f"indexing {path}: its directory, at the end of {size} bytes: {error}; {_AGAIN}"
            ) from error
        members = []
        for entry in entries:
            if not entry.filename.endswith(".npy"):
                raise InvalidArgumentError(
                    f"indexing {path}: {entry.filename!r} in it is no array; save arrays only"
                )
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                raise InvalidArgumentError(
                    f"indexing {path}: {entry.filename!r} is compressed, so that no row can be "
                    "read alone; save the arrays with numpy.savez, not savez_compressed"
                )
            at = entry.header_offset
            local = read(at, _LOCAL_HEADER_BYTES) if 0 <= at < size else b""
            offset = _data_offset(path, local, entry, size)
            members.append(
                (
                    entry.filename.removesuffix(".npy"),
                    read_npy_header(
                        _from(read, offset),
                        entry.file_size,
                        f"{path} ({entry.filename} from byte {offset})",
                    ),
                    offset,
                )
            )
    if not members:
        raise InvalidArgumentError(
            f"indexing {path}: it holds no arrays; write them with numpy.savez"
        )
    return members


def _from(read: Read, base: int) -> Read:
    """Reads what begins at `base`."""
    return lambda offset, size: read(base + offset, size)


def _data_offset(path: str, local: bytes, entry: zipfile.ZipInfo, size: int) -> int:
    """Where the member's bytes begin: behind a header of its own, whose names vary in length."""
    offset = entry.header_offset + _LOCAL_HEADER_BYTES
    if len(local) < _LOCAL_HEADER_BYTES or local[:4] != b"PK\3\4":
        raise DataLossError(
            f"indexing {path}: byte {entry.header_offset}: no member begins here, the directory "
            f"says {entry.filename!r}; {_AGAIN}"
        )
    offset += int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    if entry.compress_size != entry.file_size or offset + entry.file_size > size:
        raise DataLossError(
            f"indexing {path}: byte {offset}: {entry.filename!r} has {entry.file_size} bytes, the "
            f"file {size}; {_AGAIN}"
        )
    return offset
