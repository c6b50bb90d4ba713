"""Tables and plain values of simulations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from headrace._units import counted
from headrace.errors import InvalidArgumentError
from headrace.simulation import Outcome, Refused, Simulation, SweepPoint

PERCENTILES = (50, 95, 99, 100)
_WIDEST = 2000  # characters of a line
_REFUSED = "refused"


class Grid(NamedTuple):
    """Texts in rows and columns: a table, here or on a page."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = True
    """Whether the columns but the first are numbers."""


def show(grid: Grid) -> None:
    """A line that is too long for the terminal is better than cells that are cut."""
    if grid.title:
        print(grid.title)
    table = Table(box=None, pad_edge=False)
    for at, name in enumerate(grid.head):
        table.add_column(name, justify="right" if at and grid.numbers else "left")
    for row in grid.rows:
        table.add_row(*row)
    console = Console(highlight=False, markup=False)
    wide = console.options.update(width=_WIDEST)
    console.width = max(console.width, Measurement.get(console, wide, table).maximum)
    console.print(table)


def plain(simulation: Simulation) -> dict[str, Any]:
    """For JSON."""
    return {
        "bounds": simulation.bounds,
        "policies": {
            outcome.policy.name: {_REFUSED: outcome.why}
            if isinstance(outcome, Refused)
            else _plain_outcome(outcome)
            for outcome in simulation.outcomes
        },
    }


def plain_point(point: SweepPoint) -> dict[str, Any]:
    """A combination of a sweep, for JSON."""
    return {"values": point.values} | plain(point.simulation)


def _plain_outcome(outcome: Outcome) -> dict[str, Any]:
    values = dataclasses.asdict(outcome)
    del values["policy"], values["step_seconds"], values["spread_seconds"]
    values["epoch_seconds"] = outcome.epoch_seconds.tolist()
    values["utilisation"] = outcome.utilisation
    values["imbalance"] = outcome.imbalance
    values["hits"] = outcome.hits
    values["step_percentiles"] = {f"p{at}": _percentile(outcome, at) for at in PERCENTILES}
    return values


def headline(simulation: Simulation) -> str:
    scenario = simulation.scenario
    return (
        f"{scenario.title}: {counted(scenario.nodes, 'node')}, "
        f"{counted(scenario.sizes.samples, 'sample')}, {counted(scenario.epochs, 'epoch')}"
    )


def outcomes(simulation: Simulation) -> list[Outcome]:
    """Of the policies that ran."""
    return [outcome for outcome in simulation.outcomes if isinstance(outcome, Outcome)]


def has_run(point: Mapping[str, Any]) -> bool:
    """Whether any policy ran, of `plain`."""
    return any(_REFUSED not in outcome for outcome in point["policies"].values())


def refusals(simulation: Simulation) -> Iterator[str]:
    """The policies that did not run, and why."""
    for outcome in simulation.outcomes:
        if isinstance(outcome, Refused):
            yield f"{outcome.policy.name}: {outcome.why}"


def grids(simulation: Simulation) -> Iterator[Grid]:
    """Times, and sources."""
    ran = outcomes(simulation)
    printed, bound = simulation.scenario.printed, simulation.bounds["exact"]
    head = ["policy", "seconds", "of bound", "before", "step p50", "step p99", "busy", "stalled"]
    head += ["imbalance", *(("printed", "of printed") if printed else ())]
    rows = [_times(outcome, bound) for outcome in ran]
    if printed:
        for outcome, row in zip(ran, rows, strict=True):
            theirs = printed.get(outcome.policy.name)
            row += (
                ["-", "-"]
                if theirs is None
                else [seconds(theirs), _ratio(outcome.seconds, theirs, ".3f")]
            )
    yield Grid("", head, rows)
    head = ["policy", "from tier", "from peer", "from storage", "storage read"]
    yield Grid("", head, [_sources(outcome) for outcome in ran])


def remarks(simulation: Simulation) -> Iterator[str]:
    """What stands below the tables."""
    for order, bound in simulation.bounds.items():
        yield f"bound of order {order}: {seconds(bound)} s"
    yield from refusals(simulation)
    for outcome in outcomes(simulation):
        if outcome.policy.changes_order:
            used = outcome.samples_used / simulation.scenario.sizes.samples
            yield f"{outcome.policy.name}: decides the order itself; uses {used:.1%} of the samples"


def _times(outcome: Outcome, bound: float) -> list[str]:
    return [
        outcome.policy.name,
        seconds(outcome.seconds),
        _ratio(outcome.seconds, bound, ".3f"),
        seconds(outcome.setup_seconds),
        *(seconds(_percentile(outcome, at)) for at in (50, 99)),
        f"{outcome.utilisation:.1%}",
        _ratio(outcome.stall_seconds, outcome.seconds, ".1%"),
        f"{outcome.imbalance:.1%}",
    ]


def _percentile(outcome: Outcome, at: float) -> float:
    return float(np.percentile(outcome.step_seconds, at))


def _sources(outcome: Outcome) -> list[str]:
    fetched = outcome.fetched
    used = sum(source.bytes for source in fetched.values())
    from_storage = fetched["storage"].bytes + fetched["on_demand"].bytes
    of_used = (fetched["tier"].bytes, fetched["peer"].bytes, from_storage)
    read = from_storage + outcome.filled_bytes
    return [outcome.policy.name, *(_ratio(count, used, ".1%") for count in (*of_used, read))]


def _ratio(value: float, whole: float, form: str) -> str:
    return format(value / whole, form) if whole else "-"


def seconds(value: float) -> str:
    return f"{value:,.1f}" if 1000 <= value < 1e12 else f"{value:.4g}"


def beside(values: Mapping[str, Any]) -> str:
    """Behind a title: what differs from the scenario's file."""
    return "".join(f"; {key}={value}" for key, value in values.items())


class Swept:
    """The combinations of a sweep of one key, or two, with several values."""

    def __init__(self, keys: Mapping[str, Sequence[Any]], points: Iterable[dict[str, Any]]) -> None:
        """`points`: in the order of the sweep, `plain` of each."""
        self.points = list(points)
        self.axes = {key: list(map(str, of)) for key, of in keys.items() if len(of) > 1}
        self.beside = beside({key: of[0] for key, of in keys.items() if len(of) == 1})

    def lines(self) -> dict[str, list[float | None]]:
        """Seconds by combination, of each policy and each order's bound; None: refused."""
        first = self.points[0]
        of_policies = {
            name: [point["policies"][name].get("seconds") for point in self.points]
            for name in first["policies"]
        }
        of_orders = {
            f"bound of {order}": [point["bounds"][order] for point in self.points]
            for order in first["bounds"]
        }
        return of_policies | of_orders

    def grids(self) -> Iterator[Grid]:
        """One table of all policies; or, of two keys, one of each."""
        if len(self.axes) < 2:
            ((key, values),) = self.axes.items()
            rows = [[name, *map(_cell, line)] for name, line in self.lines().items()]
            yield Grid(f"seconds by {key}{self.beside}", ["policy", *values], rows)
            return
        (down, names), (across, head) = self.axes.items()
        for policy, line in self.lines().items():
            rows = [
                [name, *map(_cell, line[at * len(head) : (at + 1) * len(head)])]
                for at, name in enumerate(names)
            ]
            title = f"{policy}: seconds by {down} (rows) and {across}{self.beside}"
            yield Grid(title, [down, *head], rows)

    def remarks(self) -> Iterator[str]:
        """Of each policy that refused: how often, and why the first time."""
        for name in self.points[0]["policies"]:
            refused = [point for point in self.points if _REFUSED in point["policies"][name]]
            if refused:
                values = ", ".join(f"{key}={value}" for key, value in refused[0]["values"].items())
                why = refused[0]["policies"][name][_REFUSED]
                count = f"{len(refused)} of {len(self.points)}"
                yield f"{name}: refused in {count}, first with {values}: {why}"


def _cell(value: float | None) -> str:
    return _REFUSED if value is None else seconds(value)


def check_axes(keys: Mapping[str, Sequence[Any]]) -> None:
    """Tables have two sides."""
    several = [key for key, values in keys.items() if len(values) > 1]
    if len(several) > 2:
        raise InvalidArgumentError(
            f"--sweep: {', '.join(several)} have several values; a table can show two such keys: "
            "give the others one value"
        )
