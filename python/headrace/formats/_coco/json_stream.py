"""Reads a JSON file whose top is an object with long arrays, an element at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._json.members import Members
from headrace.formats._tables.pieces import opened

_READ_BYTES = 2**20
_VALUE_BYTES_MAX = 64 * 2**20
_SPACE = " \t\r\n"
_AGAIN = "copy or write the file again"
_CORRECT = "correct the file, so that each member occurs once"


class Element(NamedTuple):
    """An element of an array of the top object, or the value of a member that is no array."""

    key: str
    value: Any
    begin: int
    """Where it lies in the file, in bytes."""
    end: int
    text: str
    """Its bytes as Latin-1."""


class JsonStream:
    """Iterates over the elements of the arrays of the top object.

    Memory: 1 MiB, or twice the largest element.
    """

    def __init__(self, path: str, file: IO[bytes], *, refuses_twice: bool = True) -> None:
        """`refuses_twice`: members that an object has twice."""
        self._path = path
        self._refuses = refuses_twice
        self._file = file
        self._members = Members()
        self._text = ""  # Latin-1: a character is a byte
        self._begin = 0  # of the text in the file
        self._at = 0  # in the text
        self._ended = False

    def __iter__(self) -> Iterator[Element]:
        keys: set[str] = set()
        if self._peek() == "\xef":  # A byte order mark.
            self._at += 3
        self._expect("{")
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            key = self._value().value
            if not isinstance(key, str):
                raise self._damaged("the name of a member is expected")
            if key in keys and self._refuses:
                raise self._damaged(f"the member {key!r} occurs a second time", way_out=_CORRECT)
            keys.add(key)
            self._expect(":")
            if self._peek() == "[":
                self._at += 1
                yield from self._elements(key)
            else:
                yield self._value()._replace(key=key)
            if self._next_is_last("}"):
                break
        if self._peek():
            raise self._damaged("the end of the file is expected")

    def _elements(self, key: str) -> Iterator[Element]:
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            yield self._value()._replace(key=key)
            if self._next_is_last("]"):
                return

    def _next_is_last(self, end: str) -> bool:
        """Goes behind a comma (False), or behind the end (True)."""
        character = self._peek()
        if character not in (",", end):
            raise self._damaged(f"',' or {end!r} is expected")
        self._at += 1
        return character == end

    def _value(self) -> Element:
        self._peek()
        while True:
            try:
                self._members.taken()
                value, end = self._members.decoder.raw_decode(self._text, self._at)
            except RecursionError as error:
                raise self._damaged("it is nested too deeply") from error
            except ValueError as error:
                if len(self._text) - self._at > _VALUE_BYTES_MAX or not self._more():
                    at = error.pos - self._at if isinstance(error, json.JSONDecodeError) else 0
                    raise self._damaged("a value that is no JSON, or is cut", at) from error
                continue
            if end < len(self._text) or not self._more():  # A number may go on.
                break
        text = self._text[self._at : end]
        begin = self._begin + self._at
        if not text.isascii():
            value = self._in_utf8(text)
        element = Element("", value, begin, self._begin + end, text)
        if (twice := self._members.taken()) and self._refuses:
            raise self._damaged(
                f"the member {twice[0]!r} of an object occurs twice, with different values",
                way_out=_CORRECT,
            )
        self._at = end
        return element

    def _in_utf8(self, text: str) -> Any:
        self._members.taken()
        try:
            return self._members.decoder.decode(text.encode("latin-1").decode())
        except UnicodeDecodeError as error:
            raise self._damaged("it is not UTF-8", error.start) from error

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise self._damaged(f"{character!r} is expected")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is no space; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        left = self._text[self._at :]
        data = self._file.read(max(_READ_BYTES, len(left)))
        self._begin += self._at
        self._text = left + data.decode("latin-1")
        self._at = 0
        return bool(data)

    def _damaged(self, why: str, ahead: int = 0, way_out: str = _AGAIN) -> DataLossError:
        return DataLossError(
            f"indexing {self._path}: byte {self._begin + self._at + ahead:,}: {why}; {way_out}"
        )


def elements(path: str, *, refuses_twice: bool = True) -> Iterator[Element]:
    """The elements of the arrays of a file. Raises DataLossError, and for files as `opened`."""
    with opened(path) as file:
        yield from JsonStream(path, file, refuses_twice=refuses_twice)


def wrong(path: str, element: Element, why: str) -> InvalidArgumentError:
    """An error about an element."""
    return InvalidArgumentError(f"indexing {path}: byte {element.begin:,}: {element.key}: {why}")
