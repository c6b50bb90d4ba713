"""The arguments of `Loader` that concern a Python transform."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace import audio
from headrace._arguments import choice, flag, integer
from headrace._options.groups import Output, Workers, group_or_first
from headrace._signature import Ragged, WorkerStart, words
from headrace._workers._libraries import LibraryTransform, Rows, innermost, of_library
from headrace.audio import AudioTransform
from headrace.errors import InvalidArgumentError
from headrace.image import ImageTransform, factory_name

_WORKERS_MAX = 1024

FieldTransform = ImageTransform | AudioTransform
Native = FieldTransform | Mapping[str, FieldTransform]
Function = Callable[[Any], Any]
Transform = Native | Function | tuple[Native, Function] | None
"""The types of a loader's `transform`."""


@dataclass(frozen=True)
class WorkerOptions:
    """Functions of the user and the options to run them."""

    transform: Callable[[Any], Any] | None
    collate_fn: Callable[[list[Any]], Any] | None
    worker_init_fn: Callable[[int], object] | None
    workers: int
    start: str
    ragged: str
    decoded: tuple[str, ...] = ()
    """Fields whose encoded images are decoded for the functions."""
    are_fields: bool = False
    """Whether a result's members are the sample's fields in their order."""


def split_transform(
    transform: Any,
    fields: Mapping[str, str],
    *,
    workers: Workers | int | None,
    output: Output,
) -> tuple[Any, WorkerOptions | None]:
    """Splits `transform` into its native part and its Python part, if there is one.

    `fields`: the requested fields in their order, each with its kind.
    """
    name = "Workers.count" if isinstance(workers, Workers) else "workers"
    pool, decode, ragged = group_or_first(workers, Workers), output.decode, output.ragged
    collate_fn = pool.collate_fn
    choice("Workers.start", pool.start, words(WorkerStart))
    if ragged is not None:
        choice("Output.ragged", ragged, words(Ragged))
    for part in transform if isinstance(transform, tuple) else (transform,):
        check_was_made("transform", part)
    native, function = transform, None
    if isinstance(transform, tuple):
        if len(transform) != 2 or not _is_function(transform[1]):
            raise InvalidArgumentError(
                f"transform: got {transform!r}; a pair must be an image transform, or a dict of "
                "them, and a Python callable that takes what these have decoded"
            )
        native, function = transform
    elif _is_function(transform):
        native, function = None, transform
    for field in ("collate_fn", "init_fn"):
        value = getattr(pool, field)
        if value is not None and not callable(value):
            raise InvalidArgumentError(f"Workers.{field}: got {value!r}, must be callable")
    if function is None and collate_fn is None:
        needless = [
            option
            for option, is_set in (
                ("workers", pool.count is not None),
                ("Workers.init_fn", pool.init_fn is not None),
                ("Output.decode", decode is not None),
            )
            if is_set
        ]
        if needless:
            raise InvalidArgumentError(
                f"{needless[0]}: there is no Python callable to run, as transform= or "
                "Workers.collate_fn; leave it out: reading and decoding need no workers"
            )
        if ragged not in (None, "error") and "list" not in fields.values():
            raise InvalidArgumentError(
                f"Output(ragged={ragged!r}): no field has arrays of different lengths (batches "
                "hold text, bytes and encoded images as lists anyway), and there is no Python "
                "callable whose results could differ in shape; leave it out"
            )
        return native, None
    if collate_fn is not None and ragged is not None:
        raise InvalidArgumentError(
            f"Output(ragged={ragged!r}) with Workers.collate_fn, which makes the batches: leave "
            "one of them out"
        )
    count = 1 if pool.count is None else integer(name, pool.count, 0, _WORKERS_MAX)
    wanted = flag("Output.decode", function is not None if decode is None else decode)
    library, decoded = for_function(function, native, fields, wanted)
    return native, WorkerOptions(
        library or function,
        collate_fn,
        pool.init_fn,
        count,
        pool.start,
        ragged or "error",
        decoded,
        library is not None and collate_fn is None,
    )


def check_was_made(name: str, transform: Any) -> None:
    """Refuses what makes a transform, given in its place: a class, or `headrace.image.train`.

    Without this check the error would come with the first batch. `name`: of the argument.
    """
    made_by = innermost(transform)
    factory = factory_name(made_by)
    if factory is not None:
        raise InvalidArgumentError(
            f"{name}: got the function headrace.image.{factory}, which makes a transform: call it, "
            f"as headrace.image.{factory}(224)"
        )
    for function, example in ((audio.clip, "clip(1.0, 16000)"), (audio.whole, "whole(16000)")):
        if made_by is function:
            raise InvalidArgumentError(
                f"{name}: got the function headrace.audio.{function.__name__}, which makes a "
                f"transform: call it, as headrace.audio.{example}"
            )
    if isinstance(made_by, type) and (_makes_callables(made_by) or not _takes_one(transform)):
        raise InvalidArgumentError(
            f"{name}: got the class {made_by.__qualname__}, not an object of it: call it, as "
            f"{made_by.__qualname__}(...)"
        )


def _makes_callables(kind: type) -> bool:
    return any("__call__" in vars(base) for base in kind.__mro__)


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether it can be called with one sample, as far as its signature shows."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # Some built-in classes have none.
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def for_function(
    function: Function | None, native: Native | None, fields: Mapping[str, str], decode: bool
) -> tuple[LibraryTransform | None, tuple[str, ...]]:
    """A function that calls `function` if it is a library's, and the fields decoded for it.

    `fields` as in `split_transform`; `decode`: as `Output.decode`.
    """
    images = {name: _rows(native, name) for name, kind in fields.items() if kind == "image"}
    library = of_library(function, list(fields), images)
    if library is not None and not decode:
        raise InvalidArgumentError(
            f"decode=False with {type(function).__name__}, which takes decoded images; leave it out"
        )
    return library, tuple(name for name, by in images.items() if by is None) if decode else ()


def _rows(native: Any, field: str) -> Rows | None:
    """The native transform of an image field."""
    image = native.get(field) if isinstance(native, Mapping) else native
    return Rows(image.dtype, image.layout == "NCHW") if isinstance(image, ImageTransform) else None


def _is_function(transform: Any) -> bool:
    native = (ImageTransform, AudioTransform, Mapping)
    return callable(transform) and not isinstance(transform, native)
