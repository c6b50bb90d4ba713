"""`headrace stage`: fills the folders of a job's tiers before the job."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Annotated

import typer

from headrace import _core, _dataset, tiers
from headrace._arguments import integer
from headrace._loading.options import LoaderArguments
from headrace._options.groups import Cache, EngineOptions, Job, Output
from headrace._process.command import EXIT_INTERRUPTED
from headrace._units import counted, format_bytes, parse_seconds
from headrace.cli._ahead.staging import Staged, stage
from headrace.cli._commands import find_dataset, format_row
from headrace.cli._parts.job import JobOptions, of_loader, with_options
from headrace.cli._parts.options import Json, split_tier
from headrace.cli._parts.paper_words import planned_order
from headrace.cli._parts.progress import bar
from headrace.errors import InvalidArgumentError

_ENDS = {
    "epoch": "the first epoch is over",
    "full": "the tier is full",
    "time": "the time is over",
    "interrupt": "stopped by Ctrl-C; the same command goes on",
}


@with_options
def stage_command(
    job: JobOptions,
    dataset: Annotated[str, typer.Argument(help="A folder, a pack or an index file.")],
    tier: Annotated[
        list[str],
        typer.Option(
            metavar="FOLDER=CAPACITY",
            help="The job's tier, as hr.tiers.Ssd(FOLDER, CAPACITY); may be repeated.",
        ),
    ],
    time: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="At most so long: 90s, 30m, 4h.")
    ] = None,
    batch: Annotated[int, of_loader("batch_size")] = 256,
    ranks: Annotated[int, typer.Option(help="Ranks of the job; each has a folder of its own.")] = 1,
    rank: Annotated[
        list[int] | None,
        typer.Option(help="Only this rank's folder; default: of all; may be repeated."),
    ] = None,
    memory: Annotated[str | None, of_loader("memory")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="As the job's Output(fields=...); default: all; may be repeated."),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="As the job's EngineOptions(verify=False).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fill the folder of a job's SSD tier before the job, with what the job uses first.

    Needs no GPU. The job with the same dataset, order, seed, batch size and tier finds the samples
    from its first step on. Ends when the tier is full, or with the epoch. The same command
    continues an interrupted run.

    Example: [bold]headrace stage s3://bucket/pack --tier /nvme/cache=2TB --for 4h --order epoch
    --seed 1[/bold]
    """
    row = format_row(job.format, job.options, dataset)
    seconds = None if time is None else parse_seconds(time, "--for")
    source = find_dataset(dataset, job.skip, row, job.split)
    _dataset.check_has_samples("staging dataset", source)
    world = integer("--ranks", ranks, 1, 2**20)
    chosen = sorted({integer("--rank", one, 0, world - 1) for one in rank or range(world)})
    wanted = [_tier(text) for text in tier]
    arguments = LoaderArguments(
        batch_size=batch,
        shuffle=not job.no_shuffle,
        seed=job.seed,
        drop_last=job.drop_last,
        memory=memory,
        tiers=Cache(wanted),
        job=Job(rank=0, world_size=world),
        output=Output("numpy", fields=field),
        engine=EngineOptions(verify=not no_verify),
    )
    stored = int(_core.stored_bytes(source.index).sum(dtype="uint64"))
    room = sum(made.capacity_bytes for made in tiers.core_tiers(wanted, make=False))
    total = len(chosen) * min(stored // world, room)
    with bar(f"staging {dataset}", in_bytes=True) as show:
        staged = stage(
            source,
            arguments,
            planned_order(job, source),
            chosen,
            seconds,
            lambda done: show(min(done, total), total),
        )
    if as_json:
        print(json.dumps(dataclasses.asdict(staged)))
    else:
        print(_said(staged, [split_tier(text)[0] for text in tier]))
    if staged.ended == "interrupt":
        raise typer.Exit(EXIT_INTERRUPTED)


def _tier(text: str) -> tiers.Ssd:
    name, capacity = split_tier(text)
    if tiers.tier_key(name) == tiers.RAM:
        raise InvalidArgumentError(
            f"--tier {text}: a tier in memory ends with this command; name a folder, as "
            "--tier /nvme/cache=1TB, or keep memory in a service: `headrace docs node`"
        )
    return tiers.Ssd(os.path.abspath(name), capacity)


def _said(staged: Staged, folders: list[str]) -> str:
    rate = staged.read_bytes / max(staged.seconds, 1e-9) / 1e6
    found = f", {staged.found:,} of them from before" if staged.found else ""
    return (
        f"{', '.join(folders)}: {counted(staged.samples, 'sample')}{found}, in "
        f"{format_bytes(staged.bytes)}: {staged.share:.1%} of the first epoch; read "
        f"{format_bytes(staged.read_bytes)} in {staged.seconds:.1f} s ({rate:.1f} MB/s); "
        f"{_ENDS[staged.ended]}"
    )
