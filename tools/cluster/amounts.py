"""Rates and sizes as people write them: 1Gbit, 200MB/s, 2GiB."""

from __future__ import annotations

import re

_UNITS = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]i?|)(bit|B)(/s)?")


def bits_per_s(text: str) -> int:
    """Of a link: "1Gbit", "125MB/s"."""
    number, unit, _ = _parsed(text, "a rate such as 1Gbit or 125MB/s")
    return number * (1 if unit == "bit" else 8)


def bytes_per_s(text: str) -> int:
    """Of storage: "200MB/s"."""
    number, unit, per_s = _parsed(text, "a rate such as 200MB/s")
    if unit != "B" or not per_s:
        raise ValueError(f"got {text!r}, must be a rate such as 200MB/s")
    return number


def size(text: str) -> int:
    """Of memory: "2GiB"."""
    number, unit, per_s = _parsed(text, "a size such as 2GiB")
    if unit != "B" or per_s:
        raise ValueError(f"got {text!r}, must be a size such as 2GiB")
    return number


def _parsed(text: str, wanted: str) -> tuple[int, str, bool]:
    found = _AMOUNT.fullmatch(text)
    number = round(float(found[1]) * _UNITS[found[2]]) if found else 0
    if found is None or number < 1:
        raise ValueError(f"got {text!r}, must be {wanted}")
    return number, found[3], found[4] is not None
