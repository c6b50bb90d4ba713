"""The demo, small: it runs from nothing, leaves what it says, and all loaders deliver alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

pytestmark = pytest.mark.timeout(300)  # Two runs, which import torch eight times.

DEMO = Path(__file__).parents[2] / "demo" / "demo.py"
KINDS = {"torch", "folder", "pack", "synthetic"}


def run_demo(out: Path) -> str:
    command = [sys.executable, DEMO, "--quick", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where a finished demo left its files, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, run_demo(out)


@pytest.fixture
def figures(demo: tuple[Path, str]) -> Any:
    return json.loads((demo[0] / "demo.json").read_text())


def test_leaves_a_table_a_chart_and_figures_and_says_where(demo: tuple[Path, str]) -> None:
    out, printed = demo
    for name in ("dataset", "pack", "demo.txt", "demo.png", "demo.json"):
        assert (out / name).exists()
        assert str(out / name) in printed
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    table = (out / "demo.txt").read_text()
    for title in ("torch DataLoader", "Headrace, folder", "Headrace, pack", "No-I/O"):
        assert title in table


def test_figures_are_there_for_every_loader(figures: Any) -> None:
    assert {"date", "machine", "versions", "dataset", "settings", "runs"} <= figures.keys()
    assert set(figures["summary"]) == KINDS
    for summary in figures["summary"].values():
        assert summary["samples_per_second"] > 0
        assert 0 <= summary["stall_share"] <= 1
        assert summary["memory_peak"] > summary["memory_of_loader"]
        assert sum(summary["stall_causes"].values()) == pytest.approx(1)


def test_every_loader_delivers_each_sample_once_an_epoch_with_its_label(figures: Any) -> None:
    count, classes = figures["dataset"]["samples"], figures["dataset"]["classes"]
    of_each_class = [len(range(label, count, classes)) for label in range(classes)]
    assert {run["kind"] for run in figures["runs"]} == KINDS
    for run in figures["runs"]:
        assert len(run["epochs"]) == 2
        for epoch in run["epochs"]:
            assert epoch["once"], run["kind"]
            # Labels are numbered by sorted class folder, and images dealt to them in that order.
            assert epoch["labels"] == of_each_class, run["kind"]


def test_torch_and_headrace_learn_alike(figures: Any) -> None:
    losses = {kind: figures["summary"][kind]["loss"] for kind in ("torch", "folder", "pack")}
    for first, last in losses.values():
        assert last < first
    last_losses = [loss[-1] for loss in losses.values()]
    assert max(last_losses) - min(last_losses) < 0.3


def test_a_second_run_uses_dataset_and_pack_again(demo: tuple[Path, str]) -> None:
    out, printed = demo
    assert "(found)" not in printed
    images = {file: file.stat().st_mtime_ns for file in (out / "dataset").rglob("*.jpg")}
    packed = {file: file.stat().st_mtime_ns for file in (out / "pack").rglob("*")}
    assert run_demo(out).count("(found)") == 2
    assert images == {file: file.stat().st_mtime_ns for file in images}
    assert packed == {file: file.stat().st_mtime_ns for file in packed}


def test_a_folder_that_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mine").write_text("precious")
    command = [sys.executable, DEMO, "--quick", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "not a dataset of this demo" in done.stderr
    assert (tmp_path / "dataset" / "mine").read_text() == "precious"
