"""Parts that need PyTorch: a Loader's samples for the workers of torch's DataLoader, and batches
that are copied to a device ahead of the training loop. `headrace docs torch`.

>>> import headrace.torch
"""

from headrace.torch._device import DeviceBatches
from headrace.torch._normalize import Normalize
from headrace.torch._stream import SampleStream

__all__ = ["DeviceBatches", "Normalize", "SampleStream"]
