"""Headers in front of the tokens of a file, as llm.c, NeMo and lit-gpt write them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace import _places
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._files.reading import file_reader

_NUMBERS_BYTES = 1024  # of llm.c: 256 numbers of 32 bits
_NUMBERS = {  # the first two of them: magic and version; the dtype, if the header does not say it
    (20240520, 1): "uint16",
    (20240801, 7): "uint32",
    (278895051, 1): None,
}
_NO_TOKENS = {20240522: "evaluation", 20240326: "model", 20240327: "state", 20240328: "tokenizer"}
_WIDTHS = {2: "uint16", 4: "uint32"}

_PACKED = b"LITPKDS"
_PACKED_BYTES = 24  # magic, version, dtype, tokens of a chunk
_PACKED_CODES = ("", "uint8", "int8", "int16", "int32", "int64", "float32", "float64", "uint16")

_CONTAINERS = {
    b"\x93NUMPY": "an array of NumPy; give the file a name that ends with .npy",
    b"PK\x03\x04": "a zip file, as of numpy.savez or torch.save; write its tokens with tofile()",
    b"\x28\xb5\x2f\xfd": "compressed; decompress it once with unzstd",
    b"\xfd7zXZ\0": "compressed; decompress it once with unxz",
    b"\x89HDF\r\n": "an HDF5 file; open it without format=, or write its tokens with tofile()",
    b"ARROW1\0": "an Arrow file; open it without format=, or write its tokens with tofile()",
    b"MMIDIDX": "the index of a Megatron dataset; open the .bin file beside it",
}
_GZIP = b"\x1f\x8b\x08"  # Which tokens may be, too: only where the name says it.


@dataclass(frozen=True)
class TokenHeader:
    """What a header says of the tokens behind it."""

    bytes: int
    dtype: str


def has_header(path: str) -> bool:
    """Whether the file begins with a header of tokens. OSError: it cannot be read."""
    if not _places.is_file(path):
        return False
    with _places.open(path) as file:
        front = file.read(_PACKED_BYTES)
    return front.startswith(_PACKED) or _words(front)[:2] in _NUMBERS


def read_header(path: str) -> TokenHeader | None:
    """The header in front of raw tokens; None: there is none.

    Raises if its number of tokens is not what the file has, or if it is of another kind of file.
    """
    with file_reader(path) as (read, size):
        front = read(0, _NUMBERS_BYTES)
    words = _words(front)
    if words[:2] in _NUMBERS:
        return _numbers(path, words, size)
    if front.startswith(_PACKED):
        return _packed(path, front, size)
    if words[0] in _NO_TOKENS and words[1] in range(1, 10):
        raise InvalidArgumentError(
            f"indexing {path}: it begins as a file of llm.c that holds no tokens (number "
            f"{words[0]}: {_NO_TOKENS[words[0]]}); name a file of tokens, or {_RAW}"
        )
    gzipped = {_GZIP: "compressed; decompress it once with gunzip"} if path.endswith(".gz") else {}
    for magic, what in (_CONTAINERS | gzipped).items():
        if front.startswith(magic):
            raise InvalidArgumentError(
                f"indexing {path}: it is no raw array of tokens, but {what}; or {_RAW}"
            )
    return None


_RAW = "give header_bytes=0 if its first bytes are tokens"


def _words(front: bytes) -> tuple[int, ...]:
    """The first four numbers of 32 bits."""
    padded = front[:16].ljust(16, b"\0")
    return tuple(int.from_bytes(padded[at : at + 4], "little") for at in range(0, 16, 4))


def _numbers(path: str, words: tuple[int, ...], size: int) -> TokenHeader:
    dtype = _NUMBERS[words[0], words[1]] or _WIDTHS.get(words[3])
    if dtype is None:
        raise DataLossError(
            f"indexing {path}: byte 12: its header says {words[3]} bytes a token, must be 2 or 4; "
            "copy or write the file again"
        )
    width = 2 if dtype == "uint16" else 4
    needed = _NUMBERS_BYTES + words[2] * width
    if size != needed:
        raise DataLossError(
            f"indexing {path}: byte 8: its header says {words[2]:,} tokens of {dtype}, {needed:,} "
            f"bytes with the header; the file has {size:,}; copy or write it again, or give "
            f"header_bytes={_NUMBERS_BYTES} and dtype={dtype!r} to take all that is there"
        )
    return TokenHeader(_NUMBERS_BYTES, dtype)


def _packed(path: str, front: bytes, size: int) -> TokenHeader:
    version = int.from_bytes(front[7:15], "little")
    code = front[15] if len(front) >= _PACKED_BYTES else 0
    if version != 1 or not 0 < code < len(_PACKED_CODES) or size < _PACKED_BYTES:
        raise DataLossError(
            f"indexing {path}: byte 7: its header of a packed dataset has version {version} and "
            f"dtype code {code}, must be version 1 and 1 to 8; copy or write the file again"
        )
    return TokenHeader(_PACKED_BYTES, _PACKED_CODES[code])
