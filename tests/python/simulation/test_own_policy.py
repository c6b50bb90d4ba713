"""Policies written in Python: they give what the core's give, and their mistakes are named."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_scenarios import drawn

from headrace import errors, simulation
from headrace.simulation import (
    Fetch,
    Job,
    Outcome,
    OwnPolicy,
    PolicyReaders,
    Refused,
    Scenario,
    Sizes,
    Start,
)


def small() -> Scenario:
    """Two nodes with a tier, twenty steps of three samples of each."""
    tiers = drawn(0).tiers[:1]
    return replace(drawn(0), sizes=Sizes(60, 20, 5), nodes=2, batch_size=3, epochs=2, tiers=tiers)


class Naive(OwnPolicy):
    reads_ahead = False

    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        return "on_demand"


class Staging(OwnPolicy):
    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        return "storage"


class Lru(OwnPolicy):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.capacities = [tier.capacity for tier in job.scenario.tiers]
        # By node and tier: the place of the last use of each sample.
        self.caches: list[list[dict[int, int]]] = [
            [{} for _ in self.capacities] for _ in job.streams
        ]
        self.used = [[0.0] * len(self.capacities) for _ in job.streams]

    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        found = [tier for tier, cache in enumerate(self.caches[node]) if sample in cache]
        for tier in found:
            self.take(node, tier, sample)
        self.keep(node, 0, sample, place)
        return ("tier", found[0]) if found else "storage"

    def take(self, node: int, tier: int, sample: int) -> int:
        self.used[node][tier] -= self.job.sizes[sample]
        return self.caches[node][tier].pop(sample)

    def keep(self, node: int, tier: int, sample: int, place: int) -> None:
        size = self.job.sizes[sample]
        while tier < len(self.capacities) and size > self.capacities[tier]:
            tier += 1
        if tier == len(self.capacities):
            return
        cache = self.caches[node][tier]
        cache[sample] = place
        self.used[node][tier] += size
        while self.used[node][tier] > self.capacities[tier] and cache:
            oldest = min(cache, key=cache.__getitem__)
            self.keep(node, tier + 1, oldest, self.take(node, tier, oldest))


class LbannDynamic(OwnPolicy):
    """Also gives the number of readers, and refuses."""

    def begin(self) -> Start:
        scenario = self.job.scenario
        count, nodes = len(self.job.sizes), scenario.nodes
        for first, end in pairwise(count * node // nodes for node in range(nodes + 1)):
            if sum(self.job.sizes[first:end]) > scenario.tiers[0].capacity:
                raise errors.FailedPreconditionError("LbannDynamic: keeps all samples")
        return Start()

    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        scenario = self.job.scenario
        if place < self.job.steps_per_epoch * scenario.batch_size:
            return "storage", scenario.nodes
        return "peer", 0


class Nopfs(OwnPolicy):
    """Tiers read ahead."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        tiers = job.scenario.tiers
        self.plans: list[dict[int, int]] = []
        self.waiting: list[list[list[int]]] = []
        self.kept: list[dict[int, float]] = [{} for _ in job.streams]
        self.idle_from = [[[0.0] * tier.threads for tier in tiers] for _ in job.streams]
        for stream in map(np.ndarray.tolist, job.streams):
            uses = {sample: stream.count(sample) for sample in stream}
            plan: dict[int, int] = {}
            tier, used = 0, 0.0
            for sample in sorted(uses, key=lambda sample: (-uses[sample], sample)):
                while tier < len(tiers) and used + job.sizes[sample] > tiers[tier].capacity:
                    tier, used = tier + 1, 0.0
                if tier == len(tiers):
                    break
                plan[sample] = tier
                used += job.sizes[sample]
            self.plans.append(plan)
            self.waiting.append(
                [[s for s in uses if plan.get(s) == at] for at in range(len(tiers))]
            )

    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        if self.kept[node].get(sample, np.inf) > begin:
            return "storage"
        return "tier", self.plans[node][sample]

    def on_staged(self, node: int, sample: int, end: float) -> None:
        if sample in self.plans[node]:
            self.kept[node][sample] = min(self.kept[node].get(sample, np.inf), end)

    def fill_tiers(self, node: int, seconds: float, readers: PolicyReaders) -> float:
        rates, filled = self.job.rates, 0.0
        for waiting, threads in zip(self.waiting[node], self.idle_from[node], strict=True):
            for thread, idle_from in enumerate(threads):
                if idle_from > seconds or not waiting:
                    continue
                sample = waiting.pop(0)
                size = self.job.sizes[sample]
                fetch = rates.from_storage(readers.at(node, seconds))
                threads[thread] = seconds + size * (fetch + rates.to_staging())
                readers.reads(node, threads[thread])
                self.on_staged(node, sample, threads[thread])
                filled += size
        return filled


ROWS = {
    "naive": Naive,
    "staging": Staging,
    "lru": Lru,
    "lbann_dynamic": LbannDynamic,
    "nopfs": Nopfs,
}


@pytest.mark.parametrize("seed", range(30))
def test_written_in_python_a_policy_gives_the_same_to_the_bit(seed: int) -> None:
    scenario = drawn(seed)
    rows = simulation.simulate(scenario, list(ROWS)).outcomes
    owns = simulation.simulate(scenario, list(ROWS.values())).outcomes
    for row, own in zip(rows, owns, strict=True):
        assert own.policy.name == ROWS[row.policy.name].__name__
        if isinstance(row, Refused):
            assert isinstance(own, Refused)
            assert own.why == "keeps all samples"
            continue
        assert isinstance(own, Outcome), own
        assert own.step_seconds.tobytes() == row.step_seconds.tobytes(), row.policy.name
        assert own.fetched == row.fetched
        assert own.filled_bytes == row.filled_bytes


class Preloading(OwnPolicy):
    """`parallel_staging` on one node, in the job's order."""

    title = "Preloads"
    paper = "none"
    changes_order = True

    def begin(self) -> Start:
        stored = float(self.job.sizes.sum())
        rates = self.job.rates
        seconds = stored * rates.staged(rates.from_storage(self.job.scenario.nodes))
        return Start(seconds, stored, 7.0, [stream[::-1] for stream in self.job.streams])

    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        assert sample == self.job.streams[node][-1 - place]
        return "none" if place % 2 else ("peer", np.int64(0))  # type: ignore[return-value]


def test_what_happens_before_the_first_step_is_counted() -> None:
    scenario = drawn(4)
    (outcome,) = simulation.simulate(scenario, [Preloading]).outcomes
    assert isinstance(outcome, Outcome)
    assert outcome.policy == simulation.Policy("Preloading", "Preloads", "none", True, Preloading)
    sizes = scenario.sizes.draw(scenario.seed)
    assert outcome.filled_bytes == pytest.approx(sizes.sum())
    assert outcome.copied_bytes == 7
    assert outcome.setup_seconds > 0
    assert outcome.seconds == pytest.approx(outcome.setup_seconds + outcome.step_seconds.sum())
    half = scenario.nodes * len(outcome.step_seconds) * scenario.batch_size // 2
    assert abs(outcome.fetched["peer"].samples - half) <= scenario.nodes


def test_what_a_policy_sees_is_read_only_and_outlives_the_run() -> None:
    kept: list[Any] = []

    class Keeps(Staging):
        def fill_tiers(self, node: int, seconds: float, readers: PolicyReaders) -> float:
            kept[:] = [self.job, readers]
            return 0

    simulation.simulate(small(), [Keeps])
    job, readers = kept
    for array in (job.sizes, *job.streams):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert [len(stream) for stream in job.streams] == [60, 60]
    assert job.rates.from_tier(0) == 1 / small().tiers[0].rate
    with pytest.raises(errors.InvalidArgumentError, match="tier: got 9, must be below 1"):
        job.rates.from_peer(9)
    with pytest.raises(errors.InvalidArgumentError, match="readers: got 0, must be at least 1"):
        job.rates.from_storage(0)
    with pytest.raises(errors.FailedPreconditionError, match="readers: the run has ended; use the"):
        readers.at(0, 0)


def test_a_node_that_is_not_there_is_named() -> None:
    class Asks(Staging):
        def fill_tiers(self, node: int, seconds: float, readers: PolicyReaders) -> float:
            return readers.at(self.job.scenario.nodes, seconds)

    with pytest.raises(errors.InvalidArgumentError, match="readers: node: got 2, must be below 2"):
        simulation.simulate(small(), [Asks])


def returning(method: str, value: object) -> type[OwnPolicy]:
    def method_of(self: OwnPolicy, *given: object) -> object:
        return value

    return type("Mine", (Staging,), {method: method_of})


OF_FETCH = (
    "'storage', ('storage', READERS) with READERS in [1, 2], ('tier', T) or ('peer', T) with T in "
    "[0, 0], 'on_demand' or 'none'"
)
FINITE = "a finite number of at least 0"
SIX = "6 integers in [0, 9]"


@pytest.mark.parametrize(
    ("method", "value", "what", "expected"),
    [
        *(
            ("fetch_of", value, " for sample 8 of node 0", OF_FETCH)
            for value in (
                *(None, 3, "disk", "tier", "peer", ("tier", 1), ("tier", -1), ("tier", 0.5)),
                *(("storage", 0), ("storage", 3), ("storage", 2**70), ("on_demand", 0)),
                *(("tier", 0, 0), ["tier", 0], ("none", None), (0, 0)),
            )
        ),
        *(
            ("fill_tiers", value, " for node 0", "a number of bytes, finite and at least 0")
            for value in (None, -1.0, float("nan"), float("inf"), "much")
        ),
        ("begin", None, "", "a Start"),
        ("begin", Start(seconds=-1), " as seconds", FINITE),
        ("begin", Start(storage_bytes=float("nan")), " as storage_bytes", FINITE),
        ("begin", Start(peer_bytes="all"), " as peer_bytes", FINITE),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_named(method: str, value: object, what: str, expected: str) -> None:
    shown: object = value
    if isinstance(value, Start):
        shown = getattr(value, what.removeprefix(" as "))
    with pytest.raises(errors.InvalidArgumentError) as caught:
        simulation.simulate(small(), [returning(method, value)])
    text = re.sub(r"sample \d+", "sample 8", str(caught.value))
    assert text == f"Mine.{method}: returned {shown!r}{what}, must be {expected}"


def test_without_tiers_none_is_offered() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"in \[1, 2\], 'on_demand' or 'none'$"):
        simulation.simulate(replace(small(), tiers=()), [returning("fetch_of", ("tier", 0))])


@pytest.mark.parametrize(
    ("streams", "error"),
    [
        ([], "returned [] as streams, must be a list of 2 arrays, one a node"),
        (np.zeros((2, 6), int), " as streams, must be a list of 2 arrays, one a node"),
        ([[0, 1, 2, 3, 4, 5], [0, 1]], f"returned [0, 1] as streams[1], must be {SIX}"),
        ([[0, 1, 2, 3, 4, 10]] * 2, f"10] as streams[0], must be {SIX}"),
        ([[0, 1, 2, 3, 4, -1]] * 2, f"-1] as streams[0], must be {SIX}"),
        ([[0.0] * 6] * 2, f" as streams[0], must be {SIX}"),
        ([["a"] * 6] * 2, f" as streams[0], must be {SIX}"),
    ],
)
def test_wrong_streams_are_named(streams: Sequence[Any], error: str) -> None:
    scenario = replace(small(), sizes=Sizes(10, 5))
    mine = returning("begin", Start(streams=streams))
    with pytest.raises(errors.InvalidArgumentError, match="must be None, as changes_order is Fals"):
        simulation.simulate(scenario, [mine])
    mine.changes_order = True
    with pytest.raises(errors.InvalidArgumentError, match=r"^Mine\.begin: returned ") as caught:
        simulation.simulate(scenario, [mine])
    assert str(caught.value).endswith(error)


@pytest.mark.parametrize("method", ["__init__", "begin", "fetch_of", "on_staged", "fill_tiers"])
def test_what_a_policy_raises_passes_unharmed(method: str) -> None:
    error = LookupError("mine")
    calls = []

    def raising(self: OwnPolicy, *given: object) -> None:
        calls.append(method)
        raise error

    with pytest.raises(LookupError) as caught:
        simulation.simulate(small(), [type("Mine", (Staging,), {method: raising})])
    assert caught.value is error
    assert caught.traceback[-1].name == "raising"
    assert calls == [method]  # It is not called again.


def test_ctrl_c_ends_a_run() -> None:
    class Interrupted(Staging):
        def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
            if place == 3:
                signal.raise_signal(signal.SIGINT)
            assert place <= 4  # The exception is raised between two instructions of Python.
            return "storage"

    with pytest.raises(KeyboardInterrupt):
        simulation.simulate(small(), [Interrupted])


def test_what_is_no_policy_is_refused() -> None:
    for given in (OwnPolicy, "stage", int):
        with pytest.raises((errors.InvalidArgumentError, TypeError)) as caught:
            simulation.simulate(small(), [given])  # type: ignore[list-item]
        if given is OwnPolicy:
            assert "abstract" in str(caught.value)
            assert "fetch_of" in str(caught.value)
        else:
            assert str(caught.value).endswith("'epoch', or a class derived from OwnPolicy")


def test_an_object_in_place_of_a_class_is_named() -> None:
    way = "Staging: job: got None, must be a Job; give `simulate` the class, Staging: it makes"
    with pytest.raises(errors.InvalidArgumentError, match=way):
        simulation.simulate(small(), [Staging()])  # type: ignore[list-item]
    made = Staging.__new__(Staging)
    with pytest.raises(errors.InvalidArgumentError, match="policy Staging: is an object; give the"):
        simulation.simulate(small(), [made])  # type: ignore[list-item]
    with pytest.raises(errors.InvalidArgumentError, match="policies' names or classes, such as a"):
        simulation.simulate(small(), Staging)  # type: ignore[arg-type]


def solar() -> type[OwnPolicy]:
    """The page's example."""
    page = (Path(__file__).parents[3] / "docs" / "simulate.md").read_text()
    names: dict[str, Any] = {}
    exec(page.partition("```python\n# solar.py\n")[2].partition("```")[0], names)
    of: type[OwnPolicy] = names["Solar"]
    return of


@pytest.mark.parametrize("seed", range(20))
def test_the_policy_of_the_page_moves_samples_within_their_step(seed: int) -> None:
    scenario = drawn(seed)
    seen: list[Any] = []

    class Watched(solar()):  # type: ignore[misc]
        def begin(self) -> Start:
            seen[:] = [self.job.streams, super().begin()]
            return seen[1]  # type: ignore[no-any-return]

    (outcome,) = simulation.simulate(scenario, [Watched]).outcomes
    assert isinstance(outcome, Outcome)
    streams, start = seen
    own, before = np.array(start.streams), np.array(streams)
    kept: list[set[int]] = [set() for _ in own]
    rooms = [scenario.tiers[0].capacity] * len(own)
    sizes = scenario.sizes.draw(scenario.seed)
    hits = 0.0
    for first in range(0, own.shape[1], scenario.batch_size):
        rows = slice(first, first + scenario.batch_size)
        assert sorted(own[:, rows].flat) == sorted(before[:, rows].flat)
        # Which of a node's samples it has, by what nodes keep.
        for sample in own[:, rows].flat:
            (node,) = np.flatnonzero((own[:, rows] == sample).any(1))
            if sample in kept[node]:
                hits += sizes[sample]
            elif not any(sample in of_node for of_node in kept) and sizes[sample] <= rooms[node]:
                kept[node].add(sample)
                rooms[node] -= sizes[sample]
        # Who has a sample and does not compute on it has a full batch of others that it has.
        for has, of_node in zip(kept, own[:, rows], strict=True):
            if any(sample in has for sample in set(own[:, rows].flat) - set(of_node)):
                assert has.issuperset(of_node.tolist())
    assert outcome.fetched["tier"].bytes == pytest.approx(hits)


def test_the_policy_of_the_page_reads_less_than_a_cache_of_each_node() -> None:
    scenario = replace(drawn(3), sizes=Sizes(2000, 20, 5), nodes=4, batch_size=25, epochs=4)
    ram = replace(scenario.tiers[0], capacity=10_500)  # of a node: a quarter of the data
    ran = simulation.simulate(replace(scenario, tiers=(ram,)), [solar(), "belady"])
    one, other = ran.outcomes
    assert isinstance(one, Outcome)
    assert isinstance(other, Outcome)
    assert one.samples_used == other.samples_used
    assert one.fetched["storage"].bytes < 0.5 * other.fetched["storage"].bytes
