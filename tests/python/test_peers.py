"""benchmarks/peers/: its checks and its verdicts, without other loaders' packages."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "benchmarks" / "peers"

RUN = {
    "rate": 1000.0,
    "cpu_s": 0.5,
    "samples": 100,
    "peak_bytes": 2**20,
    "before_bytes": 2**19,
    "first_batch_s": 0.1,
}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for folder in (ROOT / "benchmarks", PEERS):
        monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    import cells
    import run_one
    import runs
    from loaders import common

    import report

    yield SimpleNamespace(cells=cells, report=report, run_one=run_one, runs=runs, common=common)
    for name in set(sys.modules) - before:  # Their names are short, and others may use them.
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(PEERS)):
            del sys.modules[name]


def rounds(peer_rates: list[float]) -> list[dict[str, dict[str, Any]]]:
    return [
        {
            "headrace exact": {**RUN, "rate": 1000.0},
            "headrace epoch": {**RUN, "rate": 2000.0},
            "torch": {**RUN, "rate": rate},
        }
        for rate in peer_rates
    ]


@pytest.mark.parametrize(
    ("peer_rates", "verdict"),
    [
        ([500.0, 510.0, 490.0], "won"),
        ([4000.0, 4100.0, 3900.0], "lost"),
        ([1990.0, 2000.0, 2010.0], "even"),
        ([1500.0, 1600.0, 2100.0], "even"),
    ],
)
def test_a_cell_is_won_by_the_interval_of_the_better_order(
    modules: Any, peer_rates: list[float], verdict: str
) -> None:
    found = modules.report.ratios(rounds(peer_rates))
    assert list(found) == ["torch"]
    assert modules.report.verdict(found["torch"]) == verdict


def test_the_table_names_cells_that_are_not_won_and_loaders_that_are_absent(modules: Any) -> None:
    kept = rounds([4000.0, 4000.0])
    del kept[1]["torch"]
    loader = {"version": "1.0", "shuffle": "a permutation", "settings": {"workers": 2}}
    table = modules.report.table(
        {
            "cell": "raw4k-warm",
            "batch": 256,
            "data": {"samples": 100, "payload_bytes": 409_600},
            "loaders": {name: copy.deepcopy(loader) for name in kept[0]},
            "absent": {"ffcv": "does not build"},
            "ratios": modules.report.ratios(kept),
            "rounds": kept,
        }
    )
    assert "Not won (lost): torch." in table
    assert "Left out: ffcv: does not build" in table
    assert "fewer than all: torch 1." in table
    assert "| workers 2 |" in table


@pytest.mark.parametrize("delivered", [[b"a", b"bc"], [b"a", b"a", b"bc"], [b"a", b"xy"]])
def test_an_epoch_without_a_sample_or_with_another_one_is_refused(
    modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, delivered: list[bytes]
) -> None:
    wanted = [b"a", b"bc"]

    def sums(parts: list[bytes]) -> dict[str, Any]:
        batch = modules.common.Batch(len(parts), len(b"".join(parts)), lambda: parts)
        loader = SimpleNamespace(epochs=lambda task: iter([iter([batch])]))
        found: dict[str, Any] = modules.run_one.check(loader, SimpleNamespace(images=False), {})
        return found

    runs = object.__new__(modules.runs.Runs)
    runs._cell = SimpleNamespace(images=False)
    runs._expected = {key: value for key, value in sums(wanted).items() if key != "pixels"}
    monkeypatch.setattr(runs, "_ask", lambda *_: sums(delivered))
    contestant = SimpleNamespace(peer=None, stored=tmp_path, settings={})
    if delivered == wanted:
        runs.check(contestant)
    else:
        with pytest.raises(modules.runs.RunError, match="an epoch delivered"):
            runs.check(contestant)


def test_the_page_shows_the_newest_results(modules: Any) -> None:
    page = modules.report.PAGE.read_text()
    newest = modules.report.newest()
    for cell in modules.cells.CELLS:
        begin, end = modules.report.marks(cell)
        shown = page.partition(begin)[2].partition(end)[0].strip()
        expected = modules.report.text(newest[cell]) if cell in newest else "Not measured yet."
        assert shown == expected.strip()


def test_a_quick_run_measures_both_orders(tmp_path: Path) -> None:
    command = [sys.executable, PEERS / "bench.py", "--quick", "--cell", "raw4k-cold"]
    command += ["--peers", "--data", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "| headrace exact " in done.stdout
    assert "| headrace epoch " in done.stdout
    assert "left out" not in done.stdout.partition("| loader |")[0]
