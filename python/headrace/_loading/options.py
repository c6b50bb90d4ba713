"""The core's options from a loader's arguments."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable
from typing import Any

from headrace import _core
from headrace import profile as machines
from headrace._arguments import choice, flag, given_path, integer, memory_bytes
from headrace._dataset import Dataset, image_folder
from headrace._dataset.decoding import pillow_is_installed
from headrace._loading.arguments import field_names, field_transforms
from headrace._nodes.ranks import Ranks
from headrace._options.groups import Cache, Engine, group
from headrace._signature import OnError, words
from headrace._workers._options import Native
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.formats._base.format import remedies
from headrace.formats._base.outside import check_outside
from headrace.orders import Order, core_order
from headrace.tiers import (
    PLACEMENTS,
    CoreTier,
    Part,
    Tier,
    core_tiers,
    needs_tiers,
    profile_with_tiers,
)

EPOCHS_MAX = 2**24
_UNCHECKED = _core.EncodedImages.UNCHECKED


def _encoded_images() -> _core.EncodedImages:
    """The check of encoded images that suits the decoders of `headrace._workers` here."""
    if pillow_is_installed():
        return _core.EncodedImages.DECODABLE_OR_OTHER_KIND
    return _core.EncodedImages.DECODABLE


def core_options(
    dataset: Dataset,
    order: Order,
    *,
    batch_size: int = 1,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    transform: Native | None = None,
    fields: Iterable[str] | None = None,
    decoded: Collection[str] = (),
    epochs: int | None = None,
    ranks: Ranks | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    on_error: str = "raise",
    tiers: Tier | Iterable[Tier] | None = None,
    cache: Cache | None = None,
    engine: Engine | None = None,
) -> _core.LoaderOptions:
    """Takes the arguments of `Loader`; `decoded` are the fields that workers decode.

    Raises InvalidArgumentError, which names the invalid argument.
    """
    cache, engine = group("cache", cache, Cache), group("engine", engine, Engine)
    choice("Engine.io", engine.io, tuple(_core.stores()))
    choice("on_error", on_error, words(OnError))
    options = _core.LoaderOptions()
    names = field_names(dataset, fields)
    for name, each in field_transforms(dataset, names, transform).items():
        if isinstance(each, _core.SoundTransform):
            options.add_field(name, sound=each)
            continue
        checked = on_error == "substitute" and name in decoded  # Workers cannot substitute.
        options.add_field(name, each, _encoded_images() if checked else _UNCHECKED)
    for name in dataset.nesting.hidden(names):
        options.add_field(name, None, _UNCHECKED)
    options.batch_size = integer("batch_size", batch_size, 1, 2**24)
    ranks = ranks or Ranks()
    options.rank, options.world_size = ranks.rank, ranks.world_size
    options.seed = integer("seed", seed, 0, 2**64 - 1)
    options.shuffle = flag("shuffle", shuffle)
    options.drop_last = flag("drop_last", drop_last)
    options.epochs = EPOCHS_MAX if epochs is None else integer("epochs", epochs, 1, EPOCHS_MAX)
    options.memory_bytes = memory_bytes(memory)
    options.threads = 0 if threads is None else integer("threads", threads, 1, 1024)
    if engine.prefetch is not None:
        options.batches_ahead = integer("Engine.prefetch", engine.prefetch, 1, 4096)
    options.io = engine.io
    options.set_remedies(remedies(dataset.format_row, dataset.index))
    options.substitute = on_error == "substitute"
    options.verify = flag("Engine.verify", engine.verify)
    options.order = core_order(order, dataset)
    budget = cache.budget
    if budget is not None:
        _check_part(budget, memory, tiers)
        options.memory_bytes = budget.memory
    images = image_folder(dataset)
    wanted = list(budget.tiers) if budget is not None else core_tiers(tiers, images=images)
    for tier in wanted:
        if tier.path:  # A budget made its tiers without this check.
            check_outside("tiers: folder", tier.path, images, is_folder=True)
    set_tiers(options, wanted, cache.placement, cache.horizon)
    if engine.profile is not None:
        set_profile(options, profile_with_tiers(_machine(engine.profile), wanted))
    if not isinstance(engine.schedule, (str, os.PathLike)):
        raise InvalidArgumentError(
            f"Engine.schedule: got {engine.schedule!r}, must be the name of a policy, or a "
            "file that `headrace plan --schedule` wrote"
        )
    options.schedule = given_path("Engine.schedule", engine.schedule)  # The core checks the names.
    return options


def set_profile(options: _core.LoaderOptions, machine: machines.MachineProfile) -> None:
    """Writes a profile's measurements into the options, for the tiers of the options."""
    options.set_model(machine.to_model())
    for row in machine.preprocess:
        options.add_preprocess(row.transform, row.bytes, row.threads, row.count, row.seconds)


def profile_learned(
    profile: machines.MachineProfile | str | os.PathLike[str] | None, core: Any
) -> machines.MachineProfile:
    """The loader's profile, with the preprocessing times that the loader measured."""
    if profile is None:
        raise FailedPreconditionError(
            "saving a profile: the loader was made without Engine.profile, so there is none to add "
            "to; measure one with `headrace profile`"
        )
    rows = tuple(machines.Preprocess(*row) for row in core.decode_times())
    return dataclasses.replace(_machine(profile), preprocess=rows)


def _machine(profile: Any) -> machines.MachineProfile:
    if isinstance(profile, machines.MachineProfile):
        return profile
    if not isinstance(profile, (str, os.PathLike)):
        raise InvalidArgumentError(
            f"Engine.profile: got {profile!r}, must be what headrace.profile.load() returns, or "
            "a file"
        )
    return machines.load(profile)


def _check_part(
    budget: Part, memory: int | str | None, tiers: Tier | Iterable[Tier] | None
) -> None:
    if not isinstance(budget, Part):
        raise InvalidArgumentError(
            f"Cache.budget: got {budget!r}, must be what headrace.tiers.Budget.part() returns"
        )
    if memory is not None or tiers is not None:
        raise InvalidArgumentError("Cache.budget decides memory and tiers: leave these two out")


def set_tiers(
    options: _core.LoaderOptions, tiers: list[CoreTier], placement: str, horizon: int | None
) -> None:
    """Writes the tiers and their placement into the options."""
    choice("Cache.placement", placement, PLACEMENTS)
    if not tiers and needs_tiers(placement):
        raise InvalidArgumentError(
            f"Cache(placement={placement!r}) without tiers=: there is nothing to place; say what "
            'may be used, as tiers=[headrace.tiers.Ram("4GiB")]'
        )
    if not tiers and horizon is not None:
        raise InvalidArgumentError(
            f"Cache(horizon={horizon!r}) without tiers=: only what is kept is planned ahead; leave "
            "it out"
        )
    for tier in tiers:
        options.add_tier(tier.path, tier.capacity_bytes, tier.threads)
    options.placement = placement
    if horizon is not None:
        options.horizon_epochs = integer("Cache.horizon", horizon, 1, EPOCHS_MAX)
    elif options.epochs < EPOCHS_MAX:
        options.horizon_epochs = options.epochs


def set_order_parameters(options: _core.LoaderOptions, parameters: dict[str, int | str]) -> None:
    """Sets other parameters of the same order. Assigns a copy, as `options` returns copies."""
    spec = options.order
    spec.parameters = parameters
    options.order = spec
