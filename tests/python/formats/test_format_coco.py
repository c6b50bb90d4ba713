"""Annotations of COCO: `hr.formats.Coco`."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import check_damage, check_orders, check_rows, check_workers
from own_readers import own_samples

import headrace as hr
from headrace import errors
from headrace.formats import Coco
from headrace.formats._coco import json_stream

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "coco.md"
IMAGES = 30
Content = dict[str, Any]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def images() -> list[Content]:
    """In another order than that of their ids."""
    numbers = [7 * i % IMAGES for i in range(IMAGES)]
    return [{"file_name": f"{i:012}.jpg", "id": 100 + i, "width": 640} for i in numbers]


def notes() -> list[Content]:
    """Shuffled; images 0, 4, 8, ... have none."""
    found = [
        {
            "image_id": 100 + i,
            "id": 10 * i + k,
            "category_id": (3, 90, 7)[(i + k) % 3],
            "bbox": [1.25 * i, k, 10, 20.5],
            "area": 205 + k,
            "iscrowd": k % 2,
            "segmentation": {"size": [3, 4], "counts": "ab\\c"} if k else [[1, 2.5, 3, 4]],
        }
        for i in range(IMAGES)
        for k in range(i % 4)
    ]
    random.Random(3).shuffle(found)
    return found


def instances() -> Content:
    categories = [{"id": i, "name": f"name {i}"} for i in (90, 3, 7)]
    return {
        "info": {"year": 2017},
        "licenses": [],
        "images": images(),
        "annotations": notes(),
        "categories": categories,
    }


def captions() -> Content:
    found = [
        {"image_id": 100 + i, "id": 10 * i + k, "caption": f"Bild {i} ü\n with {k} \u2028 dogs "}
        for i in range(IMAGES)
        for k in range(i % 3)
    ]
    return {"annotations": found, "images": images()}


def keypoints() -> Content:
    content = instances()
    for each in content["annotations"]:
        each["keypoints"] = [each["id"], 2, 1] * 17
        each["num_keypoints"] = 17
    return content


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images and annotations as COCO has them."""
    (tmp_path / "coco/train2017").mkdir(parents=True)
    (tmp_path / "coco/annotations").mkdir()
    for i in range(IMAGES):
        (tmp_path / f"coco/train2017/{i:012}.jpg").write_bytes(bytes([i]) * (300 + i))
    return tmp_path / "coco"


def write(folder: Path, content: Any, name: str = "instances_train2017", **options: Any) -> Path:
    path = folder / "annotations" / f"{name}.json"
    path.write_text(json.dumps(content, **options), encoding="utf-8")
    return path


@pytest.mark.parametrize("options", [{}, {"indent": 2, "ensure_ascii": False}], ids=str)
@pytest.mark.parametrize("content", [instances, captions, keypoints])
def test_samples_are_those_of_json(
    folder: Path, content: Callable[[], Content], options: Any
) -> None:
    path = write(folder, content(), **options)
    dataset = hr.open(path)
    own = list(own_samples(Coco(), str(path)))
    assert dataset.format == "coco"
    assert len(dataset) == len(own) == IMAGES
    for mine, theirs in zip(dataset, own, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            if name == "segmentation":
                assert json.loads(value) == json.loads(theirs[name])
            elif isinstance(value, (str, bytes)):
                assert value == theirs[name]
            else:
                assert value.dtype == theirs[name].dtype
                assert np.array_equal(value, theirs[name])


def test_fields_are_contiguous_labels_boxes_and_empty_lists(folder: Path) -> None:
    dataset, _ = check_rows(write(folder, instances()))
    assert dataset.fields == (
        "image", "image_id", "boxes", "labels", "area", "iscrowd", "segmentation",
    )  # fmt: skip
    assert dataset.classes == ("name 3", "name 7", "name 90")
    assert dataset.kind("image") == "image"
    assert [int(each["image_id"]) for each in dataset] == list(range(100, 100 + IMAGES))
    assert dataset[4]["boxes"].shape == (0, 4)
    assert dataset[4]["segmentation"] == "[]"
    assert sorted(dataset[3]["boxes"][:, 1].tolist()) == [0, 1, 2]
    assert sorted(dataset[3]["labels"].tolist()) == [0, 1, 2]
    dataset, _ = check_rows(write(folder, keypoints()), Coco(floats="float32"))
    assert dataset[3]["keypoints"].shape == (3, 17, 3)
    assert dataset[3]["boxes"].dtype == np.float32


def test_captions_are_lines_or_samples(folder: Path) -> None:
    path = write(folder, captions(), "captions_train2017")
    dataset, _ = check_rows(path)
    assert dataset[2]["captions"] == "Bild 2 ü with 0 dogs\nBild 2 ü with 1 dogs"
    assert dataset[3]["captions"] == ""
    dataset, own = check_rows(path, Coco(captions="each"))
    assert len(own) == sum(i % 3 for i in range(IMAGES))
    assert dataset[1]["caption"] == "Bild 2 ü\n with 0 \u2028 dogs "
    assert dataset[1]["image"] == dataset[2]["image"]


def test_every_order_with_tiers_and_resumes_and_workers(folder: Path, tmp_path: Path) -> None:
    content = instances()
    for each in content["images"]:  # Bytes, which workers do not decode.
        name = each["file_name"]
        each["file_name"] = name.replace("jpg", "dat")
        (folder / "train2017" / name).rename(folder / "train2017" / each["file_name"])
    dataset, own = check_rows(write(folder, content))
    assert dataset.kind("image") == "bytes"
    check_orders(dataset, own, tmp_path)
    check_workers(dataset, own)


def test_images_without_annotations_and_annotations_of_none(folder: Path) -> None:
    dataset, _ = check_rows(write(folder, {"images": images(), "categories": []}))
    assert dataset.fields == ("image", "image_id")
    assert len(dataset) == IMAGES


@pytest.mark.parametrize("place", ["images", "images/train2017", "annotations", "."])
def test_images_are_found_in_the_usual_neighbours(folder: Path, place: str) -> None:
    path = write(folder, instances())
    target = folder / place
    target.parent.mkdir(exist_ok=True)
    target.mkdir(exist_ok=True)
    for each in (folder / "train2017").iterdir():
        each.rename(target / each.name)
    assert len(hr.open(path)) == IMAGES


def test_another_folder_and_missing_images(folder: Path) -> None:
    path = write(folder, instances())
    (folder / "train2017").rename(folder / "other")
    with pytest.raises(
        errors.NotFoundError, match=r"are not in .*/train2017, .*Coco\(folder=FOLDER\)"
    ):
        hr.open(path)
    assert len(hr.open(path, format=Coco(folder="../other"))) == IMAGES
    (folder / "other" / f"{5:012}.jpg").unlink()
    path.touch()  # An index that is kept does not ask for each image.
    with pytest.raises(
        errors.NotFoundError, match=r"byte \d+: images: '000000000005\.jpg': .*1 of 30 rows"
    ):
        hr.open(path, format=Coco(folder="../other"))
    dataset, own = check_rows(path, Coco(folder="../other", missing="skip"))
    assert len(own) == IMAGES - 1
    assert dataset.report[0].examples == ("000000000005.jpg",)


def test_a_file_is_read_in_pieces_of_any_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder, keypoints(), indent=1)
    whole = hr.open(path).fingerprint
    for size in (1, 7, 100):
        monkeypatch.setattr(json_stream, "_READ_BYTES", size)
        path.touch()
        assert hr.open(path).fingerprint == whole


def test_other_json_is_not_recognised(folder: Path) -> None:
    for number, content in enumerate(
        ({}, [], {"images": 3}, {"images": [3]}, {"a": [{"id": 1}]}, 5)
    ):
        path = write(folder, content, f"other{number}")
        with pytest.raises(errors.InvalidArgumentError, match="this is a file of"):
            hr.open(path)


def changed(**changes: Any) -> Callable[[Content], None]:
    """Changes the fourth annotation; None: removes."""

    def change(content: Content) -> None:
        for name, value in changes.items():
            if value is None:
                del content["annotations"][3][name]
            else:
                content["annotations"][3][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(image_id=99), "image_id 99 is no image of this file; 1 of 43 annotations"),
        (changed(category_id=4), "category_id 4 is no category of this file"),
        (changed(bbox=None), "it lacks 'bbox', other than the first one"),
        (changed(caption="x"), "it has 'caption', other than the first one"),
        (changed(bbox=[1, 2, 3]), r"its bbox is \[1, 2, 3\], no 4 numbers"),
        (changed(bbox=[1, 2, 3, True]), "no 4 numbers"),
        (changed(area=10**400), "its area is too large"),
        (changed(iscrowd="no"), "its iscrowd is 'no', no whole number"),
        (changed(image_id=2**63), "its image_id is 9223372036854775808, no whole number"),
        (lambda c: c["images"].append(c["images"][0]), "id 100 a second time"),
        (lambda c: c["images"].append({"id": 5}), "file_name is None, no name of a file"),
        (lambda c: c["images"].append(7), "images: no object"),
        (lambda c: c["annotations"].append(7), "annotations: no object"),
        (lambda c: c["categories"].append({"id": 3, "name": "x"}), "id 3, 'x': twice"),
        (lambda c: c["categories"].clear(), "is no category of this file"),
        (lambda c: c["images"].clear(), "has no images"),
    ],
)
def test_contents_that_cannot_be_are_refused(
    folder: Path, change: Callable[[Content], None], message: str
) -> None:
    content = instances()
    change(content)
    path = write(folder, content)
    with pytest.raises(errors.HeadraceError, match=message) as caught:
        hr.open(path, format=Coco(folder="../train2017"))
    assert str(path) in str(caught.value)


def test_half_a_surrogate_pair_is_refused(folder: Path) -> None:
    content = captions()
    content["annotations"][3]["caption"] = "\ud800"
    with pytest.raises(errors.FailedPreconditionError, match=r"byte \d+: a caption that is no val"):
        hr.open(write(folder, content))


def test_damage_is_an_error_that_names_the_file(folder: Path) -> None:
    path = write(folder, instances(), "damaged_train2017")

    def opened() -> hr.Dataset:
        try:
            return hr.open(path, format=Coco(folder="../train2017"))
        except errors.NotFoundError as error:  # The name of an image was changed.
            raise errors.DataLossError(str(error)) from error

    assert check_damage([path], opened, range, rounds=600) > 300


def test_the_page_is_true(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, instances())
    write(folder, captions(), "captions_train2017")
    monkeypatch.chdir(folder.parent)
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    names: dict[str, Any] = {"hr": hr}
    exec(block, names)
    assert names["dataset"].fields[2] == "boxes"
    assert names["pairs"].fields == ("image", "image_id", "caption")
