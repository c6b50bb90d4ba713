"""Burst buffers that nodes share, and allreduces that samples slow down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace import simulation
from headrace.simulation import Outcome, Scenario, Sizes, StorageRates, TierRates

NAMES = ("exact", "batch", "epoch", "naive", "staging", "nopfs")
MB = 10**6


def job(**changes: object) -> Scenario:
    """Two nodes whose storage is slow."""
    scenario = simulation.load_scenario("thesis-s1")
    changes = {
        "sizes": Sizes(1_000, 100_000, 20_000),
        "nodes": 2,
        "batch_size": 10,
        "epochs": 3,
        "tiers": (),
        **changes,
    }
    return replace(scenario, **changes)  # type: ignore[arg-type]


def ran(scenario: Scenario, name: str, *, fast: bool = False) -> Outcome:
    (outcome,) = simulation.simulate(scenario, [name], orders=(), fast=fast).outcomes
    assert isinstance(outcome, Outcome), outcome
    return outcome


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_an_allreduce_follows_each_step(name: str, fast: bool) -> None:
    without = ran(job(), name, fast=fast)
    assert without.allreduce_seconds == 0
    # Nothing is read meanwhile but ahead, so a step takes at most so much longer.
    outcome = ran(job(allreduce=0.25), name, fast=fast)
    assert outcome.allreduce_seconds == pytest.approx(0.25 * 150)
    assert without.seconds < outcome.seconds <= without.seconds + 0.25 * 150 + 1e-6
    assert outcome.step_seconds.min() >= 0.25


def test_reads_during_an_allreduce_count_over_its_time_too() -> None:
    # Storage keeps half of the network busy, also while nodes reduce for a third of the time.
    half = job(
        allreduce=0.01, allreduce_noise=1, compute_rate=1e12, preprocess_rate=1e12,
        storage=StorageRates((1,), (50 * MB,), shared_by="reads", reads_in_flight=1),
        network_rate=50 * MB,
        sizes=Sizes(1_000, 50_000, 0),
    )  # fmt: skip
    for name in ("exact", "staging"):
        outcome = ran(half, name)
        assert outcome.allreduce_seconds == pytest.approx(150 * 0.015, rel=0.05), name


def test_the_estimate_has_no_noise() -> None:
    noisy = job(allreduce=0.01, allreduce_noise=1)
    (refused,) = simulation.simulate(noisy, ["exact"], orders=(), fast=True).outcomes
    assert isinstance(refused, simulation.Refused)
    assert "noise of allreduces of 1, which goes by single reads" in refused.why


def test_an_allreduce_is_part_of_all_bounds() -> None:
    before = simulation.simulate(job(), []).bounds
    after = simulation.simulate(job(allreduce=0.25), []).bounds
    for order, seconds in after.items():
        assert seconds == pytest.approx(before[order] + 0.25 * 150)
    outcome = ran(job(allreduce=0.25), "exact")
    assert outcome.least_seconds == pytest.approx(after["exact"], rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_busier_the_network_the_longer_an_allreduce(name: str) -> None:
    # Nothing but storage takes time: it is read at its rate, though not equally in all steps.
    rate = 40 * MB
    slow = job(
        allreduce=1e-6, allreduce_noise=1, compute_rate=1e12, preprocess_rate=1e12,
        storage=StorageRates((1,), (rate,), shared_by="reads"),
    )  # fmt: skip
    before = 0.0
    for share in (0.0, 0.25, 0.5, 4.0):
        network_rate = rate / 2 / share if share else 1e15
        scenario = replace(slow, network_rate=network_rate)
        outcome = ran(scenario, name)
        expected = 150e-6 * (1 + min(1.0, share))
        if share < 1 and name != "epoch":  # which reads a pool in its first step
            assert outcome.allreduce_seconds == pytest.approx(expected, rel=0.2), share
        assert before < outcome.allreduce_seconds <= 300e-6 + 1e-9
        before = outcome.allreduce_seconds
    assert ran(replace(slow, network_rate=1), "perfect").allreduce_seconds == pytest.approx(150e-6)


@pytest.mark.parametrize("name", ["exact", "batch", "nopfs", "lru"])
def test_a_shared_tier_is_an_even_part_for_each_node(name: str) -> None:
    own = TierRates("SSD", 25 * MB, 2, 60 * MB)
    shared = TierRates("SSD", 50 * MB, 2, 120 * MB, shared=True)
    for fast in (False, True):
        alone, together = (ran(job(tiers=(tier,)), name, fast=fast) for tier in (own, shared))
        assert together.samples_used == alone.samples_used
        tolerance = 0.1 if name in ("exact", "batch") and not fast else 1e-9
        assert together.seconds == pytest.approx(alone.seconds, rel=tolerance)


def test_nodes_that_read_a_shared_tier_at_a_time_divide_its_rate() -> None:
    # All data fit; from the second epoch on nothing but the tier is read, by both nodes at a time.
    storage = StorageRates((1,), (1e9,))
    shared = TierRates("SSD", 400 * MB, 2, 40 * MB, shared=True)
    scenario = job(
        storage=storage, tiers=(shared,), epochs=4, compute_rate=1e12, preprocess_rate=1e12,
        placement="first_touch", network_rate=1e12,
    )  # fmt: skip
    sizes = scenario.sizes.draw(scenario.seed)
    together = ran(scenario, "exact").seconds
    assert together == pytest.approx(3 * sizes.sum() / (40 * MB), rel=0.05)
    alone = ran(replace(scenario, tiers=(replace(shared, shared=False),)), "exact").seconds
    assert alone == pytest.approx(together / 2, rel=0.1)


def test_a_sweep_has_the_bounds_of_each_allreduce() -> None:
    seconds = [0.25, 0, 0.5]
    points = simulation.sweep(job(), {"compute.allreduce": seconds}, [], orders=["exact"])
    for point, allreduce in zip(points, seconds, strict=True):
        alone = simulation.simulate(job(allreduce=allreduce), []).bounds["exact"]
        assert point.simulation.bounds["exact"] == pytest.approx(alone)


def test_a_sweep_keeps_both() -> None:
    scenario = job(
        allreduce=0.5, allreduce_noise=2.0,
        tiers=(TierRates("burst", 50 * MB, 2, 60 * MB, shared=True),),
    )  # fmt: skip
    points = list(simulation.sweep(scenario, {"compute.allreduce": [0.25, 0.5]}, ["staging"]))
    assert [point.simulation.scenario.allreduce for point in points] == [0.25, 0.5]
    assert replace(points[1].simulation.scenario, printed=scenario.printed) == scenario
