"""A loader's state: a small dict with the position, the dataset and the order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import NoneType
from typing import Any

from headrace import _core
from headrace._arguments import integer, shown, whole
from headrace._dataset import Dataset
from headrace._loading.cursor import Place
from headrace._loading.passes.left import check_saved
from headrace._loading.sampling import EpochPlan, SamplerSource
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.orders import parameters_now

_VERSION = 1

_POSITION = ("order_parameters", "epoch", "samples")
_SAMPLER = ("sampler_step", "sampler_hash", "sampler_epoch", "sampler_draws")
_LAST = ("sampler_last_hash", "sampler_last_epoch")  # Older states have neither of these keys.
_OWN = "sampler_state"  # Of samplers with `state_dict` only.
_GENERATORS = "sampler_generators"  # After an epoch that was left early only.

_NEWER = "a newer headrace saved it: restore it with that version"


def _parameters(
    dataset: Dataset, options: _core.LoaderOptions, source: SamplerSource | None
) -> dict[str, Any]:
    """What fixes the order besides position and own parameters; a restore needs the same."""
    return {
        "version": _VERSION,
        "fingerprint": dataset.fingerprint,
        "order": options.order.name,
        "seed": options.seed,
        # A sampler decides the shuffle, a batch sampler the batches.
        "shuffle": options.shuffle if source is None else None,
        "drop_last": options.drop_last if source is None else source.drop_last,
        "global_batch": (
            options.batch_size * options.world_size if source is None else source.batch_size
        ),
    }


def make_state(
    dataset: Dataset,
    options: _core.LoaderOptions,
    place: Place[EpochPlan],
    source: SamplerSource | None,
    order_parameters: Mapping[str, int | str],
) -> dict[str, Any]:
    """The state before `place`."""
    epoch, step, plan = place
    state = _parameters(dataset, options, source)
    state["order_parameters"] = dict(order_parameters)
    state["epoch"] = epoch
    if source is None:
        state["samples"] = step * state["global_batch"]
    else:
        state["samples"] = plan.samples_before(step) if plan is not None else 0
        # The sampler decides the order: the state identifies its epoch by hash and by the number of
        # epochs before, and the position by batches.
        state["sampler_step"] = step
        state["sampler_hash"] = plan.hash if plan is not None else None
        state["sampler_epoch"] = plan.sampler_epoch if plan is not None else source.epoch
        state["sampler_draws"] = source.drawn - (plan is not None)
        own = source.state_before(plan)
        if own is not None:
            state[_OWN] = own
        generators = source.generators_before(plan)
        if generators is not None:
            state[_GENERATORS] = generators
        # Between two epochs nothing is drawn: the previous epoch identifies the sampler.
        last = source.last if plan is None else None
        state["sampler_last_hash"] = last.hash if last is not None else None
        state["sampler_last_epoch"] = last.epoch if last is not None else None
    return state


def check_state(
    state: Any, dataset: Dataset, options: _core.LoaderOptions, source: SamplerSource | None
) -> tuple[int, int]:
    """(epoch, step) of a state; raises, naming the difference, if it is of something else."""
    if not isinstance(state, Mapping) or "version" not in state:
        raise InvalidArgumentError(
            f"state: got {type(state).__name__} without a version, must be what state_dict() gave"
        )
    if not _same(state["version"], _VERSION):
        newer = (whole(state["version"]) or 0) > _VERSION
        raise FailedPreconditionError(
            f"state: of version {shown(state['version'])}, this headrace reads version {_VERSION}"
            + (f": {_NEWER}" if newer else "")
        )
    expected = _parameters(dataset, options, source)
    _check_keys(state, (*expected, *_POSITION))
    with_sampler = source is not None
    if with_sampler != ("sampler_step" in state):
        saved, now = ("with", "without") if "sampler_step" in state else ("without", "with")
        raise FailedPreconditionError(
            f"state: saved {saved} a sampler, restored in a loader {now} one"
        )
    _check_unknown(
        state,
        (*expected, *_POSITION, *((*_SAMPLER, *_LAST, _OWN, _GENERATORS) if with_sampler else ())),
    )
    for key, value in expected.items():
        if not _same(state[key], value):
            raise FailedPreconditionError(
                f"state: saved with {key} {shown(state[key])}, restored in a loader with {value!r}"
                + _remedy(key)
            )
    if not isinstance(state["order_parameters"], Mapping):
        raise InvalidArgumentError(
            f"state: order_parameters is {shown(state['order_parameters'])}, must be a dict"
        )
    epoch = integer("state epoch", state["epoch"], 0, 2**24 - 1)
    if with_sampler:
        _check_keys(state, _SAMPLER)
        if any(key in state for key in _LAST):
            _check_keys(state, _LAST)
        integer("state sampler_draws", state["sampler_draws"], 0, 2**24)
        for key in ("sampler_epoch", "sampler_last_epoch"):
            if state.get(key) is not None:
                integer(f"state {key}", state[key], -(2**62), 2**62)
        if _GENERATORS in state:
            check_saved(state[_GENERATORS])
        for key in ("sampler_hash", "sampler_last_hash"):
            if not isinstance(state.get(key), (str, NoneType)):
                raise InvalidArgumentError(f"state: {key} is {shown(state[key])}, must be text")
        return epoch, integer("state sampler_step", state["sampler_step"], 0, 2**62)
    samples = integer("state samples", state["samples"], 0, 2**62)
    step, rest = divmod(samples, expected["global_batch"])
    if rest:
        raise InvalidArgumentError(
            f"state: samples {samples} is no multiple of the global batch "
            f"{expected['global_batch']}"
        )
    return epoch, step


def order_parameters_to_adopt(
    state: Mapping[str, Any], given: Mapping[str, int | str], known: Mapping[str, int | str]
) -> dict[str, int | str]:
    """The order's parameters in the state; a restore uses them for those left to defaults.

    They must be those of `known`, the loader's own; a `given` one must equal the state's.
    """
    order = state["order"]
    saved = parameters_now(order, state["order_parameters"])
    for key in [*known, *saved]:
        if key not in saved or key not in known:
            what = "is missing" if key in known else "is none of them"
            raise InvalidArgumentError(
                f"state: order_parameters: {shown(key)} {what}; a state of order {order!r} has "
                f"{', '.join(known) or 'none'}: give what state_dict() gave, unchanged"
                + (f"; or {_NEWER}" if key not in known else "")
            )
    for key, value in saved.items():
        saved[key] = _order_parameter(key, value, known[key])
    for key, value in given.items():
        if saved[key] != value:
            raise FailedPreconditionError(
                f"state: saved with {key} {shown(saved[key])} of order {order!r}, restored "
                f"in a loader with {value!r}: leave it out, or give the same"
            )
    return saved


def _order_parameter(key: str, value: Any, like: int | str) -> int | str:
    name = f"state order_parameters {key}"
    if isinstance(like, int):
        return integer(name, value, 0, 2**63 - 1)
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name}: got {shown(value)}, must be text")
    return value


def _same(saved: Any, value: Any) -> bool:
    """Equal, and of the same kind: True is not 1, and an array is equal to nothing."""
    if isinstance(value, int) and not isinstance(value, bool):
        return whole(saved) == value
    return type(saved) is type(value) and bool(saved == value)


def _check_keys(state: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        if key not in state:
            raise InvalidArgumentError(f"state: {key!r} is missing")


def _check_unknown(state: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuses other keys: a newer version writes one if something else is to be continued, too."""
    unknown = [key for key in state if key not in known]
    if unknown:
        raise InvalidArgumentError(
            f"state: {shown(unknown[0])} is not a part of a state that this headrace knows: give "
            f"what state_dict() gave, unchanged; or {_NEWER}"
        )


def _remedy(key: str) -> str:
    if key == "fingerprint":
        return ": another dataset, or its files have changed since"
    if key == "global_batch":
        return ": on another number of ranks choose batch_size so that batch_size x ranks is equal"
    return ""
