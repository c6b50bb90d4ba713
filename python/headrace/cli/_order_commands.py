"""`headrace order`: the samples of an order, and the planner's counters."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headrace import _core, _dataset
from headrace._arguments import integer
from headrace.cli._commands import find_dataset, format_row
from headrace.cli._parts import orders as _orders
from headrace.cli._parts.options import FormatName, FormatOptions, Skip, SplitName
from headrace.errors import InvalidArgumentError
from headrace.formats._base.format import Format

_IDS_A_LINE = 16

Dataset = Annotated[
    str | None,
    typer.Argument(help="A folder, a pack or an index file.", show_default=False),
]
OrderName = Annotated[str, typer.Option(help="exact, batch, epoch or redox.")]
Samples = Annotated[int | None, typer.Option(help="Plan this many samples, without a dataset.")]
BlockSamples = Annotated[
    int | None, typer.Option(help="Samples a block; default: the dataset's blocks, or 64.")
]
Memory = Annotated[
    str | None, typer.Option(help="Memory of the order's pool: 10% of the dataset, or bytes.")
]
Batch = Annotated[int | None, typer.Option(help="Samples a step, of all ranks; default: 256.")]
Epochs = Annotated[int, typer.Option(help="Number of epochs to plan.")]
Ranks = Annotated[int, typer.Option(help="Ranks that share each batch.")]
Seed = Annotated[int, typer.Option(help="Seed of the order.")]
DropLast = Annotated[bool, typer.Option("--drop-last", help="Drop the last, smaller batch.")]
Unshuffled = Annotated[bool, typer.Option("--no-shuffle", help="Samples in storage order.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the order (headrace docs orders); may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]


def open_source(
    dataset: str | None,
    settings: list[str] | None,
    samples: int | None,
    block_samples: int | None,
    skip: list[str] | None,
    row: Format | None,
    split: str | None,
) -> tuple[_orders.Source, dict[str, str]]:
    """The samples to plan, and the order's parameters as given. `row`: the dataset's format."""
    parameters = _orders.parse_settings(settings)
    if row is not None and dataset is None:
        raise InvalidArgumentError("--format: says how to read a DATASET; give its path, too")
    if split is not None and dataset is None:
        raise InvalidArgumentError("--split: is a part of a DATASET; give its path, too")
    if skip and dataset is None:
        raise InvalidArgumentError("--skip: leaves out samples of a DATASET; give its path, too")
    found = None if dataset is None else find_dataset(dataset, skip, row, split)
    if found is not None:
        _dataset.check_has_samples("planning dataset", found)
    return _orders.make_source(found, samples, block_samples), parameters


def order(
    dataset: Dataset = None,
    order: OrderName = "exact",
    samples: Samples = None,
    block_samples: BlockSamples = None,
    memory: Memory = None,
    batch: Batch = None,
    epochs: Epochs = 1,
    ranks: Ranks = 1,
    rank: Annotated[
        int | None, typer.Option(help="Only this rank's samples; default: all.")
    ] = None,
    seed: Seed = 0,
    drop_last: DropLast = False,
    no_shuffle: Unshuffled = False,
    settings: Settings = None,
    limit: Annotated[
        int | None, typer.Option(help="Number of samples to print; default: 64.")
    ] = None,
    skip: Skip = None,
    format: FormatName = None,
    options: FormatOptions = None,
    split: SplitName = None,
    hash_only: Annotated[bool, typer.Option("--hash", help="Print a hash of the order.")] = False,
    dump: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS", help="Print the planner's state after so many steps, as JSON: redox."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the samples of an order, one after the other, or a hash of them. Reads no sample.

    Example: [bold]headrace order /data/images --order epoch --memory 10% --hash[/bold]
    """
    source, given = open_source(
        dataset, settings, samples, block_samples, skip, format_row(format, options, dataset), split
    )
    planned = _orders.make_planned(
        source,
        order,
        given,
        memory=memory,
        batch=batch,
        ranks=ranks,
        seed=seed,
        shuffle=not no_shuffle,
        drop_last=drop_last,
        epochs=epochs,
    )
    if rank is not None and not 0 <= rank < ranks:
        raise InvalidArgumentError(f"--rank: got {rank}, must be in [0, {ranks - 1}]")
    if limit is not None and limit < 0:
        raise InvalidArgumentError(f"--limit: got {limit}, must be at least 0")
    if dump is not None:
        print(_dump(planned, integer("--dump", dump, 1, 2**40)))
        return
    if not as_json and not hash_only:
        _print_first(planned, rank, 64 if limit is None else limit)
        return
    result = _plan(planned, rank, limit)
    if as_json:
        print(json.dumps(result))
    else:
        print(result["hash"])


def _dump(planned: _orders.Planned, steps: int) -> str:
    stream = planned.stream(0)
    stream.ids(steps)
    dumped = stream.dump()
    if not dumped:
        raise InvalidArgumentError(
            f"--dump: order {planned.order} has no state to show, use it with --order redox"
        )
    return dumped


def _plan(planned: _orders.Planned, rank: int | None, limit: int | None) -> dict[str, Any]:
    ranks = range(planned.ranks) if rank is None else [rank]
    streams = [planned.stream(each) for each in ranks]
    hasher = _core.IdHasher()
    first: list[int] = []
    count = 0
    wanted = 64 if limit is None else limit
    for places in _orders.global_ids(streams, planned.batch):
        ids = planned.source.numbers(places)
        hasher.add(ids)
        count += len(ids)
        first += ids[: wanted - len(first)].tolist()
    counters: dict[str, float] = streams[0].counters()
    whole_counters = {
        name: int(each) if each.is_integer() else each for name, each in counters.items()
    }
    return whole_counters | {  # An order may count under one of these names.
        "order": planned.order,
        "parameters": planned.parameters,
        "samples": planned.source.samples,
        "blocks": planned.source.blocks.block_count,
        "batch": planned.batch,
        "ranks": planned.ranks,
        "seed": planned.seed,
        "epochs": planned.epochs,
        "steps_per_epoch": streams[0].steps_per_epoch,
        "count": count,
        "hash": hasher.digest(),
        "resident_bytes": streams[0].resident_units * planned.source.blocks.unit_bytes,
        "ids": first,
    }


def _print_first(planned: _orders.Planned, rank: int | None, limit: int) -> None:
    """Plans only the samples that it prints."""
    ranks = range(planned.ranks) if rank is None else [rank]
    streams = [planned.stream(each) for each in ranks]
    ids: list[int] = []
    for places in _orders.global_ids(streams, planned.batch, limit):
        ids += planned.source.numbers(places[: limit - len(ids)]).tolist()
        if len(ids) >= limit:
            break
    for start in range(0, len(ids), _IDS_A_LINE):
        print(" ".join(map(str, ids[start : start + _IDS_A_LINE])))
    count = planned.positions * planned.epochs // (1 if rank is None else planned.ranks)
    if count > len(ids):
        print(f"... {count - len(ids):,} more; --limit N prints more, --hash a hash of all")
