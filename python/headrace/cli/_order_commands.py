"""`headrace order`: the samples of an order, and the planner's counters."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headrace import _core, _dataset
from headrace._arguments import integer
from headrace.cli._commands import find_dataset, format_row
from headrace.cli._parts import orders as _orders
from headrace.cli._parts.job import OrderOptions, with_options
from headrace.cli._parts.options import Json
from headrace.errors import InvalidArgumentError

_IDS_A_LINE = 16
_OF_DATASET = {
    "format": "says how to read a DATASET",
    "split": "is a part of a DATASET",
    "skip": "leaves out samples of a DATASET",
}


def open_source(job: OrderOptions) -> _orders.Source:
    """The samples to plan."""
    row = format_row(job.format, job.options, job.dataset)
    for option, given in (("format", job.format), ("split", job.split), ("skip", job.skip)):
        if given and job.dataset is None:
            raise InvalidArgumentError(f"--{option}: {_OF_DATASET[option]}; give its path, too")
    if job.dataset is None:
        return _orders.make_source(None, job.samples, job.block_samples)
    found = find_dataset(job.dataset, job.skip, row, job.split)
    _dataset.check_has_samples("planning dataset", found)
    return _orders.make_source(found, job.samples, job.block_samples)


@with_options
def order(
    job: OrderOptions,
    rank: Annotated[
        int | None, typer.Option(help="Only this rank's samples; default: all.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Number of samples to print; default: 64.")
    ] = None,
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
    planned = _orders.make_planned(open_source(job), job)
    if rank is not None and not 0 <= rank < job.ranks:
        raise InvalidArgumentError(f"--rank: got {rank}, must be in [0, {job.ranks - 1}]")
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
