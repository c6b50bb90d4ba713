"""`headrace plan`: predicts the reads of a job by source, and its time."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from headrace import _core, _dataset, image, tiers
from headrace._arguments import choice, integer
from headrace._loading.arguments import alike_labels
from headrace._loading.options import LoaderArguments, core_options
from headrace._loading.planned import PlannedEpoch, planned_epochs, total_bytes, total_reads
from headrace._options.groups import Cache, EngineOptions, Job
from headrace._units import counted, format_bytes
from headrace.cli._ahead import bill as _bill
from headrace.cli._commands import find_dataset, format_row
from headrace.cli._parts import paper_words as _paper_words
from headrace.cli._parts.demand import parse_demand
from headrace.cli._parts.job import JobOptions, of_loader, with_options
from headrace.cli._parts.naming import renamed
from headrace.cli._parts.options import Json, split_tier
from headrace.errors import InvalidArgumentError
from headrace.formats._base.outside import check_outside
from headrace.profile import MachineProfile, Prediction, load, predict_epoch

_WIDEST = 2000  # characters of a line
_ROW_SIDE = 224
"""Of the rows that are planned with: images of many times their size stay as stored."""


@with_options
def plan(
    job: JobOptions,
    dataset: Annotated[str, typer.Argument(help="A folder, a pack or an index file.")],
    batch: Annotated[int, of_loader("batch_size")] = 256,
    epochs: Annotated[
        int, typer.Option(help="Number of epochs to plan, from the first; at most --job-epochs.")
    ] = 3,
    job_epochs: Annotated[
        int | None, typer.Option(help="Epochs of the whole job; placements look ahead to its end.")
    ] = LoaderArguments.epochs,
    ranks: Annotated[int, typer.Option(help="Ranks of the job, each a node of its own.")] = 1,
    rank: Annotated[int, typer.Option(help="The rank whose reads are planned.")] = 0,
    memory: Annotated[str | None, of_loader("memory")] = None,
    ram: Annotated[str | None, typer.Option(help="A tier in memory of this capacity.")] = None,
    form: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="What the tier in memory holds: stored, or decoded, the pixels of images; their "
            "first bytes are read.",
        ),
    ] = tiers.FORMS[0],
    tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=CAPACITY",
            help="A tier in a folder, /nvme/cache=1TB, or in memory, ram=32GB; may be repeated.",
        ),
    ] = None,
    placement: Annotated[str, of_loader("placement", group=Cache)] = Cache.placement,
    horizon: Annotated[int | None, of_loader("horizon", group=Cache)] = Cache.horizon,
    profile: Annotated[
        Path | None, typer.Option(help="A machine profile, to predict times.")
    ] = None,
    demand: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="The rate of the training: 1200 (samples/s) or 500MB/s."),
    ] = None,
    price_per_million_reads: Annotated[
        float | None,
        typer.Option(metavar="PRICE", help="Bill requests to storage, in any currency."),
    ] = None,
    price_per_gb: Annotated[
        float | None,
        typer.Option(metavar="PRICE", help="Bill bytes from storage: the price of 10^9 bytes."),
    ] = None,
    schedule: Annotated[
        Path | None,
        typer.Option(
            help="Write the threads of each rank, and the operations of tiers, step by step."
        ),
    ] = None,
    local_ranks: Annotated[
        int, typer.Option(help="With --schedule: ranks of the node, from --rank on.")
    ] = 1,
    step_seconds: Annotated[
        float, typer.Option(help="With --schedule: seconds of training for a step, if known.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Predict the reads of each epoch of a job by source and, with a profile, its time.

    Reads no sample, and writes only --schedule. Tiers are empty at the start of the plan.

    Example: [bold]headrace plan /data/images --ram 8GiB --placement coordinated
    --profile machine.toml[/bold]
    """
    row = format_row(job.format, job.options, dataset)
    source = find_dataset(dataset, job.skip, row, job.split)
    _dataset.check_has_samples("planning dataset", source)
    integer("--epochs", epochs, 1, 2**24)
    at = _bill.prices(price_per_million_reads, price_per_gb)
    machine = None if profile is None else load(profile)
    images = _dataset.image_folder(source)
    wanted = _tiers(ram, tier, images, form)
    decoded = _is_decoded(form, wanted, machine)
    if schedule is not None:
        check_outside("--schedule", schedule, images)
    if not wanted and tiers.needs_tiers(placement):
        raise InvalidArgumentError(
            f"--placement {placement}: there is nothing to place; say what may be used, with --ram "
            "or --tier"
        )
    if job_epochs is not None and job_epochs < epochs:
        raise InvalidArgumentError(
            f"--epochs {epochs}: the job has --job-epochs {job_epochs}; plan at most these"
        )
    arguments = LoaderArguments(
        batch_size=batch,
        shuffle=not job.no_shuffle,
        seed=job.seed,
        drop_last=job.drop_last,
        epochs=job_epochs,
        memory=memory,
        tiers=Cache(placement=placement, horizon=horizon),  # type: ignore[arg-type]  # Checked.
        job=Job(rank=rank, world_size=ranks),
        engine=EngineOptions(profile=machine),
    )
    options = core_options(
        source,
        arguments,
        native=image.train(_ROW_SIDE) if decoded else None,
        order=_paper_words.planned_order(job, source),
        tiers=wanted,
    )
    if machine is not None:
        machine = tiers.profile_with_tiers(machine, wanted)
    elif demand is not None:
        raise InvalidArgumentError(
            "--demand: says nothing without --profile, which predicts times; give both"
        )
    if schedule is not None:
        made = _write_schedule(source, options, schedule, epochs, local_ranks, step_seconds)
        print(json.dumps(made) if as_json else _said(made))
        return
    if local_ranks != 1 or step_seconds != 0:
        raise InvalidArgumentError("--local-ranks and --step-seconds: are for --schedule, give it")
    planner = _core.EpochPlanner(source.index, options)
    planned = list(islice(planned_epochs(planner), epochs))
    rate = None if demand is None else parse_demand(demand).samples_of(_mean_bytes(planned))
    predicted = [
        None if machine is None else _predict(machine, epoch, rate, ranks) for epoch in planned
    ]
    # A dataset whose fields are all in the index needs no tiers.
    names = [tier.path or "RAM" for tier in wanted] if planned and planned[0].tiers else []
    bills = [_bill.of_epoch(epoch, at, ranks) for epoch in planned] if at is not None else []
    resolved, expected = planner.order_parameters, planner.expected_inflation
    if as_json:
        order = {"order": job.order, "parameters": resolved, "expected": expected}
        plain = _plain(planned, predicted, names)
        if at is not None and planned:
            plain["bill"] = {
                "epochs": [dataclasses.asdict(bill) for bill in bills],
                "job": dataclasses.asdict(_bill.of_job(bills, at, job_epochs or len(bills))),
            }
        print(json.dumps(order | plain))
        return
    _print(planned, predicted, names, ranks)
    if at is not None and planned:
        of_job = _bill.of_job(bills, at, job_epochs or len(bills))
        print(*_bill.sentences(bills, of_job, job_epochs or len(bills), ranks), sep="\n")
    values = ", ".join(f"{name} {value}" for name, value in resolved.items())
    print(f"order {job.order}: {values}" if values else f"order {job.order}")
    if note := _unit_note(wanted, _mean_bytes(planned)):
        print(f"note: {note}")
    if alike := alike_labels(job.order, expected):
        print(f"note: {alike}")


def _write_schedule(
    source: _dataset.Dataset,
    options: _core.LoaderOptions,
    path: Path,
    epochs: int,
    local_ranks: int,
    step_seconds: float,
) -> dict[str, Any]:
    """What was written."""
    local = integer("--local-ranks", local_ranks, 1, options.world_size)
    options = options.replace(job={"ranks": local})
    if not 0 <= step_seconds < math.inf:
        raise InvalidArgumentError(f"--step-seconds: got {step_seconds}, must be at least 0")
    steps = epochs * _core.EpochPlanner(source.index, options).steps_per_epoch
    written = _core.plan_schedule(source.index, options, os.fspath(path), steps, step_seconds)
    size = path.stat().st_size
    return {"schedule": str(path), "steps": written, "ranks": local_ranks, "bytes": size}


def _said(made: dict[str, Any]) -> str:
    """Of a schedule, for people."""
    steps, ranks = counted(made["steps"], "step"), counted(made["ranks"], "rank")
    return f"{made['schedule']}: {steps} of {ranks}, {counted(made['bytes'], 'byte')}"


def _tiers(
    ram: str | None, others: list[str] | None, images: str | None, form: Any
) -> list[tiers.CoreTier]:
    """As for a loader, but makes no folder."""
    choice("--form", form, tiers.FORMS)
    chosen: list[tiers.Tier] = [] if ram is None else [tiers.Ram(ram, form)]
    options = ["--ram"] * len(chosen)
    for text in others or []:
        name, capacity = split_tier(text)
        in_memory = tiers.tier_key(name) == tiers.RAM
        chosen.append(tiers.Ram(capacity, form) if in_memory else tiers.Ssd(name, capacity))
        options.append(f"--tier {text}")
    try:
        return tiers.core_tiers(chosen, make=False, images=images)
    except InvalidArgumentError as error:
        of_options = {f"tiers[{at}]": option for at, option in enumerate(options)}
        raise InvalidArgumentError(renamed(str(error), of_options)) from error


def _is_decoded(form: str, wanted: list[tiers.CoreTier], machine: MachineProfile | None) -> bool:
    """Whether a tier holds images decoded."""
    if form != tiers.DECODED:
        return False
    if not any(tier.decoded for tier in wanted):
        raise InvalidArgumentError("--form decoded: says what a tier in memory holds; give --ram")
    if machine is not None:
        raise InvalidArgumentError(
            "--form decoded with --profile: a profile does not know the time that a tier of "
            "decoded images saves; leave --profile out"
        )
    return True


def _unit_note(wanted: list[tiers.CoreTier], sample_bytes: float) -> str:
    """Of samples so small that a folder costs memory; empty: of none."""
    unit = tiers.SSD_UNIT_BYTES
    if sample_bytes >= unit or len({bool(tier.path) for tier in wanted}) < 2:
        return ""
    return (
        f"beside a tier in a folder a sample takes at least {unit:,} bytes of memory, too, and has "
        f"{sample_bytes:,.0f} bytes on average: without the folder more of them fit there"
    )


def _mean_bytes(planned: list[PlannedEpoch]) -> float:
    samples = sum(epoch.samples for epoch in planned)
    return max(sum(epoch.sample_bytes for epoch in planned) / max(samples, 1), 1.0)


def _predict(
    machine: MachineProfile, epoch: PlannedEpoch, demand: float | None, ranks: int
) -> Prediction:
    return predict_epoch(machine, epoch.work(demand, sharers=ranks))


def _plain(
    planned: list[PlannedEpoch], predicted: list[Prediction | None], names: list[str]
) -> dict[str, Any]:
    epochs = []
    for epoch, prediction in zip(planned, predicted, strict=True):
        epochs.append(
            {
                "epoch": epoch.epoch,
                "samples": epoch.samples,
                "sample_bytes": epoch.sample_bytes,
                "storage": _reads(epoch.storage),
                "requests": epoch.requests,
                "tiers": [
                    {"name": name, "read": _reads(reads), "written": _reads(writes)}
                    for name, (reads, writes) in zip(names, epoch.tiers, strict=True)
                ],
                "peers": _reads(epoch.peers),
                "at_peers": epoch.at_peers,
                "predicted": None if prediction is None else dataclasses.asdict(prediction),
            }
        )
    return {"epochs": epochs}


def _reads(reads: list[tuple[int, int]]) -> dict[str, int]:
    return {"bytes": total_bytes(reads), "reads": total_reads(reads)}


def _print(
    planned: list[PlannedEpoch], predicted: list[Prediction | None], names: list[str], ranks: int
) -> None:
    console = Console(highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    for name in ("epoch", "samples", "storage"):
        table.add_column(name, justify="right")
    for name in names:
        table.add_column(f"from {name}", justify="right")
        table.add_column("put there", justify="right")
    from_peers = any(epoch.peers for epoch in planned)
    if from_peers:
        table.add_column("from peers", justify="right")
    if ranks > 1 and names:
        table.add_column("at peers", justify="right")
    if any(predicted):
        table.add_column("time", justify="right")
        table.add_column("bound by")
    for epoch, prediction in zip(planned, predicted, strict=True):
        row = [str(epoch.epoch), f"{epoch.samples:,}", _cell(epoch.storage, epoch.sample_bytes)]
        for reads, writes in epoch.tiers:
            row += [_cell(reads, epoch.sample_bytes), format_bytes(total_bytes(writes))]
        if from_peers:
            row.append(_cell(epoch.peers, epoch.sample_bytes))
        if ranks > 1 and names:
            row.append(f"{epoch.at_peers:,}")
        if prediction is not None:
            row += [f"{prediction.seconds:.1f} s", prediction.bound]
        table.add_row(*row)
    # A line that is too long for the terminal is better than cells that are cut.
    wide = console.options.update(width=_WIDEST)
    console.width = max(console.width, Measurement.get(console, wide, table).maximum)
    console.print(table)
    if any(total_bytes(epoch.storage) > epoch.sample_bytes for epoch in planned):
        console.print(
            "more than 100% from storage: reads ahead for the next epoch count where they happen, "
            "and so do blocks that are read again; --job-epochs N: the job ends after N epochs"
        )
    if not any(predicted):
        console.print("times: measure the machine with headrace profile, and give --profile")


def _cell(reads: list[tuple[int, int]], whole: int) -> str:
    count = total_bytes(reads)
    return f"{format_bytes(count)} {count / max(whole, 1):4.0%}"
