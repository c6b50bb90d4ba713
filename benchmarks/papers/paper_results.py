"""What papers print beside what `headrace simulate` gives: the tables of docs/paper-results.md.

    python benchmarks/papers/paper_results.py [--check]

Nothing is measured: the same versions of Headrace and NumPy give the same tables on any machine.
--check: only says whether the page has them. Takes some ten minutes. The engines of
Headrace's orders run in virtual time; of the largest datasets they are estimated (`fast`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import _page

from headrace import simulation
from headrace.simulation import Outcome, Scenario, Simulation

_SEEDS = 20  # of the thesis's first scenario, whose times depend on the sizes that are drawn
_GB = 1024 * 10**6  # as the thesis has it
_RAM_GB, _DISK_GB = (0, 10, 20, 40), (0, 20, 40, 80)
_SWEPT: dict[str, list[float | str]] = {
    "staging.capacity": [4 * _GB],
    "tiers.SSD.rate": ["100 MB/s"],
    "tiers.RAM.capacity": [size * _GB for size in _RAM_GB],
    "tiers.SSD.capacity": [size * _GB for size in _DISK_GB],
}
# Figure 5.8 and tables 5.5 and 5.6: seconds by RAM (rows) and disk.
_SWEEP = (
    (9947.0, 9579.53, 9257.99, 8703.59),
    (9554.47, 9212.1, 8885.5, 8382.7),
    (9239.67, 8889.2, 8550.5, 8102.9),
    (8613.13, 8249.8, 8015.7, 7678.2),
)
# Figure 9: the ends of what it shows.
_CORNERS: dict[str, list[float | str]] = {
    "tiers.RAM.capacity": ["32 GB", "512 GB"],
    "tiers.SSD.capacity": ["128 GB", "1024 GB"],
}
_STAGING: dict[str, list[float | str]] = {"staging.capacity": ["1 GB", "2 GB", "4 GB", "5 GB"]}


# Where Headrace's orders are estimated: more than a million samples.
_FAST = ("nopfs-8b", "nopfs-8c", "nopfs-8d", "nopfs-9")
_ORDERS = ("exact", "batch", "epoch")
# scale_results.py and lobster_results.py have them.
_ELSEWHERE = ("nopfs-12", "nopfs-13", "lobster-8a")


# Whom Headrace's orders are compared with where nodes compute by samples, and in figure 9: those
# that are at, or next to, the bound of `exact` wherever nodes compute by bytes.
_RIVALS = ("staging", "lbann_dynamic", "nopfs", "belady", "coordl")


@cache
def simulated(name: str, *, by_samples: bool) -> Simulation:
    """By bytes as printed; or by as many samples a second, whatever their bytes."""
    scenario = simulation.load_scenario(name)
    names = None if name != "nopfs-9" and not by_samples else [*_RIVALS, *_ORDERS]
    if by_samples:
        assert scenario.compute_rate is not None
        mean = float(scenario.sizes.draw(scenario.seed).mean())
        rate = scenario.compute_rate / mean
        scenario = replace(scenario, compute_rate=None, sample_rate=rate)
    orders = ("batch",) if by_samples else _ORDERS
    print(f"simulating {name}{' by samples' if by_samples else ''}", flush=True)
    return simulation.simulate(scenario, names, orders=orders, fast=name in _FAST)


def published() -> list[str]:
    return [policy.name for policy in simulation.policies() if policy.paper and not policy.order]


def headline() -> Iterator[str]:
    """Headrace's orders beside the best policy of papers that trains on all data."""
    yield (
        "| scenario | nodes compute by | best published | s | `exact` | `batch` | `epoch` | "
        "`epoch` over its bound | with its first reads |"
    )
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|"
    for name in simulation.shipped_scenarios():
        if name in _ELSEWHERE:
            continue
        for by_samples in (False, True):
            yield _headline(name, by_samples=by_samples)


def _headline(name: str, *, by_samples: bool) -> str:
    ran = simulated(name, by_samples=by_samples)
    outcomes = {one.policy.name: one for one in ran.outcomes if isinstance(one, Outcome)}
    of_papers = [
        outcomes[policy]
        for policy in published()
        if policy in outcomes and policy != "perfect"
        if outcomes[policy].samples_used == ran.scenario.sizes.samples
        or not outcomes[policy].policy.changes_order
    ]
    best = min(of_papers, key=lambda outcome: outcome.seconds)
    cells = [name, "samples" if by_samples else "bytes", best.policy.name, f"{best.seconds:,.6g}"]
    for order in _ORDERS:
        ours = outcomes.get(order)
        cells.append("refuses" if ours is None else f"{ours.seconds / best.seconds:.3f}")
    epoch = outcomes.get("epoch")
    if epoch is None or epoch.least_seconds is None or epoch.first_read_seconds is None:
        cells += ["", ""]
    else:
        least = epoch.least_seconds
        cells += [f"{epoch.seconds / own:.3f}" for own in (least, least + epoch.first_read_seconds)]
    return "| " + " | ".join(cells) + " |"


def seconds_of(ran: Simulation, policy: str) -> float | None:
    for outcome in ran.outcomes:
        if outcome.policy.name == policy:
            return outcome.seconds if isinstance(outcome, Outcome) else None
    raise KeyError(policy)


def thesis_tables() -> Iterator[str]:
    scenarios = [simulation.load_scenario(f"thesis-s{number}") for number in (1, 2, 3, 4)]
    printed = [scenario.printed for scenario in scenarios]
    ours: list[dict[str, float]] = []
    for scenario in scenarios:
        seeds = _SEEDS if scenario is scenarios[0] else 1
        runs = [
            simulation.simulate(replace(scenario, seed=seed), list(printed[0]), orders=())
            for seed in range(seeds)
        ]
        means = {name: _mean(runs, name) for name in printed[0]}
        ours.append({name: mean for name, mean in means.items() if mean is not None})
    yield "| policy | S1 | S2 | S3 | S4 |\n|---|---:|---:|---:|---:|"
    for name in printed[0]:
        cells = [_beside(ours[at].get(name), printed[at].get(name)) for at in range(4)]
        yield f"| {name} | " + " | ".join(cells) + " |"
    excess = [_ratio(_over(own), _over(theirs)) for own, theirs in zip(ours, printed, strict=True)]
    yield "| nopfs, over the bound: ours / printed | " + " | ".join(excess) + " |"


def _mean(runs: Sequence[Simulation], policy: str) -> float | None:
    seconds = [seconds_of(run, policy) for run in runs]
    known = [value for value in seconds if value is not None]
    return sum(known) / len(known) if known else None


def _over(seconds: Mapping[str, float]) -> float:
    return seconds["nopfs"] - seconds["perfect"]


def _ratio(ours: float, printed: float) -> str:
    return f"{ours / printed:.2f}"


def _beside(ours: float | None, printed: float | None) -> str:
    if ours is None:
        return "refused / n/a" if printed is None else f"refused / {printed:,}"
    return (
        f"{ours:,.6g} / n/a"
        if printed is None
        else f"{ours:,.6g} / {printed:,} ({ours / printed:.3f})"
    )


def sweep_table() -> Iterator[str]:
    points = simulation.sweep(simulation.load_scenario("thesis-s3"), _SWEPT, ["nopfs"])
    yield "| RAM | " + " | ".join(f"disk {size} GB" for size in _DISK_GB) + " |"
    yield "|---|" + "---:|" * len(_DISK_GB)
    for ram, row in zip(_RAM_GB, _SWEEP, strict=True):
        cells = []
        for printed, point in zip(row, points, strict=False):
            ours = seconds_of(point.simulation, "nopfs")
            assert ours is not None
            cells.append(f"{ours:,.1f} / {printed:,} ({ours / printed:.3f})")
        yield f"| {ram} GB | " + " | ".join(cells) + " |"


def figure_8() -> Iterator[str]:
    names = list(
        simulation.load_scenario("thesis-s1").printed
    )  # In one epoch caches are `staging`.
    yield (
        "| scenario | bound of `exact` | of `batch` | of `epoch` | of all, by samples | "
        + " | ".join(names)
        + " |"
    )
    yield "|---|" + "---:|" * (len(names) + 4)
    for name in simulation.shipped_scenarios():
        if not name.startswith("nopfs-8"):
            continue
        ran = simulated(name, by_samples=False)
        by_samples = simulated(name, by_samples=True).bounds["batch"]
        bounds = [f"{seconds:,.5g}" for seconds in (*ran.bounds.values(), by_samples)]
        cells = [_of_bound(ran, policy) for policy in names]
        yield f"| {ran.scenario.title.rpartition(': ')[2]} | " + " | ".join(bounds + cells) + " |"


def _of_bound(ran: Simulation, policy: str) -> str:
    seconds = seconds_of(ran, policy)
    return "refuses" if seconds is None else f"{seconds / ran.bounds['exact']:.3f}"


def figure_9() -> Iterator[str]:
    scenario = simulation.load_scenario("nopfs-9")
    bounds = simulation.simulate(scenario, []).bounds
    hours = {order: seconds / 3600 for order, seconds in bounds.items()}
    yield "| what | ours, h | printed, h |\n|---|---:|---:|"
    yield f"| bound of `exact`, two epochs | {hours['exact']:.3f} | 1.06 |"
    yield f"| bound of `batch`, levelled by bytes | {hours['batch']:.3f} | |"
    staging = _hours(scenario, _STAGING, "staging")
    yield f"| staging alone, 1, 2, 4 and 5 GB | {staging} | 1.64 |"
    nopfs = _hours(scenario, _CORNERS, "nopfs")
    yield f"| NoPFS, 32 and 512 GB of RAM with 128 and 1,024 GB of SSD | {nopfs} | |"


def _hours(scenario: Scenario, keys: Mapping[str, list[float | str]], policy: str) -> str:
    found = [seconds_of(at.simulation, policy) for at in simulation.sweep(scenario, keys, [policy])]
    return ", ".join("refuses" if one is None else f"{one / 3600:.3f}" for one in found)


def tables() -> str:
    parts = {
        "Headrace's orders, over the best published policy that trains on all data": headline(),
        "Boehringer's thesis, tables 5.1 to 5.4: seconds, ours / printed (ratio); S1: 20 seeds": (
            thesis_tables()
        ),
        "Its sweep of scenario 3 (tables 5.5, 5.6, figure 5.8), NoPFS: ours / printed (ratio)": (
            sweep_table()
        ),
        "NoPFS, figure 8: bounds of an epoch in seconds; policies as multiples of `exact`'s": (
            figure_8()
        ),
        "NoPFS, figure 9: five times figure 8's rates of computing and preprocessing": figure_9(),
    }
    return _page.joined(parts)


if __name__ == "__main__":
    sys.exit(_page.run("paper_results", __doc__, tables))
