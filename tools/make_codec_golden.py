#!/usr/bin/env python3
"""Writes src/codec/image/testdata/pillow_golden.inc: encoded images and what Pillow makes of them.

    python3 tools/make_codec_golden.py > src/codec/image/testdata/pillow_golden.inc

The C++ tests cannot call Pillow; tests/python/test_codec_vs_pillow.py compares with it live, on
many more and larger images. Needs Pillow 13 or newer (the order of the passes, docs/codec.md).
"""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import PIL
from PIL import Image

WIDTH_OF_LINE = 96


def texture(width: int, height: int) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    channels = [(x * 9 + y * 4) % 256, (x // 3 ^ y // 2) * 25 % 256, (y * 11 + x * x) % 256]
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8), "RGB")


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def resize(image: Image.Image, width: int, height: int) -> Image.Image:
    return image.resize((width, height), Image.Resampling.BILINEAR)


def literal(data: bytes) -> str:
    digits = data.hex()
    lines = [digits[i : i + WIDTH_OF_LINE] for i in range(0, len(digits), WIDTH_OF_LINE)]
    return "\n".join(f'  "{line}"' for line in lines)


def case(name: str, data: bytes, size: tuple[int, int], shorter: int = 0) -> str:
    width, height = size
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if shorter == 0:
        expected = resize(image, width, height)
    else:
        short, long = min(image.size), max(image.size)
        longer = int(shorter * long / short)
        whole = (shorter, longer) if image.width <= image.height else (longer, shorter)
        left, top = round((whole[0] - width) / 2.0), round((whole[1] - height) / 2.0)
        expected = resize(image, *whole).crop((left, top, left + width, top + height))
    return (
        f'{{"{name}", {width}, {height}, {shorter},\n'
        f"{literal(data)},\n{literal(expected.tobytes())}}},\n"
    )


def main() -> None:
    if int(PIL.__version__.split(".")[0]) < 13:
        sys.exit(f"make_codec_golden: Pillow {PIL.__version__}, need 13 or newer")
    rgb = texture(24, 20)
    jpeg: dict[str, Any] = {"quality": 75, "optimize": True}
    alpha = rgb.copy()
    alpha.putalpha(rgb.convert("L"))
    images = [
        ("JPEG 4:2:0", encode(rgb, "JPEG", subsampling="4:2:0", **jpeg), (24, 20), 0),
        ("JPEG 4:2:2", encode(rgb, "JPEG", subsampling="4:2:2", **jpeg), (24, 20), 0),
        ("JPEG 4:4:4", encode(rgb, "JPEG", subsampling="4:4:4", **jpeg), (24, 20), 0),
        ("progressive JPEG", encode(rgb, "JPEG", progressive=True, **jpeg), (24, 20), 0),
        ("grey JPEG", encode(rgb.convert("L"), "JPEG", **jpeg), (24, 20), 0),
        ("CMYK JPEG", encode(rgb.convert("CMYK"), "JPEG", **jpeg), (24, 20), 0),
        ("JPEG shrunk", encode(rgb, "JPEG", **jpeg), (9, 7), 0),
        ("JPEG enlarged", encode(texture(9, 7), "JPEG", **jpeg), (17, 13), 0),
        ("JPEG shorter and centre", encode(texture(40, 24), "JPEG", **jpeg), (11, 12), 13),
        ("tall PNG, rows first", encode(texture(10, 60), "PNG"), (11, 13), 0),
        ("wide PNG", encode(texture(60, 10), "PNG"), (13, 11), 0),
        ("palette PNG", encode(rgb.quantize(8), "PNG"), (12, 10), 0),
        ("PNG with alpha", encode(alpha, "PNG"), (12, 10), 0),
        ("one-bit PNG", encode(rgb.convert("1"), "PNG"), (24, 20), 0),
    ]
    print(
        "// Written by tools/make_codec_golden.py: do not edit. Name, width, height, "
        "resize_shorter,"
    )
    print("// the encoded image, and its red, green and blue bytes as Pillow makes them.")
    for image in images:
        print(case(*image), end="")


if __name__ == "__main__":
    main()
