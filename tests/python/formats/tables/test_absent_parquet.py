"""Nulls in Parquet: `fill=`, `optional=`, whichever way rows are read, and the advice."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from advice import column, formats_in, opened_by_advice, refusal
from format_checks import check_batch, check_rows, check_workers, loader_of

import headrace as hr
from headrace.formats import Parquet


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


PLAIN = {"compression": "none", "use_dictionary": False}
WAYS: dict[str, dict[str, Any]] = {
    "encoded": {},
    "plain": PLAIN,
    "one group": {"row_group_size": 50},
}
ROWS = 20
MEDIA = pa.struct({"bytes": pa.binary(), "path": pa.string()})

COLUMNS: dict[str, tuple[Any, Any, Any]] = {
    "int8": (pa.int8(), lambda i: i, -1),
    "uint32": (pa.uint32(), lambda i: i, 7),
    "float": (pa.float32(), lambda i: i / 4, float("nan")),
    "half": (pa.float16(), lambda i: np.float16(i), 2.0),
    "bool": (pa.bool_(), lambda i: i % 2 == 0, True),
    "date": (pa.date32(), lambda i: datetime.date(2020, 1, 1 + i), 5),
    "time": (pa.timestamp("us"), lambda i: datetime.datetime(2020, 1, 1, i), 0),
    "text": (pa.string(), lambda i: f"text {i}", "none"),
    "large": (pa.large_string(), lambda i: "ü" * i, "-"),
    "view": (pa.string_view(), lambda i: "v" * i, "-"),
    "bytes": (pa.binary(), lambda i: bytes([i]) * i, "empty"),
    "fixed": (pa.binary(3), lambda i: bytes([i, 0, 1]), ""),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda i: "ab"[i % 2], "c"),
    "vector": (pa.list_(pa.float32(), 2), lambda i: [i, -i], [0.5, 1]),
    "matrix": (pa.list_(pa.list_(pa.int16(), 2), 2), lambda i: [[i, 0], [1, i]], [[0, 0], [1, 1]]),
    "list": (pa.list_(pa.int64()), lambda i: list(range(i % 4)), [9]),
    "boxes": (pa.list_(pa.list_(pa.float32(), 4)), lambda i: [[i] * 4] * (i % 3), []),
    "lists": (pa.list_(pa.list_(pa.int32())), lambda i: [[i], []], [[1, 2], [3]]),
    "texts": (pa.list_(pa.string()), lambda i: ["a", "b" * i], ["x"]),
    "media": (MEDIA, lambda i: {"bytes": b"sound %d" % i, "path": None}, "silence"),
}  # fmt: skip


def written(
    path: Path, names: list[str], way: str, absent: tuple[int, ...] = (0, 3, 7), size: int = 6
) -> Path:
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            **{
                name: pa.array(
                    [None if i in absent else COLUMNS[name][1](i) for i in range(ROWS)],
                    COLUMNS[name][0],
                )
                for name in names
            },
        }
    )
    pyarrow.parquet.write_table(table, path, **({"row_group_size": size} | WAYS[way]))
    return path


@pytest.mark.parametrize("name", COLUMNS)
def test_the_advice_of_each_type_of_column(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "a.parquet", [name], "encoded")
    filled, optional, without = opened_by_advice(path)
    assert f"column '{name}" in refusal(path)
    assert filled.fields == ("id", name)
    assert optional.fields == ("id", name, f"{name}_valid")
    assert column(without, "id") == list(range(ROWS))


@pytest.mark.parametrize("way", WAYS)
def test_all_types_of_columns(tmp_path: Path, way: str) -> None:
    path = written(tmp_path / "a.parquet", list(COLUMNS), way)
    fill = {name: COLUMNS[name][2] for name in COLUMNS}
    dataset, own = check_rows(path, Parquet(fill=fill, optional=("text", "int8")))
    valid = [i not in (0, 3, 7) for i in range(ROWS)]
    assert column(dataset, "text_valid") == column(dataset, "int8_valid") == valid
    assert (own[0]["text"], own[0]["media"], own[0]["fixed"]) == ("none", b"silence", b"")
    assert (dataset[3]["matrix"].tolist(), dataset[3]["lists"][1].tolist()) == (fill["matrix"], [3])
    dataset, own = check_rows(path, Parquet(optional=tuple(COLUMNS)))
    assert (own[0]["text"], own[0]["media"], own[0]["list"].shape) == ("", b"", (0,))


@pytest.mark.parametrize("way", WAYS)
def test_several_columns_are_advised_at_once(tmp_path: Path, way: str) -> None:
    path = written(tmp_path / "a.parquet", ["int8", "text", "float", "date"], way)
    filled, optional, without = opened_by_advice(path)
    assert [filled[i]["text"] for i in range(2)] == ["", "text 1"]
    assert [filled[i]["int8"] for i in range(2)] == [0, 1]
    assert optional.fields == (
        "id", "int8", "int8_valid", "text", "text_valid",
        "float", "float_valid", "date", "date_valid",
    )  # fmt: skip
    assert without.fields == ("id",)
    filled, *_ = opened_by_advice(path, Parquet(columns=("id", "text"), decode=True))
    assert filled.fields == ("id", "text")


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_orders_and_resumes(tmp_path: Path, order: str) -> None:
    path = written(tmp_path / "a.parquet", ["int8", "text", "list", "texts"], "encoded", size=2)
    row = Parquet(fill={"text": "no text"}, optional=("int8", "list", "texts"))
    dataset, own = check_rows(path, row)
    with loader_of(dataset, order) as loader:
        steps = [check_batch(batch, own, dataset.fields) for batch in loader]
        assert sorted(number for step in steps for number in step) == list(range(ROWS))
    with loader_of(dataset, order) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(dataset, order) as loader:
        loader.load_state_dict(state)
        assert [check_batch(batch, own, dataset.fields) for batch in loader] == steps[1:]


def test_workers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", ["int8", "text"], "plain")
    check_workers(*check_rows(path, Parquet(fill={"text": "no text"}, optional=("int8",))))


def test_sounds_that_have_a_path_alone(tmp_path: Path) -> None:
    values = [{"bytes": b"a", "path": None}, {"bytes": None, "path": "x.wav"}, None]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"x": range(3), "a": pa.array(values, MEDIA)}), path)
    assert "embed_external_files=True" in refusal(path)
    dataset, own = check_rows(path, Parquet(optional=("a",)))
    assert column(dataset, "a_valid") == [True, False, False]
    assert [each["a"] for each in own] == [b"a", b"", b""]


def test_one_file_of_several_has_nulls(tmp_path: Path) -> None:
    written(tmp_path / "a-0.parquet", ["text", "int8"], "plain", absent=())
    written(tmp_path / "a-1.parquet", ["text", "int8"], "plain", absent=tuple(range(ROWS)))
    pattern = tmp_path / "a-{0..1}.parquet"
    for each in formats_in(refusal(pattern)):
        dataset, _ = check_rows(pattern, each)
        assert len(dataset) == 2 * ROWS
    alone = tmp_path / "a-0.parquet"
    assert hr.open(alone, format=Parquet(fill={"int8": 0})).fields == ("id", "text", "int8")
    row = Parquet(optional=("text",))
    assert column(hr.open(alone, format=row), "text_valid") == [True] * ROWS


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("int8", 1.5), ("int8", 300), ("int8", "a"), ("int8", float("nan")), ("int8", True),
        ("bool", 1), ("text", 5), ("vector", [1]), ("list", 3), ("float", "a"), ("date", 1.5),
        ("text", None),
    ],
)  # fmt: skip
def test_a_fill_that_no_column_holds_is_refused(tmp_path: Path, name: str, wrong: Any) -> None:
    path = written(tmp_path / "a.parquet", [name], "encoded")
    message = refusal(path, Parquet(fill={name: wrong}))
    assert f"fill={{{name!r}: {wrong!r}}}: the column holds {name}" in message
    hr.open(path, format=Parquet(fill=eval(message.rpartition("such as fill=")[2])))


def test_images_and_nulls_in_lists_have_no_stand_in(tmp_path: Path) -> None:
    image = b"\xff\xd8\xff\xe0 a JPEG begins so"
    table = pa.table({"x": [1, 2, 3], "image": [None, image, image]})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path)
    for row in (None, Parquet(fill={"image": ""}), Parquet(optional=("image",))):
        (without,) = opened_by_advice(path, row)
        assert without.fields == ("x",)
    table = pa.table({"x": [1, 2], "v": [[1, None], [3]], "t": [["a"], ["b", None]]})
    pyarrow.parquet.write_table(table, path)
    message = refusal(path, Parquet(optional=("v",)))
    assert "null) in 1 of its lists" in message
    (without,) = opened_by_advice(path, Parquet(optional=("v",), columns=("x", "v")))
    assert without.fields == ("x",)
    (without,) = opened_by_advice(path, Parquet(columns=("x", "t")))
    assert without.fields == ("x",)


def test_options_name_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", ["int8"], "encoded")
    for row in (Parquet(fill={"no": 1}), Parquet(optional=("no",))):
        assert "no column 'no' is taken; there are 'id', 'int8'" in refusal(path, row)
    assert "parquet fill" in refusal(path, Parquet(fill=3))  # type: ignore[arg-type]


def test_former_indexes_stay(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", ["text"], "encoded", absent=())
    assert hr.open(path).index.attributes["options"] == '{"columns": null, "decode": false}'
    assert "fill" not in "".join(hr.open(path).index.object(0)[0])
