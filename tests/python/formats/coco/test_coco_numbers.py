"""Numbers of annotations that their type cannot hold."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import formats_in

import headrace as hr
from headrace import errors
from headrace.formats import Coco

INF = float("inf")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(folder: Path, **members: str) -> Path:
    """A file with two images and an annotation of each, with these members as they stand."""
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_bytes(b"x")
    plain = {"bbox": [1, 2, 3, 4], "area": 12.5, "keypoints": [1, 2, 2]}
    notes: list[dict[str, Any]] = [
        {"id": n, "image_id": n, "category_id": 3, **plain} for n in (7, 8)
    ]
    content = {
        "images": [{"file_name": f"{name}.jpg", "id": n} for n, name in ((7, "a"), (8, "b"))],
        "annotations": notes,
        "categories": [{"id": 3, "name": "é"}],
    }
    for name in members:
        notes[1][name] = f"<{name}>"
    text = json.dumps(content, ensure_ascii=False)
    for name, value in members.items():
        text = text.replace(f'"<{name}>"', value)
    (folder / "a.json").write_text(text, encoding="utf-8")
    return folder / "a.json"


@pytest.mark.parametrize("floats", ["float64", "float32"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bbox", "[1, 2, 1e400, 3]"),
        ("bbox", "[Infinity, 2, -1e400, 3]"),
        ("area", "1e999"),
        ("keypoints", "[1, 1e400, 2]"),
    ],
)
def test_numbers_that_float64_cannot_hold_are_refused(
    name: str, value: str, floats: str, tmp_path: Path
) -> None:
    path = written(tmp_path, **{name: value})
    with pytest.raises(errors.InvalidArgumentError, match="too large for a float64") as caught:
        hr.open(path, format=Coco(floats=floats))
    assert f"{path}: byte " in str(caught.value)
    shown = value.replace(" ", "")
    assert f"its {name}, {shown}," in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("bbox", [1.0, 2.0, -1e39, 3.0], "boxes"),
        ("area", 3.5e38, "area"),
        ("keypoints", [1.0, 1e300, 2.0], "keypoints"),
    ],
)
def test_numbers_that_float32_cannot_hold_are_counted(
    name: str, value: Any, field: str, tmp_path: Path
) -> None:
    path = written(tmp_path, **{name: json.dumps(value)})
    with pytest.warns(RuntimeWarning, match="float32 cannot hold") as told:
        dataset = hr.open(path, format=Coco(floats="float32"))
    (text,) = [str(each.message) for each in told]
    assert f"{name} of the image 8" in text
    (finding,) = dataset.report
    assert (finding.kind, finding.count) == ("too_large", 1)
    assert np.isinf(dataset[1][field]).sum() == 1
    (advised,) = formats_in(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wide = hr.open(path, format=advised)
    assert wide.report == ()
    np.testing.assert_array_equal(wide[1][field].ravel(), np.ravel(value))


def test_infinities_that_the_file_has_itself_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, bbox="[Infinity, -Infinity, NaN, 1]", area="Infinity")
    for floats in ("float64", "float32"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dataset = hr.open(path, format=Coco(floats=floats))
        np.testing.assert_array_equal(dataset[1]["boxes"], [[INF, -INF, np.nan, 1]])
        np.testing.assert_array_equal(dataset[1]["area"], [INF])
        assert dataset.report == ()
