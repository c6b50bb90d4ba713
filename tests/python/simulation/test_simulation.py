"""Simulated jobs: as a slow model has them, the bounds, scenario files, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_scenarios import drawn
from published_model import Model
from typer.testing import CliRunner

from headrace import _core, errors, simulation
from headrace.cli.main import app
from headrace.simulation import Outcome, Refused
from headrace.simulation.bounds import bound_seconds
from headrace.simulation.scenario import SCENARIOS, Sizes

RUNNER = CliRunner()
MODELLED = (
    *("perfect", "naive", "staging", "deepio_ordered", "locality_aware"),
    *("lbann_preloading", "lbann_dynamic", "nopfs", "nopfs_cleanup"),
    *("lru", "belady", "coordl"),
)


@pytest.mark.parametrize("seed", range(60))
def test_policies_take_as_long_as_in_the_slow_model(seed: int) -> None:
    scenario = drawn(seed)
    for outcome in simulation.simulate(scenario, MODELLED).outcomes:
        if isinstance(outcome, Refused):
            assert outcome.policy.name.startswith("lbann")
            continue
        expected = Model(scenario).run(outcome.policy.name)
        assert outcome.seconds == pytest.approx(expected, rel=1e-9), outcome.policy.name


@pytest.mark.parametrize("seed", range(10))
def test_perfect_is_the_bound_of_exact(seed: int) -> None:
    scenario = drawn(seed)
    (perfect,) = simulation.simulate(scenario, ["perfect"]).outcomes
    assert isinstance(perfect, Outcome)
    sizes = scenario.sizes.draw(scenario.seed)
    assert perfect.seconds == pytest.approx(bound_seconds(scenario, sizes, "exact"), rel=1e-9)
    assert perfect.stall_seconds == 0
    equal = replace(scenario, sizes=Sizes(scenario.sizes.samples, 20))
    bounds = simulation.simulate(equal, ["perfect"]).bounds
    assert bounds["batch"] == pytest.approx(bounds["exact"])
    assert bounds["epoch"] == pytest.approx(bounds["exact"])


@pytest.mark.parametrize("seed", range(10))
def test_where_all_samples_take_as_long_all_orders_have_one_bound(seed: int) -> None:
    scenario = replace(drawn(seed), compute_rate=None, sample_rate=seed + 0.5)
    bounds = simulation.simulate(scenario, []).bounds
    steps = scenario.sizes.samples // (scenario.nodes * scenario.batch_size) * scenario.epochs
    seconds = steps * scenario.batch_size / (seed + 0.5)
    assert bounds == pytest.approx(dict.fromkeys(("exact", "batch", "epoch"), seconds))


def test_bounds_are_computed_only_of_the_orders_asked_for() -> None:
    asked: list[str] = []
    scenario = drawn(3)
    assert simulation.simulate(scenario, [], asked.append, ["batch"]).bounds.keys() == {"batch"}
    assert simulation.simulate(scenario, [], asked.append, ()).bounds == {}
    assert asked == ["batch"]
    with pytest.raises(errors.InvalidArgumentError, match="order: got 'best', must be one of"):
        simulation.simulate(scenario, [], orders=["best"])


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("nopfs-8a", 0.1484), ("nopfs-8b", 655.5), ("nopfs-8c", 2278), ("nopfs-8e", 17_408)],
)
def test_bounds_of_figure_8(name: str, seconds: float) -> None:
    scenario = simulation.load_scenario(name)
    sizes = scenario.sizes.draw(scenario.seed)
    exact = bound_seconds(scenario, sizes, "exact")
    assert exact == pytest.approx(seconds, rel=0.005)
    batch = bound_seconds(scenario, sizes, "batch")
    if scenario.sizes.deviation == 0:
        assert batch == pytest.approx(exact)
        return
    # Levelled: little more than the mean of the nodes.
    mean = sizes.sum() / scenario.nodes / scenario.compute_rate
    assert mean * 0.999 < batch < mean * 1.002
    assert batch < exact * 0.91


def test_the_same_scenario_gives_the_same_result() -> None:
    scenario = drawn(7)
    one, other = simulation.simulate(scenario), simulation.simulate(scenario)
    assert one.bounds == other.bounds
    for first, second in zip(one.outcomes, other.outcomes, strict=True):
        if isinstance(first, Outcome):
            assert isinstance(second, Outcome)
            assert first.step_seconds.tolist() == second.step_seconds.tolist()


def test_shipped_scenarios_are_read() -> None:
    names = simulation.shipped_scenarios()
    assert {"thesis-s1", "nopfs-8f"} <= set(names)
    for name in names:
        assert simulation.load_scenario(name).title
    published = {row.name for row in simulation.policies() if row.paper and not row.order}
    printed = set(simulation.load_scenario("thesis-s1").printed)
    assert published - printed == {"nopfs_cleanup", "lru", "belady", "coordl", "corgipile"}
    assert printed < published


WHOLE = "must be a whole number"
SIZE = "as 4096 or '64 MB'"
RATE = "must be a rate of bytes above 0, as 64e6 or '64 MB/s'"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("threads = 2", "threads = 0", f":29: staging.threads: got 0, {WHOLE} in [1, 65536]"),
        ('"86 MB/s", "129', '"86 MB", "129', f":20: storage.rates[1]: got '86 MB', {RATE}"),
        (
            'rate = "10000 MB/s"',
            'rate = "2 Gb/s"',
            ':25: network.rate: "2 Gb/s" may be bits a second; write bytes: "0.25GB/s" if it is '
            'bits, else "2GB/s"',
        ),
        (
            '"86 MB/s", "129',
            '"86 Mb/s", "129',
            ':20: storage.rates[1]: "86 Mb/s" may be bits a second; write bytes: "10.75MB/s" if it',
        ),
        ("nodes = 4", "nodes = 70_000", f":11: job.nodes: got 70000, {WHOLE} in [1, 65536]"),
        (
            'mean = "27 kB"',
            "mean = -1",
            f":7: dataset.mean: got -1, must be a size above 0, {SIZE}",
        ),
        ("epochs = 10", "epoch = 10", ":3: epoch: no such key; there are title, source, epochs, "),
        (
            '"66 MB/s", "86',
            '"86',
            ":20: storage.rates: got ['86 MB/s', '129 MB/s', '146 MB/s'], must be a list of 4 "
            "rates, as many as the table's first list",
        ),
        (
            "[printed] ",
            '[[tiers]]\nname = "T"\n' * 7 + "[printed] ",
            ": tiers: got '9 of them', must be tables, [[tiers]], at most 8",
        ),
        ('capacity = "51', 'room = "51', ":32: tiers[0].capacity: is missing, must be a size of"),
        ('title = "', 'title = "', ""),
    ],
)
def test_a_wrong_value_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, error: str
) -> None:
    text = (SCENARIOS / "thesis-s1.toml").read_text()
    assert old in text
    path = tmp_path / "own.toml"
    path.write_text(text.replace(old, new, 1))
    if not error:
        simulation.load_scenario(path)
        return
    with pytest.raises(errors.InvalidArgumentError) as caught:
        simulation.load_scenario(path)
    assert str(caught.value).startswith(f"{path}{error}")


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulate.md").read_text()
    path = tmp_path / "cluster.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    ran = simulation.simulate(simulation.load_scenario(path))
    assert all(isinstance(outcome, Outcome) for outcome in ran.outcomes if "lb" not in str(outcome))
    assert ran.bounds["batch"] < ran.bounds["exact"]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("samples = 10_000", "samples = 10", "job: 4 ranks with a batch_size of 25 take more than"),
        ('mean = "27 kB"', f"mean = 1{'0' * 400}", "dataset.mean: got 1000"),
        ('mean = "27 kB"', "mean = 1e300", "dataset.mean: got 1e+300, must be a size above 0"),
        (
            "threads = 2",
            "threads = 99999999999",
            "staging.threads: got 99999999999, must be a whole",
        ),
        (
            'rate = "100 MB/s"',
            'rate = "100 MB/s"\nsample_rate = 9',
            ":16: compute.sample_rate: got rate and sample_rate, must be exactly one of rate, s",
        ),
        (
            'rate = "100 MB/s"',
            "",
            ":14: compute.rate: got none of them, must be exactly one of rate, sample_rate",
        ),
        (
            'rate = "100 MB/s"',
            "sample_rate = 0",
            ":15: compute.sample_rate: got 0, must be a number above 0",
        ),
        (
            'shared_by = "nodes"',
            'shared_by = "all"',
            ":21: storage.shared_by: got 'all', must be one of 'reads', 'nodes'",
        ),
        (
            "nodes = 4",
            "nodes = 4\nranks = 0",
            ":12: job.ranks: got 0, must be a whole number in [1",
        ),
        (
            "nodes = 4",
            'nodes = 4\nplacement = "near"',
            ":12: job.placement: got 'near', must be one of 'coordinated'",
        ),
        (
            "nodes = 4",
            'nodes = 4\nschedule = "best"',
            ":12: job.schedule: got 'best', must be one of 'shared_deadline', 'fixed', 'lobster'",
        ),
        (
            'shared_by = "nodes"',
            'shared_by = "nodes"\nlatency = -1',
            "storage.latency: got -1, must be a number in [0, 86400]",
        ),
        (
            'shared_by = "nodes"',
            "latency = 1e300",
            "storage.latency: got 1e+300, must be a number in [0, 86400]",
        ),
        (
            "[storage]",
            "allreduce = 1e300\n[storage]",
            "compute.allreduce: got 1e+300, must be a number in [0, 86400]",
        ),
        ("perfect = 7.3", "best = 7.3", "printed: got 'best', must be one of 'perfect'"),
        (
            'name = "SSD"',
            'name = "ram"',
            "own.toml: tiers[1].name: got 'ram', which another tier has; give each tier a name",
        ),
        (
            "samples = 10_000",
            'samples = 10_000\nindex = "x.hri"',
            "dataset.samples: got index and samples, must be exactly one of index, samples",
        ),
        ('"10 kB"', '"1 TB"\nleast = -1', "dataset.least: got -1, must be a size of at least 0"),
    ],
)
def test_what_cannot_be_simulated(tmp_path: Path, old: str, new: str, error: str) -> None:
    text = (SCENARIOS / "thesis-s1.toml").read_text()
    path = tmp_path / "own.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(errors.InvalidArgumentError) as caught:
        simulation.simulate(simulation.load_scenario(path), ["perfect"])
    assert error in str(caught.value)


def test_data_of_no_bytes_is_refused() -> None:
    scenario = replace(drawn(0), sizes=Sizes(50, 1e-300, 0))
    assert simulation.simulate(scenario, ["perfect"]).bounds["exact"] > 0
    with pytest.raises(errors.InvalidArgumentError, match="all 2 samples drawn have 0 bytes"):
        Sizes(2, 1, 1e9).draw(next(seed for seed in range(99) if _all_negative(seed)))


def _all_negative(seed: int) -> bool:
    return bool((np.random.default_rng(seed).normal(1, 1e9, 2) < 0).all())


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=r"no such file, and none of .*; give the path"):
        simulation.load_scenario(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("title = ")
    with pytest.raises(errors.InvalidArgumentError, match=r"not TOML: Invalid .*; correct the"):
        simulation.load_scenario(broken)
    with pytest.raises(errors.NotFoundError, match="is no file"):
        simulation.load_scenario(tmp_path)
    with pytest.raises(errors.InvalidArgumentError, match="names: got 'nopfs', must be an iterab"):
        simulation.simulate(drawn(0), "nopfs")
    with pytest.raises(errors.InvalidArgumentError, match="policy: got 'best', must be one of"):
        simulation.simulate(drawn(0), ["best"])
    with pytest.raises(
        errors.NotFoundError, match="no published policy 'best'; there are perfect, "
    ):
        _core.run_published("best", np.ones(4))


def test_the_command() -> None:
    listed = RUNNER.invoke(app, ["simulate", "--list"])
    assert listed.exit_code == 0
    assert "thesis-s1" in listed.output
    assert "lbann_preloading" in listed.output
    shown = RUNNER.invoke(app, ["simulate", "thesis-s1"])
    assert shown.exit_code == 0, shown.output
    assert "of printed" in shown.output
    assert max(map(len, shown.output.splitlines())) <= 120
    assert (
        "deepio_opportunistic: decides the order itself; uses 100.0% of the samples" in shown.output
    )
    said = RUNNER.invoke(app, ["simulate", "nopfs-8c", "--policy", "lbann_dynamic", "--json"])
    assert said.exit_code == 1  # It is the only policy.
    result = json.loads(said.stdout)
    assert result["policies"]["lbann_dynamic"]["refused"].startswith("keeps all samples in memory")
    assert result["bounds"]["batch"] < result["bounds"]["exact"]
    wrong = RUNNER.invoke(app, ["simulate"])
    assert wrong.exit_code != 0
    assert "give either a SCENARIO, or --list" in wrong.output
