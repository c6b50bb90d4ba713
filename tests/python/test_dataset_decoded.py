"""`Dataset.decoded`: a sample as a Python transform gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace as hr
from headrace import errors


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tif"])
def test_it_is_what_a_transform_gets(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(3)
    for number in range(4):
        folder = tmp_path / "data" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (5 + number, 7, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.{suffix}")
    dataset = hr.open(tmp_path / "data")
    seen: list[Any] = []

    def look(sample: hr.Sample) -> int:
        seen.append((np.array(sample.image), int(sample.label)))
        return 0

    with hr.Loader(dataset, shuffle=False, transform=look, workers=0, output="numpy") as loader:
        list(loader)
    for number, (image, label) in enumerate(seen):
        found = dataset.decoded(number)
        assert list(found) == ["image", "label"]
        assert (found["image"].dtype, found["label"]) == (np.uint8, label)
        assert np.array_equal(found["image"], image)
    last = Image.open(tmp_path / "data" / "class1" / f"3.{suffix}").convert("RGB")
    if suffix in ("png", "tif"):
        assert np.array_equal(dataset.decoded(-1)["image"], np.asarray(last))
    with pytest.raises(errors.OutOfRangeError, match="reading sample 4 of"):
        dataset.decoded(4)


def test_without_images_it_is_the_stored_sample(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(12).reshape(4, 3))
    dataset = hr.open(tmp_path / "a.npy")
    (name,) = dataset.fields
    assert dataset.decoded(2)[name].tolist() == dataset[2][name].tolist() == [6, 7, 8]
