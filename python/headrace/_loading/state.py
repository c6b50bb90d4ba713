"""A loader's state: a small dict with the position, the dataset and the order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import NoneType
from typing import Any

import numpy as np

from headrace import _core
from headrace._arguments import flag, integer, shown, whole
from headrace._dataset import Dataset, Mixture, left_out_of
from headrace._dataset.left_out import hash_of
from headrace._loading.content import UNREADABLE, Content, difference
from headrace._loading.cursor import Place
from headrace._loading.passes.left import check_saved
from headrace._loading.sampling import EpochPlan, SamplerSource
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.formats._base.cache import kept_index
from headrace.orders import parameters_now

_VERSION = 1

_POSITION = ("order_parameters", "epoch", "samples")
_SAMPLER = ("sampler_step", "sampler_hash", "sampler_epoch", "sampler_draws")
_LAST = ("sampler_last_hash", "sampler_last_epoch")  # Older states have neither of these keys.
_OWN = "sampler_state"  # Of samplers with `state_dict` only.
_CONTENT = ("content", "sampled", "dataset")  # Older states have the fingerprint alone.
_GENERATORS = "sampler_generators"  # After an epoch that was left early only.
_LEFT_OUT = "left_out"  # A hash; of a dataset that leaves samples out only.
_MIXTURE = "mixture"  # Names of its sources, and a hash of its history; of a mixture only.

_GIVE_SAMPLER = "give it the sampler= or batch_sampler= of the run that saved the state"
_LEAVE_SAMPLER = "leave sampler= and batch_sampler= out"
_UNCHANGED = "give what state_dict() gave, unchanged"
_NEWER = "a newer headrace saved it: restore it with that version"


def _parameters(options: _core.LoaderOptions, source: SamplerSource | None) -> dict[str, Any]:
    """What fixes the order besides position and own parameters; a restore needs the same."""
    return {
        "version": _VERSION,
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
    content: Content,
    options: _core.LoaderOptions,
    place: Place[EpochPlan],
    source: SamplerSource | None,
    order_parameters: Mapping[str, int | str],
) -> dict[str, Any]:
    """The state before `place`. Reads some of the data the first time (`Content.sampled`)."""
    epoch, step, plan = place
    state = _parameters(options, source)
    state["fingerprint"] = dataset.fingerprint
    state["content"], state["sampled"] = content.known, content.sampled
    state["dataset"] = content.holds
    left_out = left_out_of(dataset)
    if left_out is not None:
        state[_LEFT_OUT] = hash_of(left_out)
    if isinstance(dataset, Mixture):
        before = dataset.history(epoch, step * state["global_batch"])
        state[_MIXTURE] = {"sources": list(dataset.sources), "history": before}
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
    state: Any,
    dataset: Dataset,
    content: Content,
    options: _core.LoaderOptions,
    source: SamplerSource | None,
    strict: bool = True,
) -> tuple[int, int]:
    """(epoch, step) of a state; raises, naming the difference, if it is of something else.

    Not `strict`: another dataset will do if it has as many samples, and the same fields.
    """
    strict = flag("strict", strict)
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
    expected = _parameters(options, source)
    _check_keys(state, (*expected, "fingerprint", *_POSITION))
    with_sampler = source is not None
    if with_sampler != ("sampler_step" in state):
        saved, now = ("with", "without") if "sampler_step" in state else ("without", "with")
        raise FailedPreconditionError(
            f"state: saved {saved} a sampler, restored in a loader {now} one: "
            + (_GIVE_SAMPLER if saved == "with" else _LEAVE_SAMPLER)
        )
    _check_unknown(
        state,
        (
            *expected,
            "fingerprint",
            *_CONTENT,
            *_POSITION,
            _LEFT_OUT,
            _MIXTURE,
            *((*_SAMPLER, *_LAST, _OWN, _GENERATORS) if with_sampler else ()),
        ),
    )
    has_more = _check_mixture(state, dataset)
    is_other = False if has_more else _check_dataset(state, dataset, content, strict)
    _check_left_out(state, dataset)
    for key, value in expected.items():
        if not _same(state[key], value):
            raise FailedPreconditionError(
                f"state: saved with {key} {shown(state[key])}, restored in a loader with {value!r}"
                + _remedy(key, state[key], source)
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
    if is_other and samples:
        _check_blocks(state, dataset, epoch)
    step, rest = divmod(samples, expected["global_batch"])
    if rest:
        raise InvalidArgumentError(
            f"state: samples {samples} is no multiple of the global batch "
            f"{expected['global_batch']}: {_UNCHANGED}"
        )
    return epoch, step


def order_parameters_to_adopt(
    state: Mapping[str, Any], chosen: Mapping[str, int | str], known: Mapping[str, int | str]
) -> dict[str, int | str]:
    """The order's parameters in the state; a restore uses them for those left to defaults.

    They must be those of `known`, the loader's own; a `chosen` one must equal the state's.
    """
    order = state["order"]
    saved = parameters_now(order, state["order_parameters"])
    if _MIXTURE in saved and _MIXTURE in known:  # Compared by its history.
        saved[_MIXTURE] = known[_MIXTURE]
    for key in [*known, *saved]:
        if key not in saved or key not in known:
            what = "is missing" if key in known else "is none of them"
            raise InvalidArgumentError(
                f"state: order_parameters: {shown(key)} {what}; a state of order {order!r} has "
                f"{', '.join(known) or 'none'}: {_UNCHANGED}"
                + (f"; or {_NEWER}" if key not in known else "")
            )
    for key, value in saved.items():
        saved[key] = _order_parameter(key, value, known[key])
    for key, value in chosen.items():
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
            raise InvalidArgumentError(f"state: {key!r} is missing: {_UNCHANGED}")


def _check_unknown(state: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuses other keys: a newer version writes one if something else is to be continued, too."""
    unknown = [key for key in state if key not in known]
    if unknown:
        raise InvalidArgumentError(
            f"state: {shown(unknown[0])} is not a part of a state that this headrace knows: "
            f"{_UNCHANGED}; or {_NEWER}"
        )


def _check_dataset(
    state: Mapping[str, Any], dataset: Dataset, content: Content, strict: bool
) -> bool:
    """Whether the files are others, which only `strict=False` takes: a copy has the same.

    Raises FailedPreconditionError if the samples may not be those of the state.
    """
    is_old = not any(key in state for key in _CONTENT)
    if not is_old:
        _check_content(state, content)
    if _same(state["fingerprint"], dataset.fingerprint):
        return False
    why: str | None
    if is_old:
        why = "another dataset, or its files have changed or were copied since"
        if not strict:
            why += "; this state of an earlier headrace does not tell whether strict=False will do"
    elif not strict:
        why = _why_of_another_shape(state, content)
    elif _same(state["content"], content.known):
        why = _why_other_bytes(state["sampled"], content.sampled)
    else:
        why = "another dataset, or its files have changed since"
        saved = kept_index(state["fingerprint"])
        how = None if saved is None else difference(saved, dataset.index)
        if how is not None:
            why += f": {how}"
    if why is None:
        return not _same(state["content"], content.known)
    if strict and _same(state.get("dataset"), content.holds):
        why += (
            "; if sample numbers mean the same there, continue with "
            "load_state_dict(state, strict=False)"
        )
    else:
        why += "; open the dataset that the state was saved with, or start anew without the state"
    raise FailedPreconditionError(
        f"state: saved with fingerprint {shown(state['fingerprint'])}, restored in a loader of "
        f"{dataset.path} with {dataset.fingerprint!r}: {why}"
    )


def _check_blocks(state: Mapping[str, Any], dataset: Dataset, epoch: int) -> None:
    """Raises if the rest of the epoch may be another one, as blocks or their bytes are others."""
    order = _core.find_order(state["order"])
    count = whole(state["order_parameters"].get("block_samples")) or 0
    by_bytes = bool(order.budget_parameter)
    if not order.reads_blocks or (count and not by_bytes):
        return
    saved = kept_index(state["fingerprint"])
    if saved is not None and _blocks_agree(saved, dataset.index, count, by_bytes):
        return
    what = "the sizes of samples" if by_bytes else "the blocks of samples"
    raise FailedPreconditionError(
        f"state: within epoch {epoch} of order {order.name!r}, which depends on {what}: these "
        f"{'may be' if saved is None else 'are'} others in {dataset.path}, so that samples would "
        "come twice, and others not at all; load a state from the end of an epoch, or leave it out "
        f"and call loader.set_epoch({epoch + 1})"
    )


def _blocks_agree(saved: _core.Index, now: _core.Index, count: int, by_bytes: bool) -> bool:
    """Whether both have the same blocks of samples, of `count` if that is not 0; and sizes."""
    before, after = (_core.Blocks.of_index(index, count).bounds() for index in (saved, now))
    return np.array_equal(before, after) and (
        not by_bytes or np.array_equal(_core.stored_bytes(saved), _core.stored_bytes(now))
    )


def _check_left_out(state: Mapping[str, Any], dataset: Dataset) -> None:
    left_out = left_out_of(dataset)
    now = None if left_out is None else hash_of(left_out)
    saved = state.get(_LEFT_OUT)
    if saved is not None and not isinstance(saved, str):
        raise InvalidArgumentError(f"state: {_LEFT_OUT} is {shown(saved)}, must be text")
    if saved == now:
        return
    what = {True: "with samples left out", False: "without samples left out"}
    how = f"{what[saved is not None]}, restored {what[now is not None]}"
    if saved is not None and now is not None:
        how = "with other samples left out"
    raise FailedPreconditionError(
        f"state: saved {how}, so that the order is another one; open the dataset with the skip= of "
        "the run that saved it"
    )


def _check_mixture(state: Mapping[str, Any], dataset: Dataset) -> bool:
    """Whether the loader's mixture has sources that the state's had not.

    Raises FailedPreconditionError if the samples before the state were others.
    """
    saved = state.get(_MIXTURE)
    if saved is None and not isinstance(dataset, Mixture):
        return False
    if saved is None or not isinstance(dataset, Mixture):
        of = {True: "of a mixture", False: "of another dataset"}
        raise FailedPreconditionError(
            f"state: saved in a loader {of[saved is not None]}, restored in one "
            f"{of[saved is None]}; give it the dataset that it was saved with"
        )
    names = saved.get("sources") if isinstance(saved, Mapping) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"state: {_MIXTURE} is {shown(saved)}: {_UNCHANGED}")
    missing = [name for name in names if name not in dataset.sources]
    if missing:
        raise FailedPreconditionError(
            f"state: saved with the source {missing[0]!r}, which this mixture has not; give it the "
            "source, with weight 0 in a stage from now on"
        )
    epoch = integer("state epoch", state["epoch"], 0, 2**24 - 1)
    samples = integer("state samples", state["samples"], 0, 2**62)
    if dataset.history(epoch, samples, names) != saved.get("history"):
        raise FailedPreconditionError(
            f"state: another mixture: before sample {samples:,} of epoch {epoch} its sources, "
            "weights, passes or ends were others; make it as it was, and change weights by a stage "
            "that begins there or later"
        )
    return len(names) < len(dataset.sources)


def _check_content(state: Mapping[str, Any], content: Content) -> None:
    _check_keys(state, _CONTENT)
    for key in ("fingerprint", *_CONTENT):
        is_none = key == "sampled" and content.is_known and state[key] is None
        if not isinstance(state[key], str) and not is_none:
            raise InvalidArgumentError(f"state: {key} is {shown(state[key])}, must be text")


def _why_of_another_shape(state: Mapping[str, Any], content: Content) -> str | None:
    if _same(state["dataset"], content.holds):
        return None
    return (
        f"strict=False needs as many samples and the same fields: the state is of "
        f"{shown(state['dataset'])}, this dataset has {content.holds}"
    )


def _why_other_bytes(saved: Any, now: str | None) -> str | None:
    if UNREADABLE in (saved, now):
        when = "now" if now == UNREADABLE else "when the state was saved"
        return f"all names and sizes are equal, but some of the files could not be compared {when}"
    if _same(saved, now):
        return None
    return "all names and sizes are equal, but bytes of files differ: one of them has changed"


def _remedy(key: str, saved: Any, source: SamplerSource | None) -> str:
    if saved is None:  # A batch sampler decides it.
        return "; give it the batch_sampler= of the run that saved the state"
    if key == "global_batch" and source is not None:
        return (
            f"; make the loader with batch_size={shown(saved)}"  # Of a rank: the sampler divides.
        )
    if key == "global_batch":
        return f"; choose batch_size so that batch_size x ranks is {shown(saved)}"
    return f"; make the loader with {key}={shown(saved)}"
