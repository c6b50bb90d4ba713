"""Searches for the order, the blocks, the tiers, the threads and the prefetch that load a dataset
fast enough on a machine; each candidate is simulated."""

from __future__ import annotations

import functools
import itertools
import math
import numbers
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace import _core
from headrace._arguments import callback, flag, instance, items, shown
from headrace._signature import named_arguments
from headrace._units import counted, format_bytes
from headrace.errors import InvalidArgumentError
from headrace.profile import MachineProfile
from headrace.simulation.bounds import BOUNDED
from headrace.simulation.machine import (
    PREFETCH,
    DescribedMachine,
    Machine,
    ProfiledMachine,
    Setup,
    TierChoice,
    Workload,
)
from headrace.simulation.scenario import Scenario
from headrace.simulation.simulate import Outcome, Refused, run_order

REAL_OVER_SIMULATED = (0.94, 1.06)
"""What real runs took, over what either mode of the simulator said: `headrace docs simulate`."""
_SAME = 0.01  # of the time: fewer threads or batches ahead may cost so much
_ENOUGH = 0.95  # of the rate that training takes
_SHORTER = 0.01  # of the time: less is no gain
_ALIKE = 0.2  # sizes of blocks that differ less from the dataset's own are not tried
_PREFETCH_LEAST = 8  # as in the real runs: storage varies more than simulated storage
_SMALL = 20_000  # samples of all epochs: engines run these in a tenth of a second
TIER_SETS_MAX = 64
"""Combinations of tiers that are simulated."""

LabelInflation = Callable[[str, int | None], float | None]
"""Of the labels of a batch: of an order by name, with so many samples a block, or None: the
dataset's own. None: not known."""


@dataclass(frozen=True)
class Bill:
    """What an epoch asks for, of all nodes together, as the mean of the job's epochs."""

    requests: float
    """To storage."""
    storage_bytes: float
    link_bytes: float
    """That nodes send each other."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A setup that was simulated."""

    setup: Setup
    block_samples: int | None
    """Of a block, as `hr.orders.Epoch` takes it; None: the dataset's own blocks, or no blocks."""
    outcome: Outcome
    label_inflation: float | None
    """Of a batch, expected: a Loader warns above `_core.good_label_inflation`. None: not known."""
    memory: float
    """Bytes of a node: its tiers in memory, the batch in use and those ahead, as they are stored.
    """
    waits: Mapping[str, float]
    """Seconds that a rank waits in the whole job, the mean of all, by what for."""

    @property
    def seconds(self) -> float:
        """Of an epoch, the mean of the job's."""
        return self.outcome.seconds / len(self.outcome.epoch_seconds)

    @property
    def range(self) -> tuple[float, float]:
        """Of the seconds: the simulator's error against real runs."""
        least, most = REAL_OVER_SIMULATED
        return least * self.seconds, most * self.seconds

    @property
    def mixes(self) -> bool:
        """Whether a Loader with it would not warn about the mix of labels."""
        return self.label_inflation is None or self.label_inflation <= _core.good_label_inflation

    @property
    def bill(self) -> Bill:
        """What an epoch asks for."""
        ran, epochs = self.outcome, len(self.outcome.epoch_seconds)
        fetched = ran.fetched
        stored = fetched["storage"].bytes + fetched["on_demand"].bytes + ran.filled_bytes
        return Bill(
            requests=(ran.storage_reads or 0) / epochs,
            storage_bytes=stored / epochs,
            link_bytes=fetched["peer"].bytes / epochs,
        )

    @property
    def strictness(self) -> tuple[int, int]:
        """Less is a stronger shuffle: by the order, then by the bytes of a block."""
        return BOUNDED.index(self.setup.order), self.setup.block_bytes or 0


@dataclass(frozen=True, eq=False)
class Advice:
    """What to take, and why."""

    machine: MachineProfile | Scenario
    work: Workload
    chosen: Candidate
    why: str
    scenario: Scenario
    """Of the chosen one."""
    gains: Mapping[str, float]
    """By resource: the share of the time that is saved if it is twice as fast."""
    candidates: Sequence[Candidate]
    """All that were simulated, the fastest first."""
    refused: Sequence[tuple[str, str]]
    """Setups that cannot be, in words, and the reason."""

    @property
    def bottleneck(self) -> str | None:
        """The resource that limits the chosen one: "storage", "tiers", "link", "decode" or
        "training". None: no single one."""
        resource = max(self.gains, key=lambda name: self.gains[name])
        return resource if self.gains[resource] > _SHORTER else None


@named_arguments
def advise(
    machine: MachineProfile | Scenario,
    work: Workload,
    tiers: Sequence[TierChoice] = (),
    label_inflation: LabelInflation = lambda order, block_samples: None,
    progress: Callable[[str], object] = lambda name: None,
    *,
    full: bool = False,
) -> Advice:
    """Simulates candidates, and chooses one.

    Of the candidates whose range meets that of the fastest it takes those that mix labels well; of
    these the ones with the strongest shuffle; of these the one with the least memory. Then it takes
    as few threads, and as few batches ahead, as take 1 % more time at most.

    Args:
        machine: a profile of `headrace profile`, or a scenario, of which the dataset, the job and
            the memory are the work's.
        tiers: what may be used, fastest first; of several capacities of a name at most one is.
        full: whether engines run in virtual time, in place of the estimate step by step; those of
            small jobs always do.

    Raises: InvalidArgumentError: an argument is wrong, the profile is of another dataset, no
        candidate fits into the memory, none can be simulated (the fast mode refuses what single
        reads decide), or a rate is not known.
    """
    _check_arguments(machine, work, label_inflation, progress)
    flag("advise: full", full)
    tiers = [
        instance(f"advise: tiers[{position}]", tier, TierChoice)
        for position, tier in enumerate(items("advise: tiers", tiers, "TierChoice"))
    ]
    if isinstance(machine, Scenario):
        described = DescribedMachine(machine, files=work.files)
        search = _Search(described, work, label_inflation, progress, full)
    else:
        _check_dataset(machine, work)
        search = _Search(ProfiledMachine(machine), work, label_inflation, progress, full)
    search.run_all(tiers)
    first = _chosen(search.ran())
    chosen = search.with_less(first)
    return Advice(
        machine=machine,
        work=work,
        chosen=chosen,
        why=_why(work, search, chosen),
        scenario=search.scenario(chosen.setup),
        gains=search.gains(chosen),
        candidates=search.ran(),
        refused=search.refused,
    )


def _check_arguments(machine: Any, work: Any, label_inflation: Any, progress: Any) -> None:
    if not isinstance(machine, MachineProfile | Scenario):
        raise InvalidArgumentError(
            f"advise: machine: got {shown(machine)}, must be a MachineProfile, as "
            "headrace.profile.load(path) gives, or a Scenario, as load_scenario(path) gives"
        )
    instance("advise: work", work, Workload, ", as Workload.of(dataset, ...) gives")
    callback("advise: label_inflation", label_inflation)
    callback("advise: progress", progress)


def _check_dataset(profile: MachineProfile, work: Workload) -> None:
    measured = profile.dataset
    if measured.fingerprint != work.fingerprint:
        raise InvalidArgumentError(
            f"advising for {work.dataset}: the profile is of another dataset, {measured.path} "
            f"({counted(measured.samples, 'sample')}, fingerprint {measured.fingerprint}); measure "
            f"this one: `headrace profile {shlex.quote(work.dataset)} --output machine.toml`"
        )


class _Search:
    """Runs each setup once."""

    def __init__(
        self,
        machine: Machine,
        work: Workload,
        label_inflation: LabelInflation,
        progress: Callable[[str], object],
        full: bool,
    ) -> None:
        self.machine = machine
        self.refused: list[tuple[str, str]] = []
        self._work = work
        self._label_inflation = functools.cache(_checked_inflation(label_inflation))
        self._progress = progress
        self._fast = not full and len(work.sizes) * work.epochs > _SMALL
        self._candidates: dict[Setup, Candidate] = {}

    def run_all(self, tiers: Sequence[TierChoice]) -> None:
        """All setups with sets of these tiers.

        Raises: InvalidArgumentError: each is refused, as the fast mode does where single reads
            decide; or see `tier_sets`.
        """
        whys = []
        for setup in self.setups(self.tier_sets(tiers)):
            if self.run(setup) is None:
                whys.append(self.refused[-1][1])
        if not self._candidates:
            full = ": `--full`, or full=True, simulates each read" if self._fast else ""
            raise InvalidArgumentError(
                f"advising for {self._work.dataset}: no candidate can be simulated: {whys[0]}{full}"
            )

    def tier_sets(self, tiers: Sequence[TierChoice]) -> list[tuple[TierChoice, ...]]:
        """None, and those that leave memory for two batches.

        Raises: InvalidArgumentError: there is none, or there are too many.
        """
        work = self._work
        by_name: dict[str, list[TierChoice | None]] = defaultdict(lambda: [None])
        for tier in dict.fromkeys(tiers):
            by_name[self.machine.tier_key(tier.name)].append(tier)
        count = math.prod(map(len, by_name.values()))
        if count > TIER_SETS_MAX:
            raise InvalidArgumentError(
                f"tiers: got {count:,} combinations of capacities, must be at most "
                f"{TIER_SETS_MAX}; name fewer"
            )
        batches = f"the batch in use and the next one take {format_bytes(2 * work.step_bytes)}"
        if 2 * work.step_bytes > work.memory:
            raise InvalidArgumentError(
                f"advising for {work.dataset}: no candidate fits into {format_bytes(work.memory)} "
                f"of memory: {batches}; give more memory, or a smaller batch_size"
            )
        sets = []
        for chosen in itertools.product(*by_name.values()):
            one = tuple(tier for tier in chosen if tier is not None)
            if sum(tier.capacity for tier in one if tier.in_memory) <= (
                work.memory - 2 * work.step_bytes
            ):
                sets.append(one)
            else:
                name = "any order" + tiers_text(one)
                self.refused.append((name, f"{format_bytes(work.memory)} of memory; {batches}"))
        return sets

    def setups(self, tier_sets: Sequence[tuple[TierChoice, ...]]) -> Iterator[Setup]:
        """All orders with all tiers, with all threads."""
        ranks = self._work.nodes * self._work.ranks
        for tiers, order in itertools.product(tier_sets, BOUNDED):
            row = _core.find_order(order)
            if row.takes_costs and ranks == 1:
                continue  # It levels what ranks get.
            setup = Setup(order=order, tiers=tiers, threads=self.machine.threads)
            room = (self._work.memory - setup.ram_bytes) / self._work.step_bytes
            setup = replace(setup, prefetch=max(1, min(PREFETCH, int(room) - 1)))
            if not row.reads_blocks:
                yield setup
                continue
            for block_bytes in _block_sizes(self.machine, self._work):
                yield replace(setup, block_bytes=block_bytes)

    def scenario(self, setup: Setup) -> Scenario:
        return self.machine.scenario(self._work, setup)

    def run(self, setup: Setup) -> Candidate | None:
        """None: it is refused."""
        if setup in self._candidates:
            return self._candidates[setup]
        self._progress(setup_text(setup))
        outcome = self._simulated(self.scenario(setup), setup)
        if isinstance(outcome, Refused):
            self.refused.append((setup_text(setup), outcome.why))
            return None
        work = self._work
        own = None if work.block_bytes is None else round(work.block_bytes)
        samples = None if setup.block_bytes == own else setup.block_samples(work)
        candidate = Candidate(
            setup=setup,
            block_samples=samples,
            outcome=outcome,
            label_inflation=self._label_inflation(setup.order, samples),
            memory=setup.ram_bytes + (1 + setup.prefetch) * work.step_bytes,
            waits={
                cause: seconds / (work.nodes * work.ranks)
                for cause, seconds in outcome.stalls.items()
            },
        )
        self._candidates[setup] = candidate
        return candidate

    def _simulated(self, scenario: Scenario, setup: Setup) -> Outcome | Refused:
        return run_order(
            scenario,
            self._work.sizes,
            setup.order,
            fast=self._fast,
            block_samples=setup.block_samples(self._work),
            prefetch=setup.prefetch,
            files=self._work.files,
        )

    def ran(self) -> list[Candidate]:
        """The fastest first."""
        return sorted(self._candidates.values(), key=lambda one: one.seconds)

    def with_less(self, first: Candidate) -> Candidate:
        """As few threads, then as few batches ahead, as hardly take more time."""
        best = first
        for field, least in (("threads", 1), ("prefetch", _PREFETCH_LEAST)):
            count = getattr(best.setup, field)
            while (count := count // 2) >= least:
                less = self.run(replace(best.setup, **{field: count}))
                if less is None or less.seconds > (1 + _SAME) * first.seconds:
                    break
                best = less
        return best

    def gains(self, chosen: Candidate) -> dict[str, float]:
        """What each resource would save, twice as fast."""
        scenario = self.scenario(chosen.setup)
        gains = {}
        for resource, faster in _doubled(scenario).items():
            self._progress(f"{resource} twice as fast")
            outcome = self._simulated(faster, chosen.setup)
            if isinstance(outcome, Outcome) and chosen.outcome.seconds > 0:
                gains[resource] = max(0.0, 1 - outcome.seconds / chosen.outcome.seconds)
        return gains


def _checked_inflation(given: LabelInflation) -> LabelInflation:
    def inflation(order: str, block_samples: int | None) -> float | None:
        value: Any = given(order, block_samples)  # It may plan an epoch.
        if value is None:
            return None
        if isinstance(value, numbers.Real) and 0 <= float(value) < math.inf:
            return float(value)
        raise InvalidArgumentError(
            f"advise: label_inflation: returned {shown(value)} for order {order!r}, must be a "
            "finite number of at least 0, or None"
        )

    return inflation


def _block_sizes(machine: Machine, work: Workload) -> list[int]:
    """Of reads that hold several samples: those to try, and the dataset's blocks."""
    if machine.block_bytes is None:
        return []
    sizes = list(machine.block_bytes)
    if work.block_bytes is not None:
        own = work.block_bytes
        sizes = [round(own), *(size for size in sizes if abs(size / own - 1) > _ALIKE)]
    most = float(work.sizes.sum())
    return sorted({size for size in sizes if 2 * work.sample_bytes <= size <= most})


def _chosen(candidates: Sequence[Candidate]) -> Candidate:
    """By the rule of `advise`. `candidates`: the fastest first."""
    most = candidates[0].range[1]
    near = [one for one in candidates if one.range[0] <= most]

    def rank(one: Candidate) -> tuple[bool, tuple[int, int], int, int, float]:
        on_disks = sum(tier.capacity for tier in one.setup.tiers if not tier.in_memory)
        return not one.mixes, one.strictness, one.setup.ram_bytes, on_disks, one.seconds

    return min(near, key=rank)


def _doubled(scenario: Scenario) -> dict[str, Scenario]:
    """The scenario with each resource twice as fast."""

    def twice(rate: float | None) -> float | None:
        return None if rate is None else 2 * rate

    storage = scenario.storage
    faster = replace(
        storage,
        rates=tuple(2 * rate for rate in storage.rates),
        link_rate=twice(storage.link_rate),
        reads_per_second=twice(storage.reads_per_second),
        latency=storage.latency / 2,
    )
    staging = replace(scenario.staging, rate=2 * scenario.staging.rate)
    doubled = {
        "storage": replace(scenario, storage=faster),
        "decode": replace(scenario, preprocess_rate=2 * scenario.preprocess_rate, staging=staging),
        "training": replace(
            scenario,
            compute_rate=twice(scenario.compute_rate),
            sample_rate=twice(scenario.sample_rate),
        ),
    }
    if scenario.tiers:
        tiers = tuple(replace(tier, rate=2 * tier.rate) for tier in scenario.tiers)
        doubled["tiers"] = replace(scenario, tiers=tiers)
        if scenario.nodes > 1:
            doubled["link"] = replace(scenario, network_rate=2 * scenario.network_rate)
    return doubled


def _why(work: Workload, search: _Search, chosen: Candidate) -> str:
    candidates = search.ran()
    fastest = candidates[0]
    stricter = [one for one in candidates if one.strictness < chosen.strictness]
    if chosen.seconds <= (1 + _SAME) * fastest.seconds:
        parts = ["it is the fastest"]
    else:
        parts = [
            f"its range meets that of the fastest, {setup_text(fastest.setup)} with "
            f"{fastest.seconds:,.4g} s, and it "
            + (
                "shuffles better"
                if chosen.strictness < fastest.strictness
                else "mixes labels better"
                if chosen.mixes > fastest.mixes
                else "takes less memory"
            )
        ]
    if stricter:
        parts.append(
            f"{setup_text(stricter[0].setup)} takes {stricter[0].seconds:,.4g} s an epoch"
            + ("" if stricter[0].mixes else " and mixes labels less")
        )
    if not chosen.mixes:
        parts.append(
            "labels inside its blocks are alike: their mix varies "
            f"{chosen.label_inflation:.2f} times as much from batch to batch as a perfect "
            "shuffle's: shuffle the dataset once: `headrace pack`"
        )
    least = fastest.outcome.least_seconds or 0
    if (work.sample_rate or work.compute_rate) and least < _ENOUGH * fastest.outcome.seconds:
        parts.append("training waits: no candidate is fast enough for it")
    if search.machine.block_bytes is None and chosen.waits["storage"] > least:
        parts.append("each sample is a file of its own: `headrace pack` makes large reads possible")
    return "; ".join(parts)


def setup_text(setup: Setup) -> str:
    """Without threads and prefetch."""
    blocks = "" if setup.block_bytes is None else f" in blocks of {format_bytes(setup.block_bytes)}"
    return f"{setup.order}{blocks}{tiers_text(setup.tiers)}"


def tiers_text(tiers: Sequence[TierChoice]) -> str:
    """Behind an order."""
    return "".join(f" + {tier.name} {format_bytes(tier.capacity)}" for tier in tiers)
