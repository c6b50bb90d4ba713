"""Headrace's orders, whose engines run in virtual time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_scenarios import drawn
from typer.testing import CliRunner

import headrace
from headrace import errors, simulation
from headrace.cli.main import app
from headrace.simulation import IndexSizes, Outcome, Refused, Scenario, Sizes

RUNNER = CliRunner()
ORDERS = ("exact", "batch", "epoch")


def cluster(**changes: object) -> Scenario:
    """A store that is slower than training, and a tier for half of the data."""
    scenario = simulation.load_scenario("thesis-s1")
    changes = {"sizes": Sizes(2_000, 100_000, 30_000), "epochs": 3, **changes}
    return replace(scenario, **changes)  # type: ignore[arg-type]


def ran(scenario: Scenario, name: str, *, fast: bool = False) -> Outcome:
    (outcome,) = simulation.simulate(scenario, [name], orders=(), fast=fast).outcomes
    assert isinstance(outcome, Outcome), outcome
    return outcome


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_takes_at_least_its_bound_and_counts_every_sample(order: str) -> None:
    scenario = cluster()
    outcome = ran(scenario, order)
    bound = simulation.simulate(scenario, [], orders=[order]).bounds[order]
    assert outcome.least_seconds is not None
    if order != "epoch":  # whose pools depend on the memory
        assert outcome.least_seconds == pytest.approx(bound, rel=1e-5)
    assert outcome.seconds >= outcome.least_seconds
    assert sum(source.samples for source in outcome.fetched.values()) == 6_000
    assert outcome.samples_used == 2_000
    waited = outcome.stall_seconds * scenario.nodes
    assert sum(outcome.stalls.values()) == pytest.approx(waited, rel=0.05, abs=0.01)


@pytest.mark.parametrize("order", ORDERS)
def test_the_fast_mode_comes_near(order: str) -> None:
    scenario = simulation.load_scenario("thesis-s1")
    assert ran(scenario, order, fast=True).seconds == pytest.approx(
        ran(scenario, order).seconds, rel=0.1
    )


def test_the_same_scenario_gives_the_same_steps() -> None:
    first, second = (ran(cluster(), "epoch").step_seconds.tolist() for _ in range(2))
    assert first == second


def test_batch_is_ahead_of_every_published_policy_where_bytes_decide() -> None:
    scenario = simulation.load_scenario("thesis-s1")
    ours = ran(scenario, "batch").seconds
    others = simulation.simulate(scenario, orders=()).outcomes
    for other in others:
        if not isinstance(other, Outcome) or other.policy.name in (*ORDERS, "perfect"):
            continue
        if not other.policy.changes_order:
            assert ours <= 1.005 * other.seconds, other.policy.name


def test_where_all_samples_take_as_long_all_orders_have_one_bound() -> None:
    scenario = cluster(compute_rate=None, sample_rate=1000.0)
    assert ran(scenario, "batch").least_seconds == pytest.approx(6_000 / 4 / 1000)
    assert ran(scenario, "exact").least_seconds == pytest.approx(6_000 / 4 / 1000)


def test_reads_that_share_storage_take_longer() -> None:
    scenario = cluster(tiers=(), epochs=1)
    shared = replace(scenario, storage=replace(scenario.storage, shared_by="reads"))
    together = scenario.sizes.draw(scenario.seed).sum() / 146e6
    # While some nodes have nothing to read the others are not as fast as all together.
    assert together <= ran(shared, "exact").seconds < 1.15 * together
    assert ran(scenario, "exact").seconds < 0.8 * together


def test_several_ranks_of_a_node_are_not_for_published_policies() -> None:
    scenario = cluster(ranks=2)
    of = {outcome.policy.name: outcome for outcome in simulation.simulate(scenario).outcomes}
    assert of["nopfs"] == Refused(of["nopfs"].policy, "has one rank a node, the scenario 2")
    assert isinstance(of["exact"], Outcome)
    limited = replace(
        cluster().storage, reads_per_second=1000.0, reads_in_flight=4, shared_by="reads"
    )
    (refused,) = simulation.simulate(cluster(storage=limited), ["staging"], orders=()).outcomes
    assert isinstance(refused, Refused)
    assert "reads a second" in refused.why


def test_what_an_order_keeps_must_fit_into_staging() -> None:
    staging = replace(cluster().staging, capacity=300_000)
    (refused,) = simulation.simulate(cluster(staging=staging), ["epoch"], orders=()).outcomes
    assert isinstance(refused, Refused)
    assert "resident, and staging has 300 kB" in refused.why


REDOX = {
    "redox": ("max_fill", 5600),
    "redox_random": ("random", 5600),
    "redox_alone": ("max_fill", 0),
    "redox_none": ("random", 0),
}


@pytest.mark.parametrize("name", REDOX)
def test_redox_reads_the_chunks_that_the_planner_counts(name: str) -> None:
    scenario = cluster(sizes=Sizes(7_680, 100_000, 0), epochs=1)
    outcome = ran(scenario, name)
    refill, window = REDOX[name]
    stream = headrace._core.OrderStream(
        "redox",
        {"nodes": 4, "refill": refill, "prefetch": window},
        index=(7_680, 64),
        batch_size=scenario.batch_size,
        world_size=4,
        ranks=4,
        seed=scenario.seed,
        drop_last=True,
        epochs=1,
    )
    stream.ids(stream.steps_per_epoch)
    counted = stream.counters()
    assert outcome.storage_reads == counted["misses"]
    assert outcome.fetched["peer"].samples == counted["remote_reads"]
    assert outcome.samples_used == 76 * 4 * 25
    assert outcome.policy.changes_order


def test_redox_keeps_what_is_resident_in_staging_and_the_first_tier() -> None:
    staging = replace(cluster().staging, capacity=2_500_000)
    small = cluster(staging=staging)
    assert isinstance(ran(small, "redox"), Outcome)
    (refused,) = simulation.simulate(replace(small, tiers=()), ["redox"], orders=()).outcomes
    assert isinstance(refused, Refused)
    assert "2.5 MB" in refused.why
    (refused,) = simulation.simulate(small, ["redox"], orders=(), fast=True).outcomes
    assert isinstance(refused, Refused)
    assert "nodes send each other samples" in refused.why


def test_sizes_may_be_those_of_a_dataset(numbered: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    text = (simulation.scenario.SCENARIOS / "thesis-s1.toml").read_text()
    begin, _, rest = text.partition("[dataset]\n")
    rest = rest[rest.index("[job]") :].replace("batch_size = 25", "batch_size = 4")
    file.write_text(f"{begin}[dataset]\nindex = {json.dumps(str(numbered))}\n\n{rest}")
    scenario = simulation.load_scenario(file)
    assert scenario.sizes == IndexSizes(str(numbered))
    assert scenario.sizes.samples == len(list(numbered.rglob("*.*")))
    assert isinstance(simulation.simulate(scenario, ["exact"]).outcomes[0], Outcome)
    shared = replace(scenario, storage=replace(scenario.storage, shared_by="reads"))
    for fast in (False, True):
        (ran_,) = simulation.simulate(shared, ["exact"], orders=(), fast=fast).outcomes
        assert isinstance(ran_, Outcome)
        assert ran_.storage_reads == scenario.sizes.samples  # Each is a file; tiers have all.
    swept = list(simulation.sweep(scenario, {"job.nodes": [2, 4]}, ["batch"], fast=True))
    assert [point.simulation.scenario.sizes for point in swept] == [scenario.sizes] * 2
    file.write_text(file.read_text().replace(str(numbered), str(tmp_path / "none")))
    with pytest.raises(errors.NotFoundError):
        simulation.load_scenario(file)


def test_a_limit_of_reads_where_they_do_not_share_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    text = (simulation.scenario.SCENARIOS / "thesis-s1.toml").read_text()
    file.write_text(
        text.replace('shared_by = "nodes"', 'shared_by = "nodes"\nreads_per_second = 9')
    )
    with pytest.raises(errors.InvalidArgumentError, match="reads_per_second: got 9 with shared_by"):
        simulation.load_scenario(file)


def lanes(**changes: object) -> Scenario:
    """Four ranks of a node whose storage takes 10 ms a read; a tier has half of the samples."""
    scenario = cluster(nodes=1, ranks=4, batch_size=16, epochs=2, placement="pinned")
    storage = replace(scenario.storage, latency=0.01, reads_in_flight=16)
    staging = replace(scenario.staging, capacity=2 * 64 * 100_000, threads=8)
    tier = replace(scenario.tiers[0], capacity=100_000_000)
    changes = {"storage": storage, "staging": staging, "tiers": (tier,), **changes}
    return replace(scenario, **changes)  # type: ignore[arg-type]


def test_a_lane_policy_shares_a_node_among_its_ranks(tmp_path: Path) -> None:
    names = headrace._core.lane_policies()
    swept = simulation.sweep(lanes(), {"job.schedule": names}, ["exact"])
    of = {str(point.values["job.schedule"]): point.simulation.outcomes[0] for point in swept}
    seconds = {name: ran.seconds for name, ran in of.items() if isinstance(ran, Outcome)}
    assert list(seconds) == names
    assert seconds["shared_deadline"] < seconds["fixed"]
    fixed = of["fixed"]
    assert isinstance(fixed, Outcome)
    assert fixed.spread_seconds is not None
    assert len(fixed.spread_seconds) == len(fixed.step_seconds)
    assert np.mean(fixed.spread_seconds > 0.001) > 0.4  # The first epoch misses everything.


def test_the_time_of_each_rank_is_broken_down_by_stage() -> None:
    outcome = ran(lanes(schedule="fixed"), "exact")
    assert len(outcome.ranks) == 4
    for rank in outcome.ranks:
        steps = rank.train_seconds + rank.wait_seconds + rank.barrier_seconds
        assert steps == pytest.approx(outcome.seconds)
        assert rank.utilisation == pytest.approx(rank.train_seconds / outcome.seconds)
        assert rank.tier_seconds > 0
        assert rank.preprocess_seconds > 0
        assert rank.node_seconds == 0
    assert outcome.storage_reads is not None
    storage = sum(rank.storage_seconds for rank in outcome.ranks)
    assert storage >= outcome.storage_reads * 0.01  # Reads also take their bytes.
    mean = np.mean([rank.utilisation for rank in outcome.ranks])
    assert mean == pytest.approx(outcome.utilisation)
    assert ran(cluster(), "staging").ranks == ()


def test_lobsters_threads_and_evictions_run_together_and_alone() -> None:
    whole = ran(lanes(schedule="lobster", placement="reuse"), "exact")
    threads = ran(lanes(schedule="lobster"), "exact")
    evict = ran(lanes(placement="reuse"), "exact")
    for outcome in (whole, threads, evict):
        assert outcome.samples_used == 2_000
        assert outcome.fetched["tier"].samples > 500


def test_what_decides_single_reads_is_not_estimated() -> None:
    scenario = lanes()
    for unfit in (scenario, lanes(storage=cluster().storage, schedule="fixed")):
        (refused,) = simulation.simulate(unfit, ["exact"], orders=(), fast=True).outcomes
        assert isinstance(refused, Refused)
        assert "which goes by single reads; simulate each read, or leave it out" in refused.why


def test_a_latency_is_one_of_every_policy() -> None:
    storage = replace(cluster().storage, latency=0.01)
    latent = cluster(storage=storage, nodes=1, epochs=1, tiers=())
    staging = ran(latent, "staging").seconds
    assert staging == pytest.approx(
        ran(cluster(nodes=1, epochs=1, tiers=()), "staging").seconds + 2_000 * 0.01 / 2, rel=1e-3
    )
    assert ran(latent, "naive").seconds > 2_000 * 0.01
    assert ran(latent, "corgipile").seconds < 0.8 * staging
    assert ran(latent, "redox").seconds > ran(cluster(nodes=1, epochs=1, tiers=()), "redox").seconds


def test_units_that_were_forgotten_are_an_error_not_a_wrong_time() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="more than 73 years; check the units"):
        ran(cluster(compute_rate=1e-4), "exact")


@pytest.mark.parametrize("seed", range(12))
def test_any_cluster_can_be_simulated(seed: int) -> None:
    scenario = drawn(seed)
    for outcome in simulation.simulate(scenario, ORDERS, orders=()).outcomes:
        if isinstance(outcome, Refused):  # tiny staging
            assert "resident, and staging has" in outcome.why
            continue
        parts = outcome.compute_seconds + outcome.stall_seconds + outcome.barrier_seconds
        assert parts == pytest.approx(outcome.seconds, rel=1e-4, abs=1e-6)
        assert np.all(outcome.step_seconds >= 0)


def test_the_command_estimates_if_told(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ["simulate", "thesis-s1", "--policy", "batch", "--fast", "--json"]
    shown = RUNNER.invoke(app, command)
    assert shown.exit_code == 0, shown.output
    fast = json.loads(shown.output)["policies"]["batch"]
    assert fast["seconds"] == ran(simulation.load_scenario("thesis-s1"), "batch", fast=True).seconds
    assert set(fast["stalls"]) == {"storage", "decode", "consumer", "ranks"}
    swept = RUNNER.invoke(app, [*command[:-1], "--sweep", "job.nodes=2,4", "--html", str(page)])
    assert swept.exit_code == 0, swept.output
    assert page.exists()
