"""Parts that need PyTorch: a DataLoader in place of torch's; batches that are copied to a device
ahead of the training loop. `headrace docs torch`, `headrace docs dataloader`.

>>> import headrace.torch
"""

from typing import TYPE_CHECKING, NoReturn

from headrace._process.former import no_attribute
from headrace.torch._dataloader.epochs.epoch_sampler import EpochSampler
from headrace.torch._dataloader.epochs.seeds import sample_rng
from headrace.torch._dataloader.loader import DataLoader
from headrace.torch._devices.batches import DeviceBatches
from headrace.torch._normalize import Normalize
from headrace.torch._trainers.loader import TrainerLoader

__all__ = [
    "DataLoader",
    "DeviceBatches",
    "EpochSampler",
    "Normalize",
    "TrainerLoader",
    "sample_rng",
]

if not TYPE_CHECKING:  # A type checker knows all names.

    def __getattr__(name: str) -> NoReturn:
        raise no_attribute(__name__, name)
