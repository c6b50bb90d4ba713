"""Where Lobster's lane policy gains over equal shares, in virtual time: tables of docs/papers.md.

    python benchmarks/papers/lobster_gain.py [--check] [--quick]

One node of eight ranks trains in step. A tier in memory has a random share of the samples; the
others are read from storage whose reads take as long however many there are. So ranks differ by how
many samples of a batch they have to read, anew in each step. The grid below was written before the
first run. Nothing is measured: the same version gives the same tables on any machine. --check: only
says whether the page has them. --quick: two seeds, prints the tables.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import _page

from headrace import simulation
from headrace.simulation import Outcome, Scenario, Sizes
from headrace.simulation.scenario import Staging, StorageRates, TierRates

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers.md"

# The grid: 0.1 to 0.4 as the audit of the paper has it, 0.70 and 0.75 the paper's own shares.
HITS = (0.1, 0.2, 0.3, 0.4, 0.70, 0.75)
LOADING = (0.8, 0.95, 1.1, 1.3)  # mean loading time of a batch by equal shares, over training's
RANKS, BATCH, STEPS = 8, 64, 40
READS, DECODES = 6, 2  # threads of a rank: eight
SAMPLE_BYTES = 100_000
LATENCY_S, DECODE_S = 0.010, 0.00025  # of a sample: from storage; to preprocess, on one thread
READ_RATE = 2e9  # bytes a second of each read, from storage and from the tier
THETA = 0.1
GAIN = 1.05  # what the lower end of the interval should exceed
POLICIES = ("fixed", "proportional", "lobster", "shared_deadline")
SEEDS, QUICK_SEEDS = 4, 2
_T_975 = {2: 12.706, 4: 3.182}  # Student's, by number of seeds


@dataclass(frozen=True)
class Cell:
    """A place of the grid, or one outside of the regime."""

    hits: float
    loading: float
    ahead: int = 1
    """Batches of a rank."""
    bandwidth: bool = False
    """Storage is short of bytes a second in place of slow to answer."""
    batch: int = BATCH
    """Of a rank; reads take as much less as there are more of them."""


REGIME = tuple(Cell(hits, loading) for hits in HITS for loading in LOADING)
OUTSIDE = tuple(
    Cell(hits, 1.1, ahead, bandwidth)
    for hits in (0.4, 0.75)
    for ahead, bandwidth in ((8, False), (1, True), (8, True))
)
FINER = tuple(Cell(hits, 1.1, batch=4 * BATCH) for hits in (0.1, 0.4, 0.75))


def scenario_of(cell: Cell, policy: str, seed: int) -> Scenario:
    """The last of its three epochs is the cell: in the first the tier fills."""
    samples = RANKS * cell.batch * STEPS
    batch_bytes = cell.batch * SAMPLE_BYTES
    latency_s = LATENCY_S * BATCH / cell.batch
    missed_s = cell.batch * (1 - cell.hits) * (latency_s + SAMPLE_BYTES / READ_RATE) / READS
    load_s = missed_s + cell.batch * cell.hits * SAMPLE_BYTES / READ_RATE / READS
    all_missed = RANKS * batch_bytes * (1 - cell.hits)
    storage = StorageRates((1,), (READ_RATE,), None, "nodes", latency=latency_s)
    tier_rate = READ_RATE
    if cell.bandwidth:  # Reads share both rates.
        storage = StorageRates((1,), (all_missed / missed_s,))
        tier_rate = READ_RATE * RANKS * READS
    return Scenario(
        title="eight ranks that train in step",
        sizes=Sizes(samples, SAMPLE_BYTES),
        nodes=1,
        ranks=RANKS,
        batch_size=cell.batch,
        epochs=3,
        seed=seed,
        compute_rate=None,
        sample_rate=RANKS * cell.batch / (load_s / cell.loading),
        preprocess_rate=SAMPLE_BYTES / DECODE_S * cell.batch / BATCH,
        storage=replace(storage, reads_in_flight=RANKS * READS),
        network_rate=1e9,
        staging=Staging(RANKS * batch_bytes * (1 + cell.ahead), RANKS * DECODES, 1e12),
        tiers=(TierRates("RAM", round(cell.hits * samples * SAMPLE_BYTES), 8, tier_rate),),
        placement="pinned",
        schedule=policy,
    )


@dataclass(frozen=True)
class Ran:
    """The last epoch of a run."""

    seconds: float
    imbalanced: float
    stalled: float


@cache
def run(cell: Cell, policy: str, seed: int) -> Ran:
    scenario = scenario_of(cell, policy, seed)
    (outcome,) = simulation.simulate(scenario, ["exact"], orders=()).outcomes
    assert isinstance(outcome, Outcome), outcome
    assert outcome.spread_seconds is not None
    assert scenario.sample_rate is not None
    step = RANKS * cell.batch / scenario.sample_rate
    seconds = float(outcome.step_seconds[-STEPS:].sum())
    return Ran(
        seconds=seconds,
        imbalanced=float((outcome.spread_seconds[-STEPS:] > THETA * step).mean()),
        stalled=1 - STEPS * step / seconds,
    )


def gains(cell: Cell, policy: str, seeds: int) -> tuple[float, float]:
    """Of the time over `fixed`'s: the mean, and half of its 95 % interval."""
    ratios = [
        run(cell, "fixed", seed).seconds / run(cell, policy, seed).seconds for seed in range(seeds)
    ]
    half = _T_975[seeds] * statistics.stdev(ratios) / seeds**0.5
    return statistics.mean(ratios), half


def rows(cells: Sequence[Cell], seeds: int) -> Iterator[str]:
    others = POLICIES[1:]
    names = " | ".join(f"`{name}`" for name in POLICIES)
    yield (
        f"| hits | T_L / T_train | batch | storage, batches ahead | {names} | "
        + " | ".join(f"`{name}`, gain" for name in others)
        + " |"
    )
    yield "|---:|---:|---:|---|" + "---:|" * (2 * len(POLICIES) - 1)
    for cell in cells:
        print(f"simulating {cell}", file=sys.stderr, flush=True)
        imbalanced = [
            f"{statistics.mean(run(cell, name, seed).imbalanced for seed in range(seeds)):.0%}"
            for name in POLICIES
        ]
        gain = ["{:.3f} ± {:.3f}".format(*gains(cell, name, seeds)) for name in others]
        kind = f"{'bytes' if cell.bandwidth else 'latency'}, {cell.ahead}"
        yield (
            f"| {cell.hits:.2f} | {cell.loading:.2f} | {cell.batch} | {kind} | "
            + " | ".join(imbalanced + gain)
            + " |"
        )


def tables(seeds: int) -> str:
    regime, finer, outside = ("\n".join(rows(cells, seeds)) for cells in (REGIME, FINER, OUTSIDE))
    counts = []
    for name in POLICIES[1:]:
        lower = [mean - half for mean, half in (gains(cell, name, seeds) for cell in REGIME)]
        above = sum(low > GAIN for low in lower)
        counts.append(f"`{name}` {above}")
    return (
        f"{regime}\n\nOf these {len(REGIME)} cells the lower end of the gain's interval exceeds "
        f"{GAIN}: {', '.join(counts)}.\n\nFour times as many reads a batch, "
        f"each a fourth as long:\n\n{finer}\n\nOutside of the regime:\n\n{outside}"
    )


def main() -> int:
    if sys.argv[1:] == ["--quick"]:
        print(tables(QUICK_SEEDS))
        return 0
    return _page.run("lobster_gain", __doc__, lambda: tables(SEEDS), PAGE)


if __name__ == "__main__":
    sys.exit(main())
