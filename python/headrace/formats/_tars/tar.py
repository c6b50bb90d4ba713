"""The members of a tar file, read from their headers alone."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from zlib import adler32

from headrace import _core
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._files.npy import Read
from headrace.formats._files.reading import open_file

_BLOCK = 512
_AHEAD_BYTES = 64 * 1024  # read at once where members are small
_SMALL_BYTES = 16 * 1024
_REQUEST_BYTES = 2**20  # where each read is a request, which takes as long as to transfer these
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
    """A regular file in a tar, or a link to one, with the bytes of that."""

    name: str
    offset: int
    size: int
    missing: str = ""
    """What it is, if it has no bytes in the tar."""
    is_link: bool = False
    """Whether what has no bytes is a link."""


@dataclass(frozen=True)
class _Link:
    """A link, before its target is looked up."""

    name: str
    offset: int
    target: str
    is_hard: bool


class TarReader:
    """Iterates over the regular files of a tar, and its links to these; skips folders.

    Pipes, devices, and links to what is not in the tar come as members without bytes.

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
        self._ahead = self._ahead_of(0)

    def _ahead_of(self, size: int) -> int:
        """Bytes to read at once at a header, where members have so many bytes."""
        if self._fd is None:
            return _REQUEST_BYTES if size < _REQUEST_BYTES else _BLOCK
        return _AHEAD_BYTES if size < _SMALL_BYTES else _BLOCK

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
        targets: _Targets | None = None
        for entry in self._entries():
            if isinstance(entry, Member):
                yield entry
                continue
            if targets is None:  # All headers are read again, if there is a link.
                again = TarReader(self._read, self._size, self.path, self._fd)
                targets = _Targets(again._entries())
            member = targets.member(entry)
            if member is not None:
                yield member

    def _entries(self) -> Iterator[Member | _Link]:
        at, long_name, long_target = 0, "", ""
        pax: dict[str, str] = {}
        pax_global: dict[str, str] = {}
        odd = 0  # members that are not left to the core
        while True:
            if not (odd or long_name or long_target or pax or pax_global):
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
            if kind in (b"1", b"2") and size and self._is_header(data):
                size = 0  # Some writers give the target's, though no bytes follow.
            if data + size > self._size:
                raise self.damaged(
                    at + 124, f"a member of {size} bytes begins here, the file has {self._size}"
                )
            if kind in b"xgLK":
                text = self._long(at, data, size)
                if kind == b"L":
                    long_name = text.rstrip(b"\0").decode("utf-8", "surrogateescape")
                elif kind == b"K":
                    long_target = text.rstrip(b"\0").decode("utf-8", "surrogateescape")
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
                name = settings.get("path") or long_name or _name_of(header)
                if kind in (b"0", b"\0", b"7") or (kind == b"1" and size):
                    if not name.endswith("/"):
                        self._ahead = self._ahead_of(size)
                        yield Member(name, data, size)
                elif kind in (b"1", b"2"):
                    target = settings.get("linkpath") or long_target or _text(header[157:257])
                    yield _Link(name, data, target, kind == b"1")
                elif kind in (b"3", b"4", b"6"):
                    yield Member(name, data, 0, "a pipe" if kind == b"6" else "a device")
                elif kind != b"5":
                    raise self.damaged(at + 156, f"a member of unknown type {kind!r}")
                long_name, long_target, pax = "", "", {}
            at = data + -(-size // _BLOCK) * _BLOCK

    def _is_header(self, at: int) -> bool:
        """Whether a header lies at `at`, or the end mark."""
        try:
            self._header(at)
        except DataLossError:
            return False
        return True

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
        checksum = self._number(header[148:156], at + 148)
        if checksum != _sum(header[:256]) + _sum(header[256:]) - _sum(header[148:156]) + 8 * 32:
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
    with open_file(path) as file:
        yield TarReader(file.read, file.size, path, file.descriptor)


def _sum(data: bytes) -> int:
    """The sum of up to 256 bytes: the lower half of Adler-32, less 1, in a tenth of the time."""
    return (adler32(data) & 0xFFFF) - 1


def _name_of(header: bytes) -> str:
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    name = _text(header[:100])
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


class _Targets:
    """Looks up what links lead to, as a program would that extracts the tar."""

    def __init__(self, entries: Iterator[Member | _Link]) -> None:
        self._named: dict[str, list[Member | _Link]] = {}
        self._folders: set[str] = set()
        for entry in entries:
            name = _plain_path(entry.name)
            self._named.setdefault(name, []).append(entry)
            while name := posixpath.dirname(name):
                if name in self._folders:
                    break
                self._folders.add(name)

    def member(self, link: _Link) -> Member | None:
        """The link with its target's bytes, or with none; None: it leads to a folder."""
        at: Member | _Link | None = link
        passed: set[int] = set()
        while isinstance(at, _Link):
            if at.offset in passed:
                return Member(link.name, link.offset, 0, "a link that leads to itself", True)
            passed.add(at.offset)
            where = _plain_path(at.target)
            if not at.is_hard:  # Relative to its own folder.
                where = posixpath.join(posixpath.dirname(_plain_path(at.name)), at.target)
                where = posixpath.normpath(where)
            if where in self._folders and where not in self._named:
                return None
            named = self._named.get(where, [])
            if at.is_hard:  # It is one with the file that has the name until then.
                named = [member for member in named if member.offset < at.offset]
            at = named[-1] if named else None
        if at is not None and not at.missing:
            return Member(link.name, at.offset, at.size)
        before = " before it" if link.is_hard else ""
        what = f"a link to {link.target!r}, which is no file{before} in this tar"
        return Member(link.name, link.offset, 0, what, True)


def _plain_path(name: str) -> str:
    """Without a "./" or "/" in front, as tar and its links differ in these."""
    return posixpath.normpath(name).lstrip("/")
