"""Parquet: rows are those of pyarrow, whatever the encoding; row groups by reader processes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run
from format_checks import check_batch, check_orders, check_rows, check_workers, loader_of, plain
from own_readers import own_samples
from parquet_files import FILE, PLAIN, ROWS, every_kind, flat, jpeg, write

import headrace as hr
from headrace import errors
from headrace.formats import Parquet
from headrace.formats._parquet import column_values, parquet
from headrace.pack import write_pack

DOCS = Path(__file__).parents[3] / "docs" / "formats" / "parquet.md"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps readers of this process alive, as their start is most of the time of a small test."""
    path = write(tmp_path_factory.mktemp("kept") / "a.parquet", {"t": ["x"]})
    reader = hr.open(path, index=path.with_suffix(".hri")).stored_reader()
    yield
    reader.close()


# What is read.


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none"])
@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_rows_are_those_of_pyarrow(
    tmp_path: Path, readers: None, compression: str, dictionary: bool, page: str
) -> None:
    path = write(
        tmp_path / "a.parquet",
        every_kind(ROWS),
        compression=compression,
        use_dictionary=dictionary,
        data_page_version=page,
        data_page_size=300,
        row_group_size=20,
    )
    dataset, own = check_rows(path)
    assert [len(own), dataset.index.block_count] == [ROWS, 3]
    kinds = {name: dataset.kind(name) for name in dataset.fields}
    assert kinds == dict.fromkeys(("label", "code", "vector", "flag", "half", "day"), "array") | {
        "text": "text", "word": "text", "blob": "bytes", "code": "bytes", "tokens": "list",
        "pairs": "list", "image": "image",
    }  # fmt: skip
    assert own[7]["text"] == every_kind(ROWS)["text"][7].as_py()


def test_every_order_tiers_resumes_workers_and_the_node_process(
    tmp_path: Path, readers: None
) -> None:
    table = every_kind(ROWS).select(["label", "text", "tokens", "vector"])
    dataset, own = check_rows(write(tmp_path / "a.parquet", table, row_group_size=7))
    check_orders(dataset, own, tmp_path)
    check_workers(dataset, own)
    with hr.Loader(
        dataset, 7, job=hr.Job(node=hr.Node()), output=hr.Output("numpy", ids=True)
    ) as loader:
        seen = [check_batch(batch, own, dataset.fields) for batch in loader]
    assert sorted(number for batch in seen for number in batch) == list(range(ROWS))


def test_statistics_name_the_store_and_other_stores_are_refused(
    tmp_path: Path, readers: None
) -> None:
    path = write(tmp_path / "a.parquet", every_kind(ROWS), row_group_size=10)
    with loader_of(hr.open(path), "epoch") as loader:
        assert sum(len(batch.label) for batch in loader) == ROWS
        assert loader.stats()["io"]["store"] == "rowgroups"
    with pytest.raises(errors.InvalidArgumentError, match="'threads' does not read objects"):
        hr.Loader(path, 10, engine=hr.EngineOptions(io="threads"), output="numpy")


def test_several_files_by_a_pattern_and_by_a_folder(tmp_path: Path, readers: None) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        write(folder / f"train-{number:05}-of-00003.parquet", every_kind(5, first=5 * number))
    (folder / "README.md").write_text("---")
    write(folder / "train-00001-of-00003.parquet", every_kind(0))
    pattern = f"{folder}/train-{{00000..00002}}-of-00003.parquet"
    for path in (folder, pattern):
        dataset, _ = check_rows(path)
        assert [each["label"] for each in dataset] == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    write(folder / "test-00000-of-00001.parquet", every_kind(1))
    with pytest.raises(errors.InvalidArgumentError, match="several splits: test, train"):
        hr.open(folder)


def test_odd_shapes(tmp_path: Path, readers: None) -> None:
    one, own = check_rows(write(tmp_path / "one.parquet", every_kind(1)))
    assert len(one) == len(own) == 1
    sliced = every_kind(ROWS).slice(13, 17)
    check_rows(write(tmp_path / "sliced.parquet", sliced, row_group_size=5))
    empty_values = {"text": ["", ""], "list": pa.array([[], []], pa.list_(pa.int64()))}
    check_rows(write(tmp_path / "empty_values.parquet", empty_values))
    numbers = write(tmp_path / "numbers.parquet", {"a": [1, 2], "a.b": [3.5, 4.5]})
    check_rows(numbers)
    odd = write(tmp_path / "odd.parquet", {"a/b:c d": ["x"], "日": [b"y"]})
    check_rows(odd)
    check_rows(odd, Parquet(columns=("日",)))
    with pq.ParquetWriter(tmp_path / "groups.parquet", every_kind(0).schema) as writer:
        for count in (0, 3, 0, 0, 2, 0):
            writer.write_table(every_kind(count))
    dataset, _ = check_rows(tmp_path / "groups.parquet")
    assert len(dataset) == 5
    for wide in ("large_string", "string_view"):
        array = pa.array(["ab", "", "日本" * 9], getattr(pa, wide)())
        check_rows(write(tmp_path / f"{wide}.parquet", {"t": array}))


def test_large_values_are_decoded_in_parts(
    tmp_path: Path, readers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_values, "_BATCH_BYTES", 1000)
    monkeypatch.setattr(column_values, "_BATCH_ROWS_MAX", 3)
    check_rows(write(tmp_path / "a.parquet", every_kind(ROWS), row_group_size=20))


def test_what_hugging_face_says_of_columns(tmp_path: Path, readers: None) -> None:
    features = {
        "image": {"_type": "Image"},
        "raw": {"_type": "Image", "decode": False},
        "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
        "sound": {"_type": "Audio", "sampling_rate": 16000},
    }
    webp = b"RIFF\x00\x00\x00\x00WEBPVP8 "
    table = pa.table(
        {
            "image": [{"bytes": jpeg(1), "path": None}, {"bytes": jpeg(2), "path": "2.jpg"}],
            "raw": [webp, webp],
            "label": [1, 0],
            "sound": [{"bytes": b"RIFFx", "path": None}, {"bytes": b"", "path": None}],
        }
    ).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    dataset, _ = check_rows(write(tmp_path / "a.parquet", table))
    kinds = [dataset.kind(each) for each in dataset.fields]
    assert kinds == ["image", "image", "array", "bytes"]
    assert dataset.classes == ("cat", "dog")
    images = hr.open(tmp_path / "a.parquet", format=Parquet(columns=("image", "label")))
    transform = hr.image.evaluate(8)
    with hr.Loader(images, 2, transform=transform, output="numpy") as loader:
        (batch,) = loader
    assert batch.image.shape[0] == 2


@pytest.mark.parametrize("said", [b"{", b"[]", b'{"info": {"features": 3}}', b"\xff", b"null"])
def test_metadata_that_says_nothing_is_passed_over(tmp_path: Path, said: bytes) -> None:
    table = pa.table({"label": [1]}).replace_schema_metadata({b"huggingface": said})
    assert hr.open(write(tmp_path / "a.parquet", table)).classes == ()


# Values that lie in the file as they are.


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("nullable", [True, False])
def test_plain_values_are_read_from_the_file_itself(
    tmp_path: Path, page: str, nullable: bool
) -> None:
    table = flat(ROWS)
    table = table.cast(pa.schema([each.with_nullable(nullable) for each in table.schema]))
    path = write(
        tmp_path / "a.parquet", table, **PLAIN, data_page_version=page, data_page_size=100,
        write_batch_size=4, row_group_size=21, write_page_checksum=True,
    )  # fmt: skip
    dataset, own = check_rows(path)
    assert dataset.index.root == str(tmp_path)
    assert dataset.index.object_count == 1
    for column in ("text", "blob", "image"):
        position = dataset.fields.index(column)
        _, offsets, sizes = dataset.index.extents(position, 0, ROWS)
        data = path.read_bytes()
        for number in range(ROWS):
            at = int(offsets[number])
            assert data[at : at + int(sizes[number])] == plain_bytes(own[number][column])
    if page == "1.0" and nullable:
        check_orders(dataset, own, tmp_path)
        with loader_of(dataset, "epoch") as loader:
            assert loader.stats()["io"]["store"] != "rowgroups"


def plain_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def test_labels_may_be_encoded_and_one_encoded_column_of_bytes_needs_readers(
    tmp_path: Path, readers: None
) -> None:
    path = tmp_path / "a.parquet"
    options: dict[str, Any] = {"use_dictionary": ["label"], "row_group_size": 9}
    compression = {"label": "zstd", "half": "snappy", "text": "none", "blob": "none"}
    compression |= {"code": "none", "image.bytes": "none", "image.path": "gzip"}
    dataset, _ = check_rows(write(path, flat(ROWS), compression=compression, **options))
    assert dataset.index.root == str(tmp_path)
    decoded, _ = check_rows(path, Parquet(decode=True))
    assert decoded.index.root == f"rowgroups://{tmp_path}"
    for one, other in zip(dataset, decoded, strict=True):
        assert {n: plain(one[n]) for n in one} == {n: plain(other[n]) for n in other}
    write(path, flat(ROWS), compression=compression | {"blob": "gzip"}, **options)
    assert check_rows(path)[0].index.root.startswith("rowgroups://")
    write(path, flat(ROWS), **PLAIN | {"use_dictionary": ["text"]})
    assert check_rows(path)[0].index.root.startswith("rowgroups://")
    delta = {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    write(path, flat(ROWS), **PLAIN, **delta)
    assert check_rows(path)[0].index.root.startswith("rowgroups://")


# What is refused.


NULL = pa.array([1, None, None])
REFUSED = {
    "null": ({"a": NULL}, r"row group 0: column 'a' has no value \(null\) in 2 of 3 rows"),
    "null text": ({"a": ["x", None]}, "column 'a' has no value"),
    "null in a list": ({"a": [[1], [None]]}, "column 'a' has no value"),
    "null list": ({"a": [[1], None]}, "column 'a' has no value"),
    "null in a vector": (
        {"a": pa.array([[1, None]], pa.list_(pa.int8(), 2))},
        "column 'a' has no value",
    ),
    "null word": ({"a": pa.array(["x", None]).dictionary_encode()}, "column 'a' has no value"),
    "images outside": (
        {"a": pa.array([{"bytes": None, "path": "x"}], FILE)},
        r"column 'a\.bytes' has no value",
    ),
    "null struct": (
        {"a": pa.array([{"bytes": b"x", "path": "x"}, None])},
        r"column 'a\.bytes' has no value",
    ),
    "nested lists": ({"a": [[[[1]]]]}, r"column 'a' is of type list<.*samples cannot hold"),
    "lists of lists of text": ({"a": [[["x"]]]}, "column 'a' is of type list<"),
    "maps": ({"a": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8()))}, "is of type map<"),
    "decimals": ({"a": pa.array([1]).cast(pa.decimal128(20, 0))}, "is of type decimal128"),
    "structs": ({"a": [{"x": 1}]}, "is of type struct<"),
    "no type": ({"a": pa.nulls(2)}, "is of type null"),
    "no rows": ({"a": pa.array([], pa.int8())}, "it holds no samples"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_samples_cannot_hold_is_refused_by_name(tmp_path: Path, what: str) -> None:
    columns, message = REFUSED[what]
    path = write(tmp_path / "a.parquet", columns)
    with pytest.raises(errors.InvalidArgumentError, match=message) as raised:
        hr.open(path)
    assert str(path) in str(raised.value)
    if "column" in message:
        said = ("fill={'a': ", "optional=('a',)", "write the file with")
        assert any(each in str(raised.value) for each in said)
        other = pa.table(columns).append_column("b", pa.array(range(len(pa.table(columns)))))
        assert hr.open(write(path, other), format=Parquet(columns=("b",))).fields == ("b",)


def test_columns_that_are_not_there_and_other_schemas(tmp_path: Path) -> None:
    first = write(tmp_path / "0.parquet", {"a": [1], "b": ["x"]})
    with pytest.raises(errors.InvalidArgumentError, match=r"'c': it has no such column.* a, b"):
        hr.open(first, format=Parquet(columns=("c",)))
    with pytest.raises(errors.InvalidArgumentError, match="it has no columns"):
        hr.open(first, format=Parquet(columns=()))
    write(tmp_path / "1.parquet", {"a": [1.5], "b": ["x"]})
    with pytest.raises(errors.InvalidArgumentError, match="its columns are a: float64, b: text"):
        hr.open(f"{tmp_path}/{{0..1}}.parquet")
    assert len(hr.open(f"{tmp_path}/{{0..1}}.parquet", format=Parquet(columns=("b",)))) == 2


def test_row_groups_that_are_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES_MAX", 20_000)
    repeated = {
        "t": ["x" * 1000] * 100,
        "n": range(100),
    }  # small on disk: the size is found while decoding
    path = write(tmp_path / "a.parquet", repeated)
    with pytest.raises(errors.InvalidArgumentError, match=r"row group 0 decodes to .*K.* or more"):
        hr.open(path)
    assert hr.open(path, format=Parquet(columns=("n",))).fields == ("n",)


# Other commands, and the page.


def test_packs_inspect_and_verify(tmp_path: Path, readers: None) -> None:
    path = write(tmp_path / "a.parquet", every_kind(ROWS), row_group_size=9)
    own = list(own_samples(Parquet(), str(path)))
    write_pack(hr.open(path), tmp_path / "pack")
    for sample in hr.open(tmp_path / "pack"):
        wanted = own[int(sample["label"])]
        assert {name: plain(sample[name]) for name in sample} == {
            name: plain(wanted[name]) for name in wanted
        }
    assert "rowgroups" not in run("inspect", str(path)).stdout
    run("verify", str(path))


def test_without_pyarrow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.parquet", {"a": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'headrace\[pack\]'"):
        hr.open(path)


def test_the_examples_of_the_page_run(
    tmp_path: Path, readers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data"
    folder.mkdir()
    table = every_kind(12).select(["image", "label", "text"])
    for number in range(5):
        write(folder / f"train-{number:05}-of-00005.parquet", table)
    for code in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL):
        exec(code, {"hr": hr})


def test_columns_of_uint64_and_a_name_for_a_list_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"big": pa.array([1, 2], pa.uint64()), "n": [1, 2]}), path)
    with pytest.raises(errors.InvalidArgumentError, match=r"a\.parquet: column 'big' is of type"):
        hr.open(path)
    assert len(hr.open(path, format=Parquet(columns=("n",)))) == 2
    with pytest.raises(errors.InvalidArgumentError, match="must be a list of names, as"):
        hr.open(path, format=Parquet(columns="n"))  # type: ignore[arg-type]


def test_a_stray_file_or_table_does_not_take_over_a_folder_of_another_format(
    tmp_path: Path,
) -> None:
    (tmp_path / "index.json").write_text(
        json.dumps({"version": 2, "shards": [{"format": "mds", "version": 2}]})
    )
    write(tmp_path / "a.parquet", {"t": ["x"]})
    (tmp_path / "metadata.csv").write_text("file_name,label\nindex.json,1\n")
    with pytest.raises(errors.HeadraceError, match=r"index\.json"):
        hr.open(tmp_path)
