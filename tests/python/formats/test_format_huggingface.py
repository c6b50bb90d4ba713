"""Hugging Face datasets and Arrow files: `hr.formats.HuggingFace`."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import Rows, check_damage, check_orders, check_rows, check_workers, plain
from rank_scripts import real_packages

import headrace as hr
from headrace import errors
from headrace.formats import Builder, Format, Given, HuggingFace, register, table
from headrace.formats._arrow.mapped_files import MappedFile

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

ROOT = Path(__file__).parents[3]
MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": ["ant", "bee"]},
    "box": {"_type": "Array2D", "shape": [2, 2], "dtype": "float32"},
}
SCHEMA = pa.schema(
    [
        ("image", MEDIA),
        ("label", pa.int64()),
        ("text", pa.string()),
        ("view", pa.string_view()),
        ("tokens", pa.list_(pa.int32())),
        ("corner", pa.list_(pa.list_(pa.int16(), 2), 3)),
        ("pairs", pa.large_list(pa.list_(pa.int16(), 2))),
        ("meta", pa.struct([("a", pa.int8()), ("b", pa.large_string())])),
        ("flag", pa.bool_()),
        ("flags", pa.list_(pa.bool_())),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("when", pa.timestamp("us")),
        ("code", pa.binary(4)),
        ("unsigned", pa.uint64()),
        ("box", pa.list_(pa.list_(pa.float32()))),
        ("turns", pa.list_(pa.large_list(pa.int16()))),
        ("names", pa.large_list(pa.string())),
        ("pages", pa.list_(MEDIA)),
    ],
    metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})},
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(table, "FORMATS", table.FORMATS)


def row(i: int) -> dict[str, Any]:
    return {
        "image": {"bytes": b"x" * (i * 3 % 50), "path": None},
        "label": i % 2,
        "text": "üé\0"[: i % 4] * (i % 5),
        "view": "ein längerer Text"[: i % 18],
        "tokens": list(range(i % 6)),
        "corner": [[i % 100, 1], [2, 3], [4, 5]],
        "pairs": [[i % 100, 2]] * (i % 3),
        "meta": {"a": i % 100, "b": "q" * (i % 9)},
        "flag": i % 3 == 0,
        "flags": [j % 2 == 0 for j in range(i % 11)],
        "kind": ("red", "", "ü")[i % 3],
        "when": i,
        "code": i.to_bytes(4, "big"),
        "unsigned": i,
        "box": [[i, 1], [2, 3]],
        "turns": [list(range(j)) for j in range(i % 4)],
        "names": ["ü" * j for j in range(i % 3)],
        "pages": [{"bytes": b"p" * j, "path": None} for j in range(i % 3)],
    }


def write(path: Path, batches: list[list[dict[str, Any]]], schema: Any = SCHEMA) -> Path:
    """A stream, or a file if its name says so."""
    opened = pa.ipc.new_file if ".file." in path.name else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, opened(sink, schema) as writer:
        for rows in batches:
            writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
    return path


def batches(count: int, of: int = 9) -> list[list[dict[str, Any]]]:
    return [[row(i) for i in range(at, min(at + of, count))] for at in range(0, count, of)]


@pytest.mark.parametrize("name", ["a.arrow", "a.file.arrow", "a.file.feather"])
def test_rows_are_those_of_pyarrow(tmp_path: Path, name: str) -> None:
    dataset, own = check_rows(write(tmp_path / name, batches(30)))
    assert len(own) == 30
    assert dataset.classes == ("ant", "bee")
    kinds = {name: dataset.kind(name) for name in dataset.fields}
    assert kinds["image"] == "image"
    assert [kinds[each] for each in ("tokens", "pairs", "flags")] == ["list"] * 3
    assert dataset[4]["corner"].tolist() == [[4, 1], [2, 3], [4, 5]]
    assert dataset[4]["meta.b"] == "qqqq"
    assert [each["label"] for each in own] == [i % 2 for i in range(30)]


@pytest.mark.parametrize("counts", [[], [0], [1], [0, 1, 0, 7, 0]], ids=str)
def test_empty_files_and_record_batches(tmp_path: Path, counts: list[int]) -> None:
    parts = [[row(i) for i in range(count)] for count in counts]
    _, own = check_rows(write(tmp_path / "a.arrow", parts))
    assert len(own) == sum(counts)


def test_slices_and_many_small_record_batches(tmp_path: Path) -> None:
    whole = pa.RecordBatch.from_pylist([row(i) for i in range(40)], schema=SCHEMA)
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, SCHEMA) as writer,
    ):
        for i in range(2000):
            writer.write(whole.slice(i % 37, 1 + i % 3))
    columns = ("text", "tokens", "flags", "label", "box", "view")
    dataset, own = check_rows(tmp_path / "a.arrow", HuggingFace(columns=columns))
    assert len(own) == sum(1 + i % 3 for i in range(2000))
    assert dataset.fields == columns
    assert 1 < dataset.index.block_count < 20  # Small neighbours are read together.


def test_a_pattern_is_one_dataset_of_files_of_one_kind(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"s-{number}.arrow", batches(7))
    assert len(check_rows(tmp_path / "s-{0..2}.arrow")[1]) == 21
    assert len(hr.open(tmp_path / "s-{1,1}.arrow")) == 14
    write(tmp_path / "s-2.arrow", [[{"text": 1}]], pa.schema([("text", pa.int8())]))
    with pytest.raises(errors.InvalidArgumentError, match=r"s-2\.arrow: its columns are .*missing"):
        hr.open(tmp_path / "s-{0..2}.arrow")


def test_every_order_with_tiers_resumes_and_workers(tmp_path: Path) -> None:
    schema = pa.schema([SCHEMA.field(each) for each in ("text", "tokens", "label", "corner")])
    raw = pa.field("raw", pa.binary())
    rows = [
        [{**{name: each[name] for name in schema.names}, "raw": bytes([i % 256]) * (i % 90)}]
        for i, each in enumerate(map(row, range(60)))
    ]
    write(tmp_path / "a.arrow", rows, schema.append(raw))
    dataset, own = check_rows(tmp_path / "a.arrow")
    check_orders(dataset, own, tmp_path)
    check_workers(dataset, own)


def test_images_in_files_of_their_own(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]) * (i + 1))
    rows = [{"image": {"bytes": None, "path": str(each)}} for each in paths]
    rows.append({"image": {"bytes": b"inside", "path": "x.png"}})
    schema = pa.schema([SCHEMA.field("image")])
    (tmp_path / "data").mkdir()
    _, own = check_rows(write(tmp_path / "data" / "a.arrow", [rows], schema))
    assert [each["image"] for each in own] == [*(e.read_bytes() for e in paths), b"inside"]
    for path, error, message in (
        ("https://x.org/a.png", errors.InvalidArgumentError, "is no absolute path; .*save_to_disk"),
        ("a.png", errors.InvalidArgumentError, "is no absolute path"),
        (
            str(tmp_path / "gone.png"),
            errors.NotFoundError,
            "row 1 has no bytes, and its file .*gone",
        ),
        (str(tmp_path), errors.InvalidArgumentError, "is no file"),
        (None, errors.InvalidArgumentError, "row 1 has neither bytes nor a path"),
    ):
        rows[1] = {"image": {"bytes": None, "path": path}}
        with pytest.raises(error, match=message):
            hr.open(write(tmp_path / "data" / "b.arrow", [rows], schema))


@pytest.mark.parametrize(
    ("type", "values", "message"),
    [
        (pa.int64(), [1, None, None], r"'a': 2 of 3 rows are null, the first in row 1; say"),
        (pa.string(), [None, "", "x"], "1 of 3 rows are null, the first in row 0"),
        (pa.list_(pa.int8()), [[1], [], [2, None]], "1 of 3 entries .* null, the first in row 2"),
        (pa.list_(pa.int8(), 2), [[1, 1], [1, None], [2, 2]], "null, the first in row 1"),
        (pa.struct([("b", pa.int8())]), [{"b": 1}, None, None], "'a.b': 2 of 3 rows are null"),
        (pa.dictionary(pa.int8(), pa.string()), ["x", None, "y"], "1 of 3 rows are null"),
        (pa.uint64(), [1, 2**63, 0], "row 1 is 9223372036854775808, which int64 does not hold"),
        (
            pa.list_(pa.list_(pa.list_(pa.int8()))),
            [[]] * 3,
            "lists of lists hold numbers and bools",
        ),
        (pa.list_(pa.decimal128(9, 2)), [[]] * 3, "a field holds lists of numbers, bools, texts"),
        (pa.decimal128(9, 2), [1, 2, 3], r"a field cannot hold decimal128\(9, 2\); cast it"),
        (pa.map_(pa.string(), pa.int8()), [[]] * 3, "a field cannot hold map<"),
        (pa.null(), [None] * 3, "it holds nulls only"),
    ],
)
def test_values_that_no_field_holds_are_refused(
    tmp_path: Path, type: Any, values: list[Any], message: str
) -> None:
    schema = pa.schema([("good", pa.int8()), ("a", type)])
    path = write(tmp_path / "a.arrow", [[{"good": 1, "a": each} for each in values]], schema)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.open(path)
    assert len(hr.open(path, format=HuggingFace(columns=("good",)))) == 3
    with pytest.raises(errors.InvalidArgumentError, match="columns: got 'x'; there are good, a"):
        hr.open(path, format=HuggingFace(columns=("x",)))


def test_arrays_of_other_shapes_than_their_type_are_refused(tmp_path: Path) -> None:
    rows = [row(0), row(1) | {"box": [[1, 2], [3]]}]
    with pytest.raises(errors.InvalidArgumentError, match="row 1 has 1 entries in dimension 1"):
        hr.open(write(tmp_path / "a.arrow", [rows]))


def test_compressed_record_batches_are_refused_with_the_remedy(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([{"a": i} for i in range(3)])
    feather.write_feather(rows, tmp_path / "a.feather", compression="zstd")
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, rows.schema, options=options) as writer,
    ):
        writer.write(rows)
    for name in ("a.feather", "a.arrow"):
        with pytest.raises(errors.InvalidArgumentError, match=r"byte \d+: .*compressed, so no row"):
            hr.open(tmp_path / name)
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    with pytest.raises(errors.InvalidArgumentError, match="Feather of version 1; write it again"):
        hr.open(tmp_path / "a.feather")


def test_streams_that_were_cut_or_joined_are_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.arrow", batches(20)).read_bytes()
    for data, message in (
        (whole[:-8], r"a\.arrow: byte \d+: no end mark and no further message"),
        (whole[:-60], "cut short"),
        (whole + whole, r"the end mark of the stream, but \d+ bytes follow: streams were joined"),
        (b"", "the file is empty"),
    ):
        (tmp_path / "a.arrow").write_bytes(data)
        with pytest.raises(errors.DataLossError, match=message):
            hr.open(tmp_path / "a.arrow")


@pytest.mark.parametrize("name", ["damaged.arrow", "damaged.file.arrow"])
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [[row(3 * k + i) for i in (0, 1, 2)] for k in range(3)])
    refused = check_damage([path], lambda: hr.open(path), range, rounds=600)
    assert refused > 350  # Changed values, and the same byte again, are no damage here.


def test_bodies_beyond_4_gib_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """66 record batches of 64 MiB of zeros, in a sparse file, and one behind them."""
    schema = pa.schema([("data", pa.binary()), ("number", pa.int32())])
    large = bytes(2**25)

    def serialized(rows: list[dict[str, Any]]) -> bytes:
        return bytes(pa.RecordBatch.from_pylist(rows, schema=schema).serialize())

    body = serialized([{"data": large, "number": i} for i in range(2)])
    with open(tmp_path / "a.arrow", "wb") as file:
        file.write(bytes(schema.serialize()))
        for _ in range(66):
            end = file.tell() + len(body)
            file.write(body[:4096])
            file.seek(end - 64)
            file.write(body[-64:])
        file.write(serialized([{"data": b"behind", "number": 7}]))
        file.write(struct.pack("<II", 0xFFFFFFFF, 0))
    taken: list[int] = []
    kept = MappedFile.range

    def counted(self: MappedFile, offset: int, size: int) -> Any:
        taken.append(size)
        return kept(self, offset, size)

    monkeypatch.setattr(MappedFile, "range", counted)
    dataset = hr.open(tmp_path / "a.arrow")
    assert sum(taken) < 4096  # Offsets and numbers.
    assert dataset.index.extents(0, 132, 1)[1][0] > 2**32
    assert dataset[132] == {"data": b"behind", "number": 7}
    assert dataset[3]["number"] == 1


# The hook for objects.


class Box:
    """An object of a package that a format of a test knows."""

    def __init__(self, path: Path) -> None:
        self.path = path


class Boxes(Format):
    name = "boxes"
    opens = "a box of a test"

    def recognises(self, path: str) -> bool:
        return False

    def of_object(self, given: object) -> Given | None:
        if not isinstance(given, Box):
            return None
        return Given("a box", str(given.path), str(given.path.parent), lambda b: fill(given, b))


def fill(box: Box, builder: Builder) -> None:
    file = builder.add_file(box.path)
    builder.add_field("data", "bytes")
    builder.add_extents("data", file, [0, 1], [1, 2])


def test_a_format_of_a_user_takes_objects(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    box = Box(tmp_path / "a")
    for refuses in (hr.open, hr.Loader):
        with pytest.raises(errors.InvalidArgumentError, match=r"got <.*Box.*must be .*a path"):
            refuses(box)
    register(Boxes())
    dataset = hr.open(box)
    assert [each["data"] for each in dataset] == [b"a", b"bc"]
    assert dataset.format == "boxes"
    assert pickle.loads(pickle.dumps(dataset)).fingerprint == dataset.fingerprint
    with hr.Loader(box, 2, shuffle=False, output="numpy") as loader:
        assert [bytes(each) for batch in loader for each in batch.data] == [b"a", b"bc"]
    (tmp_path / "b").write_bytes(b"xyz")
    assert hr.open(Box(tmp_path / "b"))[1]["data"] == b"yz"


# datasets itself.


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What programs/datasets_objects.py left, and what it said."""
    packages = [str(real_packages(name)) for name in ("loaders", "trainers")]
    folder = tmp_path_factory.mktemp("datasets")
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([*packages, str(Path(hr.__file__).parents[1])]),
        "XDG_CACHE_HOME": str(folder / "cache-of-headrace"),
        "HF_HOME": str(folder / "home"),
        "HF_HUB_OFFLINE": "1",
    }
    program = Path(__file__).parent / "programs" / "datasets_objects.py"
    page = ROOT / "docs" / "formats" / "huggingface.md"
    command = [sys.executable, str(program), str(folder), str(page)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def same(dataset: hr.Dataset, own: Rows) -> bool:
    """Whether the rows are those of `datasets`, whose numbers have no dtype."""
    for mine, theirs in zip(dataset, own, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert plain(value) == plain(with_dtype(value, theirs[name])), name
    return True


def with_dtype(value: Any, wanted: Any) -> Any:
    if isinstance(value, (bytes, str)):
        return wanted
    if isinstance(value, list):
        return [with_dtype(*each) for each in zip(value, wanted, strict=True)]
    return np.asarray(wanted, value.dtype).reshape(np.shape(value))


def test_what_datasets_wrote_is_read_without_it(made: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = made
    rows = pickle.loads((folder / "rows").read_bytes())
    assert "datasets" not in sys.modules
    dataset, _ = check_rows(folder / "saved")
    assert len(dataset) == 57
    assert same(dataset, rows["saved"])
    for split in ("train", "test"):
        assert same(hr.open(folder / "dict", format=HuggingFace(split=split)), rows[split])
    (info,) = folder.glob("cache/**/dataset_info.json")
    assert same(hr.open(info.parent), rows["saved"])
    with pytest.raises(errors.InvalidArgumentError, match="empty: it has no files of rows"):
        hr.open(folder / "empty")
    with pytest.raises(errors.InvalidArgumentError, match="the splits train, test; choose one: hr"):
        hr.open(folder / "dict")
    with pytest.raises(errors.InvalidArgumentError, match="leave split out"):
        hr.open(folder / "saved", format=HuggingFace(split="train"))


REFUSED = {
    "text in memory": "column 'more': its bytes do not lie in a file as they are (they are in mem",
    "transformed": "it has set_transform(), which headrace would not apply; open ds.with_format(No",
    "as pandas": "it has with_format('pandas'), which headrace would not apply; open",
    "in memory": "its rows are in memory, in no file; save it with ds.save_to_disk(folder)",
    "dict": "opening a datasets.DatasetDict: it has the splits train, test; give one: hr.open(ds['",
    "streamed": "opening a datasets.IterableDataset: it has rows in one order only",
    "streamed dict": "opening a datasets.IterableDatasetDict: it has rows in one order only",
    "another at this name": "named.hri is one of datasets.Dataset",
}


def test_objects_are_what_they_are_for_datasets(made: tuple[Path, dict[str, Any]]) -> None:
    found = made[1]["objects"]
    assert found.pop("columns of a format") == "label text"
    assert found.pop("split of a dict") == "8 text label ant bee"
    for name, message in REFUSED.items():
        assert message in found.pop(name)
    assert found == dict.fromkeys(found, "same")
    assert len(found) > 18


def test_ids_are_those_of_torch_s_loader_over_the_object(made: tuple[Path, dict[str, Any]]) -> None:
    found = made[1]["loaders"]
    assert found["node"] == "same"
    for name, count in (("random", 40), ("distributed", 14)):
        torch_s, own = found[name]
        assert own == torch_s
        assert sum(map(len, own)) == count


def test_pickles_own_reader_staleness_and_the_page(made: tuple[Path, dict[str, Any]]) -> None:
    found = made[1]
    assert found["other process"] == "True"
    assert found["own reader"] == "same"
    assert found["stale"].startswith("FailedPreconditionError: ")
    assert found["stale"].endswith("open the dataset again: hr.open(ds)")
    assert found["page"] == "ran"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("state.json", "{", "not JSON"),
        ("state.json", "[]", "not a JSON object"),
        ("state.json", "{}", "lists no _data_files"),
        (
            "state.json",
            '{"_data_files": [{"filename": "../x.arrow"}]}',
            "is no file of this",
        ),
        ("state.json", '{"_data_files": [{"filename": "x.arrow"}]}', "x.arrow: no such file"),
        ("state.json", '{"_data_files": []}', "it has no files of rows"),
        ("state.json", '{"_indices_files": [1]}', "saved by datasets 1"),
        ("dataset_info.json", '{"splits": {}}', ""),
    ],
)
def test_damaged_descriptions_are_errors_that_name_the_file(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    write(tmp_path / "data.arrow", batches(9))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    assert len(hr.open(tmp_path)) == 9
    (tmp_path / name).write_text(text)
    if not message:
        assert len(hr.open(tmp_path)) == 9
        return
    with pytest.raises(errors.HeadraceError, match=message):
        hr.open(tmp_path)
