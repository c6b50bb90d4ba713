"""Files that are called images and are of another kind: named, with ways out that help."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, features

import headrace as hr
from headrace import errors

PIXELS = np.random.default_rng(1).integers(0, 255, (40, 48, 3)).astype(np.uint8)
IMAGES = {"GIF": "GIF", "JPEG2000": "JPEG 2000", "ICO": "ICO", "AVIF": "AVIF"}
OTHERS = {
    b"%PDF-1.7 and so on": "a PDF",
    b"<!DOCTYPE html><html>": "HTML, XML or SVG",
    b"version https://git-lfs.github.com/spec/v1\noid": "git lfs pull",
    b"\x00\x00\x00\x1cftypheic\x00\x00\x00\x00": "HEIC",
    b"PK\x03\x04 and so on": "a zip file",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def encoded(kind: str) -> bytes:
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow writes no AVIF")
    file = io.BytesIO()
    options: dict[str, Any] = {"sizes": [(48, 40)]} if kind == "ICO" else {}
    Image.fromarray(PIXELS).save(file, kind, **options)
    return file.getvalue()


def folder(path: Path, data: bytes) -> Path:
    """A class folder of two PNGs, and a file of this content that is called .jpg."""
    (path / "c").mkdir(parents=True)
    for name in ("a.png", "z.png"):
        Image.fromarray(PIXELS).save(path / "c" / name)
    (path / "c/m.jpg").write_bytes(data)
    return path


def failure(path: Path) -> str:
    loader = hr.Loader(path, 3, transform=hr.image.resize(8), output="numpy")
    with loader, pytest.raises(errors.DataLossError) as caught:
        next(iter(loader))
    return str(caught.value)


def as_array(sample: Any) -> Any:
    return np.array(sample.image)


@pytest.mark.parametrize("kind", IMAGES)
def test_images_that_only_pillow_decodes(kind: str, tmp_path: Path) -> None:
    data = encoded(kind)
    path = folder(tmp_path / "data", data)
    message = failure(path)
    assert "(c/m.jpg)" in message
    assert IMAGES[kind] in message
    assert "convert it to JPEG, PNG or WebP" in message
    own = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
    with hr.Loader(path, 3, shuffle=False, transform=as_array, output="numpy") as loader:
        (batch,) = loader
    assert np.array_equal(np.asarray(batch)[1], own)
    assert np.array_equal(hr.open(path).decoded(1)["image"], own)
    left = hr.open(path, skip="m.jpg")
    assert len(list(hr.Loader(left, 1, transform=hr.image.resize(8), output="numpy"))) == 2
    replaced = hr.Loader(
        path, 3, transform=hr.image.resize(8), on_error="substitute", output="numpy"
    )
    assert len(list(replaced)) == 1


@pytest.mark.parametrize("data", OTHERS)
def test_what_is_no_image_is_named(data: bytes, tmp_path: Path) -> None:
    path = folder(tmp_path / "data", data)
    assert OTHERS[data] in failure(path)
    with pytest.raises(errors.DataLossError, match="Pillow says: cannot identify"):
        hr.open(path).decoded(1)


def test_what_nobody_knows_has_its_bytes_shown(tmp_path: Path) -> None:
    message = failure(folder(tmp_path / "data", b"\x01\x02\x03\x04\x05\x06\x07\x08\x09"))
    assert "it begins with 01 02 03 04 05 06 07 08; " in message
