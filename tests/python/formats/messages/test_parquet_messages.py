"""Messages about Parquet files whose footers and pages are damaged.

pyarrow refuses most of them first, in its own words: so the readers are called here that look at
the bytes themselves.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from parquet_files import write

import headrace as hr
from headrace import errors
from headrace.formats import Parquet
from headrace.formats._files.npy import Read
from headrace.formats._parquet import files, thrift
from headrace.formats._parquet.footer import ColumnChunk, chunks_of
from headrace.formats._parquet.pages import offsets_of
from headrace.formats._parquet.parquet_column import columns_of

INT, LIST, STRUCT, BINARY = 5, 9, 12, 8
Value = int | bytes | list[Any] | dict[int, Any]


def varint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def kind_of(value: Value) -> int:
    return {int: INT, bytes: BINARY, list: LIST, dict: STRUCT}[type(value)]


def compact(value: Value) -> bytes:
    """A value in Thrift's compact protocol; structs are dicts by the numbers of fields."""
    if isinstance(value, int):
        return varint(value << 1)
    if isinstance(value, bytes):
        return varint(len(value)) + value
    if isinstance(value, list):
        kind = kind_of(value[0]) if value else STRUCT
        return bytes([len(value) << 4 | kind]) + b"".join(map(compact, value))
    data, before = b"", 0
    for number, each in value.items():
        data += bytes([(number - before) << 4 | kind_of(each)]) + compact(each)
        before = number
    return data + b"\0"


def reader(data: bytes) -> Read:
    return lambda at, count: data[max(0, at) : at + count]


# Structs.


def deep(levels: int) -> bytes:
    return bytes([0x10 | STRUCT]) * levels + bytes(levels + 1)


def lists(levels: int) -> bytes:
    return bytes([0x10 | LIST]) + bytes([0x10 | LIST]) * levels + bytes(2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (deep(17), "structs in structs"),
        (lists(18), "lists in lists"),
        (bytes([0x10 | INT, 2, INT, 2, 2, 0]), "it has field 1 twice"),
        (bytes([INT, 0, 2, 0]), "a field has the number 0"),
        (bytes([0x10 | 13, 2, 0]), "a value of type 13"),
    ],
)
def test_structs_that_are_none(data: bytes, message: str) -> None:
    with pytest.raises(thrift.MalformedError) as caught:
        thrift.read_struct(data)
    assert str(caught.value) == message


def test_a_field_that_is_no_list_of_structs() -> None:
    good = compact({4: [{1: 7}, {1: 8}]})
    assert list(thrift.structs_in(good, 4)) == [{1: 7}, {1: 8}]
    for number, data in ((4, compact({4: [7]})), (3, good)):
        with pytest.raises(thrift.MalformedError) as caught:
            next(thrift.structs_in(data, number))
        assert str(caught.value) == f"it has no list of structs in field {number}"


# Footers.


def footer(about: dict[int, Any]) -> bytes:
    """A file that has nothing but a footer, of one column in one row group."""
    data = compact({4: [{1: [{3: about}]}]})
    return data + len(data).to_bytes(4, "little") + b"PAR1"


ABOUT = {1: 6, 2: [0, 3], 3: [b"a"], 4: 0, 7: 100, 9: 4}


def refusal(data: bytes) -> str:
    with pytest.raises(errors.DataLossError) as caught:
        chunks_of("a.parquet", reader(data), len(data))
    return str(caught.value)


def test_footers_that_are_damaged() -> None:
    good = footer(ABOUT)
    found = chunks_of("a.parquet", reader(good), len(good))
    assert found == {(0, "a"): ColumnChunk(6, frozenset({0, 3}), 0, 4, 100, has_dictionary=False)}
    assert refusal(good[:-1]) == (
        "indexing a.parquet: it does not end as a Parquet file: it was cut; copy or write it again"
    )
    for change, why in (
        ({2: [b"x"]}, "the encodings of a column are no numbers"),
        ({4: b"zstd"}, "it has no field 4 of that type"),
    ):
        data = footer(ABOUT | change)
        assert refusal(data) == (
            f"indexing a.parquet: its footer of {len(data) - 8} bytes is damaged: {why}; copy or "
            "write it again"
        )


# Pages.


def page(values: list[bytes], kind: int = 0, encoding: int = 0, count: int | None = None) -> bytes:
    """A page of texts that lie in it as they are."""
    body = b"".join(len(each).to_bytes(4, "little") + each for each in values)
    about = {1: len(values) if count is None else count, 2: encoding, 3: 3, 4: 3}
    return compact({1: kind, 2: len(body), 3: len(body), 5: about}) + body


def offsets(*pages: bytes, lengths: list[int]) -> list[int]:
    data = b"PAR1" + b"".join(pages)
    schema = pa.schema([pa.field("a", pa.binary(), nullable=False)])
    (column,) = columns_of("a.parquet", schema, None)
    chunk = ColumnChunk(6, frozenset({0}), 0, 4, len(data) - 4, has_dictionary=False)
    found = offsets_of(
        "a.parquet", reader(data), {(0, "a"): chunk}, 0, column, np.array(lengths), has_nulls=False
    )
    for at, length, value in zip(found, lengths, itertools.cycle([b"ab", b"c"]), strict=False):
        assert data[at : at + length] == value
    return found.tolist()


def test_pages_of_values_as_they_are() -> None:
    first = page([b"ab", b"c"])
    begin = 4 + len(first) - 11  # of its values
    assert offsets(first, first, lengths=[2, 1, 2, 1]) == [
        begin + 4,
        begin + 10,
        begin + 4 + len(first),
        begin + 10 + len(first),
    ]


@pytest.mark.parametrize(
    ("last", "lengths", "at", "message"),
    [
        (b"", [2, 1, 1], "end", "its pages have 2 values"),
        (page([b"ab"], count=2), [2, 1, 2], "values", "a page of 2 values differs"),
        (page([b"ab"], count=0), [2, 1, 2], "values", "a page of 0 values differs"),
        (page([b"abc"]), [2, 1, 2], "values", "a page of 1 values differs"),
        (page([b"ab"], kind=7), [2, 1, 2], "page", "a page is of type 7"),
        (
            page([b"ab"], encoding=2),
            [2, 1, 2],
            "page",
            "a page is encoded, which the footer does not say",
        ),
    ],
)
def test_pages_unlike_what_pyarrow_read(
    last: bytes, lengths: list[int], at: str, message: str
) -> None:
    first = page([b"ab", b"c"])
    begin = 4 + len(first)
    if at == "values":
        begin += thrift.read_struct(last)[1]
    with pytest.raises(errors.DataLossError) as caught:
        offsets(first, last, lengths=lengths)
    assert str(caught.value) == (
        f"indexing a.parquet: row group 0: column 'a': byte {begin}: {message}; copy or write the "
        "file again, or have row groups decoded: hr.formats.Parquet(decode=True)"
    )


# Files, and options.


def test_files_that_pyarrow_does_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", {"a": [1, 2]})
    with (
        pytest.raises(errors.ResourceExhaustedError) as full,
        files.opened(str(path)),
    ):
        raise MemoryError("malloc of size 64 failed")
    assert str(full.value) == (
        f"indexing {path}: out of memory: malloc of size 64 failed; take fewer columns with "
        "columns=(...), or write it again with a smaller row_group_size="
    )

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pa, "OSFile", denied)
    with pytest.raises(errors.FailedPreconditionError) as caught:
        hr.open(path)
    assert str(caught.value).startswith(f"indexing {path}: Permission denied for user ")
    assert str(caught.value).endswith("refuses with `namei -l PATH`, and chmod it")


@pytest.mark.parametrize("value", [None, True, 1.5, "x"])
def test_a_fill_that_the_column_does_not_hold(tmp_path: Path, value: Any) -> None:
    path = write(tmp_path / "a.parquet", {"n": [1, None]})
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(path, format=Parquet(fill={"n": value}))
    assert str(caught.value) == (
        f"indexing {path}: fill={{'n': {value!r}}}: the column holds n: int64: {value!r} is no "
        "such value; give a value that it can hold, such as fill={'n': 0}"
    )
    assert [each["n"] for each in hr.open(path, format=Parquet(fill={"n": 0}))] == [1, 0]
