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
_NUMBER = r"\s*(\d+(?:\.\d+)?)\s*"
_BITS_A_SECOND = re.compile(rf"{_NUMBER}([kKmMgGtTpP]i?)b(?:its?)?\s*(?:/s|ps)?\s*")
_BITS = re.compile(rf"{_NUMBER}(?:([KMGTP]i?)b|([kKmMgGtTpP]i?)bits?)\s*")  # "gb" is usual for GB


def parse_bytes(text: str | int, what: str) -> int:
    """The bytes that `text` means; `what` names the argument in errors."""
    if isinstance(text, int):
        return text
    refuse_bits(text, what)
    match = re.fullmatch(rf"{_NUMBER}([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise InvalidArgumentError(
            f'{what}: "{text}" is not a number of bytes; write it as 1048576, 1MiB or 1.5GB'
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])


def parse_rate(text: str, what: str) -> int:
    """The bytes a second that `text` means, as "2GB/s" or "2GB"."""
    refuse_bits(text, what, rate=True)
    return parse_bytes(text.strip().removesuffix("/s"), what)


def parse_seconds(text: str, what: str) -> float:
    """The seconds that `text` means, as "90s", "30m", "4h" or "2d"."""
    match = re.fullmatch(rf"{_NUMBER}([smhd])\s*", text.lower())
    if match is None or not float(match[1]):
        raise InvalidArgumentError(
            f'{what}: "{text}" is not a time; write it as 90s, 30m, 4h or 2d'
        )
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def refuse_bits(text: str, what: str, *, rate: bool = False) -> None:
    """Raises if `text` may be a number of bits, or a rate of them: with both spellings in bytes."""
    bits = (_BITS_A_SECOND if rate else _BITS).fullmatch(text)
    if bits is not None:
        number, prefix = float(bits[1]), next(filter(None, bits.groups()[1:]))
        unit = prefix[0].upper() + prefix[1:] + ("B/s" if rate else "B")
        raise InvalidArgumentError(
            f'{what}: "{text}" may be bits{" a second" if rate else ""}; write bytes: '
            f'"{number / 8:g}{unit}" if it is bits, else "{number:g}{unit}"'
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
