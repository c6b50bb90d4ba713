"""Features of another kind than asked for: the message names file, feature and kind, and what it
says to give opens the file."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from format_checks import formats_in
from test_format_tfrecord import FIXTURE, KINDS, example, write

import headrace as hr
from headrace import errors
from headrace.formats import TFRecord


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def fixture(tmp_path: Path) -> Path:
    """Written by TensorFlow."""
    return shutil.copytree(FIXTURE, tmp_path / "tensorflow") / "examples.tfrecord"


def refusal(path: Path, row: TFRecord) -> tuple[str, hr.Dataset]:
    """The message, and the dataset that it says how to open."""
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(path, format=row)
    message = str(caught.value)
    assert f"indexing {path}: byte " in message
    (advised,) = formats_in(message)
    return message, hr.open(path, format=advised)


WRONG = {
    "floats as integers": ("score", "int64", "a float_list", "an int64_list", "float32"),
    "integers as floats": ("label", "float32", "an int64_list", "a float_list", "int64"),
    "bytes as integers": ("text", "int64", "a bytes_list", "an int64_list", "bytes"),
    "integers as text": ("label", "text", "an int64_list", "a bytes_list", "int64"),
    "integers as a list of floats": (
        "pair",
        "float32[]",
        "an int64_list",
        "a float_list",
        "int64[]",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_kind_is_named_with_the_right_one(case: str, fixture: Path) -> None:
    name, given, stored, needed, right = WRONG[case]
    row = TFRecord(features={"big": "int64", name: given, "image": "bytes"})
    message, dataset = refusal(fixture, row)
    assert f"feature {name!r} is {stored}, features= says {given!r}" in message
    assert f"which needs {needed}" in message
    assert dataset.fields == ("big", name, "image")
    kinds = {"big": "int64", name: right, "image": "bytes"}
    wanted = hr.open(fixture, format=TFRecord(features=kinds))
    for mine, theirs in zip(dataset, wanted, strict=True):
        np.testing.assert_array_equal(mine[name], theirs[name])


def test_two_wrong_kinds_are_said_one_after_the_other(fixture: Path) -> None:
    row = TFRecord(features={"label": "float32", "score": "int64"})
    with pytest.raises(errors.InvalidArgumentError, match="feature 'label'") as caught:
        hr.open(fixture, format=row)
    (advised,) = formats_in(str(caught.value))
    _, dataset = refusal(fixture, advised)  # type: ignore[arg-type]
    assert dataset.fields == ("label", "score")


def test_a_list_that_is_empty_first_has_its_kind(fixture: Path) -> None:
    row = TFRecord(features={"label": "int64", "waves": "int64[]"})
    message, dataset = refusal(fixture, row)
    assert "feature 'waves' is a float_list, features= says 'int64[]'" in message
    assert dataset.fields == ("label", "waves")
    assert [len(each["waves"]) for each in dataset] == [i % 4 for i in range(8)]


def test_a_feature_that_is_not_there_leaves_the_others(fixture: Path) -> None:
    message, dataset = refusal(fixture, TFRecord(features=KINDS | {"lable": "int64"}))
    assert "no feature 'lable'; it has 'big', 'box', 'ids', 'image', 'label'," in message
    assert set(dataset.fields) == set(KINDS)
    message, dataset = refusal(fixture, TFRecord(features={"lable": "int64"}))
    assert dataset.fields == ("record",)


def test_features_that_do_not_fit_are_left_out_or_lists(tmp_path: Path) -> None:
    files = {
        "another kind": ([example(a=[1], b=[2]), example(a=[0.5], b=[2])], ("b",)),
        "no such feature": ([example(a=[1], b=[2]), example(b=[2])], ("b",)),
        "two values": ([example(a=[b"x", b"y"], b=[2])], ("b",)),
        "floats one by one": ([example(False, a=[0.5, 0.25], b=[2])], ("b",)),
        "nothing else": ([example(a=[1]), example(a=[0.5])], ("record",)),
        "no features": ([example()], ("record",)),
        "other counts": ([example(a=[1], b=[2]), example(a=[3, 4], b=[2])], ("a", "b")),
    }
    for number, (case, (records, fields)) in enumerate(files.items()):
        path = write(tmp_path / f"{number}.tfrecord", records)
        _, dataset = refusal(path, TFRecord(examples=True))
        assert dataset.fields == fields, case
        assert len(dataset) == len(records)
        if case == "other counts":
            assert [each["a"].tolist() for each in dataset] == [[1], [3, 4]]
