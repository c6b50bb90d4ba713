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
    rows = list(rinas.controls())[1:]  # Of table 2: data with limited shuffling, measured here.
    assert len(rows) == 8
    assert "| digits: not shuffled | 91.5 %, 97.1 % | 1.06 |" in rows


def rinas_cells(ladder: Any, slower: float) -> list[dict[str, Any]]:
    """A round of the ladder: each rung, batch, size, number of threads and workers has its rate."""
    speeds = {"hf": 100, "plane": 150, "planes": 160, "exact": 500, "epoch": 700, "torch": 50}
    speeds |= {"arriving": 55, "exact-images": 90, "epoch-images": 95, "ray-train": 95}
    found = []
    rungs = ladder.text_rungs(Path("a"), {10: Path("b"), 100: Path("b"), 1000: Path("c")}, 9)
    for rung in [*rungs, *ladder.image_rungs(Path("d"), 9)]:
        for cell in rung.cells:
            rate = speeds.get(rung.name, 80) * cell["batch"] / 32 / slower
            rate *= {0.5: 4, 2.0: 2, 4.0: 1}[cell["size"]] if rung.name == "hf" else 1
            rate *= (cell.get("pool") or 256) / 256
            rate *= 1 + (cell["workers"] or 0) / 10
            rate /= 10 if cell.get("how") == "read" else 1
            swept = cell["workers"] is not None
            cached = 1.5e9 / max(1, cell["size"])
            measured = {"rung": rung.name, "rate": rate, "swept": swept, "cached": cached}
            measured["taken"] = {"ray-data": 2.5e9, "ray-train": 9e8}.get(rung.name, 4e8)
            found.append(cell | measured)
    return found


def test_the_tables_of_rinas_ladder_have_each_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "formats"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    ladder = importlib.import_module("rinas_ladder")
    report = importlib.import_module("_reports.rinas_report")
    rounds = [rinas_cells(ladder, slower) for slower in (1, 2, 1.3)]  # Ratios are of a round.
    recorded = {"rounds": rounds, "bytes": {"text": 1.5e9, "images": 3e8}, "machine": "m"}
    text = report.tables(recorded | {"date": "2026-01-01"})

    def same(ratio: str) -> str:
        return f"{ratio} [{ratio}, {ratio}]"

    for line in (
        f"| Rinas's data plane alone | {' | '.join([same('1.50')] * 4)} | 1.494 with 32 |",
        f"| `datasets`, wrapped by Ray Train | {same('0.95')} |  |  | {same('0.95')} |  |",
        f"| `datasets`, torch's DataLoader, over itself with most memory | 1 | {same('0.50')} | "
        f"{same('0.25')} |",
        f"| Rinas's data plane alone | 1 | {same('1.20')} | {same('1.40')} |",
        f"| batches of 256, over a thread a sample | {same('0.02')} | {same('0.06')} | "
        f"{same('0.25')} | 1 |",
        f"| 1,000 rows | 1 | {same('0.10')} |",
        f"| with a thread a sample, order of arrival | {same('1.10')} | {same('1.10')} | up to ",
        "these took 2.5 GB beside the page cache, those of `datasets` 0.4, of Ray Train 0.9.",
        "The page cache held 100%, 50%, 25% of the data when these",
        "3 rounds; but for the table by memory",
    ):
        assert line in text
    assert "|  |  |  |  |" not in text  # Only Ray has some batches alone.
    assert [holds for _, holds in report.verdicts(recorded)] == [True] * 6
    for cell in rounds[0] + rounds[1]:
        cell["rate"] *= 0.3 if cell["rung"] == "exact" else 1
    fallen = [what for what, holds in report.verdicts(recorded) if not holds]
    assert len(fallen) == 1
    assert fallen[0].endswith("data and control plane (0.94 [0.94, 3.12])")


def test_the_page_of_rinas_ladder_shows_the_newest_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _reports import rinas_report

    page = (ROOT / "docs" / "formats" / "huggingface.md").read_text()
    generated = page.partition(rinas_report.BEGIN)[2].partition(rinas_report.END)[0]
    result = recorded("rinas_ladder")
    assert result["whole"]
    assert generated.strip() == rinas_report.tables(result).strip()
    assert [what for what, holds in rinas_report.verdicts(result) if not holds] == []


def test_several_epochs_without_the_first_are_shown_by_their_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from _reports import side_by_side_report as side_report

    def line(date: str, seconds: float, *laps: float) -> dict[str, Any]:
        phase = {"epoch_s": seconds, "stall_s": 1.0}
        phases = {"bare": phase, "training": phase | ({"epochs_s": laps} if laps else {})}
        return {"part": "row", "row": "torch", "date": date, "phases": phases}

    found = side_report.chosen([line("1", 5.0), line("2", 7.0), line("3", 6.0)])
    assert side_report._training_s(found["rows"]["torch"]["training"]) == "5.0"
    laps = (8.0, 8.4, 8.1, 8.3, 8.2)
    found = side_report.chosen([line("1", 5.0), line("3", 8.2, *laps), line("2", 7.9, 7.9, 7.9)])
    assert side_report._training_s(found["rows"]["torch"]["training"]) == "8.2 (5: 8.0 to 8.4)"
    assert found["rows"]["torch"]["bare"]["epoch_s"] == 5.0
