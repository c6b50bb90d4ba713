"""Version 1: of Pillow images."""

from torchvision.transforms.transforms import Compose, Lambda, RandomHorizontalFlip, ToTensor

__all__ = ["Compose", "Lambda", "RandomHorizontalFlip", "ToTensor"]
