"""Encoded images as arrays, for Python transforms."""

from __future__ import annotations

import importlib.util
import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._files.images import BEGIN_BYTES, other_format

Pixels = NDArray[np.uint8]

_PIXELS_MAX = _core.ImageTransform().pixels_max


def decode_image(encoded: Pixels) -> Pixels:
    """The pixels of one encoded image: uint8, (height, width, 3), RGB.

    By headrace's own decoders (`headrace docs codec`); BMP, PNM, GIF, AVIF and others, and kinds of
    WebP and TIFF that these refuse, by Pillow, if it is installed and reads them: the first frame.

    Raises:
        DataLossError: the image is of no such format, or damaged.
        InvalidArgumentError: it has more pixels than the decoder allows.
    """
    if _core.is_image_of_other_kind(encoded):
        return _by_pillow(encoded, "of a kind that headrace does not decode")
    try:
        return _core.decode_pixels(encoded)
    except DataLossError:
        other = other_format(encoded[:BEGIN_BYTES].tobytes())
        if other is None:
            raise
    return _by_pillow(encoded, f"{other}, which headrace does not decode")


def decoded_sample(
    sample: dict[str, Any], kind: Callable[[str], str], reading: Callable[[str], str]
) -> dict[str, Any]:
    """A sample as it is stored, with its images decoded.

    Raises: as `decode_image`, with what `reading` says of the field in front.
    """
    made = dict(sample)
    for name, value in sample.items():
        if kind(name) == "image":
            try:
                made[name] = decode_image(np.frombuffer(value, np.uint8))
            except (DataLossError, InvalidArgumentError) as error:
                error.args = (f"{reading(name)}: {error}",)
                raise
    return made


def decoded_columns(
    columns: Sequence[Iterable[Any]], positions: Iterable[int]
) -> list[Iterable[Any]]:
    """The columns of some samples, with the images of those at `positions` decoded one by one."""
    wanted = set(positions)
    return [
        map(decode_image, column) if position in wanted else column
        for position, column in enumerate(columns)
    ]


def pillow_is_installed() -> bool:
    """Whether images can be decoded that headrace's own decoders refuse."""
    return importlib.util.find_spec("PIL") is not None


def _by_pillow(encoded: Pixels, what: str) -> Pixels:
    doing = f"decoding image of {len(encoded)} bytes, {what}"
    try:
        from PIL import Image
    except ImportError:
        raise DataLossError(
            f"{doing}: Pillow would, which is not installed: pip install pillow"
        ) from None
    try:
        with warnings.catch_warnings():
            # For images within the limit here.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(encoded.tobytes()))
        with image:
            if image.width * image.height > _PIXELS_MAX:
                raise _too_large(doing, f"{image.width} x {image.height} pixels")
            if image.mode == "I" or image.mode.startswith("I;16"):
                return _upper_bits(np.asarray(image))
            return np.array(image.convert("RGB"))
    except Image.DecompressionBombError as error:
        raise _too_large(doing, str(error)) from error
    except (MemoryError, InvalidArgumentError):
        raise
    except Exception as error:  # For damaged files Pillow raises many types.
        raise DataLossError(
            f"{doing}: Pillow says: {error}; replace the file if it is damaged, or convert it to "
            "JPEG or PNG"
        ) from error


def _too_large(doing: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{doing}: more pixels than are decoded (pixels_max is {_PIXELS_MAX}): {why}; cut or "
        "resize the file"
    )


def _upper_bits(grey: NDArray[Any]) -> Pixels:
    """Converts 16-bit grey, as PNG is converted; Pillow's own conversion clips at 255."""
    upper = (np.clip(grey, 0, 0xFFFF).astype(np.uint16) >> 8).astype(np.uint8)
    return np.repeat(upper[:, :, None], 3, axis=2)
