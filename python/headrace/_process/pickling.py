"""What a process that is started gets: pickled for it alone, while it is being started.

Only then can locks, queues and shared memory be sent: their descriptors go to that one process.
"""

from __future__ import annotations

import functools
import io
import mmap
import os
import pickle
import sys
import types
from collections.abc import Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import InvalidArgumentError

_DEPTH_MAX = 32
_TEXT_MAX = 200  # characters of the error that Python gives


class Sent:
    """Values by the names under which a user gave them, as an argument of a new process.

    Pickling raises InvalidArgumentError, which names the part that cannot be pickled.
    """

    def __init__(self, values: dict[str, Any], sender: str, fork: str, *, copies: bool) -> None:
        """`sender`: the option that has the values pickled; `fork`: the one that does without.

        With `copies` tensors that are not shared are copied; without, they are moved into shared
        memory, as by torch's workers.
        """
        self._values: dict[str, Any] | bytes = values
        self._sender, self._fork = sender, fork
        self._copies = copies

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self._values, dict)
        try:
            data = _dumped(self._values, self._copies)
        except Exception as error:
            raise self._refusal(self._values, error) from error
        return _received, (data,)

    def load(self) -> dict[str, Any]:
        """The values, in the new process. Raises: what unpickling raises."""
        if isinstance(self._values, bytes):
            values: dict[str, Any] = pickle.loads(self._values)
            return values
        return self._values

    def _refusal(self, values: dict[str, Any], error: Exception) -> InvalidArgumentError:
        name, part = next(
            (item for item in values.items() if self._fails(item[1]) is not None),
            (", ".join(values), values),
        )
        for _ in range(_DEPTH_MAX):
            error = self._fails(part) or error
            inner = next((item for item in _parts(name, part) if self._fails(item[1])), None)
            if inner is None:
                break
            name, part = inner
        what, remedy = _described(part, error)
        return InvalidArgumentError(
            f"{name} is {what}, which cannot be pickled for a new process, as {self._sender} "
            f"needs: {remedy.format(fork=self._fork)}"
        )

    def _fails(self, value: Any) -> Exception | None:
        try:
            _dumped(value, self._copies, _Nowhere())
        except Exception as error:
            return error
        return None


def _received(data: bytes) -> Sent:
    sent = Sent({}, "", "", copies=False)
    sent._values = data
    return sent


class _Nowhere(io.RawIOBase):
    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


def _dumped(value: Any, copies: bool, to: Any = None) -> bytes:
    target = io.BytesIO() if to is None else to
    _Pickler(target, copies).dump(value)
    return b"" if to is not None else target.getvalue()


class _Pickler(ForkingPickler):
    def __init__(self, target: Any, copies: bool) -> None:
        super().__init__(target, pickle.HIGHEST_PROTOCOL)
        self._copies = copies

    def reducer_override(self, value: Any) -> Any:
        if type(value) in (np.ndarray, np.memmap):
            arguments = _of_file(value)
            return NotImplemented if arguments is None else (_mapped, arguments)
        if isinstance(value, (types.FunctionType, type)):
            _check_importable(value)
        elif self._copies and _is_private(value):
            return value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented


def _is_private(value: Any) -> bool:
    """Whether it is a tensor, or the memory of one, that its owner did not share."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(value, torch.TypedStorage):
        value = value._untyped_storage  # Its own is_shared() warns.
    if isinstance(value, (torch.Tensor, torch.UntypedStorage)):
        try:
            shared: bool = value.is_shared()
        except (NotImplementedError, RuntimeError):  # Sparse ones, for example.
            return True
        return not shared
    return False


def _check_importable(value: Any) -> None:
    if _is_of_prompt(value):
        raise pickle.PicklingError("other processes cannot import it")


def _is_of_prompt(value: Any) -> bool:
    """Whether a function or class is defined where no other process can import it from."""
    main = sys.modules.get("__main__")
    if value.__module__ != "__main__" or getattr(main, value.__name__, None) is not value:
        return False
    file = getattr(main, "__file__", None)
    return getattr(main, "__spec__", None) is None and (file is None or not os.path.exists(file))


def _of_file(array: NDArray[Any]) -> tuple[Any, ...] | None:
    """How `_mapped` makes the same array, if it lies in a file that is mapped with np.memmap.

    None for others, for a private copy of a file's bytes (mode "c"), and for a file that is no
    longer at its path.
    """
    source: Any = array
    while isinstance(source, np.ndarray) and not isinstance(source.base, mmap.mmap):
        source = source.base
    if not isinstance(source, np.memmap) or not array.size or array.dtype.hasobject:
        return None
    path, mode = source.filename, source.mode
    begin = source.__array_interface__["data"][0]
    if path is None or mode not in ("r", "r+") or not _maps(path, begin):
        return None
    spans = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    below = sum(min(0, span) for span in spans)
    above = sum(max(0, span) for span in spans) + array.itemsize
    first = source.offset + array.__array_interface__["data"][0] + below - begin
    place = (os.fsdecode(path), mode if array.flags.writeable else "r", first, above - below)
    return *place, type(array), array.dtype, array.shape, array.strides, -below


def _mapped(
    path: str,
    mode: Any,
    first: int,
    size: int,
    kind: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    inside: int,
) -> NDArray[Any]:
    memory = np.memmap(path, np.uint8, mode, first, (size,))
    made: NDArray[Any] = np.ndarray.__new__(kind, shape, dtype, memory, inside, strides)
    return made


def _maps(path: str | os.PathLike[str], address: int) -> bool:
    """Whether this address is memory of the file that is at the path now."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                begin, end = (int(bound, 16) for bound in line.split(" ", 1)[0].split("-"))
                if begin <= address < end:
                    return int(line.split()[4]) == inode
    except OSError:
        pass
    return False


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is pickled with a value, each part with its name."""
    if isinstance(value, functools.partial):
        yield f"{name}.func", value.func
        yield from _parts(f"{name}.args", value.args)
        yield from _parts(f"{name}.keywords", value.keywords)
    elif isinstance(value, types.MethodType):
        yield f"{name}.__self__", value.__self__
    elif isinstance(value, dict):  # Not any mapping: an h5py file is one.
        yield from ((f"{name}[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, (tuple, list, set, frozenset)):
        yield from ((f"{name}[{number}]", part) for number, part in enumerate(value))
    elif not isinstance(value, (types.FunctionType, type)):
        if "<locals>" in type(value).__qualname__ or _is_of_prompt(type(value)):
            yield f"type({name})", type(value)
        try:
            reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        except Exception:  # It says so itself, as open files do.
            return
        state = reduced[2] if isinstance(reduced, tuple) and len(reduced) > 2 else None
        # Users do not know the attributes of these.
        is_ours = type(value).__module__.startswith("headrace.")
        for attributes in state if isinstance(state, tuple) else (state,):
            if isinstance(attributes, Mapping):
                for key, part in list(attributes.items()):
                    yield name if is_ours else f"{name}.{key}", part


def _described(value: Any, error: Exception) -> tuple[str, str]:
    """What a value is that cannot be pickled, and the way out."""
    if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>":
        code = value.__code__
        where = f"{os.path.basename(code.co_filename)}, line {code.co_firstlineno}"
        return f"a lambda ({where})", "write it as a def at the top of a module, or take {fork}"
    if isinstance(value, (types.FunctionType, type)):
        kind = "class" if isinstance(value, type) else "function"
        if "<locals>" in value.__qualname__:
            outer, _, own = value.__qualname__.rpartition(".<locals>.")
            what = f"the {kind} {own} inside {outer}"
            return what, "move it to the top of a module, or take {fork}"
        if _is_of_prompt(value):
            what = f"the {kind} {value.__qualname__} of a notebook, a prompt or python -c"
            return what, "write it to a module that you import, or take {fork}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    why = f"{type(error).__name__}: {str(error)[:_TEXT_MAX]}"
    return (
        f"of type {kind} ({why})",
        "keep its path or arguments, and make it in the worker at its first use",
    )
