"""`for images, labels in loader` of what the formats' own writers wrote: as their own loops."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_checks import write_with_packages
from PIL import Image
from test_format_tfrecord import example, write

import headrace as hr
from headrace.formats import TFRecord

PIXELS = hr.image.resize((8, 9), dtype="uint8", layout="NHWC")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What write_field_orders.py wrote; made before a test has its own cache."""
    writer = Path(__file__).with_name("write_field_orders.py")
    return write_with_packages(writer, tmp_path_factory.mktemp("orders"), "webdataset")


@pytest.mark.parametrize(
    ("name", "fields", "stored"),
    [
        ("plain.tar", "image label", "label image"),
        ("described.tar", "image label json txt", "label json image txt"),
        ("array.tar", "image box_npy label", "box_npy label image"),
        ("mds", "photo category", "category photo"),
    ],
)
def test_the_loop_gets_what_their_own_loop_gets(
    written: Path, name: str, fields: str, stored: str
) -> None:
    dataset = hr.open(written / name)
    assert [each.name for each in dataset.index.fields] == stored.split()
    assert dataset.fields == tuple(fields.split())
    chosen = None if len(dataset.fields) == 2 else ("image", "label")
    seen = []
    with hr.Loader(
        dataset, 7, transform=PIXELS, shuffle=False, output=hr.Output(fields=chosen)
    ) as loader:
        for images, labels in loader:
            seen += [list(map(int, each)) for each in zip(images[:, 0, 0, 0], labels, strict=True)]
    assert seen == json.loads((written / "rows.json").read_text())[name.removesuffix(".tar")]


def test_images_come_before_their_captions(written: Path) -> None:
    dataset = hr.open(written / "captions.tar")
    assert [each.name for each in dataset.index.fields] == ["json", "txt", "image"]
    with hr.Loader(dataset, 7, transform=PIXELS, shuffle=False) as loader:
        images, _, texts = next(iter(loader))
    assert images[:, 0, 0, 0].tolist() == [9 * i for i in range(7)]
    assert [bytes(each.tolist()) for each in texts] == [b"%d" % (i % 5) for i in range(7)]


def test_features_of_examples_are_taken_by_name(tmp_path: Path) -> None:
    """Of records that TensorFlow wrote, and of some with the names of its ImageNet."""
    fixture = Path(__file__).parent / "tensorflow" / "examples.tfrecord"
    kinds = {"score": "float32", "image": "image"}
    assert hr.open(fixture, format=TFRecord(features=kinds)).fields == ("score", "image")
    file = io.BytesIO()
    Image.new("RGB", (8, 9)).save(file, "JPEG")
    names = ("channels", "class/label", "class/text", "colorspace", "encoded")
    values = ([3], [7], [b"ant"], [b"RGB"], [file.getvalue()])
    named = dict(zip((f"image/{each}" for each in names), values, strict=True))
    path = write(tmp_path / "a.tfrecord", [example(**named)])
    found = [
        each.removeprefix("image/") for each in hr.open(path, format=TFRecord(examples=True)).fields
    ]
    assert found == ["encoded", "colorspace", "channels", "class/label", "class/text"]


def test_datasets_of_hdf5_are_taken_by_name(h5py: Any, tmp_path: Path) -> None:
    images = np.arange(24 * 6, dtype=np.uint8).reshape(24, 2, 3)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["pixels"], file["label"] = images, np.arange(24)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"], file["labels"] = images, np.eye(24, 5)
    assert hr.open(tmp_path / "b.h5").fields == ("x", "labels")
    dataset = hr.open(tmp_path / "a.h5")
    assert [each.name for each in dataset.index.fields] == ["label", "pixels"]
    with hr.Loader(dataset, 7, output="numpy") as loader:
        for values, labels in loader:
            assert np.array_equal(values, images[labels])
    chosen = hr.open(tmp_path / "a.h5", format=hr.formats.Hdf5(columns=("label", "pixels")))
    with hr.Loader(chosen, 7, output="numpy") as loader:
        for labels, values in loader:
            assert np.array_equal(values, images[labels])
