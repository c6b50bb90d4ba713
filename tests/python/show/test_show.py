"""`headrace.show`: a first look at batches and datasets."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_page import Page
from loader_data import COUNT, FLAT, LABELS, write_numbered
from PIL import Image

import headrace as hr
from headrace import errors
from headrace._show import pictures


def shown_pixels(image: dict[str, str]) -> np.ndarray:
    """The pixels of a picture of a page, as Pillow reads it."""
    kind, data = image["src"].split(",", 1)
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as found:
        found.load()
        return np.asarray(found)


def page(look: Any) -> Page:
    return Page(look._repr_html_())


def test_pictures_are_those_of_the_batch(numbered: Path) -> None:
    dataset = hr.open(numbered)
    with hr.Loader(dataset, 20, transform=FLAT, output=hr.Output(ids=True), seed=2) as loader:
        batch = next(iter(loader))
    look = page(hr.show(batch, classes=dataset.classes, samples=5))
    assert len(look.images) == 5
    for at, image in enumerate(look.images):
        number = int(batch.sample_id[at])
        assert image["alt"] == f"#{number} class{LABELS[number]}"
        pixels = shown_pixels(image)
        assert pixels.shape == (8, 8, 3)
        assert (pixels == number).all()


def test_a_table_says_what_a_batch_holds(numbered: Path) -> None:
    with hr.Loader(
        numbered, 6, transform=FLAT, output=hr.Output(ids=True), shuffle=False
    ) as loader:
        batch = next(iter(loader))
    assert str(hr.show(batch)).splitlines() == [
        "a batch of 6 samples",
        "  image      uint8 6 x 3 x 8 x 8  0 to 5, mean 2.5",
        "  label      int64 6              0, 0, 0, 0, 0, 0",
        "  sample_id  int64 6              0, 1, 2, 3, 4, 5",
    ]
    assert repr(hr.show(batch)) == str(hr.show(batch))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_layouts_and_types_give_the_same_pictures(numbered: Path, layout: Any, dtype: Any) -> None:
    transform = hr.image.resize(10, dtype=dtype, layout=layout)
    with hr.Loader(numbered, 4, transform=transform, shuffle=False) as loader:
        loader.set_epoch(0)
        batch = list(loader)[20]
    look = page(hr.show(batch))
    assert [int(shown_pixels(each)[0, 0, 0]) for each in look.images] == [80, 81, 82, 83]
    assert "black is" not in look.text


def test_normalised_images_are_stretched_and_that_is_said(numbered: Path) -> None:
    values = np.linspace(-2, 2, 2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    look = page(hr.show({"image": values}))
    assert "image, black is -2 and white 2" in look.texts
    for row, image in zip(values, look.images, strict=True):
        expected = ((row.transpose(1, 2, 0) + 2) / 4 * 255).round()
        assert np.abs(shown_pixels(image) - expected).max() <= 1


def test_what_is_no_number_is_told(numbered: Path) -> None:
    values = np.ones((2, 1, 3, 3), np.float32)
    values[0, 0, 0, 0], values[1, 0, 0, 0] = np.nan, np.inf
    look = hr.show([values])
    assert "2 are not finite numbers" in str(look)
    assert len(page(look).images) == 2
    values[:] = np.nan
    assert "18 are not finite numbers" in str(hr.show([values]))


def test_a_dataset_is_shown_from_begin_to_end(numbered: Path) -> None:
    dataset = hr.open(numbered)
    look = page(hr.show(dataset, samples=4))
    numbers = [0, 24, 48, 72]
    assert [each["alt"] for each in look.images] == [f"#{n} class{LABELS[n]}" for n in numbers]
    assert [int(shown_pixels(each)[0, 0, 0]) for each in look.images] == numbers
    assert f"4 of {COUNT} samples of {numbered}" in look.texts
    assert len(page(hr.show(dataset, samples=1000)).images) == COUNT


def test_a_sample_is_shown(numbered: Path) -> None:
    look = hr.show(hr.open(numbered)[70], classes=["ant", "bee", "cat"])
    assert str(look).splitlines()[0] == "a sample"
    (image,) = page(look).images
    assert image["alt"] == "bee"
    assert (shown_pixels(image) == 70).all()


def test_a_file_that_is_no_image_is_told_in_its_place(tmp_path: Path) -> None:
    root = write_numbered(tmp_path / "images", (3,))
    jpeg = root / "class0" / "001.jpg"
    jpeg.write_bytes(jpeg.read_bytes()[:200])
    look = page(hr.show(hr.open(root)))
    assert len(look.images) == 2
    assert any("decod" in each and each.startswith("#1 class0:") for each in look.texts)


def test_large_pictures_are_made_small() -> None:
    image = np.zeros((600, 300, 3), np.uint8)
    image[:, 150:] = 200
    look = page(hr.show([image[None]]))
    (shown,) = look.images
    pixels = shown_pixels(shown)
    assert pixels.shape == (120, 60, 3)
    assert (pixels[:, :30] == 0).all()
    assert (pixels[:, 30:] == 200).all()
    assert (shown["width"], shown["height"]) == ("60", "120")
    thin = pictures.picture_of(np.full((2, 5000, 3), 7, np.uint8), None)
    assert (thin.height, thin.width) == (1, 125)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pillow_reads_our_png(channels: int) -> None:
    random = np.random.Generator(np.random.PCG64(channels))
    pixels = random.integers(0, 256, (5, 9, channels), dtype=np.uint8)
    with Image.open(io.BytesIO(pictures.png(pixels))) as image:
        read = np.asarray(image)
    assert (read.reshape(pixels.shape) == pixels).all()


def test_tensors_texts_lists_and_padded_fields_are_shown() -> None:
    torch = pytest.importorskip("torch")
    batch = {
        "tokens": torch.arange(40).reshape(4, 10),
        "half": torch.full((4, 2, 2), 0.5, dtype=torch.bfloat16),
        "grad": torch.ones(3, requires_grad=True),
        "text": ["a" * 100, "b\nc"],
        "mask": torch.tensor([True, False, True]),
        "list": [torch.zeros(2), torch.zeros(5)],
        "padded": hr.Padded(torch.zeros(2, 9), torch.tensor([[3], [9]])),
        "none": None,
    }
    told = {line.split()[0]: line for line in str(hr.show(batch)).splitlines()[1:]}
    assert "int64 4 x 10" in told["tokens"]
    assert "0 to 39, mean 19.5" in told["tokens"]
    assert "0.5 to 0.5" in told["half"]
    assert "1.0, 1.0, 1.0" in told["grad"]
    assert "a" * 60 + "..., b\\x0ac" in told["text"]
    assert "2 to 5 values" in told["list"]
    assert "float32 2 x 9" in told["padded"]
    assert told["none"].split()[1:] == ["NoneType", "None"]
    page(hr.show(batch))


def test_what_a_python_transform_makes_is_shown(numbered: Path) -> None:
    def pair(sample: hr.Sample) -> dict[str, Any]:
        return {"picture": sample.image[:8, :8], "number": sample.id}

    with hr.Loader(numbered, 4, transform=pair, workers=0, shuffle=False) as loader:
        batch = next(iter(loader))
    look = hr.show(batch)
    assert [field.name for field in look.fields] == ["picture", "number"]
    assert len(page(look).images) == 4


def test_any_output_and_every_order_is_shown(numbered: Path) -> None:
    for output in ("numpy", "dlpack", "torch"):
        for order in ("exact", "batch", "epoch", "redox"):
            with hr.Loader(numbered, 9, transform=FLAT, order=order, output=output) as loader:
                look = hr.show(next(iter(loader)))
            assert look.what == "a batch of 9 samples"
            assert len(page(look).images) == 9


def test_a_loader_is_not_iterated_by_a_look(numbered: Path) -> None:
    with hr.Loader(numbered, 9) as loader:
        with pytest.raises(errors.InvalidArgumentError, match=r"hr|show\(next\(iter\(loader\)\)\)"):
            hr.show(loader)
        assert loader.state_dict()["samples"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"samples": 0}, r"samples: got 0, must be in \[1, 1024\]"),
        ({"classes": "ant"}, "classes: got 'ant', must be an iterable of names"),
        ({"sample": 3}, "did you mean 'samples'"),
    ],
)
def test_wrong_arguments_are_told(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=says):
        hr.show([np.zeros(3)], **arguments)
