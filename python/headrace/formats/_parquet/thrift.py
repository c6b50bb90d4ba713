"""Reads a struct in Thrift's compact protocol, as headers of Parquet's pages are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Struct = dict[int, Any]
"""Fields by number: int, float, bool, bytes, list, or Struct. Maps are not needed, and refused."""

_DEPTH_MAX = 16
_I8, _LIST, _SET, _STRUCT = 3, 9, 10, 12
_TRUE, _FALSE, _DOUBLE, _BINARY = 1, 2, 7, 8
_INTEGERS = (4, 5, 6)  # of 16, 32 and 64 bits


class TruncatedError(Exception):
    """The bytes end inside the struct."""


class MalformedError(Exception):
    """The bytes are no struct."""


def read_struct(data: bytes) -> tuple[Struct, int]:
    """The struct at the beginning of `data`, and its size in bytes."""
    reader = _ThriftReader(data)
    return reader.struct(0), reader.at


def structs_in(data: bytes, *numbers: int) -> Iterator[Struct]:
    """The structs of a list, one after another, without what comes behind them.

    `numbers`: of the fields that lead to it. All of them are lists of structs, of which the first
    has the next field.
    """
    reader = _ThriftReader(data)
    count = 0
    for number in numbers:
        count = reader.enter(number)
        if count == 0:
            return
    for _ in range(count):
        yield reader.struct(len(numbers))


class _ThriftReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int) -> Struct:
        if depth > _DEPTH_MAX:
            raise MalformedError("structs in structs")
        fields: Struct = {}
        number = 0
        while head := self._byte():
            number = self._number(head, number)
            if number in fields:
                raise MalformedError(f"it has field {number} twice")
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def enter(self, wanted: int) -> int:
        """Goes to the first entry of a list of structs, a field of the struct that begins here.

        Returns how many entries it has.
        """
        number = 0
        while head := self._byte():
            number = self._number(head, number)
            kind = head & 15
            if number == wanted:
                count, entries = self._list_head()
                if kind != _LIST or (count > 0 and entries != _STRUCT):
                    break
                return count
            if kind not in (_TRUE, _FALSE):
                self._value(kind, 0)
        raise MalformedError(f"it has no list of structs in field {wanted}")

    def _number(self, head: int, before: int) -> int:
        """Of a field, by its first byte and the number of the field before it."""
        number = before + (head >> 4) if head >> 4 else self._signed()
        if not 0 < number < 2**15:
            raise MalformedError(f"a field has the number {number}")
        return number

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._signed()
        if kind == _I8:
            return self._byte()
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth)
        raise MalformedError(f"a value of type {kind}")

    def _list_head(self) -> tuple[int, int]:
        """How many entries a list has, and of which type."""
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        if count > len(self._data) - self.at:  # Each entry takes a byte or more.
            raise TruncatedError
        return count, head & 15

    def _list(self, depth: int) -> list[Any]:
        count, kind = self._list_head()
        if depth > _DEPTH_MAX:
            raise MalformedError("lists in lists")
        if kind in (_TRUE, _FALSE):
            return [self._byte() == _TRUE for _ in range(count)]
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        value = self._data[self.at : self.at + count]
        if len(value) < count:
            raise TruncatedError
        self.at += count
        return value

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
