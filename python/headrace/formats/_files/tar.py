"""The members of a tar file, read from their headers alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from zlib import adler32

from headrace import _core
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._files.npy import Read
from headrace.formats._files.reading import open_file

_BLOCK = 512
_AHEAD_BYTES = 64 * 1024  # read at once where members are small
_SMALL_BYTES = 16 * 1024
_LONG_MAX = 2**20  # of a name or of pax records
_MEMBERS_AT_ONCE = 256  # between two looks for Ctrl-C
_ODD_MEMBERS = 64  # read here if the core could not read the next one
_AGAIN = "copy or write the file again"
_ZEROS = bytes(_BLOCK)
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"BZh": "bunzip2",
    b"\xfd7zXZ\0": "unxz",
    b"\x04\x22\x4d\x18": "unlz4",
}


class Member(NamedTuple):
    """A regular file in a tar."""

    name: str
    offset: int
    size: int


class TarReader:
    """Iterates over the regular files of a tar; skips folders, links and devices.

    Reads ustar, GNU and pax headers. Every header's checksum is checked, and that the archive ends
    with its end mark: a file that was cut at a member's end would lose samples unnoticed.
    """

    def __init__(self, read: Read, size: int, path: str, fd: int | None = None) -> None:
        """`read(offset, size)` of the file at `path`, which has `size` bytes.

        `fd`: of the same file: most headers then are read by the core, in a tenth of the time.
        """
        self._read = read
        self._fd = fd
        self._size = size
        self.path = path
        self._buffer = b""
        self._buffer_at = 0
        self._ahead = _AHEAD_BYTES

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer at its end."""
        start = offset - self._buffer_at
        if start >= 0 and start + size <= len(self._buffer):
            return self._buffer[start : start + size]
        if size > self._ahead:
            return self._read(offset, size)
        self._buffer, self._buffer_at = self._read(offset, self._ahead), offset
        return self._buffer[:size]

    def __iter__(self) -> Iterator[Member]:
        at, long_name = 0, ""
        pax: dict[str, str] = {}
        pax_global: dict[str, str] = {}
        odd = 0  # members that are not left to the core
        while True:
            if not (odd or long_name or pax or pax_global):
                end = at
                for members, behind in self._plain(at):
                    yield from members
                    end = behind
                odd, at = _ODD_MEMBERS if at == end else 0, end
            odd = max(0, odd - 1)
            header = self._header(at)
            if header is None:
                self._check_end(at)
                return
            kind = header[156:157]
            settings = {**pax_global, **pax}
            size = self._number(header[124:136], at + 124)
            if kind not in b"xgLK" and "size" in settings:
                size = self._pax_size(settings["size"], at)
            data = at + _BLOCK
            if data + size > self._size:
                raise self.damaged(
                    at + 124, f"a member of {size} bytes begins here, the file has {self._size}"
                )
            if kind in b"xgLK":
                text = self._long(at, data, size)
                if kind == b"L":
                    long_name = text.rstrip(b"\0").decode("utf-8", "surrogateescape")
                elif kind == b"x":
                    pax = self._pax(text, data)
                elif kind == b"g":
                    pax_global = {**pax_global, **self._pax(text, data)}
            else:
                if kind == b"S" or any(key.startswith("GNU.sparse") for key in settings):
                    raise InvalidArgumentError(
                        f"indexing {self.path}: byte {at}: a sparse member, whose bytes are not "
                        "one range; write the file without --sparse"
                    )
                if kind in (b"0", b"\0", b"7"):
                    name = settings.get("path") or long_name or _name_of(header)
                    if not name.endswith("/"):
                        self._ahead = _AHEAD_BYTES if size < _SMALL_BYTES else _BLOCK
                        yield Member(name, data, size)
                elif kind not in (b"1", b"2", b"3", b"4", b"5", b"6"):
                    raise self.damaged(at + 156, f"a member of unknown type {kind!r}")
                long_name, pax = "", {}
            at = data + -(-size // _BLOCK) * _BLOCK

    def _plain(self, at: int) -> Iterator[tuple[Iterator[Member], int]]:
        """Members from `at` on that the core reads, and where the header behind them lies."""
        is_plain = self._fd is not None
        while is_plain:
            assert self._fd is not None
            begin = at
            names, offsets, sizes, at, is_plain = _core.tar_members(
                self._fd, self._size, at, _MEMBERS_AT_ONCE
            )
            if len(sizes):
                is_small = at - begin < len(sizes) * _SMALL_BYTES
                self._ahead = _AHEAD_BYTES if is_small else _BLOCK
            texts = names.decode("utf-8", "surrogateescape").split("\0")
            yield map(Member, texts, offsets.tolist(), sizes.tolist()), at

    def damaged(self, offset: int, why: str) -> DataLossError:
        """An error about the byte at `offset`."""
        return DataLossError(f"indexing {self.path}: byte {offset}: {why}; {_AGAIN}")

    def _header(self, at: int) -> bytes | None:
        """The checked header at `at`; None: the archive ends here."""
        header = self.bytes_at(at, _BLOCK)
        if at == 0:
            self._refuse_compressed(header)
        if len(header) < _BLOCK:
            raise self.damaged(
                at, f"cut short: there is no end mark, the file has {self._size} bytes"
            )
        if header == _ZEROS:
            return None
        found = self._number(header[148:156], at + 148)
        if found != _sum(header[:256]) + _sum(header[256:]) - _sum(header[148:156]) + 8 * 32:
            raise self.damaged(at, "no tar header: its checksum is wrong")
        return header

    def _refuse_compressed(self, front: bytes) -> None:
        for magic, tool in _COMPRESSED.items():
            if front.startswith(magic):
                raise InvalidArgumentError(
                    f"indexing {self.path}: it is compressed, so that no sample can be read "
                    f"alone; decompress it once with {tool}: images are compressed themselves"
                )

    def _number(self, field: bytes, at: int) -> int:
        """Octal digits, or base 256 where the first bit is set."""
        if field[0] in (0x80, 0xFF):
            number = int.from_bytes(field[1:], "big")
            if field[0] == 0xFF or number >= 2**63:
                raise self.damaged(at, "a negative or huge number")
            return number
        digits = field.partition(b"\0")[0].strip()
        if not digits:
            return 0
        if not digits.isdigit() or b"8" in digits or b"9" in digits:
            raise self.damaged(at, f"{digits!r} is no octal number")
        return int(digits, 8)

    def _pax_size(self, text: str, at: int) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise self.damaged(at, f"its pax record says size {text!r:.50}")
        return int(text)

    def _long(self, at: int, data: int, size: int) -> bytes:
        if size > _LONG_MAX:
            raise self.damaged(at + 124, f"a name or pax header of {size} bytes")
        return self.bytes_at(data, size)

    def _pax(self, text: bytes, at: int) -> dict[str, str]:
        """Records "LENGTH KEY=VALUE\\n"."""
        records: dict[str, str] = {}
        start = 0
        while start < len(text):
            digits, space, _ = text[start : start + 20].partition(b" ")
            length = int(digits) if space and digits.isdigit() else 0
            record = text[start : start + length]
            key, equals, value = record[len(digits) + 1 :].partition(b"=")
            if length <= len(digits) + 1 or len(record) != length or not equals:
                raise self.damaged(at + start, "a pax record that cannot be read")
            if not value.endswith(b"\n"):
                raise self.damaged(at + start, "a pax record without its end")
            records[key.decode("utf-8", "surrogateescape")] = value[:-1].decode(
                "utf-8", "surrogateescape"
            )
            start += length
        return records

    def _check_end(self, at: int) -> None:
        """Behind the end mark there are zeros only."""
        for start in range(at, self._size, 2**20):
            piece = self._read(start, 2**20)
            if piece.count(0) != len(piece):
                raise self.damaged(
                    at,
                    "the end mark, but not the end: tars were joined, of which others read "
                    "the first only",
                )


@contextmanager
def open_tar(path: str) -> Iterator[TarReader]:
    """Its reader; errors as those of `file_reader`."""
    with open_file(path) as (fd, size):
        yield TarReader(lambda offset, count: os.pread(fd, count, offset), size, path, fd)


def _sum(data: bytes) -> int:
    """The sum of up to 256 bytes: the lower half of Adler-32, less 1, in a tenth of the time."""
    return (adler32(data) & 0xFFFF) - 1


def _name_of(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    if header[257:263] == b"ustar\0":
        prefix = header[345:500].partition(b"\0")[0]
        if prefix:
            name = prefix + b"/" + name
    return name.decode("utf-8", "surrogateescape")
