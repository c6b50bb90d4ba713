"""Files of token ids: Megatron's .bin and .idx, raw arrays, .npy; in windows of one length."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headrace import _core, _places
from headrace._arguments import integer, shown
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError
from headrace.formats._base.builder import Builder
from headrace.formats._base.format import Format, later_option
from headrace.formats._files.npy import read_npy_header
from headrace.formats._files.objects import object_path
from headrace.formats._files.patterns import expand
from headrace.formats._files.reading import file_reader
from headrace.formats._tokens.headers import has_header, read_header
from headrace.formats._tokens.megatron import (
    Megatron,
    document_extents,
    is_megatron,
    read_megatron,
)

_WINDOWS_AT_ONCE = 2**20
_WINDOW_MAX = 2**31
_KINDS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")


@dataclass(frozen=True, kw_only=True)
class Tokens(Format):
    """Token files, in windows of `window` tokens, or documents: `headrace docs formats/tokens`.

    Window i of a file begins at token i * `stride`; windows do not cross files. With `targets` a
    sample has a second field, the window that begins one token later.

    >>> hr.open("train.bin", format=Tokens(dtype="uint16", window=1024))
    """

    name: ClassVar[str] = "tokens"
    opens: ClassVar[str] = "token files of Megatron (.bin beside .idx), llm.c, NeMo, lit-gpt"

    window: int | None = None
    """Tokens of a sample."""
    stride: int | None = None
    """Tokens from the beginning of a window to that of the next; None: `window`."""
    dtype: str | None = None
    """Type of the tokens in raw files, which do not state it: "uint16", "uint32", ..."""
    targets: bool = True
    """Whether a sample has the field `targets` beside `tokens`."""
    documents: bool = False
    """Whether a sample is a document of a Megatron file, of any length, instead of a window."""
    batch_dtype: str | None = "int64"
    """Type of the tokens in batches; None: the stored type."""
    header_bytes: int | None = later_option(None)
    """Of raw files: bytes before the tokens; None: the size of a known header, or 0."""

    def __post_init__(self) -> None:
        """Refuses invalid values."""
        for name in ("window", "stride"):
            if getattr(self, name) is not None:
                integer(f"tokens {name}", getattr(self, name), 1, _WINDOW_MAX)
        if self.header_bytes is not None:
            integer("tokens header_bytes", self.header_bytes, 0, _WINDOW_MAX)
        if self.dtype is not None and self.dtype not in _KINDS:
            raise InvalidArgumentError(
                f"tokens dtype: got {shown(self.dtype)}, must be one of {', '.join(_KINDS)}"
            )

        if self.documents and (self.window is not None or self.stride is not None):
            raise InvalidArgumentError(
                "tokens: got documents=True and a window or stride: a sample is a document, or a "
                "window; leave one of them out"
            )

    def recognises(self, path: str) -> bool:
        first = expand(path)[0]
        return is_megatron(first) or (first.endswith(".bin") and has_header(first))

    def is_current(self, index: _core.Index) -> bool:
        return super().is_current(index) and not self._has_a_header_inside(index)

    def _has_a_header_inside(self, index: _core.Index) -> bool:
        """Whether an index from before headers were known takes one for tokens."""
        if self.header_bytes is not None or index.sample_count == 0:
            return False
        file, offset, _ = (int(extent[0]) for extent in index.extents(0, 0, 1))
        return offset == 0 and has_header(object_path(index, file))

    def takes(self, name: str) -> bool:
        return name.endswith((".bin", ".npy"))

    def example(self) -> Tokens:
        return Tokens(dtype="uint16", window=1024)

    def fill(self, path: str, builder: Builder) -> None:
        if self.window is None and not self.documents:
            raise InvalidArgumentError(
                f"opening {path}: the length of a sample is not in the files; give it, as "
                f"hr.open(path, format=hr.formats.Tokens(window=1024)), or `headrace index {path} "
                "--format tokens --option window=1024`; or say documents=True"
            )
        paths = expand(path)
        stored = self._describe(paths[0]).dtype
        batch = stored if self.batch_dtype is None else np.dtype(self.batch_dtype)
        for name in self._fields():
            # None: documents differ in length.
            builder.add_field(name, "array", stored, [self.window], batch_dtype=batch)

        def describe(file_path: str, part: Builder) -> None:
            file = self._describe(file_path, part)
            if file.dtype != stored:
                raise InvalidArgumentError(
                    f"indexing {file.path}: it holds {file.dtype}, {paths[0]} {stored}; open "
                    "files of one dtype together"
                )
            if self.documents:
                _add_documents(file, part)
            else:
                self._add_windows(file, part)

        if builder.add_parts(paths, describe) == 0 and not self.documents:
            self._check_some(path, max(self._describe(path).count for path in paths))

    def _describe(self, path: str, builder: Builder | None = None) -> TokenFile:
        return _describe(path, self.dtype, self.header_bytes, builder)

    def _check_some(self, path: str, largest: int) -> None:
        """Raises if no file has a window."""
        if not largest:
            raise InvalidArgumentError(
                f"indexing {path}: it holds no samples: it has no tokens; copy or write it again"
            )
        if self._windows(largest) == 0:
            target = ", and the one behind them" if self.targets else ""
            raise InvalidArgumentError(
                f"indexing {path}: window={self.window}: a sample takes {self.window:,} tokens"
                f"{target}; the largest file has {largest:,}; give a smaller window"
            )

    def _fields(self) -> list[str]:
        return ["tokens", "targets"] if self.targets and not self.documents else ["tokens"]

    def _windows(self, tokens: int) -> int:
        """The number of windows of a file of so many tokens."""
        assert self.window is not None
        needed = self.window + (1 if self.targets else 0)
        return 0 if tokens < needed else (tokens - needed) // (self.stride or self.window) + 1

    def _add_windows(self, file: TokenFile, builder: Builder) -> None:
        assert self.window is not None
        number = builder.add_file(file.path)
        width = file.dtype.itemsize
        step = np.uint64((self.stride or self.window) * width)
        count = self._windows(file.count)
        for first in range(0, count, _WINDOWS_AT_ONCE):
            windows = np.arange(first, min(count, first + _WINDOWS_AT_ONCE), dtype=np.uint64)
            for shift, name in enumerate(self._fields()):
                offsets = windows * step + np.uint64(file.offset + shift * width)
                builder.add_extents(name, number, offsets, self.window * width)
            builder.tell(first + len(windows))


def _add_documents(file: TokenFile, builder: Builder) -> None:
    if file.megatron is None:
        raise InvalidArgumentError(
            f"indexing {file.path}: documents=True: it does not say where documents end; only "
            "Megatron's .idx does; leave documents= out"
        )
    number = builder.add_file(file.path)
    samples = 0
    for offsets, sizes in document_extents(file.idx, file.megatron):
        builder.add_extents("tokens", number, offsets, sizes)
        samples += len(offsets)
        builder.tell(samples)


@dataclass(frozen=True)
class TokenFile:
    """Where the tokens of a file lie."""

    path: str
    dtype: np.dtype[Any]
    offset: int
    count: int
    megatron: Megatron | None = None
    idx: str = ""

    @property
    def is_described(self) -> bool:
        """Whether it is no raw array."""
        return self.megatron is not None or self.path.endswith(".npy")


def _describe(
    path: str, dtype: str | None, header_bytes: int | None, builder: Builder | None
) -> TokenFile:
    if not _places.exists(path):
        raise NotFoundError(f"indexing {path}: no such file")
    if path.endswith(".idx") or is_megatron(path):
        base = os.path.splitext(path)[0]
        if builder is not None:
            builder.depends_on(base + ".idx")
        megatron = read_megatron(base + ".idx", base + ".bin")
        file = TokenFile(base + ".bin", megatron.dtype, 0, megatron.tokens, megatron, base + ".idx")
    elif path.endswith(".npy"):
        with file_reader(path) as (read, size):
            header = read_npy_header(read, size, path)
        if len(header.shape) != 1:
            raise InvalidArgumentError(
                f"indexing {path}: it has shape {list(header.shape)}, tokens have one dimension; "
                "open rows of an array without format="
            )
        file = TokenFile(path, header.dtype, header.data_offset, header.shape[0])
    else:
        file = _describe_raw(path, dtype, header_bytes)
    if header_bytes is not None and file.is_described:
        raise InvalidArgumentError(
            f"indexing {path}: header_bytes={header_bytes}: the file says itself where its tokens "
            "begin; leave header_bytes= out"
        )
    if file.dtype.name not in _KINDS:
        raise InvalidArgumentError(
            f"indexing {path}: it holds {file.dtype}, tokens are one of {', '.join(_KINDS)}"
        )
    if dtype is not None and file.dtype != np.dtype(dtype):
        raise InvalidArgumentError(
            f"indexing {path}: it holds {file.dtype}, dtype={dtype!r} was given; leave dtype out"
        )
    return file


def _describe_raw(path: str, dtype: str | None, header_bytes: int | None) -> TokenFile:
    header = read_header(path) if header_bytes is None else None
    token_dtype = dtype if header is None else header.dtype
    front = (header_bytes or 0) if header is None else header.bytes
    if token_dtype is None:
        raise InvalidArgumentError(
            f"indexing {path}: a raw file does not say its dtype; give it, as "
            "hr.formats.Tokens(dtype='uint16', ...)"
        )
    element, size = np.dtype(token_dtype), _places.stat(path).st_size - front
    if size < 0:
        raise InvalidArgumentError(
            f"indexing {path}: header_bytes={front}, but the file has {size + front} bytes; give "
            "the number of bytes in front of the tokens"
        )
    if size % element.itemsize:
        raise DataLossError(
            f"indexing {path}: it has {size} bytes{' of tokens' if front else ''}, not a multiple "
            f"of the {element.itemsize} of {token_dtype}: it ends inside a token at byte "
            f"{front + size - size % element.itemsize}; copy or write the file again, or give "
            "another dtype"
        )
    return TokenFile(path, element, front, size // element.itemsize)
