"""LitData chunks: `hr.formats.LitData`. LitData writes them, and reads the rows that must come."""

from __future__ import annotations

import json
import random
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

import headrace as hr
from headrace import _core, errors
from headrace.formats import LitData

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "litdata.md"
WRITER = Path(__file__).parent / "write_litdata.py"
NAMES = (
    *("every", "one", "one-a-chunk", "uneven", "leaf", "nested", "tuple"),
    *("packed", "packed-9", "packed-every", "batch", "batch-every", "sample", "sample-every"),
)
BLOCKS = {"tokens": 5, "tokens-packed": 16, "tokens-numpy": 3}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The datasets of write_litdata.py; made before a test has its own cache. Not to be changed."""
    folder = tmp_path_factory.mktemp("litdata") / "chunks"
    folder.mkdir()
    pytest.importorskip("torch")
    return write_with_packages(WRITER, folder, "litdata")


@pytest.fixture
def chunks(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "chunks")


def shown(value: Any) -> Any:
    """A value as write_litdata.py shows that of LitData."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.ndarray):
        return [value.dtype.name, list(value.shape), value.tobytes().hex()]
    return value if isinstance(value, str) else value.item()


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_those_of_litdata(written: Path, name: str) -> None:
    dataset, _ = check_rows(written / name)
    rows = json.loads((written / "rows.json").read_text())[name]
    assert dataset.format == "litdata"
    assert len(dataset) == len(rows) > 0
    assert [[shown(row[name]) for name in dataset.fields] for row in dataset] == rows


@pytest.mark.parametrize("name", BLOCKS)
def test_windows_are_those_of_the_tokens_loader(written: Path, name: str) -> None:
    rows = json.loads((written / "rows.json").read_text())[name]
    dataset, own = check_rows(written / name, LitData(block_size=BLOCKS[name]))
    assert own[0]["tokens"].dtype == np.int64
    assert len(dataset) == len(rows) > 9
    dataset, own = check_rows(written / name, LitData(block_size=BLOCKS[name], batch_dtype=None))
    assert [[shown(row["tokens"])] for row in dataset] == rows


def test_each_serializer_becomes_a_kind(written: Path) -> None:
    dataset = hr.open(written / "every")
    text = repr(dataset)
    for part in ("fixed: float32[2, 3]", "scalar: int16", "rows: int64[?, 2]", "flags: bool[?]"):
        assert part in text
    for part in ("line: uint8[?]", "array: float16[2, 1, 2]", "arrays: uint32[?, 2]"):
        assert part in text
    inline = {each.name for each in dataset.index.fields if each.is_inline}
    assert inline == {"int", "float", "bool"}
    assert hr.open(written / "leaf").fields == ("value",)
    assert hr.open(written / "tuple").fields == ("value_0", "value_1")
    assert hr.open(written / "nested").fields == (
        *("image_size_0", "image_size_1", "image_data", "x_0", "x_1"),
    )


@pytest.mark.parametrize("name", ["uneven", "packed", "batch", "sample"])
def test_every_order_with_tiers_and_resumes(written: Path, tmp_path: Path, name: str) -> None:
    dataset, own = check_rows(written / name)
    check_orders(dataset, own, tmp_path)


def test_every_order_of_compressed_tokens(written: Path, tmp_path: Path) -> None:
    dataset, own = check_rows(written / "tokens-packed", LitData(block_size=4))
    assert len(dataset) > 100
    check_orders(dataset, own, tmp_path)


def test_workers_get_all_kinds(written: Path) -> None:
    dataset, own = check_rows(written / "packed-every", LitData(raw=("jpeg",)))
    check_workers(dataset, own)


def test_parts_are_chosen_and_kept_as_bytes(written: Path) -> None:
    row = LitData(columns=("str", "scalar"), raw=("scalar",))
    dataset, own = check_rows(written / "every", row)
    assert dataset.fields == ("str", "scalar")
    assert own[2]["scalar"] == b"\0\0\0\x0e\0\0\0\0\x02\0"
    with pytest.raises(errors.InvalidArgumentError, match=r"no 'label'; there are int, flo"):
        hr.open(written / "every", format=LitData(raw=("label",)))


def test_what_is_not_read_is_refused_with_the_remedy(written: Path, chunks: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"never does; .* raw=\('a',\), or leave"):
        hr.open(written / "pickled")
    with pytest.raises(errors.InvalidArgumentError, match="'l' is stored as 'json': it is a nest"):
        hr.open(written / "pickled", format=LitData(raw=("a",)))
    _, own = check_rows(written / "pickled", LitData(raw=("a",), columns=("a", "x")))
    assert own[0]["a"].startswith(b"\x80")
    with pytest.raises(errors.InvalidArgumentError, match=r"LitData\(block_size=2048\)"):
        hr.open(written / "tokens")
    with pytest.raises(errors.InvalidArgumentError, match="not written for TokensLoader"):
        hr.open(written / "one", format=LitData(block_size=5))
    for key, value, message in (
        ("encryption", {"algorithm": "fernet"}, "it is encrypted"),
        ("item_loader", "ParquetLoader", "it is for 'ParquetLoader'"),
        ("compression_level", "token", "its compression_level is 'token'; headrace reads chunk, b"),
    ):
        rewritten(chunks / "one", lambda x, k=key, v=value: x["config"].update({k: v}))
        with pytest.raises(errors.InvalidArgumentError, match=message):
            hr.open(chunks / "one")
        rewritten(chunks / "one", lambda x, k=key: x["config"].update({k: None}))


def test_compressed_pieces_are_decoded_each_alone(written: Path) -> None:
    """An epoch of samples in blocks decodes each frame once, and no whole chunk."""
    batch, sample = hr.open(written / "batch"), hr.open(written / "sample")
    assert 25 <= batch.index.object_count == batch.index.block_count < 50
    assert sample.index.object_count == sample.index.block_count == len(sample) == 100
    name, size, _ = batch.index.object(3)
    assert re.fullmatch(r"zstd:\d+:\d+\+\d+/chunk-0-\d+\.bin", name)
    assert size == batch.index.blocks()[4][3]


@pytest.mark.parametrize("name", ["batch", "sample"])
def test_damage_of_compressed_pieces_is_an_error(chunks: Path, name: str) -> None:
    draw = random.Random(5)
    folder = chunks / name
    first = min(folder.glob("chunk*"))

    def front(size: int) -> list[int]:
        return list(range(min(size, 90)))

    def anywhere(size: int) -> list[int]:
        return [draw.randrange(size) for _ in range(8)] or [0]

    row = LitData(raw=("text",))
    assert check_damage([first], lambda: hr.open(folder, format=row), front, rounds=500) > 300
    check_damage([first], lambda: hr.open(folder, format=row), anywhere, rounds=300)


def test_rows_of_arrow_are_those_of_litdata(written: Path, tmp_path: Path) -> None:
    rows = json.loads((written / "rows.json").read_text())["rows"]
    dataset, own = check_rows(written / "rows")
    assert dataset.fields == ("text", "label", "score", "ok", "raw", "ids")
    assert len(dataset) == 300
    for mine, theirs in zip(dataset, rows, strict=True):
        found = [shown(mine[name]) for name in dataset.fields[:-1]]
        assert [*found, mine["ids"].tolist()] == theirs
    dataset, own = check_rows(written / "rows", LitData(columns=("ids", "text")))
    assert dataset.fields == ("text", "ids")
    check_orders(dataset, own, tmp_path)


def test_rows_of_arrow_that_are_no_extents_are_refused(written: Path) -> None:
    for name, row, message in (
        ("rows-packed", LitData(columns=("text",)), "are compressed inside the table, .* without"),
        ("rows-nested", LitData(), r"'a' holds struct.*; leave it out with columns=\('c',\)"),
        ("rows", LitData(raw=("raw",)), "columns have a type each; leave raw out"),
        ("rows", LitData(columns=("no",)), "its columns are text, label, .*, no are needed"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            hr.open(written / name, format=row)
    assert len(hr.open(written / "rows-nested", format=LitData(columns=("c",)))) == 3


def test_damaged_tables_of_arrow_are_errors_that_name_the_file(chunks: Path) -> None:
    path = chunks / "rows" / "chunk-0-1.bin"

    check_damage([path], lambda: hr.open(chunks / "rows"), range, rounds=200)

    def tail(size: int) -> list[int]:
        return list(range(max(0, size - 300), size)) or [0]

    assert check_damage([path], lambda: hr.open(chunks / "rows"), tail, rounds=300) > 100


def test_chunks_as_older_versions_wrote_them_are_read(chunks: Path) -> None:
    """Their index.json counts the items' bytes without the table, and names no loader."""

    def older(found: Any) -> None:
        for chunk in found["chunks"]:
            chunk["chunk_bytes"] -= 4 + 4 * (chunk["chunk_size"] + 1)
        del found["config"]["item_loader"], found["config"]["compression_level"]

    for name in ("uneven", "packed"):
        rewritten(chunks / name, older)
        assert len(check_rows(chunks / name)[1]) in (60, 100)
    rewritten(chunks / "tokens", older)
    check_rows(chunks / "tokens", LitData(block_size=7))


def test_chunks_that_litdata_has_decompressed_are_read(chunks: Path) -> None:
    before = [row["text"] for row in hr.open(chunks / "packed-9")]
    listed = json.loads((chunks / "packed-9" / "index.json").read_text())["chunks"]
    for chunk in listed:
        packed = chunks / "packed-9" / chunk["filename"]
        data = _core.decode_bytes("zstd", packed.read_bytes(), chunk["chunk_bytes"])
        packed.with_name(chunk["filename"].replace(".zstd:9", "")).write_bytes(data.tobytes())
        packed.unlink()
    assert [row["text"] for row in hr.open(chunks / "packed-9")] == before


def rewritten(folder: Path, change: Any) -> None:
    found = json.loads((folder / "index.json").read_text())
    change(found)
    (folder / "index.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x["chunks"][1].update(chunk_size=3),
            r"0-1\.bin: byte 0: the shard",
        ),
        (lambda x: x["chunks"][1].update(chunk_bytes=7), r"0-1\.bin: the file has \d+ byt"),
        (lambda x: x["chunks"][1].update(filename="../x"), "outside of it, '../x'"),
        (lambda x: x["chunks"][1].update(filename="no"), "indexing .*no: no such file"),
        (lambda x: x["chunks"][1].update(chunk_size=-1), "chunk 1: a number is -1"),
        (lambda x: x["chunks"][1].pop("chunk_bytes"), "chunk 1: an entry is missing"),
        (lambda x: x["config"].update(data_format=["str", "int"]), "'x' has 16 bytes, int64 has 8"),
        (lambda x: x["config"].update(data_format=["str", "tensor"]), "'x' "),
        (lambda x: x["config"].update(data_format=["str", "new"]), "does not know this serializer"),
        (lambda x: x["config"].update(data_format=["str"]), "its data_spec has 2 leaves, not 1"),
        (
            lambda x: x["config"].update(data_format=["str", "no_header_numpy:7"]),
            "are uint64",
        ),
        (lambda x: x["config"].update(data_format=["str", "no_header_numpy:y"]), "are unknown"),
        (lambda x: x["config"].update(data_spec="[1, {}]"), "missing or of another type"),
        (lambda x: x.update(chunks=[]), "it holds no samples"),
        (lambda x: x.pop("config"), "an entry is missing .*'config'"),
    ],
)
def test_an_index_that_is_wrong_is_refused(chunks: Path, change: Any, message: str) -> None:
    rewritten(chunks / "uneven", change)
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(chunks / "uneven")


def test_tokens_that_do_not_fit_their_chunk_are_refused(chunks: Path) -> None:
    for change, message in (
        ({"dim": 7}, r"0-1\.bin: byte \d+: the chunk ends here; \d+ items and 7 tokens of 2 bytes"),
        ({"dim": None}, "chunk 1: a number is None"),
    ):
        rewritten(chunks / "tokens", lambda x, c=change: x["chunks"][1].update(c))
        with pytest.raises(errors.DataLossError, match=message):
            hr.open(chunks / "tokens", format=LitData(block_size=5))


def test_damage_is_an_error_that_names_the_file(chunks: Path) -> None:

    def table(size: int) -> list[int]:
        return list(range(min(size, 40)))

    few = chunks / "one-a-chunk"
    assert check_damage([few / "chunk-0-3.bin"], lambda: hr.open(few), table, rounds=400) > 320
    every = chunks / "every"
    last = max(every.glob("chunk*"), key=lambda path: int(path.stem.split("-")[2]))
    assert check_damage([last], lambda: hr.open(every), range, rounds=300) > 80

    def opened() -> hr.Dataset:
        try:
            return hr.open(chunks / "one", format=LitData())
        except errors.NotFoundError as error:
            raise errors.DataLossError(f"index: {error}") from error

    assert check_damage([chunks / "one" / "index.json"], opened, range, rounds=500) > 150
    packed = chunks / "packed-9"
    first = sorted(packed.glob("chunk*"))[0]
    check_damage([first], lambda: hr.open(packed), range, rounds=200)


def test_the_page_s_code_runs(chunks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(chunks / "every", chunks / "train")
    monkeypatch.chdir(chunks)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"hr": hr}
    for block in blocks:
        exec(block, names)
    assert names["dataset"].fields == ("tokens",)
