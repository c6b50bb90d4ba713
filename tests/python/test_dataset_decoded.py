"""`Dataset.decoded`: a sample as a Python transform gets it."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run
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


def cut_jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "JPEG")
    return file.getvalue()[:200]


def write_folder(root: Path) -> tuple[Path, Path]:
    """A dataset with one image, which is cut, and the file of it."""
    path = root / "images" / "ant" / "x.jpg"
    path.parent.mkdir(parents=True)
    path.write_bytes(cut_jpeg())
    return root / "images", path


def write_tar(root: Path) -> tuple[Path, Path]:
    with tarfile.open(root / "t.tar", "w") as tar:
        member = tarfile.TarInfo("x.jpg")
        member.size = len(cut_jpeg())
        tar.addfile(member, io.BytesIO(cut_jpeg()))
    return root / "t.tar", root / "t.tar"


@pytest.mark.parametrize("write", [write_folder, write_tar])
@pytest.mark.parametrize("number", [0, -1])
def test_an_image_that_does_not_decode_names_its_file_and_what_to_do(
    tmp_path: Path, write: Callable[[Path], tuple[Path, Path]], number: int
) -> None:
    path, file = write(tmp_path)
    with pytest.raises(errors.DataLossError) as raised:
        hr.open(path).decoded(number)
    assert str(raised.value) == (
        f"reading {file}: sample 0 field image: decoding JPEG image: Invalid JPEG file structure: "
        f"missing SOS marker; `headrace verify --decode --failures FILE {path}` finds all such "
        'samples, headrace.open(..., skip="@FILE") leaves them out, and '
        'Loader(on_error="substitute") replaces them'
    )
    listed = tmp_path / "failures.txt"
    done = run("verify", "--decode", "--failures", listed, path, code=1)
    assert "1 failed" in done.output


def test_an_image_of_another_format_names_its_file(tmp_path: Path) -> None:
    path, _ = write_folder(tmp_path)
    (path / "ant" / "a.bmp").write_bytes(b"BM" + bytes(40))
    with pytest.warns(RuntimeWarning, match="cannot be decoded"):
        dataset = hr.open(path)
    with pytest.raises(errors.DataLossError) as raised:
        dataset.decoded(0)
    text = str(raised.value)
    assert text.startswith(f"reading {path}/ant/a.bmp: sample 0 field image: decoding image of")
    assert "; replace the file if it is damaged, or convert it to JPEG or PNG; `headrace" in text


# By case the bytes of a file, and what its error says between where it lies and what to do.
DAMAGED = {
    "GIF": (
        b"GIF89a" + bytes(40),
        r"decoding image of [^;]*: a GIF; convert it to JPEG, PNG or WebP",
        "; what Pillow reads, it decodes for a Python transform=",
    ),
    "JPEG": (cut_jpeg(), r"decoding JPEG image: [^;]* missing SOS marker", ""),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_loader_says_what_a_damaged_image_is_and_what_to_do(case: str, tmp_path: Path) -> None:
    begin, what, end = DAMAGED[case]
    path = tmp_path / "data"
    (path / "ant").mkdir(parents=True)
    (path / "ant" / "x.png").write_bytes(begin)
    with (
        hr.Loader(path, batch_size=1, transform=hr.image.train(8), output="numpy") as loader,
        pytest.raises(errors.DataLossError) as raised,
    ):
        next(iter(loader))
    text = str(raised.value)
    ways = (
        f"; `headrace verify --decode --failures FILE {path}` finds all such samples, "
        'headrace.open(..., skip="@FILE") leaves them out, and Loader(on_error="substitute") '
        "replaces them"
    )
    assert re.search(rf"x\.png\): field image: {what}{re.escape(ways + end)}$", text), text
    assert text.count("headrace verify") == 1
