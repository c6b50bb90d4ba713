"""MDS shards: `hr.formats.MDS`. Streaming itself writes them, and reads the rows that must come."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import (
    check_damage,
    check_orders,
    check_rows,
    check_workers,
    write_with_packages,
)
from PIL import Image

import headrace as hr
from headrace import errors
from headrace.formats import MDS

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "mds.md"
WRITER = Path(__file__).parent / "write_mds.py"
REFUSED = ("br", "snappy", "bz2")
NAMES = (
    *("all", "one", "one-a-shard", "uneven", "merged", "packed-all"),
    *("packed-zstd", "packed-zstd-9", "packed-gz"),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The datasets of write_mds.py; made before a test has its own cache. Not to be changed."""
    folder = tmp_path_factory.mktemp("streaming") / "mds"
    folder.mkdir()
    return write_with_packages(WRITER, folder, "streaming")


@pytest.fixture
def mds(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "mds")


def shown(name: str, value: Any) -> Any:
    """A value as write_mds.py shows that of Streaming."""
    if name in ("jpeg", "png"):
        image = Image.open(io.BytesIO(value))
        return [image.format, list(image.size), np.asarray(image).tobytes().hex()]
    if name == "json":
        return json.loads(value)
    if isinstance(value, bytes):
        return value.hex()
    if name in ("fixed", "rows", "any"):
        return [value.dtype.name, list(value.shape), value.tobytes().hex()]
    return value if isinstance(value, str) else value.item()


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_streaming(written: Path, name: str) -> None:
    dataset, _ = check_rows(written / name)
    rows = json.loads((written / "rows.json").read_text())[name]
    assert dataset.format == "mds"
    assert len(dataset) == len(rows) > 0
    assert [
        {field: shown(field, row[field]) for field in dataset.fields} for row in dataset
    ] == rows


def test_each_encoding_becomes_a_kind(written: Path) -> None:
    dataset = hr.open(written / "all")
    fields = {each.name: each for each in dataset.index.fields}
    kinds = {name: dataset.kind(name) for name in fields}
    assert {name for name, kind in kinds.items() if kind == "text"} == {
        "str",
        "json",
        "str_decimal",
    }
    assert {name for name, kind in kinds.items() if kind == "image"} == {"jpeg", "png"}
    assert {name for name, kind in kinds.items() if kind == "bytes"} == {"bytes"}
    assert {name for name, field in fields.items() if not field.is_inline} == {
        *("str", "json", "str_decimal", "jpeg", "png", "bytes", "fixed", "rows", "any")
    }
    assert "fixed: float32[2, 3]" in repr(dataset)
    assert "any: int64[3, 1, 2]" in repr(dataset)
    assert dataset[8]["rows"].shape == (450, 2)
    assert dataset[4]["uint64"].dtype == np.int64


@pytest.mark.parametrize("name", ["uneven", "packed-zstd", "packed-gz"])
def test_every_order_with_tiers_and_resumes(written: Path, tmp_path: Path, name: str) -> None:
    dataset, own = check_rows(written / name)
    check_orders(dataset, own, tmp_path)


def test_workers_get_all_kinds(written: Path) -> None:
    dataset, own = check_rows(written / "packed-all", MDS(raw=("jpeg", "png")))
    check_workers(dataset, own)


def test_columns_are_chosen_and_kept_as_bytes(mds: Path) -> None:
    dataset, own = check_rows(mds / "all", MDS(columns=("str", "fixed"), raw=("fixed", "int")))
    assert dataset.fields == ("fixed", "str")
    assert own[2]["fixed"] == np.full((2, 3), 2, np.float32).tobytes()
    for options in ({"columns": ("label",)}, {"raw": ("label",)}):
        with pytest.raises(errors.InvalidArgumentError, match=r"no 'label'; there are any, "):
            hr.open(mds / "all", format=MDS(**options))


def test_shards_that_streaming_has_decompressed_are_read(mds: Path) -> None:
    folder = mds / "packed-br"
    listed = json.loads((folder / "index.json").read_text())["shards"]
    with pytest.raises(errors.InvalidArgumentError, match=r"compressed as 'br'; headrace reads z"):
        hr.open(folder)
    for shard in listed:  # Another compression of the same rows.
        name = shard["raw_data"]["basename"]
        packed = (mds / "packed-gz" / f"{name}.gz").read_bytes()
        (folder / name).write_bytes(gzip.decompress(packed))
    _, own = check_rows(folder)
    assert len(own) == 100


@pytest.mark.parametrize("how", REFUSED)
def test_other_compressions_are_refused_with_the_remedy(written: Path, how: str) -> None:
    remedy = rf"as '{how}'; .*: decompress the shards once, each to 'shard\.00000\.mds'"
    with pytest.raises(errors.InvalidArgumentError, match=remedy):
        hr.open(written / f"packed-{how}")


def test_pickles_and_the_like_are_refused_unless_raw(written: Path) -> None:
    path = written / "refused"
    for name, why in (
        ("many", "a sample has several images"),
        ("pixels", "pixels of any size and mode"),
        ("thing", "unpickling runs code of whoever wrote it, so headrace never does"),
    ):
        others = tuple(each for each in ("many", "pixels", "text", "thing") if each != name)
        remedy = rf"{why}.*raw=\('{name}',\), or leave it out with columns={re.escape(str(others))}"
        with pytest.raises(errors.InvalidArgumentError, match=remedy):
            hr.open(path, format=MDS(columns=(name,)))
    _, own = check_rows(path, MDS(raw=("many", "pixels", "thing")))
    assert own[1]["thing"].startswith(b"\x80")


def test_a_dataset_without_samples_is_refused(written: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="it holds no samples"):
        hr.open(written / "none")


def rewritten(folder: Path, change: Any) -> None:
    found = json.loads((folder / "index.json").read_text())
    change(found)
    (folder / "index.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x["shards"][1].update(samples=3), r"00001\.mds: byte 0: the shard has \d+ samp"),
        (lambda x: x["shards"][1].update(samples=999), "says 999 samples, whose offsets"),
        (lambda x: x["shards"][1]["raw_data"].update(bytes=7), r"00001\.mds: the file has \d+ byt"),
        (lambda x: x["shards"][1]["raw_data"].update(basename="../x"), "outside of it, '../x'"),
        (lambda x: x["shards"][1]["raw_data"].update(basename="no"), "indexing .*no: no such file"),
        (lambda x: x["shards"][1].update(column_sizes=[4, None]), "the columns of shard 1 are"),
        (lambda x: x["shards"][1].update(column_encodings=["int", "bytes"]), "columns of shard 1"),
        (lambda x: [s.update(column_encodings=["int", "x"]) for s in x["shards"]], "not know this"),
        (lambda x: [s.update(column_sizes=[4, None]) for s in x["shards"]], "take 1?[0-9]+ bytes"),
        (
            lambda x: [s.update(column_names=["a", "a"]) for s in x["shards"]],
            r"columns are \['a",
        ),
        (lambda x: x["shards"][1].update(samples=-1), r"its samples and bytes are \[-1"),
        (lambda x: x["shards"][1].update(samples="1"), r"its samples and bytes are \['1'"),
        (lambda x: x["shards"][1].update(format="json"), "shard 1 has the format 'json'"),
        (lambda x: x["shards"][1].pop("raw_data"), r"shard 1: an entry is missing .*'raw_data'"),
        (lambda x: x.update(shards={}), "has version 2"),
        (lambda x: x.update(version=3), "has version 3"),
    ],
)
def test_an_index_that_is_wrong_is_refused(mds: Path, change: Any, message: str) -> None:
    rewritten(mds / "uneven", change)
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(mds / "uneven")


def test_missing_compressed_shards_are_refused(mds: Path) -> None:
    (mds / "packed-zstd" / "shard.00002.mds.zstd").unlink()
    with pytest.raises(errors.NotFoundError, match=r"00002\.mds\.zstd: no such file, which .*inde"):
        hr.open(mds / "packed-zstd")


def test_an_index_that_changes_makes_another_dataset(mds: Path) -> None:
    before = len(hr.open(mds / "merged"))
    rewritten(mds / "merged", lambda x: x["shards"].pop())
    assert len(hr.open(mds / "merged")) < before


def test_numbers_beyond_the_index_s_types_are_refused(mds: Path) -> None:
    path = mds / "all"
    shard = path / "shard.00000.mds"
    data = shard.read_bytes()
    row = hr.open(path)[8]
    place = np.uint64(int(row["uint64"])).tobytes()
    assert data.count(place) >= 1
    shard.write_bytes(data.replace(place, b"\xff" * 8))
    with pytest.raises(errors.InvalidArgumentError, match=r"keep its bytes with raw=\('uint64',\)"):
        hr.open(path)
    assert len(hr.open(path, format=MDS(columns=("uint64",), raw=("uint64",)))) == 9


def test_bodies_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shard(tmp_path, [("int", 8), ("bytes", None)], [(bytes(8), bytes(200_000))] * 20)
    taken = 0
    pread = os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        nonlocal taken
        data = pread(fd, size, offset)
        taken += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    assert len(hr.open(tmp_path)) == 20
    assert taken < 2_000  # Of 4 MB: index.json, offsets, sizes, numbers.


def write_shard(
    folder: Path, columns: list[tuple[str, int | None]], rows: list[tuple[bytes, ...]]
) -> None:
    """A shard by the layout of Streaming's MDSWriter, for what it does not write."""
    samples = []
    for row in rows:
        sizes = [
            len(value) for (_, width), value in zip(columns, row, strict=True) if width is None
        ]
        samples.append(np.array(sizes, "<u4").tobytes() + b"".join(row))
    begin = 4 + 4 * (len(rows) + 1)
    ends = np.cumsum([begin, *map(len, samples)]).astype("<u4").tobytes()
    data = np.uint32(len(rows)).tobytes() + ends + b"".join(samples)
    (folder / "shard.00000.mds").write_bytes(data)
    names = [f"c{number}" for number in range(len(columns))]
    shard = {
        "column_names": names,
        "column_encodings": [encoding for encoding, _ in columns],
        "column_sizes": [width for _, width in columns],
        "compression": None,
        "format": "mds",
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
        "samples": len(rows),
        "zip_data": None,
    }
    (folder / "index.json").write_text(json.dumps({"shards": [shard], "version": 2}))


@pytest.mark.parametrize(
    ("encoding", "values", "message"),
    [
        ("str_int", [b"1", b"1_0"], r"is b'1_0' in sample 1, no int64; keep .*raw=\('c0',\)"),
        ("str_int", [b"9" * 19], "no int64"),
        ("str_float", [b"1.5", b"x"], r"is b'x' in sample 1, no float64"),
        ("str_int", [b"1" * 65], "has 65 bytes, no number, in sample 0"),
        ("ndarray:uint64:2", [bytes(16)], "stored as 'ndarray:uint64:2': batches hold"),
        ("ndarray:int8:0", [b""], "'ndarray:int8:0' is no array's"),
        ("ndarray:int9", [b""], "'ndarray:int9' is no array's"),
        ("ndarray:int8:2", [b"ab", b"abc"], r"'c0' has 3 bytes, int8 \[2\] needs 2, in sample 1"),
        ("ndarray:int8", [b"\x04\x02ab", b"\x04\x03ab"], "has 4 bytes, its header says 5: shape"),
        ("ndarray:int8", [b"\x08\x01\x02ab", b"\x08\x01\x03abc"], r"has shape \[1, 3\], in the fi"),
        ("ndarray:int8", [b"\x04\x02ab", b"\x08\x01\x02ab"], "has 2 dimensions of int8, in the f"),
        ("ndarray", [b"\x08\x04\x02ab", b"\x09\x04\x02ab"], "1 dimensions of int8, in the first s"),
        ("ndarray", [b"\x07\x04\x02ab"], "a dtype of the unknown code 7"),
        ("ndarray", [b"\x40\x04\x01" + bytes(8)], "holds uint64, batches hold"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    tmp_path: Path, encoding: str, values: list[bytes], message: str
) -> None:
    write_shard(tmp_path, [(encoding, None)], [(value,) for value in values])
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(tmp_path)


def test_lists_may_be_empty_and_of_any_width_of_shape(tmp_path: Path) -> None:
    rows = [0, 1, 300, 70_000]
    values = [
        b"\x04\x00",
        b"\x04\x01a",
        b"\x05" + np.uint16(300).tobytes() + b"b" * 300,
        b"\x06" + np.uint32(70_000).tobytes() + b"c" * 70_000,
    ]
    write_shard(tmp_path, [("ndarray:int8", None)], [(value,) for value in values])
    dataset, _ = check_rows(tmp_path)
    assert [len(row["c0"]) for row in dataset] == rows


def test_damage_is_an_error_that_names_the_file(mds: Path) -> None:
    folder = mds / "uneven"
    shard = folder / "shard.00004.mds"

    def table(size: int) -> list[int]:
        return list(range(min(size, 40)))

    assert check_damage([shard], lambda: hr.open(folder), table, rounds=500) > 430
    small = mds / "one"

    def opened() -> hr.Dataset:
        return hr.open(small, format=MDS())

    refused = check_damage([small / "index.json"], opened_or_named(small, opened), range, 600)
    assert refused > 200
    assert (
        check_damage([mds / "all" / "shard.00000.mds"], lambda: hr.open(mds / "all"), table) > 200
    )
    packed = mds / "packed-zstd"
    check_damage([packed / "shard.00001.mds.zstd"], lambda: hr.open(packed), range, rounds=200)


def opened_or_named(folder: Path, opened: Any) -> Any:
    """Opens a dataset whose index.json may name anything, also files that do not exist."""

    def call() -> hr.Dataset:
        try:
            return opened()
        except errors.NotFoundError as error:
            raise errors.DataLossError(f"index: {error}") from error

    return call


def test_the_page_s_code_runs(mds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(mds / "all", mds / "train")
    monkeypatch.chdir(mds)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"hr": hr}
    for block in blocks:
        exec(block, names)
    assert len(names["dataset"]) == 9
