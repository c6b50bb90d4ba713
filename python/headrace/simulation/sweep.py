"""One scenario with several values of some of its keys."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace._arguments import items, shown
from headrace._signature import named_arguments
from headrace._toml import TomlTable
from headrace.errors import InvalidArgumentError
from headrace.simulation.bounds import bound_seconds
from headrace.simulation.scenario import IndexSizes, Scenario, Sizes, to_plain, to_scenario
from headrace.simulation.simulate import (
    Simulation,
    check_run,
    chosen_orders,
    chosen_policies,
    run_policies,
)

COMBINATIONS_MAX = 1000
"""Of a sweep."""
_NUMBER = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_RANGE = re.compile(
    rf"({_NUMBER})\s*([a-zA-Z/]*)\.\.({_NUMBER})\s*([a-zA-Z/]*)"
    rf"(?:([*+])({_NUMBER})\s*([a-zA-Z/]*))?"
)

_RATES_OF_COMPUTING = {"compute.rate": "sample_rate", "compute.sample_rate": "rate"}
_NAMES = ("job.placement", "job.schedule")
"""Keys whose values are names."""

Value = float | str
"""As a scenario's file has it: 4, 64e6, "64 MB/s"."""


@dataclass(frozen=True, eq=False)
class SweepPoint:
    """A combination of a sweep."""

    values: dict[str, Value]
    """By the keys' whole names: {"tiers.RAM.capacity": "32GB"}."""
    simulation: Simulation


@named_arguments
def sweep(
    scenario: Scenario,
    keys: Mapping[str, Sequence[Value]],
    names: Sequence[str] | None = None,
    progress: Callable[[str], object] = lambda name: None,
    orders: Sequence[str] = (),
    *,
    fast: bool = False,
) -> Iterator[SweepPoint]:
    """Runs policies with each combination of values; the last key's change first.

    All combinations are checked before the first runs. Sizes are drawn, and bounds computed, again
    only where they change.

    >>> for point in sweep(scenario, {"ram": ["32GB", "64GB"], "job.nodes": [4, 8]}, ["nopfs"]):
    ...     print(point.values, point.simulation.outcomes[0])

    Args:
        keys: numeric ones of a scenario's file, as "job.nodes", "job.placement" and
            "job.schedule", with their values. A tier is found by its name: "tiers.RAM.capacity";
            "ram" alone is its capacity, too.
        names, progress, orders, fast: as those of `simulate`; by default no bounds.

    Raises: InvalidArgumentError: a value is not what a file may have there, no such key, more than
        1,000 combinations.
    """
    check_run("sweep", scenario, progress, fast)
    if not isinstance(keys, Mapping):
        raise InvalidArgumentError(
            f"sweep: keys: got {shown(keys)}, must be a dict, as {{'job.nodes': [4, 8]}}"
        )
    for key in keys:
        if not isinstance(key, str):
            raise InvalidArgumentError(f"sweep key: got {key!r}, must be a text, as 'job.nodes'")
    whole = {_whole_name(scenario, key): key for key in keys}
    if len(whole) < len(keys):
        raise InvalidArgumentError(
            f"sweep {', '.join(keys)}: two of them are the same key; give one of them all values"
        )
    values = [
        [_plain(value) for value in items(f"sweep {key}", of_key, "values")]
        for key, of_key in keys.items()
    ]
    count = math.prod(map(len, values))
    if not 1 <= count <= COMBINATIONS_MAX:
        raise InvalidArgumentError(
            f"sweep {', '.join(keys)}: got {count:,} combinations of values, must be in "
            f"[1, {COMBINATIONS_MAX:,}]; give the keys more or fewer values"
        )
    bounded = chosen_orders("sweep", orders)
    combinations = [dict(zip(whole, chosen, strict=True)) for chosen in itertools.product(*values)]
    changed = [_changed(scenario, chosen) for chosen in combinations]
    policies = chosen_policies("sweep", scenario, names)
    points = zip(combinations, changed, strict=True)
    return _points(points, policies, progress, bounded, fast)


@named_arguments
def parse_sweep(text: str) -> tuple[str, list[Value]]:
    """A key and its values, of "job.nodes=4,8", "ram=32..512GB" (doubled each time), "a..b*3" or
    "a..b+10GB".

    Raises: InvalidArgumentError
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(
            f"parse_sweep: text: got {shown(text)}, must be a text, as 'job.nodes=4,8'"
        )
    key, _, written = text.partition("=")
    if not key.strip() or not written.strip():
        raise InvalidArgumentError(
            f"sweep {text!r}: must be KEY=VALUE,VALUE or KEY=FIRST..LAST, as job.nodes=4,8 or "
            "ram=32..512GB"
        )
    values: list[Value] = []
    for part in map(str.strip, written.split(",")):
        values += _of_range(key.strip(), part) if ".." in part else [_value(part)]
    return key.strip(), values


def _of_range(key: str, text: str) -> Iterator[Value]:
    where = f"sweep {key}={text}"
    match = _RANGE.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(
            f"{where}: must be FIRST..LAST, which doubles, FIRST..LAST*FACTOR or FIRST..LAST+STEP, "
            "as 32..512GB"
        )
    first, last = float(match[1]), float(match[3])
    unit, by = match[4], float(match[6] or 2)
    adds = match[5] == "+"
    if not {match[2], match[7] or "" if adds else ""} <= {"", unit} or (match[7] and not adds):
        raise InvalidArgumentError(
            f"{where}: its numbers have different units; write the unit of the last alone"
        )
    if first > last or (by <= 0 if adds else by <= 1 or first <= 0):
        raise InvalidArgumentError(
            f"{where}: has no end; must ascend, by a factor above 1 from above 0 or by a step "
            "above 0"
        )
    for at in range(COMBINATIONS_MAX + 1):
        value = first + at * by if adds else first * by**at
        if value > last * (1 + 1e-12):
            return
        yield _value(f"{value:.12g}{unit}")


def _plain(value: Any) -> Any:
    """A number of NumPy as Python's, as which a file's are read."""
    return value.item() if isinstance(value, np.number) else value


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _whole_name(scenario: Scenario, key: str) -> str:
    """Of a key: the tier's name as its file has it, and what is meant of it."""
    table, _, rest = key.partition(".")
    if table == "tiers" or not rest:
        name, _, field = rest.rpartition(".") if rest else (key, "", "capacity")
        found = [tier.name for tier in scenario.tiers if tier.name.lower() == name.lower()]
        if len(found) == 1:
            return f"tiers.{found[0]}.{field}"
        if rest or found:
            there = ", ".join(tier.name for tier in scenario.tiers) or "none"
            raise InvalidArgumentError(
                f"sweep {key}: must be the name of one tier, with one of its keys; tiers are: "
                f"{there}"
            )
    return key


def _changed(scenario: Scenario, values: Mapping[str, Value]) -> Scenario:
    where = "sweep " + ", ".join(f"{key}={value}" for key, value in values.items())
    plain = to_plain(scenario)
    for key, value in values.items():
        place, name = _place(plain, key)
        now = place.get(name, 0)
        number = isinstance(now, int | float) and not isinstance(now, bool)
        if key.startswith("printed.") or not (number or key in _NAMES):
            raise InvalidArgumentError(
                f"sweep {key}: is no number that a simulation depends on; choose one, as "
                f"job.nodes, or one of {', '.join(_NAMES)}"
            )
        place[name] = value
        other = _RATES_OF_COMPUTING.get(key)  # One takes the place of the other.
        if other is not None and f"compute.{other}" not in values:
            place.pop(other, None)
    changed = to_scenario(TomlTable(where, "", plain), where)
    return replace(changed, printed={})


def _place(plain: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The table of a key, and its name there. `key`: by its whole name."""
    table, _, name = key.partition(".")
    if not name:
        return plain, key
    if table == "tiers":
        tier, _, name = name.rpartition(".")
        return next(row for row in plain["tiers"] if row["name"] == tier), name
    place = plain.setdefault(table, {})
    return (place, name) if isinstance(place, dict) else (plain, table)


def _points(
    combinations: Iterator[tuple[dict[str, Value], Scenario]],
    policies: Sequence[Any],
    progress: Callable[[str], object],
    orders: Sequence[str],
    fast: bool,
) -> Iterator[SweepPoint]:
    drawn_of: tuple[Sizes | IndexSizes, int] | None = None
    sizes = np.empty(0)
    known: dict[tuple[Any, ...], float] = {}
    for values, scenario in combinations:
        if drawn_of != (scenario.sizes, scenario.seed):
            drawn_of = scenario.sizes, scenario.seed
            sizes = scenario.sizes.draw(scenario.seed)
        where = ", ".join(f"{key}={value}" for key, value in values.items())

        def tell(name: str, where: str = where) -> None:
            progress(f"{where}: {name}")

        outcomes = run_policies(scenario, sizes, policies, tell, fast)
        bounds: dict[str, float] = {}
        for order in orders:
            decides = (*drawn_of, scenario.nodes, scenario.ranks, scenario.batch_size)
            rates = (scenario.compute_rate, scenario.sample_rate, scenario.allreduce)
            asked = (*decides, scenario.epochs, *rates, order)
            if asked not in known:
                tell(order)
                known[asked] = bound_seconds(scenario, sizes, order)
            bounds[order] = known[asked]
        yield SweepPoint(values, Simulation(scenario, outcomes, bounds))
