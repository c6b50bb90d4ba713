"""TFRecord files: `hr.formats.TFRecord`.

The fixture in tensorflow/ was written and read by TensorFlow 2.21 itself: write_tfrecord.py. Other
files are written here, by the specification of frames and protocol buffers.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from format_checks import check_damage, check_orders, check_rows, check_workers

import headrace as hr
from headrace import errors
from headrace.formats import TFRecord
from headrace.formats._tfrecord.records import masked_crc

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "tfrecord.md"
FIXTURE = Path(__file__).parent / "tensorflow"
KINDS = {
    "image": "image",
    "text": "text",
    "label": "int64",
    "big": "int64",
    "score": "float32",
    "box": "float32",
    "pair": "int64",
    "ids": "int64[]",
    "waves": "float32[]",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def fixture(tmp_path: Path) -> Path:
    return shutil.copytree(FIXTURE, tmp_path / "tensorflow") / "examples.tfrecord"


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", 0)


def write(path: Path, records: list[bytes]) -> Path:
    path.write_bytes(b"".join(map(frame, records)))
    return path


def varint(value: int) -> bytes:
    value %= 2**64
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value: Any, packed: bool = True) -> bytes:
    """A list of bytes, ints or floats; or the bytes of a Feature."""
    if isinstance(value, bytes):
        return value
    if all(isinstance(each, bytes) for each in value):
        return field(1, b"".join(field(1, each) for each in value))
    if isinstance(value[0], float):
        if packed:
            return field(2, field(1, struct.pack(f"<{len(value)}f", *value)))
        return field(2, b"".join(b"\x0d" + struct.pack("<f", each) for each in value))
    if packed:
        return field(3, field(1, b"".join(map(varint, value))))
    return field(3, b"".join(b"\x08" + varint(each) for each in value))


def example(packed: bool = True, **features: Any) -> bytes:
    entries = [
        field(1, field(1, name.encode()) + field(2, feature(value, packed)))
        for name, value in features.items()
    ]
    return field(1, b"".join(entries))


def shown(value: Any, kind: str) -> Any:
    """A value as write_tfrecord.py shows that of TensorFlow."""
    if kind in ("image", "text", "bytes"):
        return (value.encode() if isinstance(value, str) else value).hex()
    return value.tolist()


def test_records_are_those_of_tensorflow(fixture: Path) -> None:
    rows = json.loads((FIXTURE / "rows.json").read_text())
    dataset, own = check_rows(fixture)
    assert dataset.format == "tfrecord"
    assert dataset.fields == ("record",)
    found = [hashlib.sha256(row["record"]).hexdigest() for row in dataset]
    assert found == [row["record"] for row in rows]
    assert len(own) == 8


def test_features_are_those_of_tensorflow(fixture: Path) -> None:
    rows = json.loads((FIXTURE / "rows.json").read_text())
    dataset, _ = check_rows(fixture, TFRecord(features=KINDS))
    assert dataset.fields == tuple(KINDS)
    for mine, theirs in zip(dataset, rows, strict=True):
        assert {name: shown(mine[name], kind) for name, kind in KINDS.items()} == {
            name: theirs[name] for name in KINDS
        }
    inline = {each.name for each in dataset.index.fields if each.is_inline}
    assert inline == {"label", "big", "score", "pair", "ids"}
    for part in ("box: float32[4]", "pair: int64[2]", "ids: int64[?]", "waves: float32[?]"):
        assert part in repr(dataset)


def test_all_features_of_the_first_record_are_taken(tmp_path: Path) -> None:
    png = b"\x89PNG\r\n\x1a\n"
    records = [
        example(z=[png + bytes([i])], a=[b"x" * i], n=[i], f=[i / 2], l=[i, 1, -i])
        for i in range(9)
    ]
    dataset, own = check_rows(write(tmp_path / "a.tfrec", records), TFRecord(examples=True))
    assert dataset.fields == ("a", "f", "l", "n", "z")
    assert [dataset.kind(name) for name in "az"] == ["bytes", "image"]
    assert own[3]["l"].tolist() == [3, 1, -3]
    assert own[5]["f"] == 2.5


def test_numbers_may_be_stored_one_by_one(tmp_path: Path) -> None:
    values = [0, 1, 127, 128, 2**31, 2**63 - 1, -1, -(2**63)]
    path = write(
        tmp_path / "a.tfrecord",
        [example(packed, l=values, n=[7], f=[0.5]) for packed in (True, False)],
    )
    dataset, _ = check_rows(path, TFRecord(features={"l": "int64[]", "n": "int64", "f": "float32"}))
    assert [row["l"].tolist() for row in dataset] == [values] * 2
    assert [float(row["f"]) for row in dataset] == [0.5] * 2
    path = write(tmp_path / "b.tfrecord", [example(False, f=[0.5, 1.5])])
    with pytest.raises(errors.InvalidArgumentError, match="floats of feature 'f' are not packed"):
        hr.open(path, format=TFRecord(features={"f": "float32"}))


@pytest.mark.parametrize("sizes", [[0], [5], [0, 1, 0], [200_000, 3, 0, 70_000]])
def test_records_of_any_size_are_read(tmp_path: Path, sizes: list[int]) -> None:
    records = [bytes([i]) * size for i, size in enumerate(sizes)]
    _, own = check_rows(write(tmp_path / "a.tfrecords", records))
    assert [row["record"] for row in own] == records


def test_patterns_folders_and_numbered_names_are_one_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for number in range(3):
        records = [b"%d %d" % (number, i) for i in range(5 * number)]
        write(folder / f"x.tfrecord-0000{number}-of-00003", records)
    (folder / "dataset_info.json").write_text("{}")
    _, pattern = check_rows(folder / "x.tfrecord-{00000..00002}-of-00003")
    _, whole = check_rows(folder)
    assert len(pattern) == len(whole) == 15
    write(folder / "y.tfrecord", [b"1"])
    assert len(hr.open(folder)) == 16
    numbered = write(tmp_path / "x-00000-of-00001", [b"1"])
    assert len(hr.open(numbered)) == 1
    numbered.write_bytes(b"of another kind")
    with pytest.raises(errors.InvalidArgumentError, match="headrace opens: "):
        hr.open(numbered)


def test_every_order_with_tiers_and_resumes(tmp_path: Path) -> None:
    for number in range(2):
        records = [
            example(text=[b"t%d" % i * (i % 7)], n=[i], l=list(range(1 + i % 5)), f=[float(i)] * 3)
            for i in range(30 * number, 30 * number + 30)
        ]
        write(tmp_path / f"{number}.tfrecord", records)
    kinds = {"text": "text", "n": "int64", "l": "int64[]", "f": "float32"}
    dataset, own = check_rows(tmp_path / "{0..1}.tfrecord", TFRecord(features=kinds))
    check_orders(dataset, own, tmp_path)


def test_workers_get_all_kinds(fixture: Path) -> None:
    dataset, own = check_rows(fixture, TFRecord(features=KINDS | {"image": "bytes"}))
    check_workers(dataset, own)


@pytest.mark.parametrize("how", ["GZIP", "ZLIB"])
def test_compressed_files_are_refused_with_the_remedy(fixture: Path, how: str) -> None:
    compress = gzip.compress if how == "GZIP" else zlib.compress
    fixture.write_bytes(compress(fixture.read_bytes()))
    remedy = rf"compressed as {how}, .* decompress it once"
    with pytest.raises(errors.InvalidArgumentError, match=remedy):
        hr.open(fixture)


@pytest.mark.parametrize(
    ("records", "kinds", "message"),
    [
        (
            [example(a=[1]), example(b=[1])],
            None,
            r"the record has no feature 'a'; open the records as",
        ),
        (
            [example(a=[1], c=[2])],
            {"b": "int64"},
            r"first record has no feature 'b'; it has 'a', 'c'; open the records",
        ),
        (
            [example(a=[1]), example(a=[1, 2])],
            None,
            r"2 values, in the first record 1; .*\[\]'",
        ),
        (
            [example(a=[1]), example(a=[0.5])],
            None,
            "'a' is a float_list, int64 needs an int64_list, as",
        ),
        ([example(a=[b"1", b"2"])], None, "'a' has 2 values, a field has one"),
        ([example(a=b"")], None, "'a' is empty, bytes needs a bytes_list, as"),
        ([example()], None, "the first record has no features"),
        ([b"no example"], None, "record 0 is no tf.train.Example"),
        ([example(a=[1]), example(a=[1])[:-1]], None, "record 1 is no tf.train.Example"),
        ([example(a=field(3, field(1, b"\x80")))], None, "a number that does not end"),
        ([example(a=field(3, field(1, b"\xff" * 9 + b"\x02")))], None, "more than 64 bits"),
        ([example(a=field(2, field(1, b"abc")))], None, "a list of floats has 3 bytes"),
        ([example(a=field(1, b"") + field(3, b""))], None, "a feature has two lists"),
        ([field(1, field(1, field(1, b"\xff")))], None, "name of a feature is not UTF-8"),
        ([field(1, b"\x0b")], None, "a field of wire type 3"),
        (
            [example(a=[1]) + field(2, b"")],
            None,
            "lists of features, as a SequenceExample; open the records",
        ),
        ([], None, "it holds no samples"),
    ],
)
def test_records_that_do_not_fit_are_refused(
    tmp_path: Path, records: list[bytes], kinds: dict[str, str] | None, message: str
) -> None:
    path = write(tmp_path / "a.tfrecord", records)
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(path, format=TFRecord(examples=True, features=kinds))


def test_text_that_is_not_utf_8_is_an_error_that_names_the_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [example(t=[b"ok"]), example(t=[b"\xff"])])
    dataset = hr.open(path, format=TFRecord(features={"t": "text"}))
    assert dataset[0] == {"t": "ok"}
    with pytest.raises(
        errors.DataLossError, match=r"a\.tfrecord: sample 1 field t: its text is not UTF-8"
    ):
        dataset.read(1)


def test_options_are_checked() -> None:
    for wrong in ({}, {"a": "int32"}, ["a"]):
        with pytest.raises(errors.InvalidArgumentError, match="must be the kind of each feature"):
            TFRecord(features=wrong)  # type: ignore[arg-type]


def test_bodies_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tfrecord", [bytes(3_000_000)] * 4)
    taken = 0
    pread = os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        nonlocal taken
        data = pread(fd, size, offset)
        taken += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    assert len(hr.open(path)) == 4
    assert taken < 1_100_000  # Of 12 MB: the first MiB, and lengths.


def test_damage_is_an_error_that_names_the_file(fixture: Path, tmp_path: Path) -> None:

    examples = TFRecord(features=KINDS)
    refused = check_damage([fixture], lambda: hr.open(fixture, format=examples), range, 500)
    assert refused > 210
    path = write(tmp_path / "a.tfrecord", [b"abc"] * 20)

    def heads(size: int) -> list[int]:
        return [at for at in range(size) if at % 19 < 12] or [0]

    # A file that ends with a whole record is no shorter dataset than it was; 1 in 19 is cut so.
    assert check_damage([path], lambda: hr.open(path), heads, 500) > 420


def test_the_page_s_code_runs(fixture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fixture.parent)
    for number in range(2):
        write(fixture.parent / f"train-0000{number}-of-00002.tfrecord", [b"x"])
    records = [example(image=[b"\xff\xd8\xff"], text=[b"t"], label=[1], ids=[i]) for i in (1, 2)]
    write(fixture, records)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"hr": hr}
    for block in blocks:
        exec(block, names)
    assert names["dataset"].fields == ("image", "text", "label", "ids")
