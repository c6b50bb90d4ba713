"""Members that an object of JSON has twice, and lines that a carriage return ends."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
from advice import column, refusal

import headrace as hr


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


TWICE = {
    "a number": ('{"x": 1, "x": 2, "t": "a"}', "x"),
    "a text": ('{"x": 1, "t": "b", "t": "a\\": 1"}', "t"),
    "in an object": ('{"x": 1, "o": {"a": 1, "b": 2, "a": 3}}', "a"),
    "an object": ('{"x": 1, "o": {"a": 1}, "o": {"a": 2}}', "o"),
    "in a list of objects": ('{"x": 1, "l": [{"y": 1}, {"y": 1, "y": [1]}]}', "y"),
    "blanks before the colon": ('{"x" : 1, "x"\t: 2.5}', "x"),
    "by an escape": ('{"x": 1, "\\u0078": 2}', "x"),
}


@pytest.mark.parametrize("case", TWICE)
def test_a_member_twice_is_counted_and_its_last_value_taken(case: str, tmp_path: Path) -> None:
    line, name = TWICE[case]
    path = tmp_path / "a.jsonl"
    path.write_text(f"{line}\n\n{line}\n")
    row = hr.formats.Manifest(text=("l",) if '"l"' in line else ())
    with pytest.warns(RuntimeWarning, match="has twice") as told:
        dataset = hr.open(path, format=row)
    assert len(told) == 1
    assert f"{name!r} in {path}: line 1" in str(told[0].message).replace("\\", "")
    (finding,) = dataset.report
    assert (finding.kind, finding.count) == ("member_twice", 2)
    assert finding.examples[1].endswith("line 3")
    assert column(dataset, "x") == [json.loads(line)["x"]] * 2


@pytest.mark.parametrize(
    "line",
    ['{"x": 1, "x": 1}', '{"x": 1, "o": {"x": 2}, "p": {"x": 3}}', '{"x": 1, "t": "\\"x\\": 2"}'],
)
def test_members_that_say_the_same_are_no_finding(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = hr.open(tmp_path / "a.jsonl")
    assert dataset.report == ()
    assert column(dataset, "x") == [1]


COCO = {
    "of an image": ('"id": 1', '"id": 1, "id": 2', "id"),
    "of an annotation": ('"category_id": 3', '"category_id": 3, "category_id": 4', "category_id"),
    "with other letters": ('"id": 1', '"n": "é", "n": "e", "id": 1', "n"),
    "of the file": ('"annotations"', '"images": [], "annotations"', "images"),
}


@pytest.mark.parametrize("case", COCO)
def test_coco_with_a_member_twice_is_refused(case: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    content = {
        "images": [{"file_name": "a.jpg", "id": 1}],
        "annotations": [{"image_id": 1, "category_id": 3, "id": 7}],
        "categories": [{"id": 3, "name": "ant"}, {"id": 4, "name": "bee"}],
    }
    before, after, name = COCO[case]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content).replace(before, after, 1))
    message = refusal(path)
    assert f"{path}: byte " in message
    assert f"the member {name!r}" in message
    assert "correct the file" in message
    path.write_text(json.dumps(content))
    assert hr.open(path).classes == ("ant", "bee")


# Lines that a carriage return ends.


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("rows", [[["x", "y"], [1, "a"], [2, "b"]], [["x"], [1], [2]]])
def test_carriage_returns_alone_are_refused_with_a_command(
    suffix: str, rows: list[list[Any]], tmp_path: Path
) -> None:
    path = tmp_path / f"the 'a{suffix}"
    text = io.StringIO()
    csv.writer(text, "excel-tab" if suffix == ".tsv" else "excel", lineterminator="\r").writerows(
        rows
    )
    for content in (text.getvalue(), text.getvalue().replace("\r", "\n", 1)):
        path.write_bytes(content.encode())
        message = refusal(path)
        assert "a carriage return (CR) stands alone" in message
        assert "format=" not in message
        command = re.search("`(.+)`", message)
        assert command is not None
        subprocess.run(command[1], shell=True, check=True)
        dataset = hr.open(tmp_path / f"the 'a-lf{suffix}")
        assert column(dataset, "x") == [1, 2]


def test_carriage_returns_in_quotes_and_before_line_feeds_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'x,y\r\n1,"a\rb"\r\n2,"c\r\nd"\r\n')
    assert column(hr.open(tmp_path / "a.csv"), "y") == ["a\rb", "c\r\nd"]
