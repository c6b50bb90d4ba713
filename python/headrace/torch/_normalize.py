"""Normalises images on the network's device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from headrace._arguments import choice, items, shown
from headrace._signature import named_arguments
from headrace.errors import InvalidArgumentError
from headrace.image import check_of_pixels

_LAYOUTS = ("NCHW", "NHWC")


def _numbers(name: str, values: Any) -> list[float]:
    numbers = items(name, values, "numbers, one a channel")
    try:
        return [float(number) for number in numbers]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"{name}: got {shown(values)}, must be numbers, one a channel"
        ) from None


class Normalize:
    """Converts uint8 images to floating-point ones on the device: (value / 255 - mean) / std.

    Refuses images of another dtype when it is called: make images with ``dtype="uint8"``. Without
    it, `headrace.image` makes float32 images, normalized by its own `mean` and `std`.

    It computes in float32, as `headrace.image` does, then converts to `dtype`. Copies of uint8
    images take a quarter of the bandwidth of float32 ones.

    Args:
        mean, std: of each channel, of values in [0, 1].
        dtype: of the result.
        given: layout of the images in a batch, "NCHW" or "NHWC".
        layout: of the result. A change copies nothing: a view of NHWC as NCHW is torch's
            ``channels_last``.
    """

    @named_arguments
    def __init__(
        self,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        std: Sequence[float] = (0.229, 0.224, 0.225),
        *,
        dtype: torch.dtype = torch.float32,
        given: str = "NCHW",
        layout: str = "NCHW",
    ) -> None:
        mean, std = _numbers("mean", mean), _numbers("std", std)
        if len(mean) != len(std) or not all(value > 0 for value in std):
            raise InvalidArgumentError(
                f"mean={mean!r}, std={std!r}: must be as many as channels, and std above 0"
            )
        for name, values in (("mean", mean), ("std", std)):
            check_of_pixels(name, values)
        any_dtype: Any = dtype
        if not isinstance(any_dtype, torch.dtype) or not dtype.is_floating_point:
            raise InvalidArgumentError(
                f"dtype: got {dtype!r}, must be a floating-point torch.dtype"
            )
        self._scale = torch.tensor([1 / (255 * value) for value in std])
        self._shift = torch.tensor([-a / b for a, b in zip(mean, std, strict=True)])
        self._dtype = dtype
        self._input_layout = choice("given", given, _LAYOUTS)
        self._layout = choice("layout", layout, _LAYOUTS)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        if images.dtype != torch.uint8:
            raise InvalidArgumentError(
                f"normalizing images of {images.dtype}: must be uint8, such as "
                'hr.image.train(224, dtype="uint8") makes; floating-point ones are normalized'
            )
        images = images.movedim(self._input_layout.index("C"), -1)
        if images.shape[-1] != len(self._scale):
            raise InvalidArgumentError(
                f"normalizing images of {images.shape[-1]} channels in layout "
                f"{self._input_layout}: mean and std are of {len(self._scale)}; give as many"
            )
        if self._scale.device != images.device:  # Once.
            self._scale, self._shift = self._scale.to(images.device), self._shift.to(images.device)
        made = torch.addcmul(self._shift, images.to(torch.float32), self._scale).to(self._dtype)
        return made.movedim(-1, self._layout.index("C"))
