"""The state of a DataLoader: a dict of plain values, and its checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from headrace._arguments import integer, shown
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch._dataloader.epochs.drawing import Origin, Share, Snapshot, Source
from headrace.torch._dataloader.epochs.generators import decoded

_VERSION = 1
_NEW = "kept_seed"
"""States did not always have it."""
DEALS_BATCHES = "accelerate.data_loader.BatchSamplerShard"
SPLITS_BATCHES = f"{DEALS_BATCHES}, split_batches"
_DIVIDES_STEPS = ("torch.utils.data.distributed.DistributedSampler", DEALS_BATCHES)
"""Their steps have the same samples on any number of ranks, as they deal them out in turn."""


@dataclass(frozen=True)
class Facts:
    """What a restore needs to be equal."""

    batch_size: int | None
    drop_last: bool
    length: int | None
    """Of the dataset, if it has one."""
    epoch_size: int | None
    share: Share | None
    """Of the samples, if the sampler divides them over ranks: the rank may be another one, and the
    number of ranks."""


@dataclass(frozen=True)
class Position:
    """Where a loader is: after some batches of an epoch."""

    epoch: int
    batches: int
    """Delivered, without gaps."""
    samples: int
    """In these."""
    mark: str | None
    """The hash of their keys. None: another rank's, which has other keys."""
    ahead: tuple[int, ...]
    """Numbers of batches that were delivered beyond, with in_order=False."""
    base_seed: int | None
    """Of the epoch, if it has begun."""
    global_now: str | None
    """A hash of torch's global generator when the state was saved, within an epoch."""
    origin: Origin
    snapshot: Snapshot | None
    drawn: int
    """Batches that the sampler had given, with those that were read ahead."""
    dataset: Any
    """The state of an iterable dataset."""
    kept_seed: int | None = None
    """The base seed of the epoch before, if this one has not begun, and workers persist."""

    @property
    def newest_seed(self) -> int | None:
        """The base seed of the newest epoch that has begun."""
        return self.kept_seed if self.base_seed is None else self.base_seed


def to_state(position: Position, facts: Facts) -> dict[str, Any]:
    """The dict for the user."""
    state: dict[str, Any] = {"version": _VERSION, **asdict(facts)}
    # Not asdict(): it would copy the states of samplers and datasets deeply.
    state |= {name: getattr(position, name) for name in Position.__dataclass_fields__}
    state["ahead"] = list(position.ahead)
    state["origin"] = dict(vars(position.origin))
    snapshot = position.snapshot
    state["snapshot"] = None if snapshot is None else dict(vars(snapshot))
    return state


def from_state(state: Any, facts: Facts) -> Position:
    """Reads a state. Raises, naming the difference, if it is of another loader."""
    equal = {name: value for name, value in asdict(facts).items() if name != "share"}
    state = {_NEW: None, **state} if isinstance(state, Mapping) else state
    names = ["version", *equal, *Position.__dataclass_fields__]
    if not isinstance(state, Mapping) or "version" not in state:
        raise InvalidArgumentError(
            f"state: got {type(state).__name__} without a version, must be what state_dict() gave"
        )
    if state["version"] != _VERSION:
        raise FailedPreconditionError(
            f"state: of version {shown(state['version'])}, this headrace reads version {_VERSION}"
        )
    for name in names:
        if name not in state:
            raise InvalidArgumentError(
                f"state: {name!r} is missing: give what state_dict() of a DataLoader of "
                "headrace.torch gave, unchanged"
            )
    saved = _share(state, facts)
    if saved is not None and facts.share is not None and saved.ranks != facts.share.ranks:
        _check_steps(state, saved.ranks, facts, facts.share)
        del equal["batch_size"]
    for name, value in equal.items():
        if state[name] != value:
            raise FailedPreconditionError(
                f"state: saved with {name} {shown(state[name])}, restored in a DataLoader with "
                f"{value!r}: its batches would differ; " + _remedy(name, state[name])
            )
    _check_values(state)
    origin = _part(state, "origin", Origin)
    _check_origin(origin)
    snapshot = None if state["snapshot"] is None else _part(state, "snapshot", Snapshot)
    values = {name: state[name] for name in Position.__dataclass_fields__}
    values |= {"origin": origin, "snapshot": snapshot, "ahead": tuple(state["ahead"])}
    if saved != facts.share and saved is not None:
        values["mark"] = None
    return Position(**values)


def _remedy(name: str, saved: Any) -> str:
    if name == "length":
        return "give it the dataset that the state was saved with"
    if name == "batch_size" and saved is None:
        return (
            "give it the batch_sampler= of the run that saved the state, or batch_size=None if "
            "that run had it"
        )
    return f"give it {name}={shown(saved)}"


def check_sampler(position: Position, source: Source) -> None:
    """Raises FailedPreconditionError if only one of the saved sampler and this one has epochs."""
    saved, here = position.origin.epoch, source.epoch
    if (saved is None) != (here is None):
        raise FailedPreconditionError(
            f"state: saved with a sampler {_with_epoch(saved)}, restored with a "
            f"{type(source.sampler).__name__} {_with_epoch(here)}: its samples would differ; give "
            "the same kind of sampler"
        )


def _with_epoch(epoch: int | None) -> str:
    return "without set_epoch()" if epoch is None else "that has set_epoch()"


def _check_values(state: Mapping[str, Any]) -> None:
    for name in ("epoch", "batches", "samples", "drawn"):
        integer(f"state {name}", state[name], 0, 2**62)
    for name in ("base_seed", "kept_seed"):
        if state[name] is not None:
            integer(f"state {name}", state[name], 0, 2**64 - 1)
    for name in ("mark", "global_now"):
        if not isinstance(state[name], str | None):
            raise InvalidArgumentError(
                f"state: {name} is {shown(state[name])}, must be a text or None"
            )
    ahead = state["ahead"]
    if not isinstance(ahead, list | tuple):
        raise InvalidArgumentError(
            f"state: ahead is {shown(ahead)}, must be a list of numbers of batches"
        )
    for number in ahead:
        integer("state ahead", number, 0, 2**62)


def _part(state: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    """A part of the state, which has the fields of a dataclass."""
    fields, names = state[name], list(kind.__dataclass_fields__)
    if not isinstance(fields, Mapping) or set(fields) != set(names):
        raise InvalidArgumentError(
            f"state: {name} is {shown(fields)}, must have {', '.join(names)}: give what "
            "state_dict() gave, unchanged"
        )
    return kind(**fields)


def _check_origin(origin: Origin) -> None:
    if origin.epoch is not None:
        integer("state origin epoch", origin.epoch, 0, 2**62)
    if not isinstance(origin.generators, list | tuple):
        raise InvalidArgumentError(
            f"state: origin generators is {shown(origin.generators)}, must be a list of states"
        )
    states = origin.generators
    torch_states = [("generators", state) for state in states if not isinstance(state, Mapping)]
    for name, text in [("global_state", origin.global_state), *torch_states]:
        try:
            torch.Generator().set_state(decoded(text))
        except (TypeError, ValueError, RuntimeError):
            raise InvalidArgumentError(
                f"state: origin {name} is {shown(text)}, must be the state of a generator of torch "
                f"{torch.__version__}: give what state_dict() gave, unchanged"
            ) from None


def _share(state: Mapping[str, Any], facts: Facts) -> Share | None:
    """The share of the rank that saved a state; None if it, or this loader, has none.

    Raises FailedPreconditionError if another sampler divided the samples.
    """
    if state.get("share") is None or facts.share is None:  # States did not always have it.
        return None
    try:
        saved = Share(**state["share"])
    except TypeError as error:
        raise InvalidArgumentError(
            f"state: share is {shown(state['share'])}: {error}: give what state_dict() gave, "
            "unchanged"
        ) from None
    here = facts.share
    for name in ("kind", "seed", "shuffle", "drop_last"):
        if getattr(saved, name) != getattr(here, name):
            raise FailedPreconditionError(
                f"state: saved with a sampler of {name} {getattr(saved, name)!r}, restored with "
                f"one of {name} {getattr(here, name)!r}: its samples would differ; give it one of "
                f"{name} {getattr(saved, name)!r}"
            )
    return saved


def _check_steps(state: Mapping[str, Any], ranks: int, facts: Facts, here: Share) -> None:
    """Of a state of another number of ranks: raises if its steps had other samples."""
    batch, size = facts.batch_size, state["batch_size"]
    splits = here.kind == SPLITS_BATCHES
    deals = (splits or here.kind in _DIVIDES_STEPS) and facts.epoch_size is None
    if batch is None or size is None or not deals:
        why = "that needs torch's DistributedSampler, batch_size= and no epoch_size="
    elif batch == size if splits else batch * here.ranks == size * ranks:
        return
    else:
        why = "a step of all ranks must have the same number of samples"
    raise FailedPreconditionError(
        f"state: saved on {ranks} ranks with batch_size {shown(size)}, restored on {here.ranks} "
        f"with batch_size {batch!r}: {why}"
    )
