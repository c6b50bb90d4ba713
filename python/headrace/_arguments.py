"""Parses arguments of the loader: sizes, names."""

from __future__ import annotations

import operator
import os
import re
import shlex
from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeVar

from headrace import _core
from headrace._units import parse_share_or_bytes
from headrace.errors import InvalidArgumentError

Kind = TypeVar("Kind")
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


def instance(name: str, value: Any, kind: type[Kind], way: str = "") -> Kind:
    """`value` if it is one of this class; else an error that names the argument. `way`: to get one,
    as ", as headrace.profile.load(path) gives"."""
    if not isinstance(value, kind):
        raise InvalidArgumentError(f"{name}: got {shown(value)}, must be a {kind.__name__}{way}")
    return value


def callback(name: str, value: Any) -> None:
    """Raises an error that names the argument if `value` cannot be called."""
    if not callable(value):
        raise InvalidArgumentError(f"{name}: got {shown(value)}, must be callable")


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


_URL = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]+://"
    # pathlib makes one "/" of two.
    r"|(s3|gs|gcs|az|abfss?|wasbs?|hdfs|https?|ftp|file|oss|r2|hf|dbfs):/"
)


def refuse_url(doing: str, path: Any, command: str = "") -> None:
    """Raises if `path`, to be written, is a URL. `command`: writes what is wanted, at a name that
    follows."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        return  # The user of the path names it.
    if not _URL.match(text):
        return
    scheme, _, rest = text.partition(":")
    rest = rest.lstrip("/")
    if scheme == "file":
        raise InvalidArgumentError(
            f"{doing} {shown(text)}: this is a URL; write the path alone: {shown('/' + rest)}"
        )
    name = os.path.basename(rest.rstrip("/")) or "data"
    way = f"name one, such as {shown(name)}, and copy what is written there to the URL"
    if command:
        way = f"write to a disk and copy from there: `{command} {shlex.quote(name)}`"
    raise InvalidArgumentError(
        f"{doing} {shown(text)}: this is a URL, and headrace writes to local paths, which may be "
        f"those of a mounted storage (s3fs, gcsfuse, rclone mount, NFS); {way}"
    )


def written_path(doing: str, path: Any) -> str:
    """`path`, to be written, as `given_path` has it; it is no URL."""
    refuse_url(doing, path)
    return given_path(doing, path)


def flag(name: str, value: Any) -> bool:
    """`value` if it is a bool; other values that are true or false are likely a mistake."""
    if type(value).__name__ not in ("bool", "bool_"):  # bool_: NumPy's
        raise InvalidArgumentError(f"{name}: got {shown(value)}, must be True or False")
    return bool(value)


def items(name: str, value: Any, of: str) -> list[Any]:
    """What `value` iterates over; else an error that names the argument."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{name}: got {shown(value)}, must be an iterable of {of}")
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
