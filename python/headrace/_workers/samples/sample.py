"""The input of a Python transform: one sample, as views of the memory that has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

_STREAM = 8
"""The stream of transforms' random numbers in the key: not one of the core's (base/prng.h)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The values that all samples of a batch share."""

    seed: int
    epoch: int


class Sample:
    """One sample: its fields by name or position, its identity, and random numbers of its own.

    ``sample.image``, ``sample["image"]``, ``sample[0]``, ``image, label = sample``. An encoded
    image is a uint8 array of its bytes; a decoded one, an array field and a list, an array; a
    number, a NumPy scalar; text, a `str`; a nested field, a list of arrays or `str`.

    The arrays are views of memory that is reused: they are valid until the transform, or the
    collate_fn if there is one, returns. They may be written to. Copy arrays that you keep; returned
    arrays are copied.

    Use ``sample["id"]`` for a field called `id`, `epoch` or `rng`.
    """

    __slots__ = ("_id", "_origin", "_rng", "_values")
    _rng: np.random.Generator

    fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields."""

    def __init__(self, values: tuple[Any, ...], number: int, origin: Origin) -> None:
        self._values = values
        self._id = number
        self._origin = origin

    @property
    def id(self) -> int:
        """The number of the sample in its dataset."""
        return self._id

    @property
    def epoch(self) -> int:
        """The epoch of this delivery."""
        return self._origin.epoch

    @property
    def rng(self) -> np.random.Generator:
        """The sample's random numbers: a function of the loader's seed, the epoch and the
        sample."""
        try:
            return self._rng
        except AttributeError:  # Made when it is first used: most transforms draw nothing.
            self._rng = generator(self._origin.seed, self._origin.epoch, self._id)
            return self._rng

    if not TYPE_CHECKING:  # Type checkers must not see every attribute.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") and not name.startswith("__array"):
                raise AttributeError(name, name=name, obj=self)
            raise AttributeError(
                f"a sample has no {name!r}; {self._way_out()}", name=name, obj=self
            )

        def _way_out(self) -> str:
            has = f"it has the fields {', '.join(self.fields)}"
            first = next((name for name in self.fields if name.isidentifier()), None)
            if first is None:
                return f"{has}; use sample[{self.fields[0]!r}]"
            value = getattr(self, first)
            is_image = getattr(value, "dtype", None) == np.uint8 and value.ndim == 3
            pillow = f", an array, or PIL.Image.fromarray(sample.{first})" if is_image else ""
            return f"{has}: use sample.{first}{pillow}"

    def __getitem__(self, field: str | int) -> Any:
        try:
            return self._values[field]  # type: ignore[index]
        except TypeError:  # A name, which is slower than a number.
            if field not in self.fields:
                raise KeyError(
                    f"{field!r}: the sample has {', '.join(self.fields)}; see hr.Output(fields=...)"
                ) from None
            return self._values[self.fields.index(field)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> tuple[str, ...]:
        """The fields' names: ``dict(sample)`` works."""
        return self.fields

    def __repr__(self) -> str:
        parts = (f"{name}={_brief(value)}" for name, value in zip(self.fields, self, strict=True))
        return f"<Sample {self.id} of epoch {self.epoch}: {', '.join(parts)}>"


def sample_hint(error: BaseException) -> str | None:
    """What to do about an error that names the type of a sample; None: it does not."""
    if not isinstance(error, (TypeError, ValueError)) or not re.search(r"\bSample\b", str(error)):
        return None
    return (
        "a transform gets a headrace.Sample: give a function for images sample.image, an array, or "
        "PIL.Image.fromarray(sample.image) (`headrace docs workers`)"
    )


def call_hint(error: BaseException) -> str | None:
    """What to do about the error of a function that cannot be called with one sample."""
    if not isinstance(error, TypeError) or "positional argument" not in str(error):
        return None
    return (
        "a transform is called with one headrace.Sample, which has the fields: `def "
        "transform(sample): image, label = sample` (`headrace docs workers`)"
    )


def generator(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """Philox keyed by seed, epoch and sample: no two share a number."""
    key = np.array([seed, epoch << 8 | _STREAM], np.uint64)
    counter = np.array([0, 0, sample, 0], np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))


def sample_type(fields: Sequence[str]) -> type[Sample]:
    """Samples with these fields as attributes."""
    members: dict[str, Any] = {"__slots__": (), "fields": tuple(fields)}
    for position, name in enumerate(fields):
        if not hasattr(Sample, name):
            members[name] = property(_getter(position))
    return type("Sample", (Sample,), members)


def make_samples(
    kind: type[Sample], columns: Sequence[Iterable[Any]], ids: Iterable[int], origin: Origin
) -> Iterator[Sample]:
    """One sample for each id, from the fields' columns, which have the same length."""
    return map(kind, zip(*columns, strict=True), ids, repeat(origin))


def _getter(position: int) -> Any:
    return lambda sample: sample._values[position]


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return repr(value)
