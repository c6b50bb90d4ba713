"""Rows of a batch as small pictures."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace._dataset.decoding import decode_image

Pixels = NDArray[np.uint8]

_SIDE_MAX = 128  # pixels of a picture's longer side
_SIDE_MIN = 48  # shown for smaller pictures
_CHANNELS = (1, 3, 4)
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\0", b"MM\0*", b"GIF8", b"BM")


class Scale(NamedTuple):
    """The values that are shown black and white."""

    low: float
    high: float


class Picture(NamedTuple):
    """What a page shows."""

    address: str
    width: int
    height: int


def is_encoded(value: NDArray[Any]) -> bool:
    """Whether the bytes are those of an image's file."""
    if value.dtype != np.uint8 or value.ndim != 1 or len(value) < 16:
        return False
    head = value[:16].tobytes()
    return head.startswith(_SIGNATURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def is_image(row: NDArray[Any]) -> bool:
    """Whether an array may be an image: height, width and 1, 3 or 4 channels, or these first."""
    if row.ndim != 3 or 0 in row.shape or row.dtype.kind not in "uif":
        return False
    return row.shape[0] in _CHANNELS or row.shape[2] in _CHANNELS


def scale_of(rows: NDArray[Any]) -> Scale | None:
    """How to show the values of images; None: as they are, bytes, or shares from 0 to 1."""
    if rows.dtype == np.uint8 or rows.size == 0:
        return None
    finite = rows[np.isfinite(rows)] if rows.dtype.kind == "f" else rows
    if finite.size == 0:
        return None
    low, high = float(finite.min()), float(finite.max())
    if rows.dtype.kind == "f" and low >= 0 and high <= 1:
        return None
    return Scale(low, high)


def picture_of(row: NDArray[Any], scale: Scale | None) -> Picture:
    """A picture of an image, decoded or encoded.

    Raises DataLossError or InvalidArgumentError if it cannot be decoded.
    """
    if row.ndim == 1:
        pixels = decode_image(np.ascontiguousarray(row))
    else:
        pixels = _as_bytes(_channels_last(row), scale)
    pixels = _shrunk(pixels)
    height, width = pixels.shape[:2]
    times = max(1, -(-_SIDE_MIN // max(height, width)))
    encoded = base64.b64encode(png(pixels)).decode()
    return Picture(f"data:image/png;base64,{encoded}", width * times, height * times)


def png(pixels: Pixels) -> bytes:
    """A PNG file of pixels: (height, width, 1, 3 or 4)."""
    height, width, channels = pixels.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    rows = pixels.reshape(height, width * channels)
    unfiltered = np.zeros((height, 1 + width * channels), np.uint8)
    unfiltered[:, 1:] = rows
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(unfiltered.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def _channels_last(row: NDArray[Any]) -> NDArray[Any]:
    """Both may be channels, as in 3 x 64 x 3: then the first are, as in a loader's batches."""
    return row.transpose(1, 2, 0) if row.shape[0] in _CHANNELS else row


def _as_bytes(image: NDArray[Any], scale: Scale | None) -> Pixels:
    if image.dtype == np.uint8:
        return image
    values = np.nan_to_num(image.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    low, high = scale if scale is not None else Scale(0.0, 1.0)
    shares = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return (np.clip(shares, 0, 1) * 255).round().astype(np.uint8)


def _shrunk(pixels: Pixels) -> Pixels:
    """Averages over squares, so that the longer side has at most _SIDE_MAX pixels."""
    height, width, channels = pixels.shape
    by = -(-max(height, width) // _SIDE_MAX)
    if by == 1:
        return np.ascontiguousarray(pixels)
    rows, columns = max(1, height // by), max(1, width // by)
    cut = pixels[: rows * by, : columns * by]
    down, across = min(by, height), min(by, width)
    squares = cut.reshape(rows, down, columns, across, channels)
    averages: NDArray[np.float64] = squares.mean(axis=(1, 3))
    return averages.round().astype(np.uint8)
