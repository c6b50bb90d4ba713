"""Arrays of one shape in Parquet and Arrow: pyarrow's fixed_shape_tensor, Hugging Face's Array2D to
Array5D, Ray's tensors. Their shapes are those that their writers meant."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from format_checks import check_rows, loader_of, plain, write_with_packages

import headrace as hr
from headrace import errors
from headrace.formats import HuggingFace, Parquet

Array = np.ndarray[Any, Any]
KINDS = ["parquet", "arrow"]


def write(path: Path, kind: str, **columns: Any) -> Path:
    table = pa.table(columns)
    where = path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(table, where)
    else:
        with pa.OSFile(str(where), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return where


def values(shape: tuple[int, ...], dtype: str = "int32", rows: int = 5) -> Array:
    found = np.random.default_rng(2).integers(0, 100, (rows, *shape))
    return (found % 2 == 0) if dtype == "bool" else found.astype(dtype)


def tensors(array: Array, **more: Any) -> Any:
    """By pyarrow's own way from NumPy."""
    return pa.FixedShapeTensorArray.from_numpy_ndarray(array, **more)


def stored(array: Array, permutation: list[int] | None, **more: Any) -> Any:
    """Rows as they are, with a permutation."""
    of = pa.fixed_shape_tensor(
        pa.from_numpy_dtype(array.dtype), array.shape[1:], permutation=permutation, **more
    )
    flat = pa.FixedSizeListArray.from_arrays(
        pa.array(array.reshape(-1)), int(np.prod(array.shape[1:]))
    )
    return pa.ExtensionArray.from_storage(of, flat)


def check(path: Path, name: str, wanted: Array, row: Any = None) -> hr.Dataset:
    """Each sample; of those of shape [2, 3] also each batch of a loader."""
    dataset = hr.open(path, format=row)
    for mine, theirs in zip(dataset, wanted, strict=True):
        assert plain(mine[name]) == plain(np.ascontiguousarray(theirs))
    if wanted.shape[1:] != (2, 3):
        return dataset  # A reader of row groups takes long to start.
    with loader_of(dataset, "exact", output=hr.Output("numpy", ids=True)) as loader:
        for batch in loader:
            for number, mine in zip(batch.sample_id, getattr(batch, name), strict=True):
                assert plain(mine) == plain(np.ascontiguousarray(wanted[int(number)]))
    return dataset


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2, 3), "int32"),
        ((4,), "float64"),
        ((2, 1, 3), "float16"),
        ((1, 1), "uint8"),
        ((2, 3, 2, 2), "int64"),
    ],
)
def test_fixed_shape_tensors_have_their_shape(
    tmp_path: Path, kind: str, shape: tuple[int, ...], dtype: str
) -> None:
    array = values(shape, dtype)
    names = [f"d{each}" for each in range(len(shape))]
    column = tensors(array, dim_names=names)
    assert (column.to_numpy_ndarray() == array).all()
    dataset = check(write(tmp_path, kind, x=column, y=list(range(5))), "x", array)
    assert dataset.fields == ("x", "y")
    check(write(tmp_path, kind, x=stored(array, None)), "x", array)
    check_rows(write(tmp_path, kind, x=column))


@pytest.mark.parametrize("permutation", [[1, 0], [0, 2, 1], [2, 1, 0], [1, 0, 3, 2]])
def test_permuted_tensors_have_their_logical_shape_in_parquet(
    tmp_path: Path, permutation: list[int]
) -> None:
    array = values((2, 3, 4, 5)[: len(permutation)])
    column = stored(array, permutation)
    logical = array.transpose(0, *(1 + each for each in permutation))
    assert (column.to_numpy_ndarray() == logical).all()
    check(write(tmp_path, "parquet", x=column), "x", logical)
    check_rows(tmp_path / "a.parquet")
    turned = tensors(np.ascontiguousarray(array).transpose(0, *(1 + each for each in permutation)))
    check(write(tmp_path, "parquet", x=turned), "x", logical)  # As NumPy's strides say it.


def remedied(text: str, values: Array) -> Any:
    """Writes the column as the message has it."""
    (code,) = re.findall(r"(pyarrow\.FixedShapeTensorArray\..*?\)\))", text)
    return eval(code, {"pyarrow": pa, "numpy": np, "values": values})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "permutation", [list(each) for each in itertools.permutations(range(3))][1:]
)
def test_permutations_that_cannot_be_taken_are_refused_and_the_remedy_helps(
    tmp_path: Path, kind: str, permutation: list[int]
) -> None:
    """pyarrow itself reads those of three dimensions in turn otherwise than it writes them."""
    array = values((2, 3, 4))
    path = write(tmp_path, kind, x=stored(array, permutation))
    if kind == "parquet" and permutation not in ([1, 2, 0], [2, 0, 1]):
        assert hr.open(path).fields == ("x",)
        return
    with pytest.raises(errors.InvalidArgumentError, match=r"permuted .*as \[") as caught:
        hr.open(path)
    logical = array.transpose(0, *(1 + each for each in permutation))
    check(write(tmp_path, kind, x=remedied(str(caught.value), logical)), "x", logical)


def test_tensors_in_lists_have_their_shape(tmp_path: Path) -> None:
    array = values((2, 3), rows=6)
    column = pa.ListArray.from_arrays([0, 1, 3, 6], tensors(array))
    fixed = pa.FixedSizeListArray.from_arrays(tensors(array), 2)
    path = write(tmp_path, "parquet", x=column, y=fixed)
    dataset = hr.open(path)
    for number, (begin, end) in enumerate([(0, 1), (1, 3), (3, 6)]):
        assert plain(dataset[number]["x"]) == plain(array[begin:end])
        assert plain(dataset[number]["y"]) == plain(array[2 * number : 2 * number + 2])


def test_nulls_in_tensors_are_refused(tmp_path: Path) -> None:
    of = pa.fixed_shape_tensor(pa.int32(), [2, 2])
    inner = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, None, 5, 6, 7, 8], pa.int32()), 4)
    path = write(tmp_path, "parquet", x=pa.ExtensionArray.from_storage(of, inner))
    with pytest.raises(errors.InvalidArgumentError, match="has no value"):
        hr.open(path)


# Hugging Face's datasets.

PROGRAM = """
import sys, datasets, numpy as np
draw = np.random.default_rng(5)
arrays = {
    "a": draw.normal(size=(7, 2, 3)).astype("float32"),
    "b": draw.integers(0, 99, (7, 2, 3, 2)),
    "d": draw.integers(0, 99, (7, 1, 2, 1, 2)).astype("uint8"),
    "e": draw.integers(0, 99, (7, 1, 2, 1, 2, 2)).astype("int16"),
    "f": draw.integers(0, 2, (7, 2, 3)) == 1,
}
kinds = {
    "a": datasets.Array2D((2, 3), "float32"), "b": datasets.Array3D((2, 3, 2), "int64"),
    "d": datasets.Array4D((1, 2, 1, 2), "uint8"), "e": datasets.Array5D((1, 2, 1, 2, 2), "int16"),
    "f": datasets.Array2D((2, 3), "bool"), "v": datasets.Array2D((None, 3), "float64"),
    "n": datasets.Value("int64"),
}
varied = [np.full((i + 1, 3), i + 0.5) for i in range(7)]
columns = {name: list(array) for name, array in arrays.items()} | {"v": varied, "n": range(7)}
ds = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
ds.to_parquet(sys.argv[1] + "/a.parquet")
ds.save_to_disk(sys.argv[1] + "/disk")
np.savez(sys.argv[1] + "/truth.npz", **arrays)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    (folder / "write.py").write_text(PROGRAM)
    return write_with_packages(folder / "write.py", folder, "datasets")


def without_features(path: Path, target: Path) -> Path:
    """The table with the types' own metadata alone, as after another program."""
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata(None), target)
    assert b"ARROW:extension:name" in (pq.read_schema(target).field("a").metadata or {})
    return target


@pytest.mark.parametrize("source", ["a.parquet", "disk", "plain.parquet"])
def test_arrays_of_datasets_have_their_shape(written: Path, source: str) -> None:
    if source == "plain.parquet":
        without_features(written / "a.parquet", written / source)
    truth = np.load(written / "truth.npz")
    row: Any = HuggingFace if source == "disk" else Parquet
    for name in truth.files:
        dataset = check(written / source, name, truth[name], row(columns=(name,)))
        assert dataset.kind(name) == "array"
    dataset = hr.open(written / source)
    assert set(dataset.fields) == {*truth.files, "v", "n"}
    assert dataset.kind("v") == "list"
    for number, sample in enumerate(dataset):
        assert plain(sample["v"]) == plain(np.full((number + 1, 3), number + 0.5))
        assert int(sample["n"]) == number


def test_arrays_that_are_not_of_their_shape_are_refused_and_the_remedy_helps(
    tmp_path: Path,
) -> None:
    rows = [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0, 4.0]]]
    features = {"x": {"shape": [2, 2], "dtype": "float64", "_type": "Array2D"}}
    text = json.dumps({"info": {"features": features}})
    table = pa.table({"x": rows, "y": [1, 2, 3]}).replace_schema_metadata({"huggingface": text})
    pq.write_table(table, tmp_path / "a.parquet")
    message = r"row group 0: column 'x': row 1 has 1 entries in dimension 1, its type says 2"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.open(tmp_path / "a.parquet")
    assert hr.open(tmp_path / "a.parquet", format=Parquet(columns=("y",))).fields == ("y",)


# Ray's tensors, whose type is lists of numbers with a shape.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ray.data.arrow_tensor", "ray.data.arrow_tensor_v2"])
def test_tensors_of_ray_have_their_shape(tmp_path: Path, kind: str, name: str) -> None:
    array = values((2, 3), "float32")
    offsets = np.arange(0, 31, 6)
    if name.endswith("v2"):
        column = pa.LargeListArray.from_arrays(offsets, array.reshape(-1))
    else:
        column = pa.ListArray.from_arrays(offsets.astype(np.int32), array.reshape(-1))
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": json.dumps([2, 3])}
    schema = pa.schema([pa.field("x", column.type, metadata=metadata)])
    table = pa.Table.from_arrays([column], schema=schema)
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_table(table)
    check(path, "x", array)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_without_a_shape_are_as_before(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind, x=[[1, 2], [3, 4]], y=[[[1], [2]], [[3], [4]]])
    dataset = hr.open(path)
    assert [dataset.kind(each) for each in "xy"] == ["list", "nested"]
