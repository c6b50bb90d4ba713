"""A batch of any type as bytes that lie in memory of several processes, and back.

A pickle, of which the memory of tensors and large arrays are parts of their own. A tensor comes
back with its strides, and tensors that were views of one memory are so again.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_INLINE_BYTES_MAX = 2 * 1024
"""Larger memory is a part of its own."""
_ALIGNMENT = 64
_SPREAD_MAX = 4
"""Of a tensor's memory, so many times its elements' bytes are sent to keep its strides; more is
packed closely."""

Bytes = NDArray[np.uint8]


def pack(value: Any, parts_max: int) -> list[Bytes]:
    """At most so many parts: the pickle first. Raises: whatever pickling raises."""
    return _pack(value, parts_max, frozenset())


def _pack(value: Any, parts_max: int, apart: frozenset[int]) -> list[Bytes]:
    """`apart`: addresses of memory of which each tensor's part is sent by itself."""
    buffers: list[pickle.PickleBuffer] = []

    def is_inline(buffer: pickle.PickleBuffer) -> bool:
        small = buffer.raw().nbytes <= _INLINE_BYTES_MAX or len(buffers) >= parts_max // 2
        if not small:
            buffers.append(buffer)
        return small

    target = io.BytesIO()
    pickler = _Pickler(target, protocol=5, buffer_callback=is_inline)
    pickler.apart = apart
    pickler.dump(value)
    spread = {key for key, span in pickler.spans.items() if span.is_spread and key not in apart}
    if spread:
        return _pack(value, parts_max, apart | {key for key in spread if isinstance(key, int)})
    arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    memories: list[Bytes] = []
    spans: list[tuple[int, bytes | None]] = []
    for span in pickler.spans.values():
        part = span.bytes()
        inline = part.nbytes <= _INLINE_BYTES_MAX or len(memories) >= parts_max // 2 - 2
        spans.append((span.low, part.tobytes() if inline else None))
        if not inline:
            memories.append(part)
    head = np.frombuffer(pickle.dumps((spans, len(arrays)), protocol=5), np.uint8)
    return [head, np.frombuffer(target.getbuffer(), np.uint8), *arrays, *memories]


def unpack(parts: Sequence[Bytes]) -> Any:
    """The value, whose arrays and tensors are views of the parts."""
    head, data, *rest = parts
    spans, arrays = pickle.loads(head.data)
    memories = iter(rest[arrays:])
    unpickler = _Unpickler(io.BytesIO(data.data), buffers=rest[:arrays])
    unpickler.memories = [
        _Memory(low, np.array(bytearray(inline)) if inline is not None else next(memories))
        for low, inline in spans
    ]
    return unpickler.load()


class _Span:
    """The bytes of one memory that tensors use."""

    def __init__(self, number: int, storage: torch.UntypedStorage) -> None:
        self.number = number
        self.low = self.high = -1
        self._used = 0  # by all tensors
        self._storage = storage

    def add(self, storage: torch.UntypedStorage, low: int, high: int) -> None:
        """What a tensor uses of `storage`, which begins where the others do that were added."""
        if storage.nbytes() > self._storage.nbytes():
            self._storage = storage
        low -= low % _ALIGNMENT
        self.low = low if self.low < 0 else min(self.low, low)
        self.high = max(self.high, high)
        self._used += high - low

    @property
    def is_spread(self) -> bool:
        """Whether most of it is between the tensors."""
        return self.high - self.low > _SPREAD_MAX * self._used

    def bytes(self) -> Bytes:
        whole: Bytes = torch.empty(0, dtype=torch.uint8).set_(self._storage).numpy()
        return whole[self.low : self.high]


class _Memory:
    """The same, where a batch is made of it."""

    def __init__(self, low: int, data: Bytes) -> None:
        self.low = low
        self.storage = torch.from_numpy(data).untyped_storage()


class _Pickler(pickle.Pickler):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.spans: dict[Any, _Span] = {}
        self.apart: frozenset[int] = frozenset()

    def persistent_id(self, value: Any) -> int | None:
        return value.number if type(value) is _Span else None

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and not (value.flags.writeable and value.dtype.isnative):
            return value.__reduce__()  # It is writable and native there, as from torch's workers.
        if type(value) is not torch.Tensor or not _is_plain(value):
            return NotImplemented
        if not value.numel():
            return _empty, (value.dtype, tuple(value.shape))
        value = value.detach()
        item = value.element_size()
        elements = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
        if elements > _SPREAD_MAX * value.numel():
            value = value.contiguous()
            elements = value.numel()
        storage = value.untyped_storage()
        low = value.storage_offset() * item
        key: Any = storage.data_ptr()
        if key in self.apart:
            key = key, low, elements
        span = self.spans.setdefault(key, _Span(len(self.spans), storage))
        span.add(storage, low, low + elements * item)
        return _view, (span, value.dtype, tuple(value.shape), value.stride(), low)


class _Unpickler(pickle.Unpickler):
    memories: Sequence[_Memory] = ()

    def persistent_load(self, number: Any) -> Any:
        return self.memories[number]


def _is_plain(value: torch.Tensor) -> bool:
    return (
        value.device.type == "cpu"
        and value.layout is torch.strided
        and not value.is_nested
        and not value.requires_grad
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
    )


def _empty(dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _view(
    memory: _Memory, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int], low: int
) -> torch.Tensor:
    tensor = torch.empty(0, dtype=dtype)
    offset = (low - memory.low) // tensor.element_size()
    return tensor.set_(memory.storage, offset, shape, stride)
