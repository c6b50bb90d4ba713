"""A loader's state: a small dict that says where it is, and of what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace import _core
from headrace._arguments import integer
from headrace._dataset import Dataset
from headrace._loading.sampling import EpochPlan, SamplerSource
from headrace.errors import FailedPreconditionError, InvalidArgumentError

_VERSION = 1


def _parameters(
    dataset: Dataset, options: _core.LoaderOptions, source: SamplerSource | None
) -> dict[str, Any]:
    """What fixes the order besides position and own parameters; a restore needs the same."""
    return {
        "version": _VERSION,
        "fingerprint": dataset.fingerprint,
        "order": options.order.name,
        "seed": options.seed,
        # A sampler decides itself what is shuffled, a batch sampler what is a batch.
        "shuffle": options.shuffle if source is None else None,
        "drop_last": options.drop_last if source is None else source.drop_last,
        "global_batch": (
            options.batch_size * options.world_size if source is None else source.batch_size
        ),
    }


def make_state(
    dataset: Dataset,
    options: _core.LoaderOptions,
    epoch: int,
    step: int,
    source: SamplerSource | None,
    plan: EpochPlan | None,
    order_parameters: Mapping[str, int | str],
) -> dict[str, Any]:
    """The state before step `step` of `epoch`."""
    state = _parameters(dataset, options, source)
    state["order_parameters"] = dict(order_parameters)
    state["epoch"] = epoch
    if source is None:
        state["samples"] = step * state["global_batch"]
    else:
        state["samples"] = plan.samples_before(step) if plan is not None else 0
        # The order is the sampler's: its epoch is known by its hash and by how many it gave before,
        # the position by its batches.
        state["sampler_step"] = step
        state["sampler_hash"] = plan.hash if plan is not None else None
        state["sampler_epoch"] = source.epoch
        state["sampler_draws"] = source.drawn - (plan is not None)
    return state


def check_state(
    state: Any, dataset: Dataset, options: _core.LoaderOptions, source: SamplerSource | None
) -> tuple[int, int]:
    """(epoch, step) of a state of this dataset and these parameters; else the difference, named."""
    if not isinstance(state, Mapping) or "version" not in state:
        raise InvalidArgumentError(
            f"state: got {type(state).__name__} without a version, must be what state_dict() gave"
        )
    if state["version"] != _VERSION:
        raise FailedPreconditionError(
            f"state: of version {state['version']!r}, this headrace reads version {_VERSION}"
        )
    expected = _parameters(dataset, options, source)
    _check_keys(state, (*expected, "order_parameters", "epoch", "samples"))
    with_sampler = source is not None
    if with_sampler != ("sampler_step" in state):
        saved, now = ("with", "without") if "sampler_step" in state else ("without", "with")
        raise FailedPreconditionError(
            f"state: saved {saved} a sampler, restored in a loader {now} one"
        )
    for key, value in expected.items():
        if state[key] != value:
            raise FailedPreconditionError(
                f"state: saved with {key} {state[key]!r}, restored in a loader with {value!r}"
                + _remedy(key)
            )
    if not isinstance(state["order_parameters"], Mapping):
        raise InvalidArgumentError(
            f"state: order_parameters is {state['order_parameters']!r}, must be a dict"
        )
    epoch = integer("state epoch", state["epoch"], 0, 2**24 - 1)
    if with_sampler:
        _check_keys(state, ("sampler_hash", "sampler_epoch", "sampler_draws"))
        integer("state sampler_draws", state["sampler_draws"], 0, 2**24)
        if state["sampler_epoch"] is not None:
            integer("state sampler_epoch", state["sampler_epoch"], 0, 2**62)
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
    state: Mapping[str, Any], given: Mapping[str, int | str]
) -> dict[str, int | str]:
    """The state's parameters of its order: a restore takes those that were left to their defaults.

    One that was `given` must be the state's.
    """
    saved = dict(state["order_parameters"])
    for key, value in saved.items():
        if not isinstance(key, str) or isinstance(value, bool) or not isinstance(value, (int, str)):
            raise InvalidArgumentError(f"state: order_parameters has {key!r}: {value!r}")
        if isinstance(value, int):
            integer(f"state order_parameters {key}", value, 0, 2**63 - 1)
    for key, value in given.items():
        if key not in saved or saved[key] != value:
            raise FailedPreconditionError(
                f"state: saved with {key} {saved.get(key)!r} of order {state['order']!r}, restored "
                f"in a loader with {value!r}: leave it out, or give the same"
            )
    return saved


def _check_keys(state: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        if key not in state:
            raise InvalidArgumentError(f"state: {key!r} is missing")


def _remedy(key: str) -> str:
    if key == "fingerprint":
        return ": it is of other files, or they changed"
    if key == "global_batch":
        return ": on another number of ranks choose batch_size so that batch_size x ranks is equal"
    return ""
