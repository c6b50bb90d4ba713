"""Image transforms that run in C++, from the encoded bytes straight into the batch.

>>> import headrace as hr
>>> hr.image.train(224)
ImageTransform(size=(224, 224), random_crop_scale=(0.08, 1.0), ...)

Geometry is torchvision's, resampling Pillow's (bilinear, antialiased). Random choices are keyed
by (seed, epoch, sample): they do not depend on threads, ranks, or resumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headrace import _core
from headrace._arguments import flag, integer, shown, whole
from headrace._signature import named_arguments, named_fields
from headrace.errors import InvalidArgumentError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Size = int | tuple[int, int]

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "ImageTransform", "evaluate", "resize", "train"]

_FACTORIES = ("train", "evaluate", "resize")


@named_fields
@dataclass(frozen=True, kw_only=True)
class ImageTransform:
    """The transform of an encoded image (JPEG, PNG, WebP, TIFF) to one row of a batch.

    The steps, in this order: a random resized crop, or a resize of the shorter side and a centre
    crop, or a plain resize; a horizontal flip; conversion and normalisation; layout.
    """

    size: tuple[int, int]
    """(height, width) of the row, in pixels."""
    random_crop_scale: tuple[float, float] | None = None
    """RandomResizedCrop: the interval of the box's share of the area; None: no random crop."""
    random_crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """RandomResizedCrop: the interval of width / height."""
    resize_shorter: int | None = None
    """Resize the shorter side to this and take the centre; None: resize to `size`."""
    flip: float = 0.0
    """Probability of a horizontal flip."""
    mean: tuple[float, float, float] | None = None
    """Per channel, of values in [0, 1]; None: not normalised."""
    std: tuple[float, float, float] | None = None
    dtype: Literal["float32", "uint8"] = "float32"
    """float32 in [0, 1], then normalised; or uint8 as decoded."""
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    exact: bool = False
    """True: every pixel as in Pillow's full decode. False: the decoder may downscale to at least
    four times the wanted resolution, and values differ by at most 5 of 255 on photographs."""

    def to_core(self) -> _core.ImageTransform:
        """The core's form; private to headrace."""
        if self.dtype not in ("float32", "uint8"):
            raise InvalidArgumentError(f"image dtype {self.dtype!r}: must be 'float32' or 'uint8'")
        if self.layout not in ("NCHW", "NHWC"):
            raise InvalidArgumentError(f"image layout {self.layout!r}: must be 'NCHW' or 'NHWC'")
        normalised = self.mean is not None or self.std is not None
        if normalised and self.dtype == "uint8":
            raise InvalidArgumentError(
                "image mean/std with dtype 'uint8': normalised values are not integers; leave them "
                "out or use dtype='float32'"
            )
        core = _core.ImageTransform()
        core.height, core.width = _pair(self.size)
        if self.random_crop_scale is not None:
            crop = _core.RandomResizedCrop()
            crop.scale = list(_interval(self.random_crop_scale, "scale"))
            crop.ratio = list(_interval(self.random_crop_ratio, "ratio"))
            core.random_resized_crop = crop
        core.resize_shorter = integer("image resize_shorter", self.resize_shorter or 0, 0, 65535)
        core.flip_probability = _probability(self.flip, "flip")
        core.to_float = self.dtype == "float32"
        core.mean = list(_of_pixels(self.mean, "mean") or (0.0, 0.0, 0.0))
        core.std = list(_of_pixels(self.std, "std") or (1.0, 1.0, 1.0))
        core.channels_first = self.layout == "NCHW"
        core.exact = flag("image exact", self.exact)
        return core


def factory_name(function: object) -> str | None:
    """The name of a function of this module that makes a transform; None for anything else."""
    return next((name for name in _FACTORIES if function is globals()[name]), None)


def _pair(size: object) -> tuple[int, int]:
    match [whole(side) for side in (size if isinstance(size, Sequence) else (size, size))]:
        case (int(height), int(width)) if 1 <= height <= 65535 and 1 <= width <= 65535:
            return height, width
    raise InvalidArgumentError(
        f"image size {size!r}: must be pixels, or (height, width), in [1, 65535]"
    )


def _probability(value: Any, name: str) -> float:
    is_number = isinstance(value, (int, float, np.number)) and type(value) is not bool
    number = float(value) if is_number else -1.0
    if not 0 <= number <= 1:
        raise InvalidArgumentError(f"image {name} {shown(value)}: must be a number in [0, 1]")
    return number


def _are_numbers(values: object, count: int) -> bool:
    return (
        isinstance(values, Sequence)
        and len(values) == count
        and all(isinstance(value, (int, float)) for value in values)
    )


def _interval(values: tuple[float, float], name: str) -> tuple[float, float]:
    if not _are_numbers(values, 2):
        raise InvalidArgumentError(f"image {name} {values!r}: must be two numbers, an interval")
    return float(values[0]), float(values[1])


def _triple(values: Sequence[float] | None, name: str) -> tuple[float, float, float] | None:
    if values is None:
        return None
    if not _are_numbers(values, 3):
        raise InvalidArgumentError(f"image {name} {values!r}: must be 3 numbers, one a channel")
    return float(values[0]), float(values[1]), float(values[2])


def _of_pixels(values: Sequence[float] | None, name: str) -> tuple[float, float, float] | None:
    """As `_triple`, of values in [0, 1]."""
    triple = _triple(values, name)
    if triple is not None:
        check_of_pixels(f"image {name}", triple)
    return triple


def check_of_pixels(name: str, values: Sequence[float]) -> None:
    """Refuses a mean or a standard deviation of pixels in [0, 255]; private to headrace."""
    if max(values) > 1:
        scaled = tuple(round(value / 255, 4) for value in values)
        raise InvalidArgumentError(
            f"{name} {tuple(values)!r}: must be at most 1, as the values of pixels, which are in "
            f"[0, 1] when they are normalised; of values in [0, 255] it is {scaled!r}"
        )


@named_arguments
def train(
    size: Size,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    flip: float = 0.5,
    mean: Sequence[float] | None = IMAGENET_MEAN,
    std: Sequence[float] | None = IMAGENET_STD,
    dtype: Literal["float32", "uint8"] = "float32",
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    exact: bool = False,
) -> ImageTransform:
    """RandomResizedCrop, horizontal flip, normalisation: usual in training on photographs."""
    if dtype == "uint8" and mean is IMAGENET_MEAN and std is IMAGENET_STD:
        mean = std = None  # The defaults are for floats.
    return ImageTransform(
        size=_pair(size),
        random_crop_scale=_interval(scale, "scale"),
        random_crop_ratio=_interval(ratio, "ratio"),
        flip=flip,
        mean=_of_pixels(mean, "mean"),
        std=_of_pixels(std, "std"),
        dtype=dtype,
        layout=layout,
        exact=exact,
    )


@named_arguments
def evaluate(
    size: Size,
    *,
    resize_shorter: int | None = None,
    mean: Sequence[float] | None = IMAGENET_MEAN,
    std: Sequence[float] | None = IMAGENET_STD,
    dtype: Literal["float32", "uint8"] = "float32",
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    exact: bool = False,
) -> ImageTransform:
    """Resize of the shorter side (by default 256/224 of `size`), centre crop, normalisation."""
    height, width = _pair(size)
    if dtype == "uint8" and mean is IMAGENET_MEAN and std is IMAGENET_STD:
        mean = std = None  # The defaults are for floats.
    return ImageTransform(
        size=(height, width),
        resize_shorter=resize_shorter or max(height, width) * 256 // 224,
        mean=_of_pixels(mean, "mean"),
        std=_of_pixels(std, "std"),
        dtype=dtype,
        layout=layout,
        exact=exact,
    )


@named_arguments
def resize(
    size: Size,
    *,
    flip: float = 0.0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    dtype: Literal["float32", "uint8"] = "float32",
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    exact: bool = False,
) -> ImageTransform:
    """Resize of the whole image to `size`, whatever its aspect."""
    return ImageTransform(
        size=_pair(size),
        flip=flip,
        mean=_of_pixels(mean, "mean"),
        std=_of_pixels(std, "std"),
        dtype=dtype,
        layout=layout,
        exact=exact,
    )
