"""What a loader's arguments mean for its dataset, in this process and this job."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace import _core
from headrace import _signature as signature
from headrace import profile as machines
from headrace._arguments import choice, flag, given_path, integer, memory_bytes
from headrace._dataset import Dataset, Mixture, image_folder
from headrace._dataset.decoding import pillow_is_installed
from headrace._loading.arguments import (
    batch_kinds,
    check_names_fields,
    check_sampler_fits,
    check_samplers,
    field_kinds,
    field_names,
    field_transforms,
    wanted_fields,
)
from headrace._loading.sampling import (
    BATCH_MAX,
    SamplerSource,
    planned_batch_size,
    sampler_source,
)
from headrace._names import OrderName
from headrace._nodes.plan import (
    NodePlan,
    check_order_nodes,
    node_plan,
    options_for_nodes,
    what_nodes_share,
)
from headrace._nodes.process import NodePlace, chosen_node, node_place
from headrace._nodes.ranks import Ranks
from headrace._options.decoded import decoded_images, refuse_nodes
from headrace._options.groups import (
    Cache,
    EngineOptions,
    Job,
    Output,
    Workers,
    group,
    group_or_first,
)
from headrace._workers import (
    Transform,
    batch_type,
    dict_type,
    options_for_workers,
    split_transform,
)
from headrace._workers._options import Native, WorkerOptions
from headrace._workers._output import SAMPLE_ID, check_ids
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.formats._base.cache import INDEX_SUFFIX
from headrace.formats._base.format import remedies
from headrace.formats._base.outside import check_outside
from headrace.formats._files.objects import check_objects
from headrace.orders import Order, as_order, core_order
from headrace.tiers import (
    PLACEMENTS,
    Budget,
    CoreTier,
    Part,
    Tier,
    core_tiers,
    needs_tiers,
    profile_with_tiers,
)

EPOCHS_MAX = 2**24
_REMEDIES = ("changed", "broken_link", "special")
"""What the errors of a store advise about."""


@dataclass(frozen=True, kw_only=True)
class LoaderArguments:
    """What the user gave, unchecked, but for the dataset; `Loader` says what each means."""

    batch_size: int = 1
    shuffle: bool = True
    order: Order | OrderName = "exact"
    seed: int = 0
    drop_last: bool = False
    transform: Transform = None
    sampler: Iterable[Any] | None = None
    batch_sampler: Iterable[Iterable[Any]] | None = None
    epochs: int | None = None
    memory: int | str | Part | None = None
    threads: int | None = None
    tiers: Tier | Iterable[Tier] | Cache | None = None
    workers: int | Workers | None = None
    on_error: signature.OnError = "raise"
    output: signature.Arrays | Output = "auto"
    job: Job | None = None
    engine: EngineOptions | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether a sampler decides which samples come when."""
        return self.sampler is not None or self.batch_sampler is not None


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The options of a rank's core, and what else follows from the arguments of its loader."""

    options: _core.LoaderOptions
    ranks: Ranks
    place: NodePlace | None
    """At the node process; None: the engine is in this process."""
    nodes: NodePlan | None
    """How this node takes part in the job; None: other nodes are not asked."""
    part: Part | None
    """The loader's part of a budget, from which memory and tiers are."""
    source: SamplerSource | None
    kinds: Mapping[str, str]
    """Of the fields, as batches have them, in their order."""
    keys: Sequence[str] | None
    """The names of the fields in batches that are dicts; None: these are named tuples."""
    native: Native | None
    """The part of the transform that the core applies."""
    python: WorkerOptions | None
    """The part that the user's functions apply."""
    output: Output

    @property
    def batch(self) -> Callable[..., Any]:
        """Makes a batch of its fields, and of the numbers of its samples."""
        names = [*(self.keys or self.kinds), *([SAMPLE_ID] if self.output.ids else [])]
        return batch_type(names) if self.keys is None else dict_type(names)


def resolve(dataset: Dataset, arguments: LoaderArguments) -> Resolved:
    """Resolves the arguments. Makes the folders of tiers, and opens nothing.

    Raises InvalidArgumentError, which names the invalid argument.
    """
    order = as_order(arguments.order)
    job = group("job", arguments.job, Job)
    ranks = Ranks(job, with_sampler=arguments.is_sampled)
    check_samplers(
        arguments.sampler, arguments.batch_sampler, arguments.batch_size, arguments.drop_last
    )
    if arguments.is_sampled and isinstance(dataset, Mixture):
        raise InvalidArgumentError(
            "sampler= of a mixture: a sampler decides which samples come, and so do the weights; "
            "leave one of them out"
        )
    output = group_or_first(arguments.output, Output)
    ids = flag("Output.ids", output.ids)
    names, keys = wanted_fields(output.fields, ids=ids)
    kinds = batch_kinds(field_kinds(dataset, names), arguments.transform)
    native, python = split_transform(
        arguments.transform, kinds, workers=arguments.workers, output=output
    )
    check_names_fields(keys, python)
    options = core_options(
        dataset,
        arguments,
        ranks,
        fields=kinds,
        native=native,
        python=python,
        order=core_order(order, dataset),
    )
    shared = what_nodes_share(options)
    node = chosen_node(job.node, ranks, shared, arguments.is_sampled)
    place = node_place(node, ranks)
    check_order_nodes(options.order, ranks, place)
    nodes = node_plan(node, ranks, place, shared)
    if nodes is not None:
        refuse_nodes(options)
    source = None
    if arguments.is_sampled:
        check_sampler_fits(order, place)
        source = sampler_source(
            arguments.sampler,
            arguments.batch_sampler,
            options,
            bool(arguments.drop_last),
            len(dataset),
        )
    if ids and (python is None or python.are_fields):
        check_ids(dataset.path, keys or kinds)
    return Resolved(
        options=options.replace(**options_for_nodes(nodes)),
        ranks=ranks,
        place=place,
        nodes=nodes,
        part=arguments.memory if isinstance(arguments.memory, Part) else None,
        source=source,
        kinds=kinds,
        keys=keys,
        native=native,
        python=python,
        output=output,
    )


def core_options(
    dataset: Dataset,
    arguments: LoaderArguments,
    ranks: Ranks | None = None,
    *,
    fields: Iterable[str] | None = None,
    native: Native | None = None,
    python: WorkerOptions | None = None,
    order: _core.OrderSpec | None = None,
    tiers: Sequence[CoreTier] | None = None,
) -> _core.LoaderOptions:
    """Resolves the arguments of one rank's `Loader`, but for its nodes.

    Of what follows from other arguments (`ranks`, `order`, `tiers`) None makes it here. `native`
    and `python` are the parts of the transform.

    Raises InvalidArgumentError, which names the invalid argument.
    """
    cache, engine = (
        group_or_first(arguments.tiers, Cache),
        group("engine", arguments.engine, EngineOptions),
    )
    choice("EngineOptions.io", engine.io, tuple(_core.stores()))
    choice("on_error", arguments.on_error, signature.words(signature.OnError))
    kinds = _core_fields(dataset, arguments.on_error, fields, native, python)
    job = _job(arguments, ranks or Ranks(arguments.job))
    members: dict[str, Any] = {
        "memory_bytes": _memory_bytes(arguments.memory),
        "threads": 0
        if arguments.threads is None
        else integer("threads", arguments.threads, 1, 1024),
        "io": engine.io,
        "on_error": _core.OnError[arguments.on_error.upper()],
        "verify": flag("EngineOptions.verify", engine.verify),
    }
    if engine.prefetch is not None:
        members["prefetch"] = integer("EngineOptions.prefetch", engine.prefetch, 1, 4096)
    if order is None:
        order = core_order(as_order(arguments.order), dataset)
    if tiers is None:
        tiers = _loader_tiers(dataset, cache, arguments.memory)
    members["tiers"] = _placed(tiers, cache, job["epochs"])
    if any(tier.decoded for tier in tiers):
        members["tiers"] |= decoded_images(dataset, tiers, order.name, kinds)
    if engine.profile is not None:
        members |= _measured(profile_with_tiers(_machine(engine.profile), list(tiers)))
    if not isinstance(engine.schedule, (str, os.PathLike)):
        raise InvalidArgumentError(
            f"EngineOptions.schedule: got {engine.schedule!r}, must be the name of a policy, or a "
            "file that `headrace plan --schedule` wrote"
        )
    return _core.LoaderOptions(
        fields=kinds,
        job=job,
        order=order,
        remedies=dict(zip(_REMEDIES, remedies(dataset.format_row, dataset.index), strict=True)),
        # The core checks names.
        schedule=given_path("EngineOptions.schedule", engine.schedule),
        **members,
        **options_for_workers(python),
    )


def _core_fields(
    dataset: Dataset,
    on_error: str,
    fields: Iterable[str] | None,
    native: Native | None,
    python: WorkerOptions | None,
) -> list[dict[str, Any]]:
    """The fields that the core delivers, and what it does with each."""
    names = field_names(dataset, fields)
    decoded = python.decoded if python is not None else ()
    delivered: list[dict[str, Any]] = []
    for name, transform in field_transforms(dataset, names, native).items():
        kind = "sound" if isinstance(transform, _core.SoundTransform) else "image"
        checked = on_error == "substitute" and name in decoded  # Workers cannot substitute.
        encoded = _encoded_images() if checked else _core.EncodedImages.UNCHECKED
        delivered.append({"name": name, kind: transform, "encoded": encoded})
    return [*delivered, *({"name": name} for name in dataset.nesting.hidden(names))]


def _encoded_images() -> _core.EncodedImages:
    """The check of encoded images that suits the decoders of `headrace._workers` here."""
    if pillow_is_installed():
        return _core.EncodedImages.DECODABLE_OR_OTHER_KIND
    return _core.EncodedImages.DECODABLE


def _job(arguments: LoaderArguments, ranks: Ranks) -> dict[str, Any]:
    """The rank's part of the job. A sampler decides about batches itself, so the plan, which is
    then not followed, is one that every dataset has."""
    sampled = arguments.is_sampled
    drop_last = flag("drop_last", arguments.drop_last)
    return {
        "batch_size": planned_batch_size(
            arguments.batch_sampler, integer("batch_size", arguments.batch_size, 1, BATCH_MAX)
        ),
        "rank": ranks.rank,
        "world_size": ranks.world_size,
        "seed": integer("seed", arguments.seed, 0, 2**64 - 1),
        "shuffle": flag("shuffle", arguments.shuffle),
        "drop_last": drop_last and not sampled,
        "epochs": (
            EPOCHS_MAX
            if arguments.epochs is None
            else integer("epochs", arguments.epochs, 1, EPOCHS_MAX)
        ),
    }


def _loader_tiers(
    dataset: Dataset, cache: Cache, memory: int | str | Part | None
) -> Sequence[CoreTier]:
    """The tiers of a loader, whose folders are made, or those of its part of a budget."""
    images = image_folder(dataset)
    if not isinstance(memory, Part):
        made = core_tiers(cache.tiers, images=images)
        _check_not_stale(dataset, made)
        return made
    if cache.tiers is not None:
        raise InvalidArgumentError(
            f"memory: {memory} has the budget's tiers, too: leave tiers out, or give "
            "tiers=hr.Cache(placement=...) without tiers"
        )
    for tier in memory.tiers:
        if tier.path:  # A budget made its tiers without this check.
            check_outside("tiers: folder", tier.path, images, is_folder=True)
    return memory.tiers


def _check_not_stale(dataset: Dataset, tiers: Sequence[CoreTier]) -> None:
    """What a folder has of an earlier job is not asked of the store: objects that changed since
    would not be noticed, as nothing compared an index file with the store when it was opened."""
    has_some = any(tier.path and os.listdir(tier.path) for tier in tiers)
    if has_some and dataset.path.endswith(INDEX_SUFFIX):
        check_objects(dataset.index, dataset.format_row.remedy(dataset.index))


def _placed(tiers: Sequence[CoreTier], cache: Cache, epochs: int) -> dict[str, Any]:
    """The tiers and their placement."""
    placement, horizon = cache.placement, cache.horizon
    choice("Cache.placement", placement, PLACEMENTS)
    if not tiers and needs_tiers(placement):
        raise InvalidArgumentError(
            f"Cache(placement={placement!r}) without tiers: there is nothing to place; say what "
            f'may be used, as tiers=hr.Cache(hr.tiers.Ram("4GiB"), placement={placement!r})'
        )
    if not tiers and horizon is not None:
        raise InvalidArgumentError(
            f"Cache(horizon={horizon!r}) without tiers: only what is kept is planned ahead; leave "
            "it out"
        )
    placed: dict[str, Any] = {
        "tiers": [tier.members() for tier in tiers],
        "placement": placement,
    }
    if horizon is not None:
        placed["horizon_epochs"] = integer("Cache.horizon", horizon, 1, EPOCHS_MAX)
    elif epochs < EPOCHS_MAX:
        placed["horizon_epochs"] = epochs
    return placed


def _measured(machine: machines.MachineProfile) -> dict[str, Any]:
    """A profile, whose tiers are those of the loader."""
    preprocess = [dataclasses.asdict(row) for row in machine.preprocess]
    return {"model": machine.to_model(), "preprocess": preprocess}


def profile_learned(
    profile: machines.MachineProfile | str | os.PathLike[str] | None, core: Any
) -> machines.MachineProfile:
    """The loader's profile, with the preprocessing times that the loader measured."""
    if profile is None:
        raise FailedPreconditionError(
            "saving a profile: the loader was made without EngineOptions.profile, so there is none "
            "to add to; measure one with `headrace profile`"
        )
    rows = tuple(machines.Preprocess(*row) for row in core.decode_times())
    return dataclasses.replace(_machine(profile), preprocess=rows)


def _machine(profile: Any) -> machines.MachineProfile:
    if isinstance(profile, machines.MachineProfile):
        return profile
    if not isinstance(profile, (str, os.PathLike)):
        raise InvalidArgumentError(
            f"EngineOptions.profile: got {profile!r}, must be what headrace.profile.load() "
            "returns, or a file"
        )
    return machines.load(profile)


def _memory_bytes(memory: int | str | Part | None) -> int:
    """The limit of the loader's memory; 0: its default."""
    if isinstance(memory, Part):
        return memory.memory
    if isinstance(memory, Budget):
        raise InvalidArgumentError(
            "memory: got a headrace.tiers.Budget, which several loaders share: give a part of it, "
            "as memory=budget.part('train', 0.9)"
        )
    return memory_bytes(memory)
