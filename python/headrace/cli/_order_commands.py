"""`headrace order`: the grades of an order, or its samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from headrace import _core, _dataset
from headrace._arguments import integer
from headrace.cli._commands import find_dataset, format_row
from headrace.cli._parts import grades as _grades
from headrace.cli._parts import orders as _orders
from headrace.cli._parts import paper_words as _paper_words
from headrace.cli._parts import quality as _quality
from headrace.cli._parts import uses as _uses
from headrace.cli._parts.job import OrderOptions, with_options
from headrace.cli._parts.options import Json
from headrace.errors import InvalidArgumentError
from headrace.formats._base.outside import check_outside

_IDS_A_LINE = 16
_OF_DATASET = {
    "format": "says how to read a DATASET",
    "split": "is a part of a DATASET",
    "skip": "leaves out samples of a DATASET",
}


@with_options
def order(
    job: OrderOptions,
    ids: Annotated[
        Path | None,
        typer.Option(help="Grade this log of sample numbers (.npy or text) of any loader."),
    ] = None,
    ranks_per_node: Annotated[
        int | None, typer.Option(help="Grade nodes of this many ranks, too.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a chart (.png).")] = None,
    count: Annotated[
        int | None,
        typer.Option("--print", metavar="N", help="Print the first N samples instead of grades."),
    ] = None,
    hash_only: Annotated[
        bool, typer.Option("--hash", help="Print a hash of the samples instead.")
    ] = False,
    uses: Annotated[
        bool,
        typer.Option("--uses", help="Print how often a node uses each sample instead."),
    ] = False,
    rank: Annotated[
        int | None,
        typer.Option(
            help="With --print or --hash: only this rank's samples; with --uses: its node."
        ),
    ] = None,
    dump: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS",
            help="Print the planner's state after so many steps instead, as JSON: redox.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Grade the shuffle of an order, or of the log of any loader; or print the order's samples.

    Grades the effects on training, and says what to change. Prints each measure beside its value
    for a uniform permutation. Default: the order of a Loader on this machine. Reads no sample.

    Example: [bold]headrace order /data/images --order epoch --memory 10% --batch 256[/bold]
    Example: [bold]headrace order /data/images --order epoch --memory 10% --hash[/bold]
    Example: [bold]headrace order /data/images --ranks 16 --epochs 90 --uses[/bold]
    """
    prints = {"--print": count is not None, "--hash": hash_only, "--uses": uses}
    prints["--dump"] = dump is not None
    grades = {"--ids": ids, "--ranks-per-node": None if uses else ranks_per_node, "--plot": plot}
    output = _chosen([option for option, is_set in prints.items() if is_set], grades, rank)
    job = _paper_words.with_blocks(job)
    if output is None:
        _grade(job, ids, ranks_per_node, plot, as_json)
        return
    planned = _planned(_open_source(job), job)
    if rank is not None and not 0 <= rank < planned.ranks:
        raise InvalidArgumentError(f"--rank: got {rank}, must be in [0, {planned.ranks - 1}]")
    if dump is not None:
        print(_dump(planned, integer("--dump", dump, 1, 2**40)))
    elif uses:
        found = _uses.count_uses(planned, ranks_per_node or 1, rank or 0)
        if as_json:
            print(json.dumps(found))
        else:
            _uses.print_uses(found)
    else:
        _print_samples(planned, rank, count, as_json)


def _chosen(output: list[str], grades: dict[str, Any], rank: int | None) -> str | None:
    """The option that says what to print; None: the grades."""
    if len(output) > 1:
        raise InvalidArgumentError(f"{' with '.join(output)}: choose one")
    if output:
        for option, value in grades.items():
            if value is not None:
                raise InvalidArgumentError(f"{option} with {output[0]}: choose one")
    if rank is not None and output in ([], ["--dump"]):
        raise InvalidArgumentError("--rank: selects samples; give --print N, --hash or --uses, too")
    return output[0] if output else None


def _planned(source: _orders.Source, job: OrderOptions) -> _orders.Planned:
    return _orders.make_planned(source, _paper_words.with_parameters(job, source))


def _open_source(job: OrderOptions) -> _orders.Source:
    """The samples to plan."""
    row = format_row(job.format, job.options, job.dataset)
    for option, value in (("format", job.format), ("split", job.split), ("skip", job.skip)):
        if value and job.dataset is None:
            raise InvalidArgumentError(f"--{option}: {_OF_DATASET[option]}; give its path, too")
    if job.dataset is None:
        return _orders.make_source(None, job.samples, job.block_samples)
    dataset = find_dataset(job.dataset, job.skip, row, job.split)
    _dataset.check_has_samples("planning dataset", dataset)
    return _orders.make_source(dataset, job.samples, job.block_samples)


def _grade(
    job: OrderOptions,
    ids: Path | None,
    ranks_per_node: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    if plot is not None and plot.suffix.lower() != ".png":
        raise InvalidArgumentError(f"--plot {plot}: must be a file of suffix .png")
    source = _open_source(job)
    if plot is not None and source.dataset is not None:
        check_outside("--plot", plot, _dataset.image_folder(source.dataset))
    first: _orders.Ids
    if ids is None:
        planned = _planned(source, job)
        result = _quality.measure(planned, 1 if ranks_per_node is None else ranks_per_node)
        first = _quality.first_epoch_ids(planned) if plot else np.empty(0, np.uint64)
    else:
        _refuse_with_ids(job, ranks_per_node)
        log = source.places(_quality.read_ids(ids))
        batch = 256 if job.batch is None else job.batch
        result = _quality.measure_ids(source, log, batch, job.epochs)
        first = log[: len(log) // job.epochs]
    result |= {"samples": source.samples, "blocks": source.blocks.block_count}
    if plot is not None:
        from headrace.cli._plots.quality_plot import draw

        draw(plot, source, first, result)
    if as_json:
        print(json.dumps(result))
    else:
        _grades.print_report(result)


def _refuse_with_ids(job: OrderOptions, ranks_per_node: int | None) -> None:
    defaults = OrderOptions()
    names = ("order", "seed", "drop_last", "no_shuffle", "settings", "memory", "ranks")
    is_set = {name: getattr(job, name) != getattr(defaults, name) for name in names}
    is_set["ranks_per_node"] = ranks_per_node is not None
    for name in filter(is_set.__getitem__, is_set):
        option = "set" if name == "settings" else name.replace("_", "-")
        raise InvalidArgumentError(
            f"--{option} with --ids: it is of an order that is planned, and a log has none of "
            "these: leave one of them out"
        )


def _print_samples(
    planned: _orders.Planned, rank: int | None, count: int | None, as_json: bool
) -> None:
    """The first `count`; None: a hash of all."""
    if count is not None and count < 0:
        raise InvalidArgumentError(f"--print: got {count}, must be at least 0")
    ranks = range(planned.ranks) if rank is None else [rank]
    if as_json:
        print(json.dumps(_plan(planned, ranks, count or 0, counts_uses=True)))
    elif count is None:
        print(_plan(planned, ranks, 0, counts_uses=False)["hash"])
    else:
        _print_first(planned, ranks, count)


def _dump(planned: _orders.Planned, steps: int) -> str:
    stream = planned.stream(0)
    stream.ids(steps)
    dumped = stream.dump()
    if not dumped:
        raise InvalidArgumentError(
            f"--dump: order {planned.order} has no state to show, use it with --order redox"
        )
    return dumped


def _plan(
    planned: _orders.Planned, ranks: Sequence[int], limit: int, *, counts_uses: bool
) -> dict[str, Any]:
    """The counters of these ranks' order, and the first `limit` samples; with
    `counts_uses` how often each is delivered."""
    streams = [planned.stream(rank) for rank in ranks]
    hasher = _core.IdHasher()
    first: list[int] = []
    count = 0
    uses = np.zeros(planned.source.samples, np.uint32) if counts_uses else None
    for places in _orders.global_ids(streams, planned.batch):
        ids = planned.source.numbers(places)
        hasher.add(ids)
        if uses is not None:
            np.add.at(uses, places, 1)
        count += len(ids)
        first += ids[: limit - len(first)].tolist()
    histogram = enumerate(np.bincount(uses).tolist()) if uses is not None else ()
    counters: dict[str, float] = streams[0].counters()
    whole_counters = {
        name: int(value) if value.is_integer() else value for name, value in counters.items()
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
        "uses": {str(often): samples for often, samples in histogram if samples},
        "resident_bytes": streams[0].resident_units * planned.source.blocks.unit_bytes,
        "ids": first,
    }


def _print_first(planned: _orders.Planned, ranks: Sequence[int], limit: int) -> None:
    """Plans only the samples that it prints."""
    streams = [planned.stream(rank) for rank in ranks]
    ids: list[int] = []
    for places in _orders.global_ids(streams, planned.batch, limit):
        ids += planned.source.numbers(places[: limit - len(ids)]).tolist()
        if len(ids) >= limit:
            break
    for start in range(0, len(ids), _IDS_A_LINE):
        print(" ".join(map(str, ids[start : start + _IDS_A_LINE])))
    count = planned.positions * planned.epochs // planned.ranks * len(ranks)
    if count > len(ids):
        print(f"... {count - len(ids):,} more; --print N prints N, --hash a hash of all")
