"""Version 2: of tv_tensors, and of Pillow images."""

from torchvision.transforms.v2._all import (
    CenterCrop,
    Compose,
    Lambda,
    RandomHorizontalFlip,
    ToDtype,
    ToImage,
    ToTensor,
    Transform,
)

__all__ = [
    "CenterCrop",
    "Compose",
    "Lambda",
    "RandomHorizontalFlip",
    "ToDtype",
    "ToImage",
    "ToTensor",
    "Transform",
]
