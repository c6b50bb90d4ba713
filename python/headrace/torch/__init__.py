"""What needs PyTorch: workers of its DataLoader that take their samples from a Loader.

>>> import headrace.torch
"""

from headrace.torch._stream import SampleStream

__all__ = ["SampleStream"]
