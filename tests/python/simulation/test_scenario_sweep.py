"""Sweeps of a scenario: as its parts alone, what is refused, the command, and pages."""

from __future__ import annotations

import base64
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_scenarios import drawn
from typer.testing import CliRunner

from headrace import errors, simulation
from headrace._toml import TomlTable
from headrace.cli._plots import simulation_page
from headrace.cli.main import app
from headrace.simulation import Outcome, Sizes
from headrace.simulation.bounds import BOUNDED
from headrace.simulation.scenario import to_plain, to_scenario

RUNNER = CliRunner()
ORDERS = ("exact", "batch")


@pytest.mark.parametrize("seed", range(12))
def test_a_sweep_gives_what_each_scenario_gives_alone(seed: int) -> None:
    scenario = drawn(seed)
    name = scenario.tiers[0].name
    capacities, nodes, deviations = (10, 500), (1, 2), (0.5, 3)
    keys = {name.lower(): capacities, "job.nodes": nodes, "dataset.deviation": deviations}
    points = list(simulation.sweep(scenario, keys, ["staging", "nopfs"], orders=ORDERS))
    expected = list(itertools.product(capacities, nodes, deviations))
    assert [tuple(point.values.values()) for point in points] == expected
    for point, (capacity, count, deviation) in zip(points, expected, strict=True):
        tier = replace(scenario.tiers[0], capacity=capacity)
        changed = replace(
            scenario,
            nodes=count,
            sizes=replace(scenario.sizes, deviation=deviation),
            tiers=(tier, *scenario.tiers[1:]),
        )
        assert point.simulation.scenario == changed
        alone = simulation.simulate(changed, ["staging", "nopfs"], orders=ORDERS)
        assert point.simulation.bounds == alone.bounds
        for one, other in zip(point.simulation.outcomes, alone.outcomes, strict=True):
            assert isinstance(one, Outcome)
            assert isinstance(other, Outcome)
            assert one.step_seconds.tolist() == other.step_seconds.tolist()


@pytest.mark.parametrize("name", simulation.shipped_scenarios())
def test_a_scenario_is_what_its_plain_values_say(name: str) -> None:
    scenario = simulation.load_scenario(name)
    again = to_scenario(TomlTable("again", "", to_plain(scenario)), "again")
    assert again == replace(scenario, printed={})


@pytest.mark.parametrize("seed", range(6))
def test_one_that_is_drawn_is_too(seed: int) -> None:
    plain = to_plain(drawn(seed))
    assert to_scenario(TomlTable("again", "", plain), "again") == drawn(seed)
    plain["dataset"]["samples"] = plain["tiers"][0]["capacity"] = 7
    assert to_plain(drawn(seed)) != plain


def test_sizes_are_drawn_and_bounds_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[int] = []
    draw = Sizes.draw
    monkeypatch.setattr(Sizes, "draw", lambda self, seed: draws.append(seed) or draw(self, seed))
    ran: list[str] = []
    keys = {"seed": [1, 2], "ram": [10, 20, 30]}
    points = simulation.sweep(drawn(5), keys, ["staging"], ran.append, ["exact"])
    assert ran == draws == []
    assert len(list(points)) == 6
    assert draws == [1, 2]
    assert [name for name in ran if name.endswith("exact")] == [
        "seed=1, tiers.RAM.capacity=10: exact",
        "seed=2, tiers.RAM.capacity=10: exact",
    ]


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("job.nodes=4,8", "job.nodes", [4, 8]),
        ("ram = 32GB, 1.5 TB", "ram", ["32GB", "1.5 TB"]),
        ("ram=32..512GB", "ram", ["32GB", "64GB", "128GB", "256GB", "512GB"]),
        ("ram=32..100GB", "ram", ["32GB", "64GB"]),
        ("ram=1GB..27GB*3", "ram", ["1GB", "3GB", "9GB", "27GB"]),
        ("ram=0..20GB+10GB", "ram", ["0GB", "10GB", "20GB"]),
        ("network.rate=0.1..0.3GB/s+0.1", "network.rate", ["0.1GB/s", "0.2GB/s", "0.3GB/s"]),
        ("job.nodes=1..8,12", "job.nodes", [1, 2, 4, 8, 12]),
        ("compute.sample_rate=1..2*1.25", "compute.sample_rate", [1, 1.25, 1.5625, 1.953125]),
        ("seed=5..5", "seed", [5]),
    ],
)
def test_values_are_written_one_by_one_or_as_a_range(
    text: str, key: str, values: list[int | str]
) -> None:
    assert simulation.parse_sweep(text) == (key, values)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ram", "sweep 'ram': must be KEY=VALUE,VALUE or KEY=FIRST..LAST, as job.nodes=4,8"),
        ("ram=", "must be KEY=VALUE"),
        ("ram=1GB..2MB", "sweep ram=1GB..2MB: its numbers have different units; write the unit"),
        ("ram=1..2GB*2GB", "its numbers have different units"),
        ("ram=8..2", "has no end; must ascend, by a factor above 1 from above 0 or by a step"),
        ("ram=0..2", "has no end"),
        ("ram=1..2*1", "has no end"),
        ("ram=1..2+0", "has no end"),
        ("ram=1..", "must be FIRST..LAST, which doubles"),
        ("job.nodes=2..", "must be FIRST..LAST, which doubles"),
    ],
)
def test_what_is_no_sweep(text: str, error: str) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        simulation.parse_sweep(text)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (
            {"staging.threads": [2, 0]},
            "sweep staging.threads=0: staging.threads: got 0, must be a whole number in [1, 65536]",
        ),
        (
            {"ram": ["10 MB"], "ssd": ["1 MB/s"]},
            "sweep tiers.RAM.capacity=10 MB, tiers.SSD.capacity=1 MB/s: tiers[1].capacity: got "
            "'1 MB/s', must be a size of at least 0, as 4096 or '64 MB'",
        ),
        ({"job.nodes": [40_000]}, "sweep job.nodes=40000: job: 40,000 ranks with a batch_size of"),
        (
            {"job.node": [4]},
            "sweep job.node=4: job.node: no such key; there are nodes, r",
        ),
        ({"jobs": [4]}, "sweep jobs=4: jobs: no such key; there are title, source, epochs, "),
        ({"job.a.b": [4]}, "sweep job.a.b=4: job.a.b: no such key; there are nodes"),
        (
            {"title.b": [4]},
            "sweep title.b: is no number that a simulation depends on; choose one, as job.nodes,",
        ),
        ({"tiers.RAM.shared": [1]}, "sweep tiers.RAM.shared: is no number"),
        ({"title": [4]}, "sweep title: is no number"),
        ({4: [4]}, "sweep key: got 4, must be a text, as 'job.nodes'"),
        ({"job.nodes": np.array([1.5])}, "job.nodes: got 1.5, must be a whole number in [1"),
        ({"storage.rates": [4]}, "sweep storage.rates: is no number"),
        ({"printed.nopfs": [4]}, "sweep printed.nopfs: is no number"),
        ({"tiers.GPU.rate": [4]}, "sweep tiers.GPU.rate: must be the name of one tier, with one"),
        ({"tiers": [4]}, "sweep tiers: is no number"),
        (
            {"compute.sample_rate": [4], "compute.rate": [4]},
            "compute.sample_rate: got rate and sample_rate, must be exactly one of",
        ),
        (
            {"job.schedule": ["best"]},
            "sweep job.schedule=best: job.schedule: got 'best', must be one of 'shared_deadline'",
        ),
        ({"ram": [4], "tiers.RAM.capacity": [4]}, "two of them are the same key; give one of"),
        ({"ram": []}, "sweep ram: got 0 combinations of values, must be in [1, 1,000]"),
        ({"seed": range(1001)}, "got 1,001 combinations of values, must be in [1, 1,000]"),
        ({"ram": "4GB"}, "sweep ram: got '4GB', must be an iterable of values"),
    ],
)
def test_a_value_is_checked_as_if_it_stood_in_the_file(
    keys: dict[str, list[float | str]], error: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        simulation.sweep(simulation.load_scenario("thesis-s1"), keys)
    assert error in str(caught.value)


def test_the_commands_table_of_one_key_and_of_two() -> None:
    command = ["simulate", "thesis-s1", "--policy", "staging", "--policy", "lbann_dynamic"]
    command += ["--sweep", "staging.threads=2"]
    one = RUNNER.invoke(app, [*command, "--sweep", "ram=32..128MB"])
    assert one.exit_code == 0, one.output
    assert "seconds by tiers.RAM.capacity; staging.threads=2\n" in one.output
    assert re.search(r"\nlbann_dynamic +refused +refused +7\.\d+\n", one.output)
    assert re.search(r"\nbound of batch( +6\.791){3}\n", one.output)
    assert (
        "lbann_dynamic: refused in 2 of 3, first with staging.threads=2, tiers.RAM.capacity=32MB: "
        "keeps all samples in memory, 270.8 MB, and the first tiers of 4 nodes have 128 MB"
    ) in one.output
    command += ["--sweep", "job.nodes=2,4", "--sweep", "ram=32..128MB"]
    two = RUNNER.invoke(app, command)
    assert "staging: seconds by job.nodes (rows) and tiers.RAM.capacity;" in two.output
    assert re.search(r"\njob\.nodes +32MB +64MB +128MB\n2 +\d", two.output)
    said = json.loads(RUNNER.invoke(app, [*command, "--json"]).output)
    assert said["sweep"]["tiers.RAM.capacity"] == ["32MB", "64MB", "128MB"]
    assert len(said["points"]) == 6
    last = said["points"][-1]
    assert last["values"] == {
        "staging.threads": 2,
        "job.nodes": 4,
        "tiers.RAM.capacity": "128MB",
    }
    alone = json.loads(RUNNER.invoke(app, ["simulate", "thesis-s1", "--json"]).output)
    assert last["bounds"] == alone["bounds"]
    many = RUNNER.invoke(app, [*command, "--sweep", "seed=1,2"])
    assert "have several values; a table can show two such keys" in many.output
    again = RUNNER.invoke(app, [*command, "--sweep", "job.nodes=3"])
    assert "--sweep: the same key twice; write its values in one" in again.output


def test_numbers_of_numpy_are_those_of_python() -> None:
    scenario = simulation.load_scenario("thesis-s1")
    numbers = {"job.nodes": np.array([2, 4], np.int32), "ram": np.array([1e8, 2e8], np.float32)}
    plain = {key: of_key.tolist() for key, of_key in numbers.items()}
    points = [
        [(point.values, point.simulation.outcomes[0].seconds) for point in ran]
        for ran in (simulation.sweep(scenario, keys, ["staging"]) for keys in (numbers, plain))
    ]
    assert points[0] == points[1]
    assert json.dumps(points[0])


def test_one_value_replaces_the_files_and_the_table_is_that_of_a_scenario() -> None:
    command = ["simulate", "thesis-s1", "--policy", "staging"]
    changed = RUNNER.invoke(app, [*command, "--sweep", "job.nodes=2", "--sweep", "epochs=3"])
    assert "2 nodes, 10,000 samples, 3 epochs; job.nodes=2; epochs=3\npolicy " in changed.output
    assert "of bound" in changed.output
    said = json.loads(RUNNER.invoke(app, [*command, "--sweep", "seed=0", "--json"]).output)
    assert said == json.loads(RUNNER.invoke(app, [*command, "--json"]).output)


def charts(page: str) -> list[str]:
    return [
        base64.b64decode(code).decode()
        for code in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    ]


@pytest.mark.parametrize(
    ("sweeps", "count"),
    [([], 3), (["ram=512MB"], 3), (["ram=64..128MB"], 1), (["ram=64..128MB", "job.nodes=2,4"], 1)],
)
def test_a_page_needs_no_other_file_and_is_the_same_again(
    tmp_path: Path, sweeps: list[str], count: int
) -> None:
    command = ["simulate", "thesis-s1", "--policy", "nopfs", "--policy", "lbann_dynamic"]
    for text in sweeps:
        command += ["--sweep", text]
    pages = []
    for name in ("one.html", "other.html"):
        ran = RUNNER.invoke(app, [*command, "--html", str(tmp_path / name)])
        assert ran.exit_code == 0, ran.output
        pages.append((tmp_path / name).read_text())
    assert pages[0] == pages[1]
    drawn_charts = charts(pages[0])
    assert len(drawn_charts) == count == pages[0].count("<img")
    assert all("<!-- nopfs -->" in chart for chart in drawn_charts)
    assert "<link" not in pages[0]
    assert "<script" not in pages[0]
    assert "<td" in pages[0]


def test_bars_are_as_long_as_the_policies_take() -> None:
    ran = [
        outcome
        for seed in range(8)
        for outcome in simulation.simulate(drawn(seed)).outcomes
        if isinstance(outcome, Outcome)
    ]
    figure = simulation_page._times(ran, dict.fromkeys(BOUNDED, 1.0))
    ends = np.zeros(len(ran))
    for bars in figure.axes[0].containers:
        for at, bar in enumerate(bars):
            assert bar.get_x() == pytest.approx(ends[at], abs=1e-9)
            ends[at] = bar.get_x() + bar.get_width()
    assert ends == pytest.approx([outcome.seconds for outcome in ran])
    assert simulation_page._steps(ran).axes[0].get_ylim()[0] == 0
    for outcome in ran:
        total = outcome.seconds * (1 - outcome.utilisation)
        waits = outcome.stall_seconds + outcome.barrier_seconds + outcome.setup_seconds
        assert total == pytest.approx(waits, abs=1e-9, rel=1e-6)
        steps = outcome.seconds - outcome.setup_seconds
        mean = outcome.compute_seconds + outcome.stall_seconds
        assert (1 + outcome.imbalance) * mean == pytest.approx(steps)


@pytest.mark.parametrize("sweeps", [[], ["epochs=1,2"], ["epochs=1,2", "job.nodes=2,4"]])
def test_a_page_of_policies_that_all_refuse(tmp_path: Path, sweeps: list[str]) -> None:
    command = ["simulate", "thesis-s1", "--policy", "lbann_dynamic", "--sweep", "ram=1MB"]
    for text in sweeps:
        command += ["--sweep", text]
    ran = RUNNER.invoke(app, [*command, "--html", str(tmp_path / "page.html")])
    why = "keeps all samples in memory, 270.8 MB"
    assert why in (tmp_path / "page.html").read_text()
    assert ran.exit_code == 1  # As for other data that a command cannot take.
    assert re.search(
        f"headrace: simulating .*: no policy supports it: lbann_dynamic: .*{why}", ran.output
    )


def test_a_run_of_policies_that_all_refuse_fails_with_the_reasons(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    shipped = Path(simulation.__file__).parent / "scenarios" / "thesis-s1.toml"
    file.write_text(shipped.read_text().replace("[job]", "[job]\nranks = 2"))
    command = ["simulate", str(file), "--policy", "nopfs", "--policy", "naive"]
    ran = RUNNER.invoke(app, command)
    assert ran.exit_code == 1
    whys = "; ".join(f"{name}: has one rank a node, the scenario 2" for name in ("nopfs", "naive"))
    assert f"no policy supports it: {whys}; choose others with --policy, or" in ran.output
    assert RUNNER.invoke(app, [*command, "--json"]).exit_code == 1


def test_a_page_whose_folder_is_gone_meanwhile(tmp_path: Path) -> None:
    ran = simulation.simulate(drawn(0), ["perfect"])
    path = tmp_path / "gone" / "page.html"
    with pytest.raises(OSError, match="writing the page") as raised:
        simulation_page.write(path, ran)
    assert str(raised.value).endswith(
        "page.html: No such file or directory; give --html another path"
    )


@pytest.mark.parametrize(
    ("name", "error"),
    [("page.png", "must be a file of suffix .html"), ("none/page.html", "no such folder")],
)
def test_where_no_page_can_be_nothing_runs(tmp_path: Path, name: str, error: str) -> None:
    ran = RUNNER.invoke(app, ["simulate", "thesis-s1", "--html", str(tmp_path / name)])
    assert ran.exit_code != 0
    assert error in ran.output.replace("\n", " ")
    assert "seconds" not in ran.output
