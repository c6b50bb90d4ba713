"""Functions for an image or for several fields as transforms; batches of encoded images."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import headrace as hr
from headrace.errors import TransformError

USE = "use sample.image, an array, or PIL.Image.fromarray(sample.image)"
GIVE = "give a function for images sample.image, an array, or PIL.Image.fromarray(sample.image)"


def resized(image: Any) -> Any:
    return image.resize((8, 8))


def converted(image: Any) -> Any:
    return np.asarray(image.convert("L"))


def fitted(image: Any) -> Any:
    return np.asarray(ImageOps.fit(image, (8, 8)))


def of_array(image: Any) -> Any:
    return np.asarray(Image.fromarray(image).resize((8, 8)))


def scaled(image: Any) -> Any:
    return image / 255


def astype(image: Any) -> Any:
    return image.astype("float32")


def as_tensor(image: Any) -> Any:
    import torch

    return torch.from_numpy(image)


def of_two(image: Any, label: Any) -> Any:
    return image, label


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (resized, f"a sample has no 'resize'; it has the fields image, label: {USE}"),
        (converted, f"a sample has no 'convert'; it has the fields image, label: {USE}"),
        (fitted, USE),
        (of_array, USE),
        (astype, USE),
        (scaled, GIVE),
        (as_tensor, GIVE),
        (
            of_two,
            "is called with one headrace.Sample, which has the fields: `def transform(sample)",
        ),
    ],
)
def test_a_function_for_an_image_is_told_of_sample_image(
    numbered: Path, function: Any, hint: str, workers: int
) -> None:
    if function is as_tensor:
        pytest.importorskip("torch")
    if workers and function not in (resized, scaled, of_two):
        return  # The text is made in one place.
    with (
        hr.Loader(numbered, 4, transform=function, workers=workers) as loader,
        pytest.raises(TransformError) as caught,
    ):
        next(iter(loader))
    assert hint in str(caught.value)


def test_what_the_hint_says_works(numbered: Path) -> None:
    def by_pillow(sample: hr.Sample) -> Any:
        return np.asarray(Image.fromarray(sample.image).resize((8, 8)))

    with hr.Loader(numbered, 4, transform=by_pillow, workers=0) as loader:
        assert next(iter(loader)).shape == (4, 8, 8, 3)


def test_a_sample_of_other_fields_names_the_first(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", waves=np.zeros((8, 30)), label=np.arange(8))
    said = "it has the fields waves, label: use sample.waves$"
    with (
        hr.Loader(tmp_path / "a.npz", 4, transform=resized, workers=0) as loader,
        pytest.raises(TransformError, match=said),
    ):
        next(iter(loader))


def test_a_sample_still_lacks_what_it_lacks(numbered: Path) -> None:
    def look(sample: hr.Sample) -> int:
        assert not hasattr(sample, "__array__")
        assert not hasattr(sample, "_image")
        assert getattr(sample, "other", 3) == 3
        assert sample.rng.integers(5) >= 0
        return 0

    with hr.Loader(numbered, 4, transform=look, workers=0) as loader:
        next(iter(loader))


def test_samples_for_torch_have_the_hint_as_a_note(numbered: Path) -> None:
    torch = pytest.importorskip("torch")
    from headrace.papers.redox import RedoxFetcher

    with hr.Loader(numbered, 4) as loader:
        samples = RedoxFetcher(loader, transform=scaled)
        batches = torch.utils.data.DataLoader(samples, batch_sampler=samples.sampler)
        with pytest.raises(TypeError) as caught:
            next(iter(batches))
    assert any(GIVE in note for note in caught.value.__notes__)


# Without a transform.

SCRIPT = """
import sys, headrace as hr
for _ in range(2):
    loader = hr.Loader(sys.argv[1], 4)
    for epoch in range(2):
        for batch in loader:
            pass
print(type(batch.image))
"""


@pytest.mark.parametrize("options", [[], ["-W", "error"]])
def test_a_loader_without_a_transform_says_once_what_it_gives(
    numbered: Path, options: list[str]
) -> None:
    command = [sys.executable, *options, "-c", SCRIPT, str(numbered)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "<class 'list'>\n"), done.stderr
    said = f"a batch of {numbered} has 'image' as stored, a list of encoded images, as the loader"
    assert done.stderr.count(said) == (0 if options else 1), done.stderr


def told(path: Path, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with hr.Loader(path, 4, **options) as loader:
            for _ in loader:
                pass
    return [f"{each.filename}: {each.message}" for each in found]


def test_only_where_images_come_as_stored(numbered_copy: Path) -> None:
    for options in (
        {"transform": hr.image.train(8)},
        {"transform": {"image": hr.image.train(8)}},
        {"transform": lambda sample: sample.label, "workers": 0},
        {"output": hr.Output(fields=["label"])},
    ):
        assert told(numbered_copy, **options) == []  # type: ignore[arg-type]
    (said,) = told(numbered_copy)
    assert said.startswith(
        f"{__file__}: headrace: a batch of {numbered_copy} has 'image' as stored"
    )
    assert told(numbered_copy) == []
