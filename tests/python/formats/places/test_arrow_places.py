"""Of Arrow files that are not on a disk those parts are read that say where rows lie."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from memory_place import SCHEME, MemoryPlace
from small_datasets import described
from test_format_huggingface import batches, write

import headrace as hr
from headrace._places import table
from headrace.formats._arrow import mapped_files, messages

AT = f"{SCHEME}://bucket/data"


def read_in_blocks(monkeypatch: pytest.MonkeyPatch, block: int, ahead: int) -> None:
    """Of this many bytes; and no more than needed with headers and footers."""
    monkeypatch.setattr(mapped_files, "_BLOCK_BYTES", block)
    monkeypatch.setattr(mapped_files, "_BLOCKS_AHEAD_MAX", ahead)
    monkeypatch.setattr(messages, "_HEADER_BYTES", 8)
    monkeypatch.setattr(messages, "_FOOTER_BYTES", 10)


@pytest.mark.parametrize(("block", "ahead"), [(64, 0), (8, 0), (64, 32), (4096, 1), (2**18, 32)])
@pytest.mark.parametrize("name", ["a.arrow", "a.file.arrow"])
def test_rows_of_all_types_are_described_as_those_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block: int, ahead: int
) -> None:
    read_in_blocks(monkeypatch, block, ahead)
    wanted = described(hr.open(write(tmp_path / name, batches(60))).index, str(tmp_path))
    place = MemoryPlace({f"{AT}/{name}": (tmp_path / name).read_bytes()})
    monkeypatch.setitem(table.PLACES, SCHEME, place)
    assert described(hr.open(f"{AT}/{name}").index, AT) == wanted


@pytest.mark.parametrize("name", ["a.arrow", "a.file.arrow"])
def test_a_long_schema_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    read_in_blocks(monkeypatch, block=512, ahead=0)
    schema = pa.schema([(f"column {i}", pa.int32()) for i in range(300)])
    rows = [[dict.fromkeys(schema.names, i) for i in range(3)]]
    wanted = described(hr.open(write(tmp_path / name, rows, schema)).index, str(tmp_path))
    place = MemoryPlace({f"{AT}/{name}": (tmp_path / name).read_bytes()})
    monkeypatch.setitem(table.PLACES, SCHEME, place)
    assert described(hr.open(f"{AT}/{name}").index, AT) == wanted
