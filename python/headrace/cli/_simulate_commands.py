"""`headrace simulate`: how long policies take on a cluster that a file describes."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from headrace._units import counted
from headrace.cli._parts.options import Json
from headrace.cli._parts.progress import parts
from headrace.errors import InvalidArgumentError
from headrace.simulation import (
    Outcome,
    Refused,
    Simulation,
    load_scenario,
    policies,
    shipped_scenarios,
)
from headrace.simulation import simulate as run_scenario

_WIDEST = 2000  # characters of a line


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file (TOML), or the name of one that Headrace ships."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A policy to run; may be repeated. Default: all."),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the scenarios and the policies that there are.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Simulate published policies on a cluster: time, stalls and sources of each.

    Compares them with the least time that Headrace's orders take. Reads no data.

    Example: [bold]headrace simulate nopfs-8b --policy nopfs --policy staging[/bold]
    """
    if show_list or scenario is None:
        if scenario is not None or policy or as_json or not show_list:
            raise InvalidArgumentError("give either a SCENARIO, or --list alone")
        _list()
        return
    loaded = load_scenario(scenario)
    with parts("simulating") as progress:
        simulation = run_scenario(loaded, policy, progress)
    if as_json:
        print(json.dumps(_plain(simulation)))
    else:
        _print(simulation)


def _list() -> None:
    table = Table("scenario", "title", box=None, pad_edge=False)
    for name in shipped_scenarios():
        table.add_row(name, load_scenario(name).title)
    _show(table)
    print()
    table = Table("policy", "title", "paper", "order", box=None, pad_edge=False)
    for row in policies():
        table.add_row(row.name, row.title, row.paper, "its own" if row.changes_order else "exact")
    _show(table)


def _show(table: Table) -> None:
    """A line that is too long for the terminal is better than cells that are cut."""
    console = Console(highlight=False, markup=False)
    wide = console.options.update(width=_WIDEST)
    console.width = max(console.width, Measurement.get(console, wide, table).maximum)
    console.print(table)


def _plain(simulation: Simulation) -> dict[str, Any]:
    return {
        "scenario": simulation.scenario.title,
        "bounds": simulation.bounds,
        "policies": {
            outcome.policy.name: {"refused": outcome.why}
            if isinstance(outcome, Refused)
            else _plain_outcome(outcome)
            for outcome in simulation.outcomes
        },
    }


def _plain_outcome(outcome: Outcome) -> dict[str, Any]:
    plain = dataclasses.asdict(outcome)
    del plain["policy"], plain["step_seconds"]
    plain["epoch_seconds"] = outcome.epoch_seconds.tolist()
    plain["step_percentiles"] = {
        f"p{at}": float(np.percentile(outcome.step_seconds, at)) for at in (50, 95, 99, 100)
    }
    return plain


def _print(simulation: Simulation) -> None:
    scenario, bound = simulation.scenario, simulation.bounds["exact"]
    print(
        f"{scenario.title}: {counted(scenario.nodes, 'node')}, "
        f"{counted(scenario.sizes.samples, 'sample')}, {counted(scenario.epochs, 'epoch')}"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("policy")
    for name in ("seconds", "of bound", "before", "stalled", "barrier"):
        table.add_column(name, justify="right")
    for name in ("from tier", "from peer", "from storage", "storage read"):
        table.add_column(name, justify="right")
    if scenario.printed:
        table.add_column("printed", justify="right")
        table.add_column("ours/printed", justify="right")
    notes = []
    for outcome in simulation.outcomes:
        name = outcome.policy.name
        if isinstance(outcome, Refused):
            notes.append(f"{name}: {outcome.why}")
            continue
        table.add_row(*_cells(outcome, bound, scenario.printed.get(name), bool(scenario.printed)))
        used = outcome.samples_used / scenario.sizes.samples
        if outcome.policy.changes_order:
            notes.append(f"{name}: decides the order itself; uses {used:.1%} of the samples")
    _show(table)
    for order, seconds in simulation.bounds.items():
        print(f"bound of order {order}: {_seconds(seconds)} s")
    for note in notes:
        print(note)


def _cells(outcome: Outcome, bound: float, printed: float | None, prints: bool) -> list[str]:
    fetched, seconds = outcome.fetched, outcome.seconds
    used = sum(source.bytes for source in fetched.values())
    from_storage = fetched["storage"].bytes + fetched["on_demand"].bytes
    cells = [
        outcome.policy.name,
        _seconds(seconds),
        _ratio(seconds, bound, ".3f"),
        _seconds(outcome.setup_seconds),
        _ratio(outcome.stall_seconds, seconds, ".1%"),
        _ratio(outcome.barrier_seconds, seconds, ".1%"),
        _ratio(fetched["tier"].bytes, used, ".1%"),
        _ratio(fetched["peer"].bytes, used, ".1%"),
        _ratio(from_storage, used, ".1%"),
        _ratio(from_storage + outcome.filled_bytes, used, ".1%"),
    ]
    if prints:
        cells.append("-" if printed is None else _seconds(printed))
        cells.append("-" if printed is None else _ratio(seconds, printed, ".3f"))
    return cells


def _ratio(value: float, whole: float, form: str) -> str:
    return format(value / whole, form) if whole else "-"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f}" if 1000 <= seconds < 1e12 else f"{seconds:.4g}"
