"""`headrace profile`: measures this machine with a dataset."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headrace import _dataset, _places
from headrace._arguments import given_path
from headrace._measure.links import LinkProcess, links_launch
from headrace._measure.machine import SECONDS_DEFAULT, measure
from headrace._nodes.launch import Launch
from headrace._options.groups import Node
from headrace._units import counted, format_bytes
from headrace.cli._commands import _open
from headrace.cli._parts.options import DatasetPath, FormatName, FormatOptions, Json, SplitName
from headrace.cli._parts.progress import bar
from headrace.cli._plots import profile_plot
from headrace.errors import InvalidArgumentError
from headrace.formats._base.outside import check_outside
from headrace.formats._files.objects import folder_of, is_decoded
from headrace.profile import MachineProfile, Rates, SizedRates
from headrace.profile._machine import check_target

_COLD_ENOUGH = 0.9


def profile(
    path: DatasetPath,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a machine profile, as TOML.")
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER", help="A folder for copies, to measure, too; may be repeated."
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Samples are used as they are stored: decode nothing.")
    ] = False,
    links: Annotated[
        bool,
        typer.Option(
            "--links",
            help="Measure what the other nodes of the job give, too: run it on all of them.",
        ),
    ] = False,
    open_network: Annotated[
        bool, typer.Option("--open-network", help="With --links: the nodes' network is private.")
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(help="With --links: of this node, in PEM format; mutual TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="With --links: of the certificate.")] = None,
    authority: Annotated[
        Path | None, typer.Option(help="With --links: who has signed all nodes' certificates.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Approximate time to measure.")] = SECONDS_DEFAULT,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves into this file.")] = None,
    format: FormatName = None,
    options: FormatOptions = None,
    split: SplitName = None,
    as_json: Json = False,
) -> None:
    """Measure this machine with a dataset's storage.

    Reads at random past the page cache, copies memory, decodes; with --tier it writes, too.
    Run it on an idle machine. With --links it runs on all nodes of a job: the first one measures
    and prints, the others give it samples. headrace advise says from it how to load the dataset.

    Example: [bold]headrace profile /data/images.pack --output machine.toml[/bold]
    """
    node = Node(open_network=open_network, certificate=certificate, key=key, authority=authority)
    launch = links_launch() if links else None
    if launch is None and node != Node():
        raise InvalidArgumentError(
            "--open-network, --certificate, --key and --authority are of --links: add it"
        )
    if launch is not None and not _measures(launch, node, seconds):
        return
    dataset = _open(path, None, format, options, split)
    images = _dataset.image_folder(dataset)
    if output is not None:
        check_outside("--output", output, images)
        check_target(output)
    if plot is not None:
        check_outside("--plot", plot, images)
        profile_plot.check(plot)
    _dataset.check_has_samples("profiling dataset", dataset)
    tiers = [Path(given_path("tier", folder)) for folder in tier or []]
    for folder in tiers:
        check_outside("--tier", folder, images, is_folder=True)
    with contextlib.ExitStack() as stack:
        others = None
        if launch is not None:
            others = stack.enter_context(LinkProcess(launch, node, seconds))
        progress = stack.enter_context(bar(f"measuring {path}", in_bytes=False))
        machine = measure(
            dataset, tiers=tiers, raw=raw, seconds=seconds, links=others, progress=progress
        )
        if others is not None:
            others.meet()
    if output is not None:
        machine.save(output)
    if plot is not None:
        profile_plot.draw(plot, machine)
    if as_json:
        print(json.dumps(_plain(machine, output)))
    else:
        in_store = not _places.is_local(folder_of(dataset.index))
        _print(machine, output, _notes(machine, dataset, in_store), in_store)


def _measures(launch: Launch, node: Node, seconds: float) -> bool:
    """Whether this process measures: the first of node 0 does. Those of other nodes answer it."""
    if launch.local_rank not in (None, 0):
        return False
    if launch.node == 0:
        return True
    with LinkProcess(launch, node, seconds) as process:
        process.meet()
    return False


def _plain(machine: MachineProfile, output: Path | None) -> dict[str, Any]:
    plain = machine.to_plain()
    plain["date"] = machine.date.isoformat()
    plain["output"] = None if output is None else str(output)
    return plain


def _print(
    machine: MachineProfile, output: Path | None, notes: Sequence[str], in_store: bool
) -> None:
    console = Console(highlight=False, markup=False)  # a path may contain brackets
    facts, storage = machine.dataset, machine.storage
    console.print(
        f"{facts.path}: {counted(facts.samples, 'sample')} of {format_bytes(facts.sample_bytes)} "
        f"on {facts.file_system}; {machine.host.cpus} cpus",
        soft_wrap=True,
    )
    kind = "random reads" if storage.reads == "ranges" else "whole files"
    _print_sizes(console, f"storage ({storage.store}), cold {kind}", "in flight", storage.rates)
    if in_store:
        console.print(_requests_said(storage.rates))
    _print_sizes(console, "memory copy", "threads", [SizedRates(0, machine.copy)])
    decode = machine.decode
    title = f"decode ({decode.what}), stored bytes of {format_bytes(decode.sample_bytes)} samples"
    _print_sizes(console, title, "threads", [SizedRates(0, decode.rates)])
    for tier in machine.tiers:
        how = "" if tier.direct else ", through the page cache"
        name = f"{tier.folder} ({tier.file_system}{how})"
        _print_sizes(console, f"read {name}", "threads", tier.read)
        _print_sizes(console, f"write {name}", "threads", tier.write)
    if (link := machine.link) is not None:
        _print_sizes(
            console, f"samples of {counted(link.nodes - 1, 'other node')}", "in flight", link.rates
        )
        console.print(
            f"latency {link.latency_seconds * 1e6:,.0f} us; {link.cpu_seconds_per_gb:.2f} s of "
            "processor time a GB, of the node that asks"
        )
    console.print("\nmedians; ± is half of (largest - smallest slice)")
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True)
    written = "machine.toml" if output is None else str(output)
    if output is None:
        console.print("\n--output machine.toml keeps these rates", soft_wrap=True)
    else:
        console.print(f"\nwritten: {output}", soft_wrap=True)
    words = ["headrace", "advise", facts.path, "--profile", written]
    console.print(f"how to load the dataset here: {shlex.join(words)}", soft_wrap=True)


def _notes(machine: MachineProfile, dataset: _dataset.Dataset, in_store: bool) -> list[str]:
    storage = machine.storage
    notes = []
    if is_decoded(dataset.index):
        notes.append(
            "files or parts of them are compressed: storage was measured with their stored bytes; "
            "predictions count decoded bytes, and no time for decoding files as a whole"
        )
    if in_store:
        return notes  # It has neither a page cache nor a device here.
    if not storage.direct:
        notes.append(
            "this file system has no reads past the page cache (O_DIRECT): what is cached was "
            "measured as fast as memory"
        )
    if storage.cold_share is not None and storage.cold_share < _COLD_ENOUGH:
        notes.append(
            f"only {storage.cold_share:.0%} of the bytes came from local devices: the rest from a "
            "cache, or over a network"
        )
    return notes


def _requests_said(rates: Sequence[SizedRates]) -> str:
    """Of the smallest requests, whose time is that of the request itself."""
    least = min(rates, key=lambda size: size.read_bytes)
    seconds = least.read_bytes / least.rates.bytes_per_second[0]
    most = max(least.rates.bytes_per_second)
    users = least.rates.users[least.rates.bytes_per_second.index(most)]
    return (
        f"a request of {format_bytes(least.read_bytes)} takes {seconds * 1e3:,.1f} ms alone; "
        f"{most / least.read_bytes:,.0f} a second with {users} in flight"
    )


def _print_sizes(console: Console, title: str, users: str, sizes: Sequence[SizedRates]) -> None:
    columns = sorted({count for size in sizes for count in size.rates.users})
    console.print(f"\n{title}", soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(users, justify="right")
    for count in columns:
        table.add_column(f"{count:,}", justify="right")
    for size in sizes:
        name = format_bytes(size.read_bytes) if size.read_bytes else ""
        table.add_row(name, *(_cell(size.rates, count) for count in columns))
    console.print(table)


def _cell(rates: Rates, count: int) -> str:
    if count not in rates.users:
        return "-"
    at = rates.users.index(count)
    return f"{format_bytes(rates.bytes_per_second[at])}/s ±{rates.spread[at] / 2:.0%}"
