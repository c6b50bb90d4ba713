"""A value of an unknown type passes through a transform unchanged, as in torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow

from torchvision import tv_tensors


class Transform(torch.nn.Module):
    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        raise NotImplementedError

    def forward(self, *inputs: Any) -> Any:
        made = tuple(
            self.transform(each, {}) if isinstance(each, (tv_tensors.Image, Pillow.Image)) else each
            for each in inputs
        )
        return made if len(made) > 1 else made[0]


class Compose(Transform):
    def __init__(self, transforms: list[Any]) -> None:
        super().__init__()
        self.transforms = transforms

    def forward(self, *inputs: Any) -> Any:
        unpack = len(inputs) > 1
        for each in self.transforms:
            made = each(*inputs)
            inputs = made if unpack else (made,)
        return made


class Lambda(Transform):
    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        super().__init__()
        self.lambd = lambd

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return self.lambd(inpt)


class CenterCrop(Transform):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        height, width = inpt.shape[-2:]
        top, left = (height - self.size) // 2, (width - self.size) // 2
        cut = inpt[..., top : top + self.size, left : left + self.size]
        return tv_tensors.Image(cut)


class RandomHorizontalFlip(Transform):
    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return tv_tensors.Image(inpt.flip(-1)) if torch.rand(1) < self.p else inpt


class ToImage(Transform):
    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if isinstance(inpt, Pillow.Image):
            inpt = torch.from_numpy(np.array(inpt)).permute(2, 0, 1)
        return tv_tensors.Image(inpt)


class ToTensor(Transform):
    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if not isinstance(inpt, Pillow.Image):
            return inpt
        return torch.from_numpy(np.array(inpt)).permute(2, 0, 1).float() / 255


class ToDtype(Transform):
    def __init__(self, dtype: torch.dtype, scale: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.scale = scale

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        made = inpt.to(self.dtype)
        return tv_tensors.Image(made / 255 if self.scale and not inpt.is_floating_point() else made)
