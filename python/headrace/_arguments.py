"""Parses arguments of the loader: sizes, names."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any, SupportsIndex

from headrace import _core
from headrace._units import parse_share_or_bytes
from headrace.errors import InvalidArgumentError

_SHOWN_MAX = 200  # characters of a wrong value in a message


def integer(name: str, value: SupportsIndex, least: int, most: int) -> int:
    """`value` as an int in [least, most]; else an error that names the argument."""
    number = whole(value)
    if number is None:
        raise InvalidArgumentError(f"{name}: got {shown(value)}, must be an integer")
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name}: got {shown(value)}, must be in [{least}, {most}]")
    return number


def iterable(name: str, value: Any) -> None:
    """Raises an error that names the argument if ``iter(value)`` cannot work."""
    if not hasattr(value, "__iter__") and not hasattr(value, "__getitem__"):
        raise InvalidArgumentError(f"{name}: got {shown(value)}, must be iterable")


def shown(value: Any) -> str:
    """`value` for an error message, cut to a maximum length."""
    try:
        text = repr(value)
    except Exception as error:  # For example, an integer of 5,000 digits.
        return f"a {type(value).__name__} that has no repr ({type(error).__name__})"
    if len(text) <= _SHOWN_MAX:
        return text
    return f"{text[:_SHOWN_MAX]}... ({len(text):,} characters)"


def whole(value: Any) -> int | None:
    """`value` as an int; None if it is not one: True and False are likely a mistake."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def given_path(doing: str, path: Any) -> str:
    """`path`, str, bytes or os.PathLike, as text, if there is any: none would mean the current
    folder."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise InvalidArgumentError(f"{doing}: got {shown(path)}, must be a path") from None
    try:
        has_nul = b"\0" in os.fsencode(text)
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{doing} {shown(text)}: character {error.start} is a surrogate, which no file "
            "name contains; check how the text was decoded"
        ) from None
    if has_nul:
        raise InvalidArgumentError(
            f"{doing} {shown(text)}: a path has no NUL character; write it without"
        )
    if not text:
        raise InvalidArgumentError(
            f"{doing} {text!r}: the path is empty; the current folder is written '.'"
        )
    return text


def flag(name: str, value: Any) -> bool:
    """`value` if it is a bool; other values that are true or false are likely a mistake."""
    if type(value).__name__ not in ("bool", "bool_"):  # bool_: NumPy's
        raise InvalidArgumentError(f"{name}: got {value!r}, must be True or False")
    return bool(value)


def items(name: str, value: Any, of: str) -> list[Any]:
    """What `value` iterates over; else an error that names the argument."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{name}: got {value!r}, must be an iterable of {of}")
    return list(value)


def memory_bytes(value: int | str | None, name: str = "memory") -> int:
    """Bytes of 4 * 2**30, "4GiB", "500MB" or "20%" (of the machine's memory); None: 0."""
    if value is None:
        return 0
    if isinstance(value, str):
        value = parse_share_or_bytes(value, name, _core.memory_limit_bytes())
    return integer(name, value, 1, 2**62)


def choice(name: str, value: Any, allowed: tuple[str, ...], hint: str = "") -> str:
    """`value` if it is one of `allowed`."""
    if isinstance(value, str) and value in allowed:
        return value
    names = ", ".join(map(repr, allowed))
    raise InvalidArgumentError(f"{name}: got {shown(value)}, must be one of {names}{hint}")
