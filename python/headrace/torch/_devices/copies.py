"""Copies of tensors to a device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from headrace.errors import FailedPreconditionError, InvalidArgumentError


class Copies(Protocol):
    """A queue of copies to a device. A mark tells whether the copies before it are done."""

    def queue(self) -> AbstractContextManager[Any]:
        """Queues the operations inside the `with` block."""

    def move(self, tensor: torch.Tensor) -> torch.Tensor:
        """Queues a copy. `tensor` must live until a later mark is done."""

    def mark(self) -> Any:
        """A mark that is done when everything queued so far is done."""

    def hand_over(self, mark: Any, tensors: Sequence[torch.Tensor]) -> None:
        """Makes the caller's later operations on these tensors wait for `mark`."""

    def is_done(self, mark: Any) -> bool: ...

    def wait(self, mark: Any) -> None: ...


class AtOnce:
    """Copies on the CPU, which are done at once."""

    def queue(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def move(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()

    def mark(self) -> Any:
        return None

    def hand_over(self, mark: Any, tensors: Sequence[torch.Tensor]) -> None: ...

    def is_done(self, mark: Any) -> bool:
        return True

    def wait(self, mark: Any) -> None: ...


class CudaCopies:
    """Copies on a CUDA stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda: Any = torch.cuda
        self._stream = self._cuda.Stream(device)

    def queue(self) -> AbstractContextManager[Any]:
        queued: AbstractContextManager[Any] = self._cuda.stream(self._stream)
        return queued

    def move(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_cuda:  # The operation that makes the tensor may still run.
            self._stream.wait_stream(self._cuda.default_stream(tensor.device))
        # A copy from pageable memory waits for the device; torch reuses its pinned memory.
        pinned = tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory()
        return pinned.to(self._device, non_blocking=True)

    def mark(self) -> Any:
        event = self._cuda.Event()
        event.record(self._stream)
        return event

    def hand_over(self, mark: Any, tensors: Sequence[torch.Tensor]) -> None:
        stream = self._cuda.current_stream(self._device)
        stream.wait_event(mark)
        for tensor in tensors:
            tensor.record_stream(stream)  # Its memory is not reused for copies before that is done.

    def is_done(self, mark: Any) -> bool:
        return bool(mark.query())

    def wait(self, mark: Any) -> None:
        mark.synchronize()


def copies_to(device: torch.device) -> Copies:
    if device.type == "cpu":
        return AtOnce()
    if device.type != "cuda":
        raise InvalidArgumentError(f"device: got {device}, must be cpu or cuda")
    if not torch.cuda.is_available():
        raise FailedPreconditionError(
            f"copying batches to {device}: torch finds no CUDA device; give 'cpu', or see why "
            "torch.cuda.is_available() is False"
        )
    return CudaCopies(device)
