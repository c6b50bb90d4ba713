"""Transforms of torchvision and Albumentations, called in their library's way.

A transform is recognised by the module of its class, so a library is imported only if it is used.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace._workers.samples.sample import Sample
from headrace.errors import InvalidArgumentError

Library = Literal["torchvision", "torchvision of Pillow images", "albumentations"]
"""The type of image for a transform: tv_tensors.Image, PIL.Image.Image, or a NumPy array."""

_FROM_PILLOW = ("ToTensor", "PILToTensor")
"""Transforms that leave anything but a Pillow image, or an array, as it is: of v2, too."""
_SEEDS = 2**32


class Rows(NamedTuple):
    """Images that were decoded natively."""

    dtype: str
    channels_first: bool


def library_of(transform: Any) -> Library | None:
    """The library of a transform; None for any other callable."""
    home, homes = _home(innermost(transform)), {_home(part) for part in _parts(transform)}
    if home is None or home == "albumentations" or not homes & {"v1", "v2"}:
        return home if home == "albumentations" else None
    return "torchvision of Pillow images" if "v1" in homes else "torchvision"


class LibraryTransform:
    """A library's transform for one image field; the other fields are returned unchanged.

    It takes a `Sample` and returns a tuple of its fields, with the image transformed. Its random
    numbers depend on (seed, epoch, sample) only: its own generators, or the global ones, are seeded
    before a call, and the state of global ones is restored after it.
    """

    def __init__(
        self, transform: Callable[..., Any], library: Library, image: int, channels_first: bool
    ) -> None:
        """`image` is the field's position; its arrays are (height, width, channel), or not."""
        self._transform = transform
        self._library = library
        self._image = image
        self._channels_first = channels_first

    def __call__(self, sample: Sample) -> tuple[Any, ...]:
        values = list(sample)
        image, seed = values[self._image], int(sample.rng.integers(_SEEDS))
        if self._library == "albumentations":
            values[self._image] = self._by_albumentations(image, seed)
        else:
            values[self._image] = self._by_torchvision(image, seed)
        return tuple(values)

    def _by_albumentations(self, image: NDArray[Any], seed: int) -> Any:
        if self._channels_first:
            image = image.transpose(1, 2, 0)
        image = np.ascontiguousarray(image)
        set_seed = getattr(innermost(self._transform), "set_random_seed", None)
        if set_seed is not None:
            set_seed(seed)
            return self._transform(image=image)["image"]
        state, numpys = random.getstate(), np.random.get_state()
        try:
            random.seed(seed)
            np.random.seed(seed)
            return self._transform(image=image)["image"]
        finally:
            random.setstate(state)
            np.random.set_state(numpys)

    def _by_torchvision(self, image: NDArray[Any], seed: int) -> Any:
        import torch

        generator, state = torch.default_generator, random.getstate()
        before = generator.get_state()
        try:
            generator.manual_seed(seed)
            random.seed(seed)
            made = self._transform(self._as_torchvision(image))
        finally:
            generator.set_state(before)
            random.setstate(state)
        # A plain tensor, as in batches; it is also faster.
        return made.as_subclass(torch.Tensor) if isinstance(made, torch.Tensor) else made

    def _as_torchvision(self, image: NDArray[Any]) -> Any:
        import torch

        if self._library == "torchvision":
            kind: Any = importlib.import_module("torchvision.tv_tensors")
            pixels = torch.from_numpy(image)
            return kind.Image(pixels if self._channels_first else pixels.permute(2, 0, 1))
        from PIL import Image

        return Image.fromarray(image.transpose(1, 2, 0) if self._channels_first else image)


def of_library(
    transform: Any, fields: Sequence[str], images: Mapping[str, Rows | None]
) -> LibraryTransform | None:
    """Returns a function that calls `transform` if it is a library's.

    `images` are the image fields among `fields`, each with how it is decoded natively, if it is.
    """
    library = library_of(transform)
    if library is None:
        return None
    names = list(images)
    name = library.split()[0]
    if len(names) != 1:
        has = f"these are {len(names)}: {', '.join(names)}" if names else "there is none"
        raise InvalidArgumentError(
            f"transform: {type(transform).__name__} of {name} takes one image a sample, and of the "
            f"fields wanted {has}; choose with hr.Output(fields=...), or call it in a function of "
            "a Sample"
        )
    native = images[names[0]]
    if native is not None and native.dtype != "uint8" and "Pillow" in library:
        raise InvalidArgumentError(
            f"transform: {type(transform).__name__} takes Pillow images, which cannot be of "
            f'{native.dtype}: give the image transform before it dtype="uint8"'
        )
    channels_first = native is not None and native.channels_first
    return LibraryTransform(transform, library, fields.index(names[0]), channels_first)


def innermost(transform: Any) -> Any:
    """The function or object that a `functools.partial`, or several, call."""
    while isinstance(transform, functools.partial):
        transform = transform.func
    return transform


def _parts(transform: Any) -> Iterator[Any]:
    """Yields a transform and its parts."""
    transform = innermost(transform)
    yield transform
    parts = getattr(transform, "transforms", None)
    if parts is None and _home(transform) == "torch":
        parts = transform
    if isinstance(parts, Iterable):
        for part in parts:
            yield from _parts(part)


def _home(transform: Any) -> Literal["albumentations", "v1", "v2", "torch"] | None:
    """The package of a transform; "torch" for a container of any modules."""
    kinds = [transform] if inspect.isroutine(transform) else type(transform).__mro__
    for kind in kinds:
        module, name = kind.__module__, kind.__name__
        parts = str(module).split(".")
        if parts[0] == "albumentations":
            return "albumentations"
        if parts[:2] == ["torchvision", "transforms"]:
            return "v2" if parts[2:3] == ["v2"] and name not in _FROM_PILLOW else "v1"
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(transform, (torch.nn.Sequential, torch.nn.ModuleList)):
        return "torch"
    return None
