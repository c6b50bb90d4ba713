"""As torchvision.transforms.transforms: each takes one image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps


class Compose:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for each in self.transforms:
            img = each(img)
        return img


class Lambda:
    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)


class RandomHorizontalFlip(torch.nn.Module):
    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return ImageOps.mirror(img) if torch.rand(1) < self.p else img


class ToTensor:
    def __call__(self, pic: Any) -> torch.Tensor:
        if not isinstance(pic, Image.Image):
            raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
        return torch.from_numpy(np.array(pic)).permute(2, 0, 1).float() / 255
