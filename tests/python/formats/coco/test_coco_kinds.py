"""Kinds of COCO files: panoptic, stuff, keypoints, captions, results; members that are left out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import check_rows
from PIL import Image

import headrace as hr
from headrace import errors
from headrace.formats._coco.annotations import Annotations

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "coco.md"
Content = dict[str, Any]


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """A folder as COCO's, with three images."""
    folder = tmp_path / "coco"
    for each in ("val2017", "annotations/panoptic_val2017"):
        (folder / each).mkdir(parents=True)
    draw = np.random.default_rng(1)
    for number in range(3):
        pixels = draw.integers(0, 255, (18, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"val2017/{number:012}.jpg")
    return folder


def images() -> list[Content]:
    return [{"id": 10 + i, "file_name": f"{i:012}.jpg", "width": 24} for i in range(3)]


CATEGORIES = [{"id": 3, "name": "sky", "isthing": 0}, {"id": 8, "name": "dog", "isthing": 1}]
BOX: Content = {"id": 1, "image_id": 11, "category_id": 8, "bbox": [0, 1, 3, 4], "area": 12.0}


def write(coco: Path, name: str, notes: Any, **more: Any) -> Path:
    path = coco / "annotations" / f"{name}.json"
    content = {"images": images(), "annotations": notes, "categories": CATEGORIES} | more
    path.write_text(json.dumps(content if notes is not None else more))
    return path


def write_panoptic(coco: Path) -> tuple[Path, list[np.ndarray[Any, Any]]]:
    """As panopticapi writes it: ids of segments as colours."""
    notes, masks = [], []
    for number in range(3):
        ids = np.random.default_rng(number).choice([5, 70_000, 300], (18, 24)).astype(np.uint32)
        colours = np.stack([ids % 256, ids // 256 % 256, ids // 65536], -1).astype(np.uint8)
        name = f"{number:012}.png"
        Image.fromarray(colours).save(coco / "annotations/panoptic_val2017" / name)
        segments = [
            {"id": each, "category_id": 3, "area": int((ids == each).sum()), "iscrowd": 0}
            for each in (5, 70_000, 300)
        ]
        notes.append({"image_id": 10 + number, "file_name": name, "segments_info": segments})
        masks.append(ids)
    return write(coco, "panoptic_val2017", notes), masks


def test_panoptic_annotations_are_refused_and_what_is_advised_opens_them(
    coco: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, masks = write_panoptic(coco)
    with pytest.raises(errors.InvalidArgumentError, match="'segments_info', and a mask") as caught:
        hr.open(path)
    assert str(path) in str(caught.value)
    (command,) = re.findall(r"`headrace (.*?)`", str(caught.value))
    assert command == "docs formats/coco"
    (block,) = [
        each
        for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
        if "panoptic" in each
    ]
    monkeypatch.chdir(coco.parent)
    names: dict[str, Any] = {}
    exec(block, names)
    dataset = names["dataset"]
    assert dataset.fields == ("image", "mask", "segments")
    for number, ids in enumerate(masks):
        sample = dataset.decoded(number)
        colours = np.asarray(sample["mask"]).astype(np.uint32)
        assert np.array_equal(colours @ np.array([1, 256, 65536], np.uint32), ids)
        assert bytes(dataset[number]["image"]) == (coco / f"val2017/{number:012}.jpg").read_bytes()
        segments = json.loads(sample["segments"])
        assert {each["id"]: each["area"] for each in segments} == {
            each: int((ids == each).sum()) for each in (5, 70_000, 300)
        }


@pytest.mark.parametrize(
    "notes",
    [
        [{"image_id": 11, "category_id": 8, "bbox": [0, 1, 3, 4], "score": 0.5}],
        [{"image_id": 11, "caption": "ein Hund"}, {"image_id": 12, "caption": "ü"}],
        [{"image_id": 10, "category_id": 8, "keypoints": [1, 2, 2] * 17, "score": 1.0}],
        [{"image_id": 10, "category_id": 3, "segmentation": {"size": [3, 4], "counts": "ab"}}],
    ],
)
def test_results_are_refused_and_what_is_advised_opens_them(
    coco: Path, notes: list[Content]
) -> None:
    """The command is typed as the message has it, with the names of the files."""
    path = coco / "results.json"
    path.write_text(json.dumps(notes, indent=1))
    with pytest.raises(errors.InvalidArgumentError, match="it is a list of results") as caught:
        hr.open(path)
    write(coco, "image_info_val2017", [])
    (command,) = re.findall(r"`(.*?)`", str(caught.value))
    command = command.replace("ANNOTATIONS.json", "annotations/image_info_val2017.json")
    command = command.replace("BOTH.json", "annotations/both_val2017.json")
    subprocess.run(command, shell=True, check=True, cwd=coco, env=os.environ)
    dataset, own = check_rows(coco / "annotations/both_val2017.json")
    assert len(dataset) == 3
    parts = {"bbox": "boxes", "caption": "captions"} | {k: k for k in ("keypoints", "segmentation")}
    for each in notes:
        for name in parts.keys() & each.keys():
            assert len(own[each["image_id"] - 10][parts[name]]) > 0


@pytest.mark.parametrize(
    ("name", "notes", "fields"),
    [
        ("captions_val2017", [{"id": 1, "image_id": 11, "caption": "a"}], {"captions"}),
        (
            "person_keypoints_val2017",
            [BOX | {"keypoints": [1, 2, 0] * 17, "num_keypoints": 0, "iscrowd": 0}],
            {"boxes", "labels", "area", "keypoints", "iscrowd"},
        ),
        (
            "stuff_val2017",
            [BOX | {"segmentation": {"size": [3, 4], "counts": "ab"}, "iscrowd": 0}],
            {"boxes", "labels", "area", "segmentation", "iscrowd"},
        ),
        ("image_info_val2017", [], set()),
    ],
)
def test_other_kinds_open_with_all_that_they_have(
    coco: Path, name: str, notes: list[Content], fields: set[str]
) -> None:
    dataset, _ = check_rows(write(coco, name, notes))
    assert set(dataset.fields) == {"image", "image_id"} | fields
    assert dataset.report == ()


def test_members_that_are_left_out_are_findings(
    coco: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(coco, "instances_val2017", [BOX | {"score": 0.5, "attributes": {"occluded": 1}}])
    dataset = hr.open(path)
    (finding,) = dataset.report
    assert (finding.kind, finding.count) == ("annotation_member", 2)
    assert str(finding) == "2 members of annotations that are left out: 'attributes', 'score'"
    monkeypatch.setattr(
        Annotations, "left_out", property(lambda self: (), lambda self, value: None)
    )
    again = hr.open(path, index=coco / "again.hri")
    assert (again.report, again.fingerprint) == ((), dataset.fingerprint)


def test_annotations_of_which_nothing_is_taken_are_a_warning(coco: Path) -> None:
    path = write(coco, "own_val2017", [{"id": 1, "image_id": 11, "attributes": {"x": 1}}])
    with pytest.warns(RuntimeWarning, match="none of the members that are taken, but 'attributes'"):
        dataset = hr.open(path)
    assert (dataset.fields, len(dataset)) == (("image", "image_id"), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hr.open(write(coco, "label_val2017", [{"id": 1, "image_id": 11, "category_id": 3}]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"annotations": [BOX]}, "it has annotations, but no images; give it the list 'images'"),
        (
            {"images": [{"id": 1, "coco_url": "http://x/1.jpg"}], "annotations": []},
            "its file_name is None, no name of a file below the folder of images; give each",
        ),
        (
            {"images": images(), "annotations": [BOX | {"image_id": 99}], "categories": CATEGORIES},
            "image_id 99 is no image of this file; 1 of 1 annotations .*write the file without",
        ),
    ],
)
def test_files_that_lack_images_are_refused(coco: Path, content: Content, message: str) -> None:
    path = write(coco, "a_val2017", None, **content)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.open(path)


@pytest.mark.parametrize("text", ["[", "[]", "[1]", '[{"image_id": 1}]', "[{", '[{"a": 1}]'])
def test_other_lists_are_no_results(coco: Path, text: str) -> None:
    path = coco / "a.json"
    path.write_text(text)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(path)
    assert "list of results" not in str(caught.value)
