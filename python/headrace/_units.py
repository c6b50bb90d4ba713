"""Bytes and counts as people write them: "1 MiB", "256MB", 4096; "1 file", "1,200 files"."""

from __future__ import annotations

import re

from headrace.errors import InvalidArgumentError

_UNITS = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "kib": 2**10,
    "kb": 10**3,
    "m": 2**20,
    "mib": 2**20,
    "mb": 10**6,
    "g": 2**30,
    "gib": 2**30,
    "gb": 10**9,
    "t": 2**40,
    "tib": 2**40,
    "tb": 10**12,
    "p": 2**50,
    "pib": 2**50,
    "pb": 10**15,
}
_BITS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtTpP]i?)b(?:its?)?\s*(?:/s|ps)?\s*")


def parse_bytes(text: str | int, what: str) -> int:
    """The bytes that `text` means; `what` names the argument in errors."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise InvalidArgumentError(
            f'{what}: "{text}" is not a number of bytes; write it as 1048576, 1MiB or 1.5GB'
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])


def parse_rate(text: str, what: str) -> int:
    """The bytes a second that `text` means, as "2GB/s" or "2GB"."""
    refuse_bits(text, what)
    return parse_bytes(text.strip().removesuffix("/s"), what)


def refuse_bits(text: str, what: str) -> None:
    """Raises if `text` is a rate that may be of bits: with both spellings in bytes."""
    bits = _BITS.fullmatch(text)
    if bits is not None:
        number, prefix = float(bits[1]), bits[2][0].upper() + bits[2][1:]
        raise InvalidArgumentError(
            f'{what}: "{text}" may be bits a second; write bytes: "{number / 8:g}{prefix}B/s" if '
            f'it is bits, else "{number:g}{prefix}B/s"'
        )


def parse_share_or_bytes(text: str | int, what: str, whole: int) -> int:
    """The bytes that `text` means, or a share of `whole` for "20%"."""
    if isinstance(text, str):
        share = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", text)
        if share and not 0 < float(share[1]) <= 100:
            raise InvalidArgumentError(f'{what}: got "{text}", must be above 0% and at most 100%')
        if share:
            return max(1, int(whole * float(share[1]) / 100))
    return parse_bytes(text, what)


def counted(count: int, one: str, many: str | None = None) -> str:
    """For messages: "1 file", "1,200 files"; `many` is the plural, by default with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def format_bytes(count: float) -> str:
    """For messages: "1 byte", "512 bytes", "1.5 KiB", "256.0 MiB"."""
    if count < 1024:
        return counted(round(count), "byte")
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"
