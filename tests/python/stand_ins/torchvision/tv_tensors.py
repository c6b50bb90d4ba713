"""Tensors that say what they are."""

from __future__ import annotations

from typing import Any

import torch


class Image(torch.Tensor):
    """(..., channel, height, width)."""

    def __new__(cls, data: Any) -> Image:
        tensor = torch.as_tensor(data)
        assert tensor.ndim >= 2
        return tensor.as_subclass(cls)
