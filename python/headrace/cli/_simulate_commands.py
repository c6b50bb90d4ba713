"""`headrace simulate`: how long policies take on a cluster that a file describes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli._parts import simulated
from headrace.cli._parts.options import Json
from headrace.cli._parts.progress import parts
from headrace.cli._plots import simulation_page
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.simulation import (
    Policy,
    Scenario,
    Simulation,
    load_scenario,
    parse_sweep,
    policies,
    shipped_scenarios,
)
from headrace.simulation import simulate as run_scenario
from headrace.simulation import sweep as run_sweep
from headrace.simulation.bounds import BOUNDED


def simulate(
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file (TOML), or the name of one that Headrace ships."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A policy to run; may be repeated. Default: all."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Run with each value of a number of the scenario: job.nodes=4,8; "
            "tiers.RAM.capacity=32GB,64GB or ram=32..512GB, which doubles; A..B*3, A..B+10GB. "
            "Two may have several values; one value replaces the file's.",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Estimate Headrace's orders step by step, not read by read."),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page of charts and tables (.html), too.")
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the scenarios and the policies that there are.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Simulate published policies and Headrace's orders on a cluster: time, stalls and sources.

    Compares them with the least time that each order takes. Reads no data.

    Example: [bold]headrace simulate nopfs-8b --policy nopfs --policy staging[/bold]
    Example: [bold]headrace simulate nopfs-8d --policy nopfs --sweep ram=32..512GB[/bold]
    """
    if show_list or scenario is None:
        if scenario is not None or policy or sweep or html or as_json or not show_list:
            raise InvalidArgumentError("give either a SCENARIO, or --list alone")
        _list()
        return
    loaded = load_scenario(scenario)
    if html is not None:
        simulation_page.check(html)
    if sweep:
        keys = dict(map(parse_sweep, sweep))
        if len(keys) < len(sweep):
            raise InvalidArgumentError("--sweep: the same key twice; write its values in one")
        simulated.check_axes(keys)
        with parts("simulating") as progress:
            ran = run_sweep(loaded, keys, policy, progress, BOUNDED, fast=fast)
            first = next(ran)
            points = [simulated.plain_point(point) for point in itertools.chain([first], ran)]
        if len(points) == 1:
            _show(first.simulation, html, as_json, simulated.beside(first.values))
        else:
            _show_sweep(loaded, keys, points, html, as_json)
        why = simulated.Swept({}, points).remarks()
        _check_any_ran(loaded, any(map(simulated.has_run, points)), why)
    else:
        with parts("simulating") as progress:
            simulation = run_scenario(loaded, policy, progress, fast=fast)
        _show(simulation, html, as_json)
        why = simulated.refusals(simulation)
        _check_any_ran(loaded, bool(simulated.outcomes(simulation)), why)


def _check_any_ran(scenario: Scenario, has_run: bool, why: Iterable[str]) -> None:
    if not has_run:
        raise FailedPreconditionError(
            f"simulating {scenario.title}: no policy supports it: {'; '.join(why)}; choose others "
            "with --policy, or change the scenario"
        )


def _show(simulation: Simulation, html: Path | None, as_json: bool, beside: str = "") -> None:
    """`beside`: what differs from the scenario's file."""
    if html is not None:
        simulation_page.write(html, simulation, beside)
    if as_json:
        print(json.dumps({"scenario": simulation.scenario.title} | simulated.plain(simulation)))
        return
    print(simulated.headline(simulation) + beside)
    for grid in simulated.grids(simulation):
        simulated.show(grid)
    for remark in simulated.remarks(simulation):
        print(remark)


def _show_sweep(
    scenario: Scenario,
    keys: Mapping[str, Sequence[Any]],
    points: list[dict[str, Any]],
    html: Path | None,
    as_json: bool,
) -> None:
    whole = {key: keys[given] for key, given in zip(points[0]["values"], keys, strict=True)}
    swept = simulated.Swept(whole, points)
    if html is not None:
        simulation_page.write_sweep(html, scenario.title, scenario.source, swept)
    if as_json:
        print(json.dumps({"scenario": scenario.title, "sweep": whole, "points": points}))
        return
    print(scenario.title)
    for grid in swept.grids():
        simulated.show(grid)
    for remark in swept.remarks():
        print(remark)


def _list() -> None:
    titles = [(name, load_scenario(name).title) for name in shipped_scenarios()]
    simulated.show(simulated.Grid("", ("scenario", "title"), titles, numbers=False))
    print()
    rows = [(row.name, row.title, row.paper, _order_of(row)) for row in policies()]
    simulated.show(simulated.Grid("", ("policy", "title", "paper", "order"), rows, numbers=False))


def _order_of(policy: Policy) -> str:
    if policy.order in BOUNDED:
        return policy.order
    return "its own" if policy.changes_order else "exact"
