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

pytestmark = pytest.mark.timeout(900)  # It imports torch three times.

DEMO = Path(__file__).parents[2] / "demo"
KINDS = {"torch", "folder", "pack"}


def run_demo(out: Path, *options: str) -> str:
    command = [sys.executable, DEMO / "demo.py", "--quick", "--out", out, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where a finished demo left its files, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, run_demo(out)


@pytest.fixture
def result(demo: tuple[Path, str]) -> Any:
    return json.loads((demo[0] / "demo.json").read_text())


def test_leaves_a_table_a_chart_and_figures_and_says_where(demo: tuple[Path, str]) -> None:
    out, printed = demo
    for name in ("dataset", "pack", "demo.txt", "demo.png", "demo.json"):
        assert (out / name).exists()
        assert str(out / name) in printed
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    table = (out / "demo.txt").read_text()
    for title in ("torch DataLoader", "Headrace, folder", "Headrace, pack", "bound without I/O"):
        assert title in table


def test_ends_with_one_command_that_is_there(demo: tuple[Path, str]) -> None:
    command = demo[1].splitlines()[-1].split()
    assert command[1:] == ["pack", "IMAGES", "PACK"]
    done = subprocess.run([*command[:2], "--help"], capture_output=True, timeout=280, check=False)
    assert done.returncode == 0


def test_figures_are_there_for_every_loader(result: Any) -> None:
    assert {"date", "machine", "versions", "dataset", "settings", "runs"} <= result.keys()
    assert set(result["summary"]) == KINDS
    for summary in result["summary"].values():
        assert summary["samples_per_second"] > 0
        assert 0 <= summary["stall_share"] <= 1
        assert summary["memory_peak"] > summary["memory_of_loader"]
        assert sum(summary["stall_causes"].values()) == pytest.approx(1)


def test_the_bound_follows_from_the_core_time_of_the_runs_and_no_run_passes_it(result: Any) -> None:
    cores = result["settings"]["workers"]
    training, decoding = (
        min(run["core_time"][part] for run in result["runs"]) for part in ("training", "decoding")
    )
    seconds = max(training, (training + decoding) / cores)
    assert result["bound"] == pytest.approx(1 / seconds)
    for run in result["runs"]:
        # Training and decoding are in every run, and starting, which takes longer here than both.
        assert run["samples_per_second"] < result["bound"], run["kind"]


def test_every_loader_delivers_each_sample_once_an_epoch_with_its_label(result: Any) -> None:
    count, classes = result["dataset"]["samples"], result["dataset"]["classes"]
    of_each_class = [len(range(label, count, classes)) for label in range(classes)]
    assert {run["kind"] for run in result["runs"]} == KINDS
    for run in result["runs"]:
        assert len(run["epochs"]) == 2
        for epoch in run["epochs"]:
            assert epoch["once"], run["kind"]
            # Labels are numbered by sorted class folder, and images dealt to them in that order.
            assert epoch["labels"] == of_each_class, run["kind"]


def test_torch_and_headrace_learn_alike(result: Any) -> None:
    summaries = result["summary"].values()
    for summary in summaries:
        assert summary["loss"] < summary["loss_first"]
    losses = [summary["loss"] for summary in summaries]
    assert max(losses) - min(losses) < 0.3


def test_dataset_and_pack_are_used_again(demo: tuple[Path, str]) -> None:
    out, printed = demo
    assert "(found)" not in printed
    images = {file: file.stat().st_mtime_ns for file in (out / "dataset").rglob("*.jpg")}
    packed = {file: file.stat().st_mtime_ns for file in (out / "pack").rglob("*")}
    assert run_demo(out, "--only-prepare").count("(found)") == 2
    assert images == {file: file.stat().st_mtime_ns for file in images}
    assert packed == {file: file.stat().st_mtime_ns for file in packed}


def test_a_folder_that_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mine").write_text("precious")
    command = [sys.executable, DEMO / "demo.py", "--quick", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1
    assert "not a dataset of this demo" in done.stderr
    assert (tmp_path / "dataset" / "mine").read_text() == "precious"
