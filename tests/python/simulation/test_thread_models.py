"""Loaders that divide a node's threads among its ranks, and what Lobster's paper prints of them."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from headrace import simulation
from headrace.cli.main import app
from headrace.simulation import Outcome, Refused, Scenario
from headrace.simulation.thread_models import THREAD_MODELS

ROOT = Path(__file__).parents[3]
NAMES = [model.name for model in THREAD_MODELS]


def node(**changes: object) -> Scenario:
    """A small figure 8 (a), whose ranks have four threads that load and four that preprocess."""
    scenario = simulation.load_scenario("lobster-8a")
    sizes = replace(scenario.sizes, samples=256 * 20)
    storage = replace(scenario.storage, reads_in_flight=32)
    staging = replace(scenario.staging, threads=32)
    tier = replace(scenario.tiers[0], capacity=150_000_000)
    given = {"sizes": sizes, "storage": storage, "staging": staging, "tiers": (tier,), **changes}
    return replace(scenario, **given)  # type: ignore[arg-type]


def ran(scenario: Scenario, name: str) -> Outcome:
    (outcome,) = simulation.simulate(scenario, [name], orders=()).outcomes
    assert isinstance(outcome, Outcome), outcome
    assert outcome.policy.name == name.lower()
    return outcome


def test_a_model_is_the_engine_with_its_schedule_placement_and_threads() -> None:
    scenario = node()
    as_scenarios = {
        "torch": replace(scenario, schedule="fixed", placement="lru"),
        "nopfs_threads": replace(scenario, schedule="fixed", placement="frequency"),
        "lobster": replace(scenario, schedule="lobster", placement="reuse"),
        "lobster_th": replace(scenario, schedule="lobster", placement="lru"),
    }
    three = {
        "storage": replace(scenario.storage, reads_in_flight=24),
        "staging": replace(scenario.staging, threads=40),
    }
    for name, placement in (("dali", "lru"), ("lobster_evict", "reuse")):
        changes: dict[str, Any] = {"schedule": "fixed", "placement": placement, **three}
        as_scenarios[name] = replace(scenario, **changes)
    assert sorted(as_scenarios) == sorted(NAMES)
    steps = {name: ran(scenario, name).step_seconds.tolist() for name in NAMES}
    for name, same in as_scenarios.items():
        assert steps[name] == ran(same, "exact").step_seconds.tolist(), name
    assert len({tuple(of) for of in steps.values()}) == len(NAMES)


def test_names_are_as_papers_write_them() -> None:
    assert ran(node(), "Lobster_th").seconds == ran(node(), "lobster_th").seconds


def test_they_run_by_default_only_where_ranks_share_a_node() -> None:
    together = {one.policy.name for one in simulation.simulate(node(), orders=()).outcomes}
    assert together >= set(NAMES)
    alone = simulation.simulate(node(ranks=1, nodes=8), orders=()).outcomes
    assert not {one.policy.name for one in alone} & set(NAMES)


def test_what_they_do_not_support_is_refused() -> None:
    scenario = node()

    def why(name: str, of: Scenario, *, fast: bool = False) -> str:
        (outcome,) = simulation.simulate(of, [name], orders=(), fast=fast).outcomes
        assert isinstance(outcome, Refused)
        return outcome.why

    assert why("torch", replace(scenario, ranks=1)).endswith("raise job.ranks")
    free = replace(scenario.storage, reads_in_flight=None)
    assert "needs storage.reads_in_flight" in why("dali", replace(scenario, storage=free))
    few = replace(scenario, staging=replace(scenario.staging, threads=8), ranks=16)
    assert "and the scenario has 40 for 16 ranks; raise staging.threads" in why("dali", few)
    assert "simulate each read" in why("lobster", scenario, fast=True)


def test_the_command_takes_them_and_lists_them() -> None:
    shown = CliRunner().invoke(app, ["simulate", "--list"])
    assert shown.exit_code == 0, shown.output
    assert all(name in shown.output for name in (*NAMES, "lobster-8a"))


def test_hits_are_of_both_kinds() -> None:
    """On one node reuse is at most what fits, whatever is read ahead."""
    scenario = node(epochs=6)
    scenario = replace(scenario, sizes=replace(scenario.sizes, deviation=0))
    fits = scenario.tiers[0].capacity / (scenario.sizes.samples * 107_700)
    ahead = {}
    for name in ("torch", "nopfs_threads", "lobster"):
        outcome = ran(scenario, name)
        assert outcome.ahead_samples is not None
        hits, used = outcome.fetched["tier"].samples, 6 * scenario.sizes.samples
        assert outcome.hits == pytest.approx(hits / used)
        assert (hits - outcome.ahead_samples) / used <= fits
        ahead[name] = outcome.ahead_samples
    assert ahead["torch"] == 0
    assert ahead["lobster"] > 0
    assert ran(scenario, "exact").ahead_samples is not None


@pytest.fixture
def lobster(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "papers"))
    return importlib.import_module("lobster_results")


def test_figure_8_has_the_papers_order(lobster: Any) -> None:
    of = {name: lobster.with_hits("8a", name, lobster.TRAIN[0.10], 400) for name in lobster.SYSTEMS}
    shares = [ran.imbalanced(0.10) for ran in of.values()]
    assert shares[0] == pytest.approx(0.489, abs=0.05)
    assert shares == sorted(shares, reverse=True)
    assert shares[1] < shares[0] - 0.1
    assert of["lobster"].seconds < of["nopfs_threads"].seconds < of["dali"].seconds
    page = (ROOT / "docs" / "paper-results.md").read_text()
    for text in (*lobster.figure_8_notes(), *lobster.gains_notes(), *lobster.figures_3_4_notes()):
        assert text in page


def test_what_lobsters_paper_contradicts_follows(lobster: Any) -> None:
    used = lobster.USED
    assert used["lobster"] / used["nopfs_threads"] == pytest.approx(1.05, abs=0.005)
    assert 14_197_103 // (32 * 8) == 55_457
    assert 14_197_103 // (32 * 64) == 6_932
    assert lobster.distances(625) == pytest.approx(0.843, abs=0.002)


def test_an_iteration_is_imbalanced_by_more_than_theta_of_training(lobster: Any) -> None:
    spread = np.array([0.0, 0.0099, 0.0101, 0.03])
    assert lobster.Ran(0.2, spread, 0.1).imbalanced(0.10) == 0.5
    assert lobster.Ran(0.2, spread, 0.1).imbalanced(0.20) == 0.25
    assert lobster.Ran(0.2, spread, 0.1).used == 0.5
