"""Benchmarks that need no idle machine: that they run, and that pages show what was recorded."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _reports import tiers_report

    return tiers_report


def recorded(name: str) -> dict[str, Any]:
    """The newest result."""
    lines = (BENCHMARKS / "results" / f"{name}.jsonl").read_text().splitlines()
    newest: dict[str, Any] = json.loads(lines[-1])
    return newest


def test_the_page_of_tiers_shows_the_newest_result(report: Any) -> None:
    page = (ROOT / "docs" / "tiers-measured.md").read_text()
    generated = page.partition(report.BEGIN)[2].partition(report.END)[0]
    assert generated.strip() == report.text(recorded("tiers_read")).strip()


def test_the_report_of_tiers_sees_what_falls_short(report: Any) -> None:
    result = recorded("tiers_read")
    for run in result["placements"]["runs"]["pinned"]:
        run["device_later"] += 0.05
    fallen = [what for what, holds in verdict(report, result) if not holds]
    assert any(what.startswith("pinned: bytes") for what in fallen)
    for run in result["sweep"][2]["runs"]["coordinated"]:
        run["seconds_later"] *= 1.5
    fallen = [what for what, holds in verdict(report, result) if not holds]
    assert any(what.startswith("no cliff") for what in fallen)


def verdict(report: Any, result: dict[str, Any]) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = report.verdicts(result)
    return found


@pytest.mark.parametrize("name", ["tiers_read", "predicted", "papers/real_runs"])
def test_a_quick_run_ends(name: str, tmp_path: Path) -> None:
    for module in ("torch", "pyarrow"):
        pytest.importorskip(module)
    command = [sys.executable, BENCHMARKS / f"{name}.py", "--quick", "--data", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("skipped"):
        pytest.skip(done.stdout.strip())
    assert "| `coordinated` |" in done.stdout or "| exact |" in done.stdout


def test_the_bench_of_lanes_runs_every_policy_that_scripts_measure(tmp_path: Path) -> None:
    bench = ROOT / "build" / "release" / "benchmarks" / "lanes_bench"
    if not bench.exists():
        pytest.skip("lanes_bench is not built: make check STAGES=build-bench")
    data = ["--ranks", "2", "--batch", "4", "--bytes", "2000", "--heavy", "1", "--steps", "3"]
    subprocess.run([bench, tmp_path, *data, "--make"], check=True)
    (tmp_path / "read").symlink_to(tmp_path / "stored")
    policies = ("shared_deadline", "fixed", "proportional", "lobster", "lobster_search")
    for policy in policies:
        command = [bench, tmp_path, *data, "--policy", policy, "--train-ms", "1"]
        command += ["--epochs", "2", "--hits", "0.5", "--prefetch", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["step_ms"]) == 2


def test_the_page_of_placements_shows_the_newest_result_which_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _reports import node_shares

    page = (ROOT / "docs" / "placements.md").read_text()
    generated = page.partition(node_shares.BEGIN)[2].partition(node_shares.END)[0]
    result = recorded("node_shares")
    assert generated.strip() == node_shares.text(result).strip()
    assert [what for what, holds in node_shares.verdicts(result) if not holds] == []
    for line in result["lines"]:
        if "local" in line:
            line["local"] = 0.4
    assert [what for what, holds in node_shares.verdicts(result) if not holds]


@pytest.mark.parametrize("name", ["side_by_side", "redox_remote"])
def test_the_page_of_ways_side_by_side_shows_what_was_recorded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    report = importlib.import_module(f"_reports.{name}_report")
    page = (ROOT / "docs" / "side-by-side.md").read_text()
    generated = page.partition(report.BEGIN)[2].partition(report.END)[0]
    assert generated.strip() == report.text(report.recorded()).strip()


def test_the_page_of_ways_side_by_side_sees_what_falls_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _reports import redox_remote_report, side_by_side_report

    found = side_by_side_report.recorded()
    for each in [each for line in found["homes"][1, 128] for each in line["rounds"]]:
        homes, shared = each["epoch, homes"]["training"], each["epoch, shared"]["training"]
        homes["stall_s"] = shared["stall_s"] + 0.06 * shared["epoch_s"]
    held = dict(side_by_side_report.verdicts(found))
    assert [
        holds
        for what, holds in held.items()
        if what.startswith("all of the rates, batches of 128, training")
    ] == [False]
    counted = redox_remote_report.recorded()
    assert all(holds for _, holds in redox_remote_report.verdicts(counted))
    counted["variants"]["both"]["read_bytes"] *= 1.03
    counted["variants"]["window"]["remote_requests"] *= 2
    fallen = [what for what, holds in redox_remote_report.verdicts(counted) if not holds]
    assert len(fallen) == 3
    assert fallen[0].startswith("all nodes counted")
    assert fallen[1].startswith("bytes read are")
    assert fallen[2].startswith("with a window")


def test_a_quick_run_of_nodes_side_by_side_ends(tmp_path: Path) -> None:
    command = [
        sys.executable, BENCHMARKS / "nodes" / "side_by_side.py", "--quick", "--part", "rows",
        "--rows", "13", "--data", tmp_path,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("skipped"):
        pytest.skip(done.stdout.strip())
    assert "| epoch, homes | " in done.stdout


def paper_results(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "papers"))
    return importlib.import_module(name)


def test_what_redox_prints_is_counted_and_its_hours_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    redox = paper_results("redox_results", monkeypatch)
    assert [what for what, holds in redox.verdicts() if not holds] == []
    page = (ROOT / "docs" / "paper-results.md").read_text()
    for name, (_, _, _, misses, remote) in redox.ROWS.items():
        ours = redox.row_of(name)
        cells = [
            redox.beside(ours[what] / 1e5, printed)
            for what, printed in (("misses", misses), ("remote_requests", remote))
        ]
        assert f"| {name} | {' | '.join(cells)} |" in page
    monkeypatch.setitem(redox.ROWS, "no prefetching", ("max_fill", False, 0.92, 1.83, 8.54))
    fallen = [what for what, holds in redox.verdicts() if not holds]
    assert fallen == ["no prefetching: misses within 2%"]
    monkeypatch.setitem(redox.ROWS, "random selection", ("random", True, 0.77, 1.33, 0.40))
    fallen = [what for what, holds in redox.verdicts() if not holds]
    assert fallen == [
        "random selection: remote_requests within 8%",
        "random selection: hours within 4%",
        "no prefetching: misses within 2%",
    ]


def test_what_follows_from_rinas_stands_in_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    rinas = paper_results("rinas_results", monkeypatch)
    assert rinas.tables() in (ROOT / "docs" / "paper-results.md").read_text()
