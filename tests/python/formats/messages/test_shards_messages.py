"""Messages about shards of LitData, MDS and TFRecord, damaged or with what no field holds.

The shards are written here, by their layouts: tests of what the packages write are others.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import errors
from headrace.formats import MDS, Format, LitData, TFRecord
from headrace.formats._tfrecord import tfrecord
from headrace.formats._tfrecord.records import masked_crc

AGAIN = "; copy or write the dataset again"
LEAF = {"type": None, "context": None, "children_spec": []}


def refusal(path: Path, row: Format | None = None) -> str:
    with pytest.raises(errors.HeadraceError) as caught:
        hr.open(path, format=row)
    return str(caught.value)


def u32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def table(parts: list[bytes], count: int | None = None) -> bytes:
    """The number of samples or items, where each begins, and what they are."""
    begin = 4 + 4 * (len(parts) + 1)
    ends = np.cumsum([begin, *map(len, parts)]).tolist()
    return u32(len(parts) if count is None else count, *ends) + b"".join(parts)


# LitData.


def litdata(
    folder: Path,
    data: bytes,
    formats: list[Any],
    size: int = 2,
    name: str = "chunk-0-0.bin",
    dim: int | None = None,
    **config: Any,
) -> Path:
    """A chunk of so many samples, with the index.json that LitData writes."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    chunk = {"filename": name, "chunk_bytes": len(data), "chunk_size": size, "dim": dim}
    config = {"data_format": formats, "item_loader": "PyTreeLoader"} | config
    (folder / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))
    return folder


def ints(*values: int) -> bytes:
    """Samples that have one number each."""
    return table([u32(8) + struct.pack("<q", each) for each in values])


def tensors(*shapes: tuple[int, ...]) -> bytes:
    """Samples of one tensor of uint8 each, with its header."""
    made = [
        struct.pack(f">{2 + len(shape)}I", 11, len(shape), *shape) + bytes(int(np.prod(shape)))
        for shape in shapes
    ]
    return table([u32(len(each)) + each for each in made])


def keyed(*names: str, **children: Any) -> dict[str, Any]:
    given = [children.get(each, LEAF) for each in names]
    return {"type": "builtins.dict", "context": json.dumps(names), "children_spec": given}


def deep() -> str:
    spec: dict[str, Any] = LEAF
    for _ in range(101):
        spec = {"type": "builtins.list", "context": None, "children_spec": [spec]}
    return json.dumps([1, spec])


def test_the_chunks_that_are_written_here_open(tmp_path: Path) -> None:
    dataset = hr.open(litdata(tmp_path / "a", ints(3, 4), ["int"]))
    assert [each["value_0"] for each in dataset] == [3, 4]
    dataset = hr.open(litdata(tmp_path / "b", tensors((2, 1), (2, 1)), ["tensor"]))
    assert [each["value_0"].shape for each in dataset] == [(2, 1)] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"compression": "lz4", "name": "chunk-0-0.lz4.bin"},
            "indexing {}/chunk-0-0.lz4.bin: it is compressed as 'lz4'; headrace reads zstd: write "
            "it with compression='zstd'",
        ),
        (
            {"compression_level": "token"},
            "indexing {}/index.json: its compression_level is 'token'; headrace reads chunk, batch "
            "and sample: write the dataset with one of these",
        ),
        (
            {"formats": ["int", "int"], "item_loader": "TokensLoader"},
            "indexing {}/index.json: it is for TokensLoader, but has 2 parts" + AGAIN,
        ),
        ({"formats": [1]}, "indexing {}/index.json: its data_format is [1]" + AGAIN),
        ({"formats": []}, "indexing {}/index.json: its data_format is []" + AGAIN),
        (
            {"data_spec": deep()},
            "indexing {}/index.json: chunk 0: an entry is missing or of another type (ValueError: "
            "nested too deep)" + AGAIN,
        ),
        (
            {
                "data_spec": json.dumps([1, keyed("a.b", "a", a=keyed("b"))]),
                "formats": ["int", "int"],
            },
            "",
        ),
        (
            {"data_spec": json.dumps([1, keyed("x", "x")]), "formats": ["int", "int"]},
            "indexing {}/index.json: chunk 0: an entry is missing or of another type (ValueError: "
            "two parts of a sample have one name: [('x',), ('x',)])" + AGAIN,
        ),
    ],
)
def test_what_an_index_of_chunks_says_wrongly(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    folder = litdata(tmp_path / "a", **({"data": ints(3, 4), "formats": ["int"]} | options))
    if not message:  # Dots tell apart what "_" does not; the chunk has one part only.
        message = "indexing {}/chunk-0-0.bin: byte 16: the columns of sample 0 take"
        assert refusal(folder).startswith(message.format(folder))
        return
    assert refusal(folder) == message.format(folder)


def test_samples_of_chunks_that_do_not_fit(tmp_path: Path) -> None:
    folder = litdata(tmp_path / "a", ints(3, 4) + b"\0", ["int"])
    assert refusal(folder) == (
        f"indexing {folder}/chunk-0-0.bin: byte 12: the last sample ends at 40, the shard at 41"
        + AGAIN
    )
    folder = litdata(tmp_path / "b", ints(3, 4) + u32(30) + b"LDARW01\0", ["int"])
    assert refusal(folder) == (
        f"indexing {folder}/chunk-0-0.bin: byte 40: the table of Arrow that ends here would begin "
        f"at byte 10, the offsets of samples end at 16{AGAIN}"
    )
    folder = litdata(tmp_path / "c", tensors((2, 0), (3, 0)), ["tensor"])
    assert refusal(folder) == (
        f"indexing {folder}/chunk-0-0.bin: byte 20: 'value_0' of sample 0 has shape [2, 0]: no "
        "bytes; keep its bytes with raw=('value_0',), or leave it out with columns="
    )
    assert [each["value_0"] for each in hr.open(folder, format=LitData(raw=("value_0",)))] == [
        struct.pack(">4I", 11, 2, 2, 0),
        struct.pack(">4I", 11, 2, 3, 0),
    ]
    head = struct.pack(">2I", 11, 65) + bytes(4 * 65)
    folder = litdata(tmp_path / "d", table([u32(len(head)) + head] * 2), ["tensor"])
    assert refusal(folder) == (
        f"indexing {folder}/chunk-0-0.bin: byte 20: 'value_0' has 65 dimensions, no array has "
        f"these, in sample 0{AGAIN}"
    )


def test_columns_that_are_not_there_or_none(tmp_path: Path) -> None:
    folder = litdata(tmp_path / "a", ints(3, 4), ["int"])
    assert refusal(folder, LitData(columns=("x",))) == (
        f"indexing {folder}/index.json: columns=('x',): there is no 'x'; there are value_0"
    )
    assert refusal(folder, LitData(columns=())) == (
        f"indexing {folder}/index.json: columns=() takes no column; name some, or leave columns "
        "out for all"
    )


def test_tokens_of_chunks(tmp_path: Path) -> None:
    items = table([bytes(8), bytes(6)])
    tokens = {"formats": ["no_header_tensor:20"], "item_loader": "TokensLoader", "dim": 7}
    folder = litdata(tmp_path / "a", items, **tokens)
    assert len(hr.open(folder, format=LitData(block_size=3))) == 2
    assert refusal(folder, LitData(block_size=8)) == (
        f"indexing {folder}/index.json: block_size=8: a sample has 8 tokens, the largest chunk 7; "
        "give a smaller block_size"
    )
    folder = litdata(tmp_path / "b", table([bytes(8), bytes(6)], count=3), **tokens)
    assert refusal(folder, LitData(block_size=3)) == (
        f"indexing {folder}/chunk-0-0.bin: byte 0: the chunk has 3 items, index.json says 2{AGAIN}"
    )


def rows(folder: Path, *batches: dict[str, Any], size: int = 2) -> Path:
    """A chunk whose rows are a table of Arrow, behind offsets of no bytes."""
    pa = pytest.importorskip("pyarrow")
    made = [pa.RecordBatch.from_pydict(each) for each in batches]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, made[0].schema) as writer:
        for each in made:
            writer.write(each)
    data = sink.getvalue().to_pybytes()
    head = table([b""] * size)
    return litdata(folder, head + data + u32(len(data)) + b"LDARW01\0", ["str"], size)


def test_rows_of_arrow_in_chunks(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    empty = {"text": pa.array([], pa.string())}
    folder = rows(tmp_path / "a", {"text": pa.array(["x", "yz"])}, empty)
    assert [each["text"] for each in hr.open(folder)] == ["x", "yz"]
    path = folder / "chunk-0-0.bin"  # Arrow lets a batch of no rows have no offsets either.
    data = path.read_bytes()
    at = data.index(struct.pack("<qqqq", 0, 0, 0, 4)) + 24
    path.write_bytes(data[:at] + bytes(8) + data[at + 8 :])
    assert [each["text"] for each in hr.open(folder)] == ["x", "yz"]
    assert refusal(folder, LitData(columns=())) == (
        f"indexing {folder}/chunk-0-0.bin: columns=() takes no column; name some, or leave columns "
        "out for all"
    )
    folder = rows(tmp_path / "b", {"text": pa.array(["x", None]), "n": pa.array([1, 2])})
    assert refusal(folder) == (
        f"indexing {folder}/chunk-0-0.bin: column 'text' has values that are None; leave it out "
        "with columns="
    )
    assert [each["n"] for each in hr.open(folder, format=LitData(columns=("n",)))] == [1, 2]
    folder = rows(tmp_path / "c", {"n": pa.array([1, 2, 3])})
    assert refusal(folder) == (
        f"indexing {folder}/chunk-0-0.bin: its table has 3 rows, index.json says 2{AGAIN}"
    )


# MDS.


def test_shards_of_no_columns(tmp_path: Path) -> None:
    data = table([b"", b""])
    (tmp_path / "shard.00000.mds").write_bytes(data)
    shard = {
        "format": "mds",
        "column_names": [],
        "column_encodings": [],
        "column_sizes": [],
        "samples": 2,
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data)},
        "zip_data": None,
        "compression": None,
    }
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    assert refusal(tmp_path) == (
        f"indexing {tmp_path}/index.json: its samples have no columns; write some"
    )
    assert refusal(tmp_path, MDS(columns=())).endswith(
        "columns=() takes no column; name some, or leave columns out for all"
    )


# TFRecord.


def varint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(name: bytes, value: int) -> bytes:
    numbers = field(3, field(1, varint(value)))
    return field(1, field(1, field(1, name) + field(2, numbers)))


def record_file(path: Path, record: bytes) -> Path:
    length = struct.pack("<Q", len(record))
    path.write_bytes(length + struct.pack("<I", masked_crc(length)) + record + bytes(4))
    return path


def test_the_record_that_is_written_here_opens(tmp_path: Path) -> None:
    path = record_file(tmp_path / "a.tfrecord", example(b"n", 300))
    assert [each["n"] for each in hr.open(path, format=TFRecord(examples=True))] == [300]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            b"\x0a\x05abc",
            "byte 12: record 0 is no tf.train.Example: field 1 ends at 7, its message at 5",
        ),
        (b"\x08\x01", "byte 12: record 0 is no tf.train.Example: field 1 has wire type 0"),
        (
            field(1, b"") + field(2, b"x"),
            "byte 16: record 0 is no tf.train.Example: it has lists of features, as a "
            "SequenceExample",
        ),
        (b"", "byte 12: the first record has no features"),
    ],
)
def test_records_that_are_no_examples(tmp_path: Path, record: bytes, message: str) -> None:
    path = record_file(tmp_path / "a.tfrecord", record)
    said = refusal(path, TFRecord(examples=True))
    assert said.startswith(f"indexing {path}: {message}; open the records as they are: ")
    assert [each["record"] for each in hr.open(path)] == [record]


def test_a_folder_of_records_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_file(tmp_path / "a.tfrecord", b"")

    def refusing(path: str) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(errors.FailedPreconditionError) as caught:
        tfrecord._files(str(tmp_path))
    assert str(caught.value).startswith(f"indexing {tmp_path}: Permission denied for user ")
    assert str(caught.value).endswith("refuses with `namei -l PATH`, and chmod it")
