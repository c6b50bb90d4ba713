"""A table of a TOML file, or the values of an object, with checks of every key."""

from __future__ import annotations

import datetime
import math
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from headrace._arguments import shown, whole
from headrace._units import parse_bytes, parse_rate, refuse_bits
from headrace.errors import InvalidArgumentError

Kind = TypeVar("Kind")


class TomlTable:
    """Values by key, each taken once by its type; errors name file, key and value.

    Large: a method for each kind of value, and few lines in each.
    """

    def __init__(
        self,
        file: str,
        place: str,
        values: Mapping[str, Any],
        lines: Mapping[str, int] | None = None,
    ) -> None:
        """`file`: "" for values of an object. `lines`: of the keys by whole names, for errors."""
        self._file = file
        self._place = place  # "storage.rate[2]."
        self._values = values
        self._lines = lines or {}
        self._known: list[str] = []

    def has(self, key: str) -> bool:
        """Whether the key exists: for optional keys."""
        self._known.append(key)
        return key in self._values

    def names(self) -> list[str]:
        """All keys, in the file's order."""
        return list(self._values)

    def finish(self, one_of: Sequence[str] = ()) -> None:
        """Keys that were not taken are an error; so are none, or several, of `one_of`."""
        there = [key for key in one_of if key in self._values]
        if one_of and len(there) != 1:
            raise InvalidArgumentError(
                f"{self._at(there[-1] if there else one_of[0])}: got "
                f"{' and '.join(there) or 'none of them'}, must be exactly one of "
                f"{', '.join(one_of)}"
            )
        for key in self._values:
            if key not in self._known:
                names = ", ".join(dict.fromkeys(self._known))
                raise InvalidArgumentError(f"{self._at(key)}: no such key; there are {names}")

    def text(self, key: str) -> str:
        """A string, not empty."""
        value = self._take(key, "a text")
        if not isinstance(value, str) or not value:
            self._wrong(key, value, "a text")
        return value

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of the given words."""
        must = "one of " + ", ".join(map(repr, allowed))
        value = self._take(key, must)
        if not isinstance(value, str) or value not in allowed:
            self._wrong(key, value, must)
        return value

    def flag(self, key: str) -> bool:
        """true or false."""
        value = self._take(key, "true or false")
        if not isinstance(value, bool):
            self._wrong(key, value, "true or false")
        return value

    def date(self, key: str) -> datetime.datetime:
        """A date with its time."""
        value = self._take(key, "a date with a time")
        if not isinstance(value, datetime.datetime):
            self._wrong(key, value, "a date with a time")
        return value

    def integer(self, key: str, least: int, most: int | None = None) -> int:
        """A whole number."""
        must = f"a whole number of at least {least}"
        must = must if most is None else f"a whole number in [{least}, {most}]"
        value = self._take(key, must)
        number = whole(value)
        if number is None or number < least or (most is not None and number > most):
            self._wrong(key, value, must)
        return number

    def hexadecimal(self, key: str, digits: int) -> int:
        """A whole number as so many lower-case hexadecimal digits."""
        must = f"{digits} hexadecimal digits"
        value = self._take(key, must)
        if not isinstance(value, str) or re.fullmatch(rf"[0-9a-f]{{{digits}}}", value) is None:
            self._wrong(key, value, must)
        return int(value, 16)

    def positive(self, key: str) -> float:
        """A number above 0."""
        value = self._take(key, "a number above 0")
        if not _is_number(value) or value <= 0:
            self._wrong(key, value, "a number above 0")
        return float(value)

    def at_least(self, key: str, least: float, most: float | None = None) -> float:
        """A number."""
        must = f"a number of at least {least:g}"
        must = must if most is None else f"a number in [{least:g}, {most:g}]"
        value = self._take(key, must)
        if not _is_number(value) or value < least or (most is not None and value > most):
            self._wrong(key, value, must)
        return float(value)

    def amount(self, key: str, most: float, *, zero: bool = False) -> float:
        """Bytes above 0, or of at least 0, as 4096 or "64 MB"."""
        must = f"a size {'of at least' if zero else 'above'} 0, as 4096 or '64 MB'"
        must += f", of at most {most:g} bytes"
        value = self._take(key, must)
        if isinstance(value, str):
            refuse_bits(value, self._at(key))
        amount = _quantity(value, "", zero=zero)
        if amount is None or amount > most:
            self._wrong(key, value, must)
        return amount

    def rate(self, key: str) -> float:
        """Bytes a second, as 64e6 or "64 MB/s"."""
        return self._rate(key, self._take(key, _RATE))

    def rates(self, key: str, count: int) -> list[float]:
        """`count` rates."""
        values = self._list(key, f"a list of {count} rates")
        if len(values) != count:
            self._wrong(key, values, f"a list of {count} rates, as many as the table's first list")
        return [self._rate(f"{key}[{position}]", value) for position, value in enumerate(values)]

    def ascending(self, key: str) -> list[int]:
        """Ascending whole numbers above 0; at least one."""
        values = self._list(key, "a list of whole numbers that ascend from 1 or above")
        ascending = [0]
        for position, value in enumerate(values):
            is_whole = isinstance(value, float) and value.is_integer()
            number = int(value) if is_whole else whole(value)
            if number is None or number <= ascending[-1]:
                self._wrong(f"{key}[{position}]", value, f"a whole number above {ascending[-1]}")
            ascending.append(number)
        return ascending[1:]

    def numbers(self, key: str, count: int, *, zero: bool = False) -> list[float]:
        """`count` numbers above 0; or, with `zero`, of at least 0."""
        values = self._list(key, f"a list of {count} numbers")
        if len(values) != count:
            self._wrong(
                key, values, f"a list of {count} numbers, as many as the table's first list"
            )
        must = "a number of at least 0" if zero else "a number above 0"
        for position, value in enumerate(values):
            if not _is_number(value) or value < 0 or (value == 0 and not zero):
                self._wrong(f"{key}[{position}]", value, must)
        return [float(value) for value in values]

    def instance(self, key: str, *kinds: type[Kind]) -> Kind:
        """An object of one of these classes."""
        must = f"a {' or '.join(kind.__name__ for kind in kinds)}"
        value = self._take(key, must)
        if not isinstance(value, kinds):
            self._wrong(key, value, must)
        return value

    def instances(self, key: str, kind: type[Kind], most: int | None = None) -> tuple[Kind, ...]:
        """A list of objects of this class."""
        must = f"a list of {kind.__name__}" + ("" if most is None else f", at most {most}")
        value = self._take(key, must)
        if not isinstance(value, list | tuple) or (most is not None and len(value) > most):
            self._wrong(key, value, must)
        for position, one in enumerate(value):
            if not isinstance(one, kind):
                self._wrong(f"{key}[{position}]", one, f"a {kind.__name__}")
        return tuple(value)

    def table(self, key: str) -> TomlTable:
        """A table in this one."""
        value = self._take(key, "a table")
        if not isinstance(value, Mapping):
            self._wrong(key, value, "a table")
        return TomlTable(self._file, f"{self._place}{key}.", value, self._lines)

    def tables(self, key: str, least: int, most: int | None = None) -> list[TomlTable]:
        """Tables of one kind: [[key]]."""
        must = f"tables, [[{self._place}{key}]]" + (f", at least {least}" if least else "")
        must += "" if most is None else f", at most {most}"
        value = self._take(key, must) if least or key in self._values else []
        self._known.append(key)
        if not isinstance(value, list) or len(value) < least:
            self._wrong(key, value, must)
        if most is not None and len(value) > most:
            self._wrong(key, f"{len(value)} of them", must)
        for entry in value:
            if not isinstance(entry, dict):
                self._wrong(key, value, must)
        return [
            TomlTable(self._file, f"{self._place}{key}[{position}].", entry, self._lines)
            for position, entry in enumerate(value)
        ]

    def _rate(self, key: str, value: Any) -> float:
        if isinstance(value, str):
            refuse_bits(value, self._at(key), rate=True)
        return _quantity(value, "/s", zero=False) or self._wrong(key, value, _RATE)

    def _list(self, key: str, must: str) -> list[Any]:
        value = self._take(key, must)
        if not isinstance(value, list | tuple) or not value:
            self._wrong(key, value, must)
        return list(value)

    def _take(self, key: str, must: str) -> Any:
        self._known.append(key)
        if key not in self._values:
            raise InvalidArgumentError(f"{self._at(key)}: is missing, must be {must}")
        return self._values[key]

    def _wrong(self, key: str, value: Any, must: str) -> NoReturn:
        raise InvalidArgumentError(f"{self._at(key)}: got {shown(value)}, must be {must}")

    def _at(self, key: str) -> str:
        """Where a key is, or would be."""
        name = f"{self._place}{key}"
        inside = name
        while inside and inside not in self._lines:
            inside = inside.rpartition("[" if inside.endswith("]") else ".")[0]
        line = self._lines.get(inside)
        if not self._file:
            return name
        return f"{self._file}: {name}" if line is None else f"{self._file}:{line}: {name}"


_RATE = "a rate of bytes above 0, as 64e6 or '64 MB/s'"


def _quantity(value: Any, suffix: str, *, zero: bool) -> float | None:
    """None: it is none, or below what it must be."""
    if isinstance(value, str) and value.rstrip().endswith(suffix):
        try:
            value = parse_rate(value, "") if suffix else parse_bytes(value, "")
        except InvalidArgumentError:
            return None
    if not _is_number(value) or value < 0 or (value == 0 and not zero):
        return None
    return float(value)


def _is_number(value: Any) -> bool:
    """Also one of NumPy."""
    try:
        is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return is_real and math.isfinite(value)
    except OverflowError:  # An integer that is no float.
        return False
