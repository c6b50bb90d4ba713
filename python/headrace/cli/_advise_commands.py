"""`headrace advise`: how to load a dataset on a machine, and how long an epoch takes."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headrace import _core, _dataset
from headrace._arguments import integer
from headrace._units import parse_bytes, parse_share_or_bytes
from headrace.cli._commands import _open
from headrace.cli._parts import advised, simulated
from headrace.cli._parts import orders as _orders
from headrace.cli._parts.demand import Demand, parse_demand
from headrace.cli._parts.job import OrderOptions
from headrace.cli._parts.options import (
    DatasetPath,
    FormatName,
    FormatOptions,
    Json,
    SplitName,
    split_tier,
)
from headrace.cli._parts.progress import parts
from headrace.cli._plots import advice_page
from headrace.errors import InvalidArgumentError
from headrace.profile import MachineProfile, load
from headrace.simulation import Advice, Scenario, TierChoice, Workload, load_scenario
from headrace.simulation import advise as run_search
from headrace.simulation.machine import memory_of
from headrace.tiers import RAM

_MEMORY_SHARE = 4  # of a machine's memory a loader takes this part at most, if nobody says
_TIER_OF_DATA = 1.05  # a larger tier has room that samples do not need
_COUNT_MAX = 2**16


def advise(
    path: DatasetPath,
    profile: Annotated[
        Path | None, typer.Option(help="The machine: a profile of headrace profile.")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="The machine, where there is no profile: a scenario of headrace simulate, with "
            "its storage, network, compute, staging and tiers."
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of the job; default: 1.")] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks of a node; default: 1.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Samples of a batch, of a rank; default: 256.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Epochs to simulate; tiers begin empty.")] = 3,
    demand: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="The rate at which a node trains: 1200 (samples a second), or 500MB/s. Default: "
            "training takes no time.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory of a node, with its tiers there: 64GiB, or 20% of the machine's; default: "
            "a quarter."
        ),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=CAPACITY",
            help="A tier of a node that may be used: ram=32GB, or a folder; may be repeated, also "
            "with several capacities. Default: half of the memory, or what the dataset needs.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Simulate each read, which takes longer.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page of charts and tables (.html), too.")
    ] = None,
    format: FormatName = None,
    options: FormatOptions = None,
    split: SplitName = None,
    as_json: Json = False,
) -> None:
    """Advise how to load a dataset on a machine: order, blocks, tiers, threads, batches ahead.

    Simulates each candidate; reads no sample. Prints the seconds of an epoch with their range, what
    an epoch asks of storage and links, and what limits it.

    Example: [bold]headrace advise /data/images --profile machine.toml --demand 1200[/bold]
    """
    if (profile is None) == (scenario is None):
        raise InvalidArgumentError(
            "give either --profile, which headrace profile measures, or --scenario"
        )
    if html is not None:
        advice_page.check(html)
    wanted = None if demand is None else parse_demand(demand)
    dataset = _open(path, None, format, options, split)
    _dataset.check_has_samples("advising for dataset", dataset)
    machine: MachineProfile | Scenario
    machine = load(profile) if profile is not None else load_scenario(str(scenario))
    work = _workload(dataset, machine, wanted, memory, (nodes, ranks, batch_size, epochs))
    tiers = _default_tiers(machine, work) if tier is None else [_tier(text) for text in tier]
    with parts("simulating") as progress:
        inflation = functools.partial(_label_inflation, dataset)
        advice = run_search(machine, work, tiers, inflation, progress, full=full)
    _show(advice, html, as_json)


def _show(advice: Advice, html: Path | None, as_json: bool) -> None:
    if html is not None:
        advice_page.write(html, advice)
    if as_json:
        print(json.dumps(advised.plain(advice)))
        return
    print(advised.headline(advice))
    for grid in advised.grids(advice):
        simulated.show(grid)
    for remark in advised.remarks(advice):
        print(remark)


def _workload(
    dataset: _dataset.Dataset,
    machine: MachineProfile | Scenario,
    demand: Demand | None,
    memory: str | None,
    counts: tuple[int | None, int | None, int | None, int],
) -> Workload:
    """`counts`: nodes, ranks, batch_size, epochs; of a scenario, what it has is the default."""
    nodes, ranks, batch_size, epochs = counts
    if nodes is None:
        nodes = machine.nodes if isinstance(machine, Scenario) else 1
    nodes = integer("--nodes", nodes, 1, _COUNT_MAX)
    if isinstance(machine, Scenario):
        ranks = machine.ranks if ranks is None else ranks
        batch_size = machine.batch_size if batch_size is None else batch_size
        demand = demand or Demand(machine.sample_rate, machine.compute_rate)
    whole = memory_of(machine, nodes)
    usual = whole if isinstance(machine, Scenario) else whole // _MEMORY_SHARE
    return Workload.of(
        dataset,
        nodes=nodes,
        ranks=integer("--ranks", 1 if ranks is None else ranks, 1, 1024),
        batch_size=integer("--batch-size", 256 if batch_size is None else batch_size, 1, 2**32 - 2),
        epochs=integer("--epochs", epochs, 1, _COUNT_MAX),
        memory=usual if memory is None else parse_share_or_bytes(memory, "--memory", whole),
        sample_rate=None if demand is None else demand.samples,
        compute_rate=None if demand is None else demand.bytes,
    )


def _tier(text: str) -> TierChoice:
    name, capacity = split_tier(text)
    return TierChoice(name=name, capacity=parse_bytes(capacity, f"--tier {text} capacity"))


def _default_tiers(machine: MachineProfile | Scenario, work: Workload) -> Sequence[TierChoice]:
    """Those of the scenario; of a profile half of the memory, or what the dataset needs, if nodes
    can send each other what they have there."""
    if isinstance(machine, Scenario):
        return [
            TierChoice(name=tier.name, capacity=int(tier.of_node(work.nodes)[0]))
            for tier in machine.tiers
        ]
    linked = machine.link is not None or machine.peer_bytes_per_second is not None
    if work.epochs == 1 or (work.nodes > 1 and not linked):
        return []
    whole = math.ceil(_TIER_OF_DATA * work.sizes.sum())
    return [TierChoice(name=RAM, capacity=min(work.memory // 2, whole))]


def _label_inflation(
    dataset: _dataset.Dataset, order: str, block_samples: int | None
) -> float | None:
    """The expected inflation of a Loader with this order on this machine."""
    if not _core.find_order(order).reads_blocks:
        return None
    source = _orders.make_source(dataset, None, block_samples)
    try:
        planned = _orders.make_planned(source, OrderOptions(order=order))
    except InvalidArgumentError:  # this machine has no memory for a pool of such blocks
        return None
    expected = planned.expected_inflation()
    return None if expected is None else expected["of_labels"]
