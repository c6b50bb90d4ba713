"""Batches in pinned memory, from which a GPU copies without the CPU."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory


class Pinning:
    """Copies a batch to pinned memory.

    Thread safety: any thread, several at once. Other threads than the one that made it work for
    the device that was current there: a thread of its own would begin to use device 0.
    """

    def __init__(self, kind: str) -> None:
        """`kind`: of the device, such as "cuda"."""
        self._kind = kind
        self._owner = threading.get_ident()
        self._backend: Any = getattr(torch, kind, None)
        self._device: int | None = None
        if self._backend is not None and hasattr(self._backend, "set_device"):
            self._device = self._backend.current_device()

    @classmethod
    def here(cls) -> Pinning | None:
        """None, with torch's warning, if torch finds no accelerator."""
        kind = _accelerator()
        if kind is not None:
            return cls(kind)
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, "
            "then device pinned memory won't be used.",
            stacklevel=5,
        )
        return None

    def __call__(self, batch: Any) -> Any:
        if self._device is not None and threading.get_ident() != self._owner:
            self._backend.set_device(self._device)
        return pin_memory(batch, self._kind)  # type: ignore[no-untyped-call]


def _accelerator() -> str | None:
    """The kind of device for which memory is pinned, if there is one."""
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is None:  # torch before 2.6
        return "cuda" if torch.cuda.is_available() else None
    device = accelerator.current_accelerator() if accelerator.is_available() else None
    return None if device is None else str(device.type)
