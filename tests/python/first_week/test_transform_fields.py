"""An image transform is of image fields: what it would leave as it is, or destroy, is refused."""

from __future__ import annotations

import io
import re
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace as hr
from headrace.errors import InvalidArgumentError

COUNT = 8
TRAIN = hr.image.train(16)


def write_image(path: Path, number: int, mode: str = "RGB") -> None:
    path.parent.mkdir(exist_ok=True)
    image = Image.fromarray(np.full((40, 50), number, np.uint8))
    if mode == "P":
        image.putpalette([255 - each // 3 for each in range(768)])
    (image if mode == "P" else image.convert(mode)).save(path, "PNG")


def table(folder: Path, columns: dict[str, Callable[[int], Any]]) -> Path:
    rows = [",".join(columns)]
    rows += [",".join(str(of(i)) for of in columns.values()) for i in range(COUNT)]
    (folder / "table.csv").write_text("\n".join(rows))
    return folder / "table.csv"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Photos, and masks whose pixels are numbers of classes, with a palette."""
    for i in range(COUNT):
        write_image(tmp_path / f"files/{i}.png", i)
        write_image(tmp_path / f"files/mask{i}.png", i, "P")
    columns = {"image": "files/{}.png".format, "mask": "files/mask{}.png".format}
    return table(tmp_path, columns | {"label": lambda i: i % 3})


@pytest.fixture
def unnamed(tmp_path: Path) -> Path:
    for i in range(COUNT):
        write_image(tmp_path / f"files/{i}", i)
    return table(tmp_path, {"file": "files/{}".format, "label": lambda i: i % 3})


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    for i in range(COUNT):
        with wave.open(str(tmp_path / f"files/{i}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", "NONE"))
            file.writeframes(np.full(800, i, np.int16).tobytes())
    return table(tmp_path, {"audio_path": "files/{}.wav".format, "label": lambda i: i % 3})


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    np.save(tmp_path / "tokens.npy", np.zeros((COUNT, 4), np.int64))
    return tmp_path / "tokens.npy"


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        hr.Loader(path, 4, **options)
    return str(caught.value)


def typed(message: str) -> dict[str, Any]:
    """The arguments that a message says to type."""
    (output,) = re.findall(r"hr\.Output\(fields=\([^)]*\)\)", message)
    return {"output": eval(output)}


def function(sample: hr.Sample) -> int:
    return len(sample)


@pytest.mark.parametrize(
    "transform", [TRAIN, hr.image.evaluate(16), (hr.image.resize(8), function)]
)
@pytest.mark.parametrize(
    ("data", "has"),
    [
        ("unnamed", "'file' (bytes), 'label' (array), none is an image; leave it out, or say in"),
        ("tokens", "'value' (array), none is an image; leave it out, or say in a Python function"),
        ("sounds", "(`headrace docs workers`); for sounds there is headrace.audio (`headrace docs"),
    ],
)
def test_an_image_transform_without_an_image_is_refused(
    request: pytest.FixtureRequest, data: str, has: str, transform: Any
) -> None:
    path = request.getfixturevalue(data)
    assert has in refused(path, transform=transform)
    for remedy in (None, function):
        with hr.Loader(path, 4, transform=remedy) as loader:
            next(iter(loader))


def test_an_image_that_fields_leave_out_is_named(pairs: Path) -> None:
    message = refused(pairs, transform=TRAIN, output=hr.Output(fields=["label"]))
    assert (
        "'label' (array), none is an image: 'image' is one, which Output.fields leaves out"
        in message
    )
    with hr.Loader(
        pairs, 4, transform=TRAIN, output=hr.Output(fields=["label", "image"])
    ) as loader:
        assert next(iter(loader)).image.shape == (4, 3, 16, 16)


@pytest.mark.parametrize(
    ("data", "transform", "message"),
    [
        ("unnamed", {"file": TRAIN}, "'file': an image transform, but it holds no encoded images"),
        ("pairs", {"label": TRAIN}, "its kind is array; images are in 'image'; leave it out, or"),
        ("tokens", {"value": TRAIN}, "its kind is array; leave it out, or say in a"),
        ("pairs", {"image": hr.audio.clip(1, 8000)}, "no encoded sounds: its kind is image"),
        ("sounds", {"label": hr.audio.clip(1, 8000)}, "its kind is array; bytes are in 'audio'"),
        ("pairs", hr.audio.clip(1, 8000), "of the fields wanted none is of kind bytes"),
    ],
)  # fmt: skip
def test_a_transform_of_another_kind_of_field_is_refused(
    request: pytest.FixtureRequest, data: str, transform: Any, message: str
) -> None:
    assert message in refused(request.getfixturevalue(data), transform=transform)


# Masks.


def test_a_mask_is_refused_by_name_and_the_way_out_helps(pairs: Path) -> None:
    for transform in (TRAIN, {"image": TRAIN, "mask": hr.image.resize(16)}, (TRAIN, function)):
        message = refused(pairs, transform=transform)
        assert message.startswith(
            "transform of 'mask': by its name the pixels of its images are nu"
        )
        with hr.Loader(pairs, 4, transform=TRAIN, **typed(message)) as loader:
            assert next(iter(loader))._fields == ("image", "label")
    with hr.Loader(pairs, 4, transform={"image": TRAIN}) as loader:
        assert next(iter(loader)).image.shape == (4, 3, 16, 16)
    message = refused(pairs, transform=TRAIN, output=hr.Output(fields=["mask"]))
    assert "in three channels; leave transform out, or transform images and masks alike" in message


@pytest.mark.parametrize("name", ["seg", "segmentation", "label", "annotation", "mask_2", "gtMask"])
def test_fields_that_hold_classes_by_name_are_masks(tmp_path: Path, name: str) -> None:
    for i in range(COUNT):
        write_image(tmp_path / f"files/{i}.png", i, "L")
    columns = {"photo": "files/{}.png".format, "other": "files/{}.png".format}
    paths = hr.formats.Manifest(paths={"photo": "photo", name: "other"})
    dataset = hr.open(table(tmp_path, columns), format=paths)
    with pytest.raises(InvalidArgumentError, match=f"transform of '{name}': by its name"):
        hr.Loader(dataset, 4, transform=TRAIN)


@pytest.mark.parametrize("name", ["target", "masked", "left", "gt", "class_photo"])
def test_fields_that_may_be_photos_are_not(tmp_path: Path, name: str) -> None:
    for i in range(COUNT):
        write_image(tmp_path / f"files/{i}.png", i)
    columns = {"photo": "files/{}.png".format, "other": "files/{}.png".format}
    paths = hr.formats.Manifest(paths={"photo": "photo", name: "other"})
    dataset = hr.open(table(tmp_path, columns), format=paths)
    with hr.Loader(dataset, 4, transform=TRAIN) as loader:
        assert next(iter(loader))[name].shape == (4, 3, 16, 16)


def crop(sample: hr.Sample) -> tuple[Any, Any]:
    """As docs/workers.md has it."""
    image = Image.open(io.BytesIO(sample.image)).convert("RGB")
    mask = Image.open(io.BytesIO(sample.mask))
    left, top = sample.rng.integers(0, (image.width - 24, image.height - 24)).tolist()
    box = (left, top, left + 24, top + 24)
    image = image.resize((16, 16), Image.Resampling.BILINEAR, box)
    mask = mask.resize((16, 16), Image.Resampling.NEAREST, box)
    return np.asarray(image), np.asarray(mask)


def test_a_function_transforms_images_and_masks_alike(pairs: Path) -> None:
    with hr.Loader(
        pairs, 4, transform=crop, output=hr.Output(decode=False, ids=True), workers=0
    ) as loader:
        for images, masks, ids in loader:
            assert (images.shape[1:], masks.shape[1:]) == ((16, 16, 3), (16, 16))
            assert (masks == ids[:, None, None]).all()


# Values of pixels.


@pytest.mark.parametrize("make", [hr.image.train, hr.image.evaluate, hr.image.resize])
@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"mean": [127] * 3}, "mean (127.0, 127.0, 127.0): must be at most 1, as the values"),
        ({"mean": [127.5] * 3, "std": [127.5] * 3}, "of values in [0, 255] it is (0.5, 0.5, 0.5)"),
        ({"mean": [0.485, 0.456, 0.406], "std": [58, 57, 57]}, "image std (58.0, 57.0, 57.0)"),
        ({"mean": (123.675, 116.28, 103.53)}, "it is (0.485, 0.456, 0.406)"),
    ],
)  # fmt: skip
def test_a_mean_of_other_values_is_refused_with_the_right_one(
    pairs: Path, make: Any, options: dict[str, Any], hint: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        make(16, **options)
    assert hint in str(caught.value)
    name, scaled = str(caught.value).split()[1], eval(str(caught.value).partition("it is ")[2])
    others = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    assert getattr(make(16, **others | {name: scaled}), name) == scaled


def test_a_transform_that_is_made_directly_is_checked_too(pairs: Path) -> None:
    made = hr.image.ImageTransform(size=(8, 8), mean=(127, 127, 127))
    with pytest.raises(InvalidArgumentError, match=r"image mean .* must be at most 1"):
        hr.Loader(pairs, 4, output=hr.Output(fields=["image"]), transform=made)
    for std in ((0, 0, 0), (-1, 1, 1)):
        with pytest.raises(InvalidArgumentError, match=r"std: got .* must be above 0"):
            hr.Loader(
                pairs, 4, output=hr.Output(fields=["image"]), transform=hr.image.train(8, std=std)
            )


def test_usual_values_are_taken(pairs: Path) -> None:
    for mean, std in (((0, 0, 0), (1, 1, 1)), ((0.5, 0.5, 0.5), (1 / 255, 1 / 255, 1 / 255))):
        transform = hr.image.resize(8, mean=mean, std=std)
        with hr.Loader(
            pairs, 4, output=hr.Output(fields=["image"]), transform=transform, shuffle=False
        ) as loader:
            values = next(iter(loader)).image[:, 0, 0, 0].numpy()
        assert np.allclose(values, (np.arange(4) / 255 - mean[0]) / std[0], atol=1e-4)


def test_normalisation_on_the_device_is_checked_alike() -> None:
    pytest.importorskip("torch")
    from headrace.torch import Normalize

    with pytest.raises(
        InvalidArgumentError, match=r"mean \(127.0,\): must be at most 1, .*\(0.498"
    ):
        Normalize([127], [0.5])
    with pytest.raises(InvalidArgumentError, match=r"std .* must be at most 1"):
        Normalize([0.5, 0.5, 0.5], [58, 57, 57])
