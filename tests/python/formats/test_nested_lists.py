"""Lists of lists, of texts, of bytes: one field of the user's, of Arrow, Parquet and a Builder."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run, run_json
from format_checks import Rows, check_batch, check_orders, check_rows, like, loader_of, plain

import headrace as hr
from headrace import errors
from headrace.formats import Builder, HuggingFace, Parquet, table
from headrace.formats._parquet import column_values
from headrace.pack import PackParameters, write_pack

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 40
MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
SCHEMA = pa.schema(
    [
        ("label", pa.int64()),
        ("turns", pa.list_(pa.list_(pa.int32()))),
        ("boxes", pa.large_list(pa.large_list(pa.list_(pa.float32(), 2)))),
        ("names", pa.list_(pa.string())),
        ("large", pa.large_list(pa.large_string())),
        ("blobs", pa.list_(pa.binary())),
        ("flags", pa.list_(pa.list_(pa.bool_()))),
        ("images", pa.list_(MEDIA)),
    ]
)
FIXED = pa.schema([("three", pa.list_(pa.string(), 3)), ("two", pa.list_(pa.list_(pa.int8()), 2))])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(table, "FORMATS", table.FORMATS)


@pytest.fixture(scope="module", autouse=True)
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps readers of row groups alive, as their start is most of the time of a small test."""
    path = write_parquet(tmp_path_factory.mktemp("kept") / "a.parquet", pa.table({"t": ["x"]}))
    reader = hr.open(path, index=path.with_suffix(".hri")).stored_reader()
    yield
    reader.close()


def row(i: int) -> dict[str, Any]:
    return {
        "label": i,
        "turns": [list(range(j, j + (i + j) % 4)) for j in range(i % 5)],
        "boxes": [[[i, j]] * (j % 3) for j in range(i % 4)],
        "names": ["ü" * (j % 3) + f"日{i}" * (j % 2) for j in range(i % 6)],
        "large": [f"n{i}"] * (i % 2),
        "blobs": [bytes([i]) * j for j in range(i % 3)],
        "flags": [[j % 2 == 0] * (i % 10) for j in range(i % 3)],
        "images": [{"bytes": b"\xff\xd8" + bytes([j]), "path": None} for j in range(i % 3)],
    }


def rows(count: int = ROWS) -> Any:
    return pa.Table.from_pylist([row(i) for i in range(count)], schema=SCHEMA)


def write_arrow(path: Path, made: Any, batch: int = 7) -> Path:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made, max_chunksize=batch)
    return path


def write_parquet(path: Path, made: Any, **options: Any) -> Path:
    pq.write_table(made, path, **options)
    return path


def by_pyarrow(made: Any) -> Rows:
    """The rows of a table as a dataset has them, from what pyarrow gives."""
    dtypes = {"turns": "int32", "flags": "bool", "two": "int8"}
    found = []
    for each in made.to_pylist():
        own: dict[str, Any] = {}
        for name, value in each.items():
            if name in dtypes:
                own[name] = [np.array(inner, dtypes[name]) for inner in value]
            elif name == "boxes":
                own[name] = [np.array(inner, np.float32).reshape(-1, 2) for inner in value]
            elif name == "images":
                own[name] = [inner["bytes"] for inner in value]
            else:
                own[name] = np.int64(value) if name == "label" else value
        found.append(own)
    return found


def check(dataset: hr.Dataset, made: Any) -> None:
    expected = by_pyarrow(made)
    assert len(dataset) == len(expected)
    for mine, theirs in zip(dataset, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert plain(value) == plain(theirs[name]), name


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_rows_are_those_of_pyarrow(tmp_path: Path, kind: str) -> None:
    if kind == "arrow":
        path = write_arrow(tmp_path / "a.arrow", rows())
    else:
        path = write_parquet(tmp_path / "a.parquet", rows(), row_group_size=11)
    dataset, _ = check_rows(path)
    check(dataset, rows())
    assert dataset.fields == tuple(SCHEMA.names)
    nested = set(SCHEMA.names) - {"label"}
    assert {name for name in dataset.fields if dataset.kind(name) == "nested"} == nested
    assert "turns: int32[?, ?], boxes: float32[?, ?, 2], names: text[?]" in repr(dataset)
    assert "[lengths]" not in repr(dataset)


def test_fixed_numbers_of_lists_and_slices(tmp_path: Path) -> None:
    made = pa.Table.from_pylist(
        [{"three": [f"a{i}", "", "é" * i], "two": [[i], [1] * (i % 3)]} for i in range(20)],
        schema=FIXED,
    )
    check(hr.open(write_arrow(tmp_path / "a.arrow", made)), made)
    check(hr.open(write_arrow(tmp_path / "b.arrow", made.slice(3, 11), 4)), made.slice(3, 11))
    sliced = rows().slice(5, 20)
    check(hr.open(write_arrow(tmp_path / "c.arrow", sliced, 6)), sliced)
    check(hr.open(write_parquet(tmp_path / "d.parquet", sliced, row_group_size=6)), sliced)


@pytest.mark.parametrize("count", [1, 5])
def test_lists_that_are_empty_everywhere(tmp_path: Path, count: int) -> None:
    empty = {
        "a": pa.array([[]] * count, pa.list_(pa.list_(pa.int16()))),
        "b": pa.array([[[]]] * count, pa.list_(pa.list_(pa.int16()))),
        "c": pa.array([[""]] * count, pa.list_(pa.string())),
        "d": pa.array([[]] * count, pa.list_(pa.string())),
        "label": pa.array(range(count), pa.int64()),
    }
    made = pa.table(empty)
    for path in (
        write_arrow(tmp_path / "a.arrow", made),
        write_parquet(tmp_path / "a.parquet", made),
    ):
        dataset, _ = check_rows(path)
        assert [len(each["b"]) for each in dataset] == [1] * count
        assert dataset[0]["c"] == [""]
        with hr.Loader(dataset, count, output="numpy") as loader:
            (batch,) = loader
        assert [list(map(len, each)) for each in batch.b] == [[0]] * count
        assert batch.d == [[]] * count


def test_parquet_decodes_large_lists_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_values, "_BATCH_BYTES", 100)
    monkeypatch.setattr(column_values, "_BATCH_ROWS_MAX", 3)
    check(hr.open(write_parquet(tmp_path / "a.parquet", rows(), row_group_size=17)), rows())


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_every_order_with_tiers_and_resumes(tmp_path: Path, kind: str) -> None:
    made = rows().select(["label", "turns", "names", "images"])
    if kind == "arrow":
        path = write_arrow(tmp_path / "a.arrow", made)
    else:
        path = write_parquet(tmp_path / "a.parquet", made, row_group_size=9)
    dataset, own = check_rows(path)
    check_orders(dataset, own, tmp_path)


def sizes(sample: hr.Sample) -> dict[str, Any]:
    """A transform: what a sample of `rows` holds, as numbers."""
    assert list(sample.keys()) == ["names", "turns"]
    return {
        "id": sample.id,
        "sum": int(sum(int(each.sum()) for each in sample.turns)),
        "text": "|".join(sample.names),
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_python_transforms_get_lists(tmp_path: Path, workers: int) -> None:
    path = write_arrow(tmp_path / "a.arrow", rows())
    fields = ["names", "turns"]  # in the order that is asked for
    with hr.Loader(
        path, 8, transform=sizes, output=hr.Output(fields=fields), workers=workers
    ) as loader:
        seen = {}
        for batch in loader:
            for i, number in enumerate(batch["id"].tolist()):
                seen[number] = int(batch["sum"][i]), batch["text"][i]
    wanted = {i: (sum(map(sum, row(i)["turns"])), "|".join(row(i)["names"])) for i in range(ROWS)}
    assert seen == wanted


def test_batches_have_tensors_and_the_node_process_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = write_arrow(tmp_path / "a.arrow", rows())
    for place in (None, hr.Node()):
        options: dict[str, Any] = {
            "output": hr.Output(fields=["turns", "names"], ids=True),
            "job": hr.Job(node=place),
        }
        with hr.Loader(path, 8, **options) as loader:
            for batch in loader:
                for i, number in enumerate(batch.sample_id.tolist()):
                    assert all(isinstance(each, torch.Tensor) for each in batch.turns[i])
                    assert [each.tolist() for each in batch.turns[i]] == row(number)["turns"]
                    assert batch.names[i] == row(number)["names"]
    fetcher = pytest.importorskip("headrace.papers.redox").RedoxFetcher
    with hr.Loader(path, 8, output=hr.Output(fields=["turns", "names"], ids=True)) as loader:
        samples = fetcher(loader)
        batches = torch.utils.data.DataLoader(
            samples, batch_sampler=samples.sampler, collate_fn=list
        )
        for sample in itertools.chain(*batches):
            number = int(sample.sample_id)
            assert [each.tolist() for each in sample.turns] == row(number)["turns"]
            assert sample.names == row(number)["names"]


def test_padding_leaves_lists_of_lists_as_they_are(tmp_path: Path) -> None:
    made = rows().append_column("flat", [[[1] * (i % 4) for i in range(ROWS)]])
    path = write_arrow(tmp_path / "a.arrow", made)
    with hr.Loader(
        path, 8, output=hr.Output("numpy", ragged="pad"), order="exact", shuffle=False
    ) as loader:
        batch = next(iter(loader))
    assert batch.flat.data.shape == (8, 3)
    assert [len(each) for each in batch.turns] == [i % 5 for i in range(8)]
    with pytest.raises(errors.InvalidArgumentError, match="no field has arrays of different"):
        hr.Loader(path, 8, output=hr.Output(fields=["turns"], ragged="pad"))


def test_a_pack_has_them_in_both_orders(tmp_path: Path) -> None:
    dataset = hr.open(write_parquet(tmp_path / "a.parquet", rows(), row_group_size=7))
    own = list(dataset)
    for order in ("shuffled", "source"):
        write_pack(dataset, tmp_path / order, PackParameters(order=order, block_samples=5))
        pack = hr.open(tmp_path / order)
        assert run_json("verify", tmp_path / order)["problems"] == []
        assert pack.fields == dataset.fields
        assert pack.kind("turns") == "nested"
        for sample in pack:
            wanted = own[int(sample["label"])]
            assert {name: plain(each) for name, each in sample.items()} == {
                name: plain(each) for name, each in wanted.items()
            }
        with loader_of(pack, "epoch") as loader:
            assert sum(len(check_batch(each, list(pack), pack.fields)) for each in loader) == ROWS


@pytest.mark.parametrize(
    ("type", "value", "message"),
    [
        (pa.list_(pa.list_(pa.int8())), [[1], None], "null"),
        (pa.list_(pa.list_(pa.int8())), [[1], [2, None]], "null"),
        (pa.list_(pa.list_(pa.int8())), None, "null"),
        (pa.list_(pa.string()), ["a", None], "null"),
        (pa.list_(MEDIA), [{"bytes": None, "path": "a.png"}], "null"),
        (pa.list_(MEDIA), [None], "null"),
        (pa.list_(pa.list_(pa.string())), [["a"]], "lists of lists hold numbers|cannot hold"),
        (pa.list_(pa.list_(pa.list_(pa.int8()))), [[[1]]], "two deep|cannot hold"),
        (pa.list_(pa.list_(pa.uint64())), [[1]], "no uint64|cannot hold"),
        (pa.list_(pa.struct([("a", pa.int8())])), [{"a": 1}], "a field holds lists|cannot hold"),
    ],
)
@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_nulls_and_deeper_lists_are_refused(
    tmp_path: Path, kind: str, type: Any, value: Any, message: str
) -> None:
    made = pa.table({"good": [1, 2], "a": pa.array([[], value], type)})
    if kind == "arrow":
        path, without = write_arrow(tmp_path / "a.arrow", made), HuggingFace(columns=("good",))
    else:
        path, without = write_parquet(tmp_path / "a.parquet", made), Parquet(columns=("good",))
    with pytest.raises(errors.InvalidArgumentError, match=message) as raised:
        hr.open(path)
    assert "'a'" in str(raised.value)
    assert "columns=" in str(raised.value)
    assert len(hr.open(path, format=without)) == 2


def test_text_that_is_not_utf8_names_its_sample(tmp_path: Path) -> None:
    raw = pa.array([[b"ok"], [b"ok", b"\xff"]], pa.list_(pa.binary()))
    made = pa.table({"a": raw.cast(pa.list_(pa.string()), safe=False)})
    dataset = hr.open(write_arrow(tmp_path / "a.arrow", made))
    assert dataset[0] == {"a": ["ok"]}
    with pytest.raises(errors.DataLossError, match="sample 1: field a: its text is not UTF-8"):
        dataset.read(1)
    for options in ({}, {"transform": len, "workers": 0}, {"transform": len, "workers": 1}):
        with (
            hr.Loader(dataset, 2, order="exact", shuffle=False, **options) as loader,
            pytest.raises(
                (errors.DataLossError, errors.TransformError), match=r"sample 1.*not UTF-8"
            ),
        ):
            next(iter(loader))


def test_a_builder_takes_extents_and_inline_values(tmp_path: Path) -> None:
    lists = [[[1, 2], [], [3]], [], [[4]]]
    texts = [["é", ""], [], ["abc"]]
    flat = np.array([1, 2, 3, 4], "<i4")
    (tmp_path / "a.bin").write_bytes(flat.tobytes())
    with Builder(tmp_path / "a.hri", tmp_path) as builder:
        builder.add_field("stored", "array", "int32", (None, None))
        builder.add_field("kept", "array", "int32", (None, None), inline=True)
        builder.add_field("points", "array", "float32", (None, None, 2), inline=True)
        builder.add_field("words", "text", shape=(None,), inline=True)
        builder.add_field("raw", "bytes", shape=(None,), inline=True)
        file = builder.add_file(tmp_path / "a.bin")
        inner = [2, 0, 1, 1], [3, 0, 1]
        builder.add_extents("stored", file, [0, 12, 12], [12, 0, 4], inner=inner)
        builder.add_values("kept", lists[:1])
        builder.add_values("kept", lists[1:])
        builder.add_ragged(
            "points", np.ones((3, 2), np.float32), [2, 0, 1], inner=([2, 1], [1, 0, 1])
        )
        builder.add_values("words", texts)
        builder.add_values("raw", [[b"a", b""], [], [b"bc"]])
    dataset = hr.open(tmp_path / "a.hri")
    assert dataset.fields == ("stored", "kept", "points", "words", "raw")
    for number, sample in enumerate(dataset):
        assert [each.tolist() for each in sample["stored"]] == lists[number]
        assert [each.tolist() for each in sample["kept"]] == lists[number]
        assert sample["words"] == texts[number]
        assert sample["raw"] == [[b"a", b""], [], [b"bc"]][number]
    assert [each.shape for each in dataset[0]["points"]] == [(2, 2)]
    with loader_of(dataset, "exact", shuffle=False) as loader:
        (batch,) = loader
    assert like(batch.raw, [[b"a", b""], [], [b"bc"]]) == [[b"a", b""], [], [b"bc"]]
    assert batch.words == texts


def test_a_builder_refuses_what_cannot_be(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "a.hri", tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match=r"x\[lengths\].*choose another"):
        builder.add_field("x[lengths]", "array", "int8")
    with pytest.raises(errors.InvalidArgumentError, match="neither compressed nor widened"):
        builder.add_field("x", "array", "int8", (None, None), batch_dtype="int64")
    with pytest.raises(errors.InvalidArgumentError, match="None, or the first two"):
        builder.add_field("x", "array", "int8", (None, None, None))
    with pytest.raises(errors.InvalidArgumentError, match="only an array has one"):
        builder.add_field("x", "text", shape=(2,))
    builder.add_field("x", "array", "int8", (None, None), inline=True)
    builder.add_field("y", "text", inline=True)
    with pytest.raises(errors.InvalidArgumentError, match="'x': inner= is needed"):
        builder.add_ragged("x", [1, 2], [2])
    with pytest.raises(errors.InvalidArgumentError, match="'y': inner= was given"):
        builder.add_ragged("y", b"ab", [2], inner=([2], [1]))
    for inner, message in (
        (([-1], [1]), r"got -1 to -1, must be in \[0, 4294967295\]"),
        (([2**32], [1]), "got 4294967296 to"),
        (([1.5], [1]), "must be one number for each inner list"),
        (([1, 1], [1]), "their sum is 1, but there are 2"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            builder.add_ragged("x", [1, 2], [2], inner=inner)
    builder.discard()


def test_lengths_that_are_not_those_of_the_values_are_damage(tmp_path: Path) -> None:
    with Builder(tmp_path / "a.hri", tmp_path) as builder:
        builder.add_field("x", "array", "int8", (None, None), inline=True)
        builder.add_ragged("x", [1, 2], [2], inner=([3], [1]))
    with pytest.raises(errors.DataLossError, match="inner lists have 3 entries, its values 2"):
        hr.open(tmp_path / "a.hri").read(0)


def test_inspect_shows_one_field(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "a.arrow", rows())
    shown = run_json("inspect", path)
    types = {each["name"]: each["type"] for each in shown["fields"]}
    assert types["turns"] == "int32[?, ?]"
    assert types["names"] == "text[?]"
    assert types["blobs"] == "bytes[?]"
    assert list(types) == list(SCHEMA.names)
    assert "[lengths]" not in run("inspect", path).output
