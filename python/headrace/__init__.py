"""Headrace: training samples at the speed of the storage, in the order you asked for.

>>> import headrace as hr
>>> dataset = hr.open("/data/images")
>>> for image, label in hr.Loader(dataset, batch_size=256, transform=hr.image.train(224)):
...     ...
"""

from headrace import errors, image, orders, profile, tiers
from headrace._dataset import Dataset
from headrace._dataset import open_dataset as open
from headrace._loader import Loader
from headrace._workers import Padded, Sample
from headrace.errors import HeadraceError

__all__ = [
    "Dataset",
    "HeadraceError",
    "Loader",
    "Padded",
    "Sample",
    "errors",
    "image",
    "open",
    "orders",
    "profile",
    "tiers",
]
