"""What the arguments of `Loader` say about a Python transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace._arguments import choice, integer
from headrace.errors import InvalidArgumentError
from headrace.image import ImageTransform

STARTS = ("spawn", "fork", "forkserver")
RAGGED = ("error", "pad", "list")
_WORKERS_MAX = 1024

Native = ImageTransform | Mapping[str, ImageTransform]
Function = Callable[[Any], Any]
Transform = Native | Function | tuple[Native, Function] | None
"""What a loader's `transform` may be."""


@dataclass(frozen=True)
class WorkerOptions:
    """Functions of the user, and how they are run."""

    transform: Callable[[Any], Any] | None
    collate_fn: Callable[[list[Any]], Any] | None
    worker_init_fn: Callable[[int], object] | None
    workers: int
    start: str
    ragged: str


def split_transform(
    transform: Any,
    *,
    workers: int | None,
    worker_start: str,
    collate_fn: Callable[[list[Any]], Any] | None,
    worker_init_fn: Callable[[int], object] | None,
    ragged: str,
) -> tuple[Any, WorkerOptions | None]:
    """The native part of `transform`, and the Python part, if there is one."""
    choice("worker_start", worker_start, STARTS)
    choice("ragged", ragged, RAGGED)
    native, function = transform, None
    if isinstance(transform, tuple):
        if len(transform) != 2 or not _is_function(transform[1]):
            raise InvalidArgumentError(
                f"transform: got {transform!r}; a pair is an image transform, or a dict of them, "
                "and a Python callable that takes what these have decoded"
            )
        native, function = transform
    elif _is_function(transform):
        native, function = None, transform
    for name, each in (("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
        if each is not None and not callable(each):
            raise InvalidArgumentError(f"{name}: got {each!r}, must be callable")
    if function is None and collate_fn is None:
        needless = [
            name
            for name, given in (
                ("workers", workers is not None),
                ("worker_init_fn", worker_init_fn is not None),
                ("ragged", ragged != "error"),
            )
            if given
        ]
        if needless:
            raise InvalidArgumentError(
                f"{needless[0]}: there is no Python callable to run, as transform= or collate_fn=; "
                "leave it out: reading and decoding need no workers"
            )
        return native, None
    if collate_fn is not None and ragged != "error":
        raise InvalidArgumentError(
            f"ragged={ragged!r} with collate_fn, which makes the batches: leave one of them out"
        )
    count = 1 if workers is None else integer("workers", workers, 0, _WORKERS_MAX)
    return native, WorkerOptions(function, collate_fn, worker_init_fn, count, worker_start, ragged)


def _is_function(transform: Any) -> bool:
    return callable(transform) and not isinstance(transform, (ImageTransform, Mapping))
