"""`headrace.mix`: several datasets as one, in proportion to weights."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, SupportsIndex

from headrace import _core
from headrace._arguments import choice, integer, shown, whole
from headrace._dataset.dataset import Dataset, check_has_samples, left_out_of, open_dataset
from headrace._signature import named_arguments, words
from headrace._units import counted
from headrace.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from headrace.formats._base.cache import cache_path, cache_target
from headrace.formats._files.objects import is_decoded
from headrace.formats.table import OTHER

Stop = Literal["first", "all", "never"]
"""When a mixture ends: with the first source that has been passed, with the last one, or never."""

Weights = Mapping[str, float] | Sequence[tuple[int, Mapping[str, float]]]
"""By name; or stages: (the sample at which it begins, weights by name), from sample 0 on."""

_ENDS = {
    "first": _core.MixtureEnd.FIRST,
    "all": _core.MixtureEnd.ALL,
    "never": _core.MixtureEnd.NEVER,
}
_EPOCH_MAX = 2**38  # samples
_JOB_MAX = 2**62 - 1


class Mixture(Dataset):
    """Several datasets as one. Its samples are those of its sources, one source after the other.

    A `headrace.Loader` of it draws from the sources in proportion to their weights.

    Thread safety: every method may be called from any thread.
    """

    def __init__(
        self, index: _core.Index, sources: Mapping[str, Dataset], made: Mapping[str, Any]
    ) -> None:
        """`made`: the arguments of `mix` besides the sources."""
        super().__init__(index, index.path, None, OTHER)
        self._sources = dict(sources)
        self._made = dict(made)
        self._mixture = _core.Mixture(
            [(name, len(of), made["passes"].get(name)) for name, of in sources.items()],
            [
                (begin, [weights.get(name, 0.0) for name in sources])
                for begin, weights in made["stages"]
            ],
            _ENDS[made["stop"]],
            made["epoch_samples"] or 0,
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources, in the order of their samples."""
        return tuple(self._sources)

    @property
    def source_samples(self) -> tuple[int, ...]:
        """How many samples each source has."""
        return tuple(map(len, self._sources.values()))

    @property
    def epoch_samples(self) -> int:
        """Samples of an epoch."""
        return self._mixture.epoch_samples

    def _samples_of_epoch(self) -> int:
        return self.epoch_samples

    @property
    def core(self) -> _core.Mixture:
        """Which source has each position; private to headrace."""
        return self._mixture

    def counts(self, samples: SupportsIndex | None = None) -> dict[str, int]:
        """How many samples of each source are among the first ones of a run.

        `samples`: so many; None: those of the first epoch. Of a mixture that ends, at most those of
        one epoch: later ones repeat its proportions.
        """
        number = self.epoch_samples if samples is None else whole(samples)
        if number is None or number < 0:
            raise InvalidArgumentError(f"samples: got {samples!r}, must be a number from 0 on")
        most = self._mixture.length
        if number > (_JOB_MAX if most is None else most):
            raise OutOfRangeError(
                f"samples: got {number}; the mixture "
                + (f"ends after {most}" if most is not None else f"counts to {_JOB_MAX}")
            )
        return dict(zip(self._sources, self._mixture.counts_before(number), strict=True))

    def epoch_counts(self, epoch: int) -> dict[str, int]:
        """How many samples of each source an epoch has."""
        if self._mixture.length is not None:
            return self.counts()
        begin = epoch * self.epoch_samples
        before, after = self.counts(begin), self.counts(begin + self.epoch_samples)
        return {name: after[name] - before[name] for name in after}

    def source_of(self, sample: SupportsIndex) -> str:
        """The name of the source that has the sample of this number."""
        number = self._number("the source of", sample)
        for name, dataset in self._sources.items():
            if number < len(dataset):
                return name
            number -= len(dataset)
        raise AssertionError("a sample is in one of the sources")

    def changed(self, epoch: int, samples: int, weights: Mapping[str, float]) -> Mixture:
        """The mixture with these weights from a position on, whatever stages would come then.

        Raises InvalidArgumentError; FailedPreconditionError: epochs repeat, and this is not the
        first one.
        """
        begin = epoch * self.epoch_samples + samples
        stage = _stage((begin, weights), self.sources)
        if self._mixture.length is not None and epoch > 0:
            raise FailedPreconditionError(
                f"weights from epoch {epoch} on: the mixture ends, and its epochs repeat its "
                'weights; make it with stop="never" to change them at any time'
            )
        before = [stage for stage in self._made["stages"] if stage[0] < begin]
        stages = [*before, stage]
        return Mixture(self.index, self._sources, self._made | {"stages": stages})

    def history(self, epoch: int, samples: int, names: Sequence[str] | None = None) -> str | None:
        """A hash of what fixed the samples before a position; private to headrace.

        Mixtures with the same one have had the same samples there, and may go on from each other's
        states: later stages may differ, and there may be sources beside those of `names` (None: all
        are meant) that were not drawn. None: such a source was drawn, or their order is another.
        """
        meant = list(self._sources) if names is None else list(names)
        if [name for name in self._sources if name in meant] != meant:
            return None
        ended = self._mixture.length is not None and epoch > 0
        position = epoch * self.epoch_samples + samples
        stages = []
        for begin, weights in self._made["stages"]:
            if begin > 0 and begin >= position and not ended:
                break
            if any(weight and name not in meant for name, weight in weights.items()):
                return None
            stages.append([begin, [weights.get(name, 0.0).hex() for name in meant]])
        sources = [
            [name, self._sources[name].content, self._made["passes"].get(name)] for name in meant
        ]
        fixed = [sources, stages, self._made["stop"], self._made["epoch_samples"]]
        return f"{_core.hash64(json.dumps(fixed).encode()):016x}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self._sources, self._made)

    def __repr__(self) -> str:
        named = [f"{name!r} ({counted(len(of), 'sample')})" for name, of in self._sources.items()]
        more = "" if len(named) <= 4 else f" and {len(named) - 4} more"
        return (
            f"<headrace mixture of {', '.join(named[:4])}{more}: "
            f"epochs of {counted(self.epoch_samples, 'sample')}>"
        )


@named_arguments
def mix(
    sources: Mapping[str, Dataset | str | os.PathLike[str]],
    weights: Weights,
    *,
    stop: Stop = "first",
    passes: Mapping[str, int] | None = None,
    epoch_samples: int | None = None,
    rename: Mapping[str, Mapping[str, str]] | None = None,
    source_field: str | None = None,
) -> Mixture:
    """Several datasets as one, whose samples a `headrace.Loader` draws in proportion to weights.

    Which source has each position of the job is fixed by weights and position alone: before every
    position each source is less than two samples from its share (of a stage). Each source keeps an
    order of its own, by seed and name, and has each of its samples once before any twice. A job
    continues on any number of ranks with the same global batch. Only `order="exact"`.

    Args:
        sources: datasets, or what `headrace.open` opens, by name. Samples have the fields that all
            sources have, of equal kind. They lie in one store, or all in local folders.
        weights: of each source, in any unit; or stages, as ``[(0, {"web": 3, "code": 1}),
            (1_000_000, {"web": 1, "code": 1})]``: from that sample of the job on. A source that is
            not named has weight 0.
        stop: the mixture, and so its epoch, ends with the first source that has been passed, with
            the last one (``"all"``; others begin again until then), or ``"never"``. In the next
            epoch every source goes on where it was.
        passes: so often a source is passed at most; the others then share its weight.
        epoch_samples: of a mixture that never ends, after how many samples an epoch ends.
        rename: of a source, the fields that have another name here: ``{"code": {"content":
            "text"}}``.
        source_field: a field of this name has the number of each sample's source, in the order of
            `sources`.

    Raises:
        InvalidArgumentError: an argument is invalid; sources do not fit together; two of them are
            the same data.
        What `headrace.open` raises.
    """
    opened = _opened(sources)
    names = tuple(opened)
    _check_names("rename", rename, names)
    _check_names("passes", passes, names)
    choice("stop", stop, words(Stop))
    made = {
        "stages": _stages(weights, names),
        "stop": stop,
        "passes": {
            name: integer(f"passes of {name!r}", most, 1, 2**32)
            for name, most in (passes or {}).items()
        },
        "epoch_samples": None
        if epoch_samples is None
        else integer("epoch_samples", epoch_samples, 1, _EPOCH_MAX),
        "rename": {name: dict(fields) for name, fields in (rename or {}).items()},
        "source_field": _field_name(source_field),
    }
    return _remade(opened, made)


def _remade(sources: Mapping[str, Dataset], made: Mapping[str, Any]) -> Mixture:
    parts = [
        (name, dataset.index.path, list(made["rename"].get(name, {}).items()))
        for name, dataset in sources.items()
    ]
    path = cache_path("mixture", repr((parts, made["source_field"])))
    target = cache_target("a mixture", path, lambda index: False)
    prefixed = is_decoded(next(iter(sources.values())).index)
    _core.join_indexes(parts, made["source_field"] or "", prefixed, target)
    return Mixture(_core.Index.open(target), sources, made)


def _opened(sources: Any) -> dict[str, Dataset]:
    if not isinstance(sources, Mapping) or not sources:
        raise InvalidArgumentError(
            f"sources: got {shown(sources)}, must be datasets by name, as "
            '{"web": "/data/web", "code": "/data/code"}'
        )
    opened: dict[str, Dataset] = {}
    by_fingerprint: dict[str, str] = {}
    for name, source in sources.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"sources: got the name {name!r}, must be a text")
        dataset = source if isinstance(source, Dataset) else open_dataset(source)
        doing = f"mixing {name!r}"
        if isinstance(dataset, Mixture):
            raise InvalidArgumentError(f"{doing}: it is a mixture itself; name its sources")
        check_has_samples(doing, dataset)
        left_out = left_out_of(dataset)
        if left_out is not None:
            raise InvalidArgumentError(
                f"{doing}: {counted(len(left_out), 'sample')} are left out (skip=), which mixtures "
                "do not support; write the others with headrace pack, and mix that"
            )
        other = by_fingerprint.setdefault(dataset.fingerprint, name)
        if other != name:
            raise InvalidArgumentError(
                f"{doing}: it is the same data as {other!r}; name it once, with both weights"
            )
        opened[name] = dataset
    return opened


def _stages(weights: Any, names: tuple[str, ...]) -> list[tuple[int, dict[str, float]]]:
    stages = [(0, weights)] if isinstance(weights, Mapping) else weights
    if isinstance(stages, (str, bytes)) or not isinstance(stages, Sequence) or not stages:
        raise InvalidArgumentError(
            f"weights: got {shown(weights)}, must be a weight by name of source, or stages: "
            '[(0, {"web": 3, "code": 1}), (1_000_000, {"web": 1, "code": 1})]'
        )
    return [_stage(stage, names) for stage in stages]


def _stage(stage: Any, names: tuple[str, ...]) -> tuple[int, dict[str, float]]:
    if (
        not isinstance(stage, (tuple, list))
        or len(stage) != 2
        or whole(stage[0]) is None
        or not isinstance(stage[1], Mapping)
    ):
        raise InvalidArgumentError(
            f"weights: got the stage {shown(stage)}, must be (the sample at which it begins, "
            "weights by name of source)"
        )
    begin, weights = stage
    _check_names("weights", weights, names)
    for name, weight in weights.items():
        if isinstance(weight, bool) or not _is_weight(weight):
            raise InvalidArgumentError(
                f"weights: got {weight!r} for {name!r}, must be a number from 0 on"
            )
    return (
        integer("weights: a stage's first sample", begin, 0, _JOB_MAX),
        {name: float(weight) for name, weight in weights.items()},
    )


def _is_weight(value: Any) -> bool:
    try:
        return math.isfinite(value) and value >= 0
    except TypeError:
        return False


def _check_names(argument: str, given: Any, names: tuple[str, ...]) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"{argument}: got {shown(given)}, must be a mapping from names of sources"
        )
    for name in given:
        if name not in names:
            raise InvalidArgumentError(
                f"{argument}: got {name!r}; the sources are {', '.join(map(repr, names))}"
            )


def _field_name(name: Any) -> str | None:
    if name is None or (isinstance(name, str) and name):
        return name
    raise InvalidArgumentError(f"source_field: got {shown(name)}, must be the name of a field")
