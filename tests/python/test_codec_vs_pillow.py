"""The image codec in exact mode against Pillow, and its draws against the words of docs/codec.md.

Nothing here is shared with the C++ side: Philox, the exponential and torchvision's geometry are
written again from their specifications.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin

from headrace import _core, errors

needs_tiff = pytest.mark.skipif(not _core.decodes_tiff, reason="a build without TIFF")
TIFF = pytest.param("TIFF", marks=needs_tiff)


def texture(width: int, height: int, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = np.stack([x * 5 + y * 3, (x // 7 ^ y // 5) * 40, y * 7 + x], axis=-1)
    noise = rng.integers(0, 64, size=base.shape)
    return Image.fromarray(((base + noise) % 256).astype(np.uint8), "RGB")


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def transform(**fields: Any) -> Any:
    result = _core.ImageTransform()
    result.channels_first = False
    result.exact = True
    crop = fields.pop("random_resized_crop", None)
    if crop is not None:
        box = _core.RandomResizedCrop()
        box.scale, box.ratio = crop
        result.random_resized_crop = box
    for name, value in fields.items():
        setattr(result, name, value)
    return result


def pillow(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """As Pillow 13 does it: until 12 the horizontal pass always came first."""
    lost_rows, lost_columns = image.height - size[1], image.width - size[0]
    if lost_rows > 0 and lost_rows > 2 * lost_columns:
        image = image.resize((image.width, size[1]), Image.Resampling.BILINEAR)
    return image.resize(size, Image.Resampling.BILINEAR)


# --- docs/codec.md, in Python -------------------------------------------------------------------


def philox_words(seed: int, epoch: int, stream: int, item: int) -> Iterator[int]:
    mask = 0xFFFFFFFF
    block = 0
    while True:
        counter = [block, (stream | epoch << 8) & mask, item & mask, item >> 32]
        key = [seed & mask, seed >> 32]
        for _ in range(10):
            p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
            counter = [
                (p1 >> 32) ^ counter[1] ^ key[0],
                p1 & mask,
                (p0 >> 32) ^ counter[3] ^ key[1],
                p0 & mask,
            ]
            key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
        yield from counter
        block += 1


class Draws:
    def __init__(self, seed: int, epoch: int, sample: int) -> None:
        self.words = philox_words(seed, epoch, 2, sample)

    def uniform(self) -> float:
        low = next(self.words)
        return ((low | next(self.words) << 32) >> 11) * 2.0**-53

    def below(self, bound: int) -> int:
        while True:
            product = next(self.words) * bound
            if (product & 0xFFFFFFFF) >= 2**32 % bound:
                return product >> 32


def exp_to_the_bit(x: float) -> float:
    ln2 = float.fromhex("0x1.62e42fefa39efp-1")
    k = float(round(x / ln2))
    rest = x - k * ln2
    total = 1.0
    for n in range(16, 0, -1):
        total = 1.0 + total * rest / n
    return math.ldexp(total, int(k))


def log_to_the_bit(x: float) -> float:
    mantissa, exponent = math.frexp(x)
    log = 0.0
    for _ in range(6):
        e = exp_to_the_bit(log)
        log += 2.0 * (mantissa - e) / (mantissa + e)
    return exponent * float.fromhex("0x1.62e42fefa39efp-1") + log


def drawn_box(
    draws: Draws,
    size: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> tuple[int, int, int, int]:
    """Left, top, width, height, by torchvision's RandomResizedCrop.get_params."""
    width, height = size
    low, high = log_to_the_bit(ratio[0]), log_to_the_bit(ratio[1])
    for _ in range(10):
        target = float(width) * float(height) * (scale[0] + (scale[1] - scale[0]) * draws.uniform())
        aspect = exp_to_the_bit(low + (high - low) * draws.uniform())
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = draws.below(height - h + 1)
            return draws.below(width - w + 1), top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = max(1, round(width / ratio[0]))
    elif width / height > ratio[1]:
        w = max(1, round(height * ratio[1]))
    return (width - w) // 2, (height - h) // 2, w, h


# --- tests --------------------------------------------------------------------------------------

JPEGS = [
    pytest.param({"subsampling": "4:2:0"}, id="420"),
    pytest.param({"subsampling": "4:2:2"}, id="422"),
    pytest.param({"subsampling": "4:4:4"}, id="444"),
    pytest.param({"subsampling": "4:2:0", "progressive": True}, id="progressive"),
    pytest.param({"subsampling": "4:2:0", "restart_marker_blocks": 3}, id="restart"),
]


@pytest.mark.parametrize("options", JPEGS)
@pytest.mark.parametrize("size", [(1, 1), (17, 33), (500, 375), (640, 427)])
def test_a_decoded_jpeg_equals_pillow(options: dict[str, Any], size: tuple[int, int]) -> None:
    data = encoded(texture(*size), "JPEG", quality=90, **options)
    ours = _core.decode_image(data, transform(width=size[0], height=size[1]))
    np.testing.assert_array_equal(ours, np.asarray(pillow(data)))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_jpegs_of_other_colours_equal_pillow(mode: str) -> None:
    data = encoded(texture(123, 77).convert(mode), "JPEG", quality=92)
    ours = _core.decode_image(data, transform(width=123, height=77))
    np.testing.assert_array_equal(ours, np.asarray(pillow(data)))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_pngs_of_every_mode_equal_pillow(mode: str) -> None:
    image = texture(61, 45)
    if mode == "RGBA":
        image.putalpha(texture(61, 45, seed=1).convert("L"))
    elif mode == "LA":
        image = image.convert("L")
        image.putalpha(texture(61, 45, seed=1).convert("L"))
    else:
        image = image.convert(mode)
    data = encoded(image, "PNG")
    ours = _core.decode_image(data, transform(width=61, height=45))
    np.testing.assert_array_equal(ours, np.asarray(pillow(data)))


WEBPS = [
    pytest.param({"quality": 80}, id="lossy"),
    pytest.param({"quality": 5, "method": 6}, id="coarse"),
    pytest.param({"lossless": True}, id="lossless"),
    pytest.param({"lossless": True, "exact": True, "quality": 100}, id="lossless-exact"),
]


@pytest.mark.parametrize("options", WEBPS)
@pytest.mark.parametrize("size", [(1, 1), (17, 33), (160, 120)])
@pytest.mark.parametrize("alpha", [False, True])
def test_a_decoded_webp_equals_pillow(
    options: dict[str, Any], size: tuple[int, int], alpha: bool
) -> None:
    image = texture(*size)
    if alpha:
        image.putalpha(texture(*size, seed=1).convert("L"))
    data = encoded(image, "WEBP", **options)
    ours = _core.decode_image(data, transform(width=size[0], height=size[1]))
    np.testing.assert_array_equal(ours, np.asarray(pillow(data)))


TIFFS = ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]


@needs_tiff
@pytest.mark.parametrize("compression", TIFFS)
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(1, 1), (61, 45), (333, 222)])
def test_tiffs_of_every_mode_equal_pillow(
    compression: str, mode: str, size: tuple[int, int]
) -> None:
    image = texture(*size)
    if mode.endswith("A"):
        image = image.convert(mode[:-1])
        image.putalpha(texture(*size, seed=1).convert("L"))
    else:
        image = image.convert(mode)
    data = encoded(image, "TIFF", compression=compression)
    ours = _core.decode_image(data, transform(width=size[0], height=size[1]))
    np.testing.assert_array_equal(ours, np.asarray(pillow(data)))


def cut_below(tiff: bytes, rows: int, height: int) -> bytes:
    """The same strips, in an image of fewer rows: as writers do that fill up the last strip."""
    at = int.from_bytes(tiff[4:8], "little")
    for entry in range(at + 2, at + 2 + 12 * int.from_bytes(tiff[at : at + 2], "little"), 12):
        if tiff[entry : entry + 2] == (257).to_bytes(2, "little"):  # ImageLength
            assert tiff[entry + 8 : entry + 10] == rows.to_bytes(2, "little")
            return tiff[: entry + 8] + height.to_bytes(2, "little") + tiff[entry + 10 :]
    raise AssertionError


@needs_tiff
@pytest.mark.parametrize("compression", [*TIFFS, "differences lzw", "differences adobe_deflate"])
@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA"])
def test_tiffs_with_rows_below_the_image_equal_pillow(compression: str, mode: str) -> None:
    tags = {278: 16}  # RowsPerStrip
    if compression.startswith("differences "):
        compression = compression.replace("differences ", "tiff_")
        tags[317] = 2  # Predictor
    for image in (texture(100, 48), texture(100, 48).resize((100, 1)).resize((100, 48))):
        data = encoded(image.convert(mode), "TIFF", compression=compression, tiffinfo=tags)
        for height in (47, 40, 33):
            cut = cut_below(data, 48, height)
            ours = _core.decode_image(cut, transform(width=100, height=height))
            np.testing.assert_array_equal(ours, np.asarray(pillow(cut)))


@needs_tiff
@pytest.mark.parametrize("compression", ["group3", "group4", "tiff_ccitt"])
def test_fax_tiffs_equal_pillow(compression: str) -> None:
    data = encoded(texture(333, 222).convert("1"), "TIFF", compression=compression)
    ours = _core.decode_image(data, transform(width=333, height=222))
    np.testing.assert_array_equal(ours, np.asarray(pillow(data)))


def with_tags(image: Image.Image, tags: dict[int, int]) -> bytes:
    """A TIFF whose first directory says so: for what Pillow does not write."""
    info = TiffImagePlugin.ImageFileDirectory_v2()
    for tag, value in tags.items():
        info[tag] = value
    return encoded(image, "TIFF", tiffinfo=info)


@needs_tiff
@pytest.mark.parametrize(
    ("image", "says"),
    [
        (encoded(texture(9, 7).convert("CMYK"), "TIFF"), "colours of CMYK"),
        (encoded(texture(9, 7), "TIFF", compression="jpeg"), "compression by JPEG"),
        (encoded(texture(9, 7).convert("F"), "TIFF"), "signed or floating-point"),
        (encoded(texture(9, 7).convert("I"), "TIFF"), "signed or floating-point"),
        (
            encoded(texture(9, 7), "TIFF", save_all=True, append_images=[texture(9, 7)]),
            "several pages",
        ),
        (with_tags(texture(9, 7), {274: 6}), "orientation 6"),
    ],
    ids=["cmyk", "jpeg", "float", "int", "pages", "turned"],
)
def test_tiffs_that_differ_are_refused_by_name(image: bytes, says: str) -> None:
    with pytest.raises(errors.DataLossError, match=f"TIFF image of 9 x 7 pixels: .*{says}.*Pillow"):
        _core.decode_image(image, transform(width=9, height=7))


@pytest.mark.skipif(_core.decodes_tiff, reason="a build with TIFF")
def test_a_build_without_tiff_says_so_and_leaves_it_to_pillow() -> None:
    data = encoded(texture(9, 7), "TIFF")
    with pytest.raises(errors.DataLossError, match="this build of headrace cannot decode TIFF: co"):
        _core.decode_image(data, transform(width=9, height=7))
    assert _core.is_image_of_other_kind(np.frombuffer(data, np.uint8))


@needs_tiff
def test_16_bit_grey_tiffs_keep_the_upper_byte() -> None:
    grey = np.random.default_rng(6).integers(0, 65536, size=(20, 30), dtype=np.uint16)
    data = encoded(Image.fromarray(grey), "TIFF")  # Pillow clips these at 255.
    ours = _core.decode_image(data, transform(width=30, height=20))
    np.testing.assert_array_equal(ours, np.repeat(grey[:, :, None] >> 8, 3, axis=2))


@pytest.mark.parametrize("kind", ["WEBP", TIFF])
def test_damaged_bytes_are_an_error_or_pixels(kind: str) -> None:
    """Pillow's files, as other programs write them, with some bytes changed."""
    rng = np.random.default_rng(7)
    options: list[dict[str, Any]] = (
        [{}, {"lossless": True}]
        if kind == "WEBP"
        else [{}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"}]
    )
    files = [encoded(texture(40, 30), kind, **each) for each in options]
    asked = transform(width=16, height=16, pixels_max=1 << 16)
    refused = 0
    for number in range(1500):
        data = bytearray(files[number % len(files)])
        for _ in range(rng.integers(1, 6)):
            data[rng.integers(len(data))] = rng.integers(256)
        try:
            _core.decode_image(bytes(data), asked)
        except (errors.DataLossError, errors.InvalidArgumentError):
            refused += 1
    assert 100 < refused < 1500


def png16(color_type: int, channels: int, samples: NDArray[np.uint16]) -> bytes:
    """A 16-bit PNG: Pillow writes only grey ones."""

    def chunk(name: bytes, body: bytes) -> bytes:
        checked = name + body
        return len(body).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")

    height, width = samples.shape[:2]
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([16, color_type, 0, 0, 0])
    rows = samples.astype(">u2").reshape(height, width * channels)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


def test_16_bit_colour_pngs_equal_pillow_and_grey_ones_keep_the_upper_byte() -> None:
    rng = np.random.default_rng(5)
    colour = rng.integers(0, 65536, size=(20, 30, 3), dtype=np.uint16)
    data = png16(2, 3, colour)
    ours = _core.decode_image(data, transform(width=30, height=20))
    np.testing.assert_array_equal(ours, np.asarray(pillow(data)))
    grey = png16(0, 1, colour[..., :1])  # Pillow clips these at 255, which is useless
    ours = _core.decode_image(grey, transform(width=30, height=20))
    np.testing.assert_array_equal(ours, np.repeat(colour[..., :1] >> 8, 3, axis=2))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((500, 375), (224, 224)),
        ((224, 224), (500, 375)),
        ((37, 91), (91, 37)),
        ((3, 3), (200, 100)),
        ((1000, 10), (7, 333)),
        ((640, 480), (640, 100)),
        ((640, 480), (100, 480)),
        ((1, 1), (5, 9)),
        ((301, 299), (1, 1)),
        ((400, 300), (399, 301)),
    ],
)
def test_resize_equals_pillow(source: tuple[int, int], target: tuple[int, int]) -> None:
    data = encoded(texture(*source), "PNG")
    ours = _core.decode_image(data, transform(width=target[0], height=target[1]))
    theirs = resized(pillow(data), target)
    np.testing.assert_array_equal(ours, np.asarray(theirs))


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (256, 256), (1000, 333), (257, 4001)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", TIFF])
def test_resize_and_centre_crop_equal_torchvision(size: tuple[int, int], kind: str) -> None:
    data = encoded(texture(*size), kind)
    ours = _core.decode_image(data, transform(resize_shorter=256, width=224, height=223))
    width, height = size
    short, long = min(size), max(size)
    longer = int(256 * long / short)
    whole = (256, longer) if width <= height else (longer, 256)
    image = resized(pillow(data), whole)
    left, top = round((whole[0] - 224) / 2.0), round((whole[1] - 223) / 2.0)
    theirs = image.crop((left, top, left + 224, top + 223))
    np.testing.assert_array_equal(ours, np.asarray(theirs))


@pytest.mark.parametrize("size", [(500, 375), (64, 700), (2000, 90), (48, 48)])
@pytest.mark.parametrize("subsampling", ["4:2:0", "4:2:2", "4:4:4"])
def test_random_resized_crop_and_flip_equal_torchvision(
    size: tuple[int, int], subsampling: str
) -> None:
    scale, ratio = (0.08, 1.0), (3 / 4, 4 / 3)
    data = encoded(texture(*size), "JPEG", quality=88, subsampling=subsampling)
    full = pillow(data)
    asked = transform(
        random_resized_crop=(scale, ratio), flip_probability=0.5, width=112, height=96
    )
    flips = 0
    for sample in range(40):
        draws = Draws(seed=2**40 + 7, epoch=3, sample=sample)
        left, top, w, h = drawn_box(draws, size, scale, ratio)
        theirs = full.crop((left, top, left + w, top + h))
        theirs = resized(theirs, (112, 96))
        if draws.uniform() < 0.5:
            flips += 1
            theirs = theirs.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        ours = _core.decode_image(data, asked, seed=2**40 + 7, epoch=3, sample=sample)
        np.testing.assert_array_equal(ours, np.asarray(theirs), err_msg=f"sample {sample}")
    assert 0 < flips < 40


def test_normalised_floats_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    data = encoded(texture(90, 70), "JPEG")
    asked = transform(width=90, height=70, to_float=True, mean=mean, std=std, channels_first=True)
    ours = _core.decode_image(data, asked)
    pixels = torch.from_numpy(np.array(pillow(data))).permute(2, 0, 1).contiguous()
    theirs = pixels.to(torch.float32).div(255)
    theirs.sub_(torch.tensor(mean).view(-1, 1, 1)).div_(torch.tensor(std).view(-1, 1, 1))
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, theirs.numpy())


@pytest.mark.parametrize(
    "options", [{}, {"restart_marker_blocks": 5}, {"progressive": True}], ids=str
)
def test_without_an_end_marker_the_page_says_what_is_accepted(options: dict[str, Any]) -> None:
    data = encoded(texture(300, 200), "JPEG", **options)
    whole = np.asarray(pillow(data))
    asked = transform(width=300, height=200)
    assert data.endswith(b"\xff\xd9")
    for end, pillow_accepts in (
        (b"", False),
        (b"\xff", False),
        (bytes(40), True),
        (b"junk" * 9, True),
    ):
        cut = data[:-2] + end
        if options.get("progressive"):
            with pytest.raises(errors.DataLossError, match="several scans without end marker"):
                _core.decode_image(cut, asked)
        else:
            np.testing.assert_array_equal(_core.decode_image(cut, asked), whole)
        if pillow_accepts and not options.get("progressive"):
            np.testing.assert_array_equal(np.asarray(pillow(cut)), whole)
        else:
            with pytest.raises(OSError, match="truncated"):
                pillow(cut)
    with pytest.raises(errors.DataLossError):
        _core.decode_image(data[:-3], asked)
    png = encoded(texture(300, 200), "PNG")
    assert png[-8:-4] == b"IEND"
    np.testing.assert_array_equal(
        _core.decode_image(png[:-12], asked), np.asarray(pillow(png[:-12]))
    )


def test_a_truncated_image_raises() -> None:
    data = encoded(texture(300, 200), "JPEG")
    with pytest.raises(Exception, match="premature end of data segment"):
        _core.decode_image(data[: len(data) // 2], transform(width=300, height=200))
