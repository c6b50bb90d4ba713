"""Python transforms of images: decoded for any callable, as their library has them for its own."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import worker_functions as functions
from loader_data import COUNT, LABELS, sample_file, write_numbered
from PIL import Image
from rank_scripts import real_packages

import headrace as hr
from headrace import _core, errors
from headrace._dataset.decoding import decode_image
from headrace.papers.redox import RedoxFetcher

HERE = Path(__file__).parent
STAND_IN = importlib.util.find_spec("torchvision") is None
WAYS: list[dict[str, Any]] = [
    {"workers": 0},
    {"workers": hr.Workers(2, start="fork")},
    {"workers": hr.Workers(1, start="spawn")},
    {"workers": hr.Workers(1, start="fork"), "job": hr.Job(node=hr.Node())},
]


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real package where it is; else its stand-in."""
    if STAND_IN:
        monkeypatch.syspath_prepend(str(HERE / "stand_ins"))
    import torchvision.transforms.v2
    import torchvision.tv_tensors

    return torchvision


def texture(seed: int, shape: tuple[int, ...] = (11, 13, 3)) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def kinds(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray[Any, Any]]]:
    """A folder with one image of each kind, and the pixels that each must give."""
    folder = tmp_path / "kinds" / "one"
    folder.mkdir(parents=True)
    rgb, grey, alpha = Image.fromarray(texture(1)), texture(2, (11, 13)), texture(3, (11, 13, 4))
    deep = np.random.default_rng(4).integers(0, 65536, (11, 13)).astype(np.uint16)
    saved = {
        "cmyk.jpg": rgb.convert("CMYK"),
        "colour.jpg": rgb,
        "grey.jpg": Image.fromarray(grey),
        "alpha.png": Image.fromarray(alpha),
        "palette.png": rgb.quantize(16),
        "bits.bmp": rgb,
        "grey.pgm": Image.fromarray(grey),
        "colour.ppm": rgb,
        "colour.tif": rgb,
        "alpha.webp": Image.fromarray(alpha),
        "cmyk.tif": rgb.convert("CMYK"),
    }
    pixels = {}
    for name, image in saved.items():
        image.save(folder / name)
        pixels[name] = np.array(Image.open(folder / name).convert("RGB"))
    for name in ("frames.webp", "pages.tif"):  # The first counts.
        rgb.save(folder / name, save_all=True, append_images=[Image.fromarray(texture(5))])
        with Image.open(folder / name) as image:
            pixels[name] = np.array(image.convert("RGB"))
    for name in ("deep.png", "deep.tiff", "deep.pgm"):
        Image.fromarray(deep).save(folder / name)
        pixels[name] = np.repeat((deep >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    return folder.parent, pixels


def quietly(root: Path) -> hr.Dataset:
    with pytest.warns(RuntimeWarning, match="does not decode"):
        return hr.open(root)


def whole(sample: hr.Sample) -> Any:
    return sample.image


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_images_are_decoded_for_a_callable(numbered: Path, way: dict[str, Any]) -> None:
    with hr.Loader(
        numbered, 10, transform=functions.corner, output=hr.Output(ids=True), **way
    ) as loader:
        batches = list(loader)
    ids = torch.cat([batch[-1] for batch in batches]).tolist()
    assert sorted(ids) == list(range(COUNT))
    assert {dtype for batch in batches for dtype in batch[0]} == {"uint8"}
    shapes = torch.cat([batch[1] for batch in batches]).tolist()
    assert shapes == [[16 + i % 5, 16 + i % 7, 3] for i in ids]
    assert torch.cat([batch[2] for batch in batches]).tolist() == [[i] * 3 for i in ids]
    assert torch.cat([batch[3] for batch in batches]).tolist() == LABELS[ids].tolist()


@pytest.mark.parametrize("workers", [0, 1])
def test_every_kind_of_image_becomes_three_channels_of_bytes(
    kinds: tuple[Path, dict[str, np.ndarray[Any, Any]]], workers: int
) -> None:
    root, pixels = kinds
    with hr.Loader(
        quietly(root),
        len(pixels),
        shuffle=False,
        transform=whole,
        workers=hr.Workers(workers, start="fork"),
        output="numpy",
    ) as loader:
        (batch,) = loader
    for name, image in zip(sorted(pixels), batch, strict=True):
        assert np.array_equal(image, pixels[name]), name


@pytest.mark.parametrize("name", ["bits.bmp", "cmyk.tif", "frames.webp"])
def test_without_pillow_an_image_of_another_kind_says_what_is_missing(
    kinds: tuple[Path, dict[str, np.ndarray[Any, Any]]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = quietly(kinds[0])
    number = sorted(kinds[1]).index(name)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with (
        hr.Loader(dataset, batch_sampler=[[number]], transform=whole, workers=0) as loader,
        pytest.raises(errors.TransformError, match=rf"{name}.*pip install pillow"),
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    ("content", "limit", "error", "words"),
    [
        # Its own limit warns, and refuses twice as much.
        (b"P6 20000 20000 255 ", 2**20, errors.InvalidArgumentError, "pixels_max is 178956970"),
        (b"P6 20000 20000 255 ", None, errors.InvalidArgumentError, "20000 x 20000 pixels"),
        (b"P6 4 4 255 " + b"a" * 47, 10, errors.DataLossError, "Pillow says: "),
        (b"P6 4 4 none ", 10, errors.DataLossError, "Pillow says: "),
        (b"P6 4 4 255 " + b"a" * 48, 10, None, ""),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_pillow_refuses_is_an_error_of_headrace(
    content: bytes,
    limit: int | None,
    error: type[Exception] | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    encoded = np.frombuffer(content, np.uint8)
    if error is None:
        assert decode_image(encoded).tobytes() == b"a" * 48
        return
    with pytest.raises(error, match=f"of a kind that headrace does not decode.*{words}"):
        decode_image(encoded)


def test_whatever_pillow_raises_of_a_file_is_data_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise KeyError("tile")

    monkeypatch.setattr(Image.Image, "convert", failing)
    with pytest.raises(errors.DataLossError, match="Pillow says: 'tile'"):
        decode_image(np.frombuffer(b"P6 4 4 255 " + b"a" * 48, np.uint8))


def test_decode_says_whether(numbered: Path) -> None:
    dataset = hr.open(numbered)
    lengths = [[len(dataset.read(i)["image"])] for i in range(10)]
    given: dict[str, Any] = {"shuffle": False, "workers": 0}
    with hr.Loader(
        dataset, 10, transform=functions.shape_and_label, output=hr.Output(decode=False), **given
    ) as raw:
        assert next(iter(raw))[0].tolist() == lengths
    given["workers"] = hr.Workers(0, collate_fn=functions.collate_shapes)
    with hr.Loader(dataset, 10, **given) as raw:
        assert next(iter(raw)) == [(length,) for (length,) in lengths]
    with hr.Loader(dataset, 10, output=hr.Output(decode=True), **given) as made:
        assert next(iter(made)) == [(16 + i % 5, 16 + i % 7, 3) for i in range(10)]
    with hr.Loader(dataset, 10, shuffle=False) as plain:
        assert [[len(image)] for image in next(iter(plain)).image] == lengths
    with pytest.raises(
        errors.InvalidArgumentError, match=r"^Output\.decode: there is no Python callable"
    ):
        hr.Loader(dataset, output=hr.Output(decode=True))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"^Output\.decode: got 1, must be True or False"
    ):
        hr.Loader(dataset, transform=whole, output=hr.Output(decode=1))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_cannot_be_decoded_is_substituted_for_a_callable(
    tmp_path: Path, way: dict[str, Any]
) -> None:
    root = write_numbered(tmp_path / "images", (6, 6))
    bad = {2: b"no image", 5: sample_file(root, 5).read_bytes()[:300], 9: b""}
    for number, data in bad.items():
        sample_file(root, number).write_bytes(data)
    with pytest.warns(RuntimeWarning, match="zero bytes"):
        dataset = hr.open(root)
    options: dict[str, Any] = {
        "transform": functions.corner,
        "output": hr.Output(ids=True),
        "shuffle": False,
    } | way
    with hr.Loader(dataset, 4, on_error="substitute", **options) as loader:
        batches = list(loader)
        stats = loader.stats()
    ids = torch.cat([batch[-1] for batch in batches]).tolist()
    assert torch.cat([batch[2] for batch in batches]).tolist() == [[i] * 3 for i in ids]
    assert [slot for slot, number in enumerate(ids) if slot != number] == sorted(bad)
    assert not set(ids) & set(bad)
    # Those of the epoch that was taken: workers have read ahead into the next one.
    assert [each["wanted"] for each in stats["substitutions"]] == sorted(bad)
    assert stats["substituted"] == len(bad)
    if way["workers"] == 0:
        with (
            hr.Loader(dataset, 4, **options) as loader,
            pytest.raises(
                errors.TransformError, match=r"002\.jpg.*neither JPEG, PNG, WebP nor TIFF"
            ) as caught,
        ):
            next(iter(loader))
        assert isinstance(caught.value.__cause__, errors.DataLossError)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_transform_of_v2_gets_its_image_and_the_label_stays_beside(
    numbered: Path, way: dict[str, Any], torchvision: Any
) -> None:
    v2 = torchvision.transforms.v2
    transform = v2.Compose([v2.CenterCrop(8), v2.ToDtype(torch.float32, scale=True)])
    with hr.Loader(numbered, 10, transform=transform, output=hr.Output(ids=True), **way) as loader:
        batches = list(loader)
    assert batches[0]._fields == ("image", "label", "sample_id")
    image = torch.cat([batch.image for batch in batches])
    ids = torch.cat([batch.sample_id for batch in batches])
    assert sorted(ids.tolist()) == list(range(COUNT))
    assert type(image) is torch.Tensor
    assert image.shape == (COUNT, 3, 8, 8)
    assert torch.equal(image, (ids.float() / 255)[:, None, None, None].expand(image.shape))
    assert torch.cat([batch.label for batch in batches]).tolist() == LABELS[ids].tolist()


def test_each_transform_gets_the_type_that_it_takes(numbered: Path, torchvision: Any) -> None:
    v1, v2 = torchvision.transforms, torchvision.transforms.v2
    describe = functions.kind_of
    given = {
        "tv": [
            v2.Lambda(describe),
            v2.Compose([v2.ToImage(), v2.Lambda(describe)]),
            torch.nn.Sequential(v2.Lambda(describe)),
            functools.partial(v2.Lambda(describe)),
        ],
        "pil": [
            v1.Compose([v1.Lambda(describe)]),
            v2.Compose([v2.Lambda(describe), v2.ToTensor()]),
            v2.Compose([v1.Lambda(describe)]),
        ],
        "sample": [describe, torch.nn.Sequential(Described())],
    }
    says = {"tv": r"tv_tensors\.(_image\.)?Image", "pil": r"PIL\.Image\.Image", "sample": "Sample"}
    for kind, transforms in given.items():
        for transform in transforms:
            with hr.Loader(
                numbered, 2, transform=transform, workers=0, output=hr.Output(decode=None)
            ) as loader:
                batch = next(iter(loader))
            row = batch[0] if kind == "sample" else batch.image[0]
            assert re.search(says[kind], functions.text_of(row)), (kind, functions.text_of(row))


class Described(torch.nn.Module):
    """A module of the user's own: gets a sample, whatever it stands in."""

    def forward(self, given: Any) -> Any:
        return functions.kind_of(given)


def test_version_1_makes_tensors_of_pillow_images(numbered: Path, torchvision: Any) -> None:
    v1 = torchvision.transforms
    transform = v1.Compose([v1.RandomHorizontalFlip(), v1.ToTensor()])
    given: dict[str, Any] = {
        "output": hr.Output(ragged="list", ids=True),
        "workers": hr.Workers(start="fork"),
    }
    with hr.Loader(numbered, 10, transform=transform, **given) as loader:
        batch = next(iter(loader))
    for image, number in zip(batch.image, batch.sample_id.tolist(), strict=True):
        assert image.shape == (3, 16 + number % 5, 16 + number % 7)
        assert torch.equal(image, torch.full_like(image, number / 255))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_what_was_decoded_natively_comes_as_its_image(
    numbered: Path, layout: Any, dtype: Any, torchvision: Any
) -> None:
    v1, v2 = torchvision.transforms, torchvision.transforms.v2
    native = hr.image.resize((6, 9), dtype=dtype, layout=layout)
    tensors = v2.ToDtype(torch.float32, scale=True)
    pillow = v1.ToTensor()
    for transform in (tensors, pillow):
        if transform is pillow and dtype == "float32":
            with pytest.raises(errors.InvalidArgumentError, match=r'image transform .*"uint8"'):
                hr.Loader(numbered, transform=(native, transform))
            continue
        with hr.Loader(
            numbered, 10, transform=(native, transform), workers=0, output=hr.Output(ids=True)
        ) as loader:
            batch = next(iter(loader))
        assert batch.image.shape == (10, 3, 6, 9)
        expected = (batch.sample_id.float() / 255)[:, None, None, None].expand(batch.image.shape)
        assert torch.allclose(batch.image, expected)


def test_draws_are_fixed_by_the_sample_and_leave_the_loop_s_generator(
    tmp_path: Path, torchvision: Any
) -> None:
    folder = tmp_path / "textures" / "one"
    folder.mkdir(parents=True)
    for number in range(24):
        Image.fromarray(texture(number)).save(folder / f"{number:02}.png")
    transform = torchvision.transforms.v2.RandomHorizontalFlip(0.5)

    def batches(epochs: int = 2, **way: Any) -> list[bytes]:
        with hr.Loader(folder.parent, 8, transform=transform, seed=4, **way) as loader:
            return [batch.image.numpy().tobytes() for _ in range(epochs) for batch in loader]

    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    alone = batches(workers=0)
    assert torch.equal(torch.rand(3), expected)
    for workers in (1, 3):
        assert batches(workers=hr.Workers(workers, start="fork")) == alone
    with hr.Loader(
        folder.parent, 24, transform=transform, workers=0, output=hr.Output(ids=True)
    ) as loader:
        (batch,) = loader
    flipped = [
        np.array_equal(image.numpy(), texture(number)[:, ::-1].transpose(2, 0, 1))
        for image, number in zip(batch.image, batch.sample_id.tolist(), strict=True)
    ]
    assert 4 <= sum(flipped) <= 20


def two_images(tmp_path: Path) -> Path:
    """An index of one sample of two images."""
    Image.fromarray(texture(1)).save(tmp_path / "x.png")
    size = (tmp_path / "x.png").stat().st_size
    contents = _core.IndexContents(1, str(tmp_path))
    contents.add_objects(["x.png"], np.array([size], np.uint64), np.zeros(1, np.int64))
    zero = np.zeros(1, np.uint64)
    for name in ("left", "right"):
        contents.add_extent_field(
            name, ("image", "uint8", ()), (zero, zero, np.array([size], np.uint64))
        )
    _core.write_index(contents, str(tmp_path / "x.hri"))
    return tmp_path / "x.hri"


def test_a_library_s_transform_wants_one_image(
    numbered: Path, tmp_path: Path, torchvision: Any
) -> None:
    flip = torchvision.transforms.v2.RandomHorizontalFlip()
    both = two_images(tmp_path)
    for data, given, says in (
        (both, {}, "takes one image a sample, and of the fields wanted these are 2: left, right"),
        (numbered, {"output": hr.Output(fields=["label"])}, "of the fields wanted there is none"),
        (
            numbered,
            {"output": hr.Output(decode=False)},
            "decode=False with RandomHorizontalFlip, which takes",
        ),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=says):
            hr.Loader(data, transform=flip, **given)  # type: ignore[arg-type]
    with hr.Loader(both, output=hr.Output(fields=["right"]), transform=flip, workers=0) as loader:
        (batch,) = loader
    assert batch._fields == ("right",)
    assert batch.right.shape == (1, 3, 11, 13)


def test_samples_for_torch_are_decoded_alike(numbered: Path, torchvision: Any) -> None:
    v2 = torchvision.transforms.v2
    crop = v2.Compose([v2.CenterCrop(8)])

    def first(loader: hr.Loader, *arguments: Any, **options: Any) -> Any:
        samples = RedoxFetcher(loader, *arguments, **options)
        return samples.__getitems__(next(iter(samples.sampler)))[0]

    for native in (None, hr.image.resize(9, dtype="uint8", layout="NHWC")):
        with hr.Loader(numbered, 10, transform=native, shuffle=False) as loader:
            samples = RedoxFetcher(loader, crop)
            data: Any = torch.utils.data.DataLoader(samples, batch_sampler=samples.sampler)
            image, label = next(iter(data))
        assert image.shape == (10, 3, 8, 8)
        assert image[:, 0, 0, 0].tolist() == list(range(10))
        assert label.tolist() == LABELS[:10].tolist()
    tensors = v2.Compose([v2.ToDtype(torch.float32, scale=True)])
    low = hr.image.resize((3, 9), dtype="uint8", layout="NHWC")  # 3 high: no channels
    with hr.Loader(numbered, 10, transform=low, shuffle=False) as loader:
        assert first(loader, tensors)[0].shape == (3, 3, 9)
    with hr.Loader(numbered, 10, shuffle=False) as loader:
        assert len(first(loader, functions.shape_and_label, decode=False)[0]) == 1
        assert first(loader, functions.shape_and_label)[0].tolist() == [16, 16, 3]
        with pytest.raises(errors.InvalidArgumentError, match="decode=False with Compose"):
            RedoxFetcher(loader, crop, decode=False)


@pytest.fixture(scope="module")
def albumentations() -> Path:
    """The environment of the package, kept from run to run in the cache folder of the user."""
    return real_packages("albumentations")


def test_transforms_of_albumentations(numbered: Path, albumentations: Path) -> None:
    script = HERE / "stand_ins" / "albumentations_run.py"
    done = subprocess.run(
        [sys.executable, str(script), str(albumentations), str(numbered)],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"NO_ALBUMENTATIONS_UPDATE": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["fields"] == ["image", "label", "sample_id"]
    assert found["shape"] == [COUNT, 8, 8, 3]
    assert found["greys"] == found["ids"]
    assert found["labels"] == LABELS[found["ids"]].tolist()
    shape, greys, ids = found["pair"]
    assert shape == [10, 8, 8, 3]
    assert greys == ids
    alone, *others = found["changed"]
    assert all(other == alone for other in others)
    assert len({str(row) for batch in alone for row in batch}) > COUNT // 2
