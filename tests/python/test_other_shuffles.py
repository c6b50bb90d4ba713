"""Logs of other loaders, the real packages, are made and graded as docs/other-shuffles.md says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_scripts import real_packages

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SHUFFLES = ROOT / "benchmarks" / "shuffles"
PAGE = ROOT / "docs" / "other-shuffles.md"
SAMPLES, SHARD, EPOCHS = 2000, 100, 2  # of --quick


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program that finds the packages: not each test's own cache folder."""
    # They leave files in the folder for temporary ones.
    found = os.environ | {"TMPDIR": str(tmp_path_factory.mktemp("theirs"))}
    for name in ("loaders", "trainers"):
        real_packages(name)
    return found


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SHUFFLES))
    import other_shuffles

    return other_shuffles


def measured(folder: Path, env: dict[str, str], *rows: str) -> dict[str, dict[str, Any]]:
    """What a quick run says of each row."""
    command = [sys.executable, SHUFFLES / "other_shuffles.py", "--quick", "--data", folder]
    command += ["--only", *rows]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=500, env=env
    )
    assert done.returncode == 0, done.stderr
    found = {row["row"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert list(found) == list(rows)
    return found


def log_of(folder: Path, row: str) -> np.ndarray[Any, Any]:
    """Each epoch a line; every sample is in it once."""
    epochs = np.load(folder / str(SAMPLES) / f"{row}.npy").reshape(EPOCHS, SAMPLES)
    for epoch in epochs:
        assert sorted(epoch) == list(range(SAMPLES)), row
    return epochs


@pytest.mark.timeout(300)
def test_torch_s_shuffles_are_graded_by_what_they_deliver(tmp_path: Path) -> None:
    rows = ("torch-shuffled", "torch-in-order", "torch-ranks-same-epoch", "torch-buffer")
    found = measured(tmp_path, dict(os.environ), *rows)
    logs = {row: log_of(tmp_path, row) for row in rows}
    assert {row: found[row]["grade"] for row in rows} == {
        "torch-shuffled": "excellent",
        "torch-in-order": "poor",
        "torch-ranks-same-epoch": "poor",
        "torch-buffer": "poor",
    }
    assert logs["torch-in-order"].tolist() == [list(range(SAMPLES))] * EPOCHS
    same = logs["torch-ranks-same-epoch"]
    assert same[0].tolist() == same[1].tolist()
    assert found["torch-ranks-same-epoch"]["because"] == ["batches_alike", "epochs_alike"]
    # A batch is of one worker, which has every second shard.
    first = set(logs["torch-buffer"][0][:256] // SHARD)
    assert len(first) == SAMPLES // SHARD // 2
    for row in rows:  # Labels that are spread over the shards are mixed by any loader.
        assert found[row]["label_grade_shuffled"] == "excellent"
        assert found[row]["command"].endswith(f" --ids {row}.npy --epochs {EPOCHS} --batch 256")


@pytest.mark.timeout(900)
def test_other_packages_shuffles_are_graded_by_what_they_deliver(
    packages: dict[str, str], tmp_path: Path
) -> None:
    rows = ("webdataset-mixed", "litdata", "hugging-face", "mosaicml")
    found = measured(tmp_path, packages, *rows)
    logs = {row: log_of(tmp_path, row) for row in rows}
    assert {row: found[row]["grade"] for row in rows} == dict.fromkeys(rows, "poor") | {
        "mosaicml": "excellent"
    }
    assert found["webdataset-mixed"]["batch_inflation"] < found["litdata"]["batch_inflation"]
    # Whole chunks, another one first in each epoch.
    assert set(logs["litdata"][0][:SHARD] // SHARD) != set(logs["litdata"][1][:SHARD] // SHARD)


def test_the_page_shows_the_newest_result(program: Any) -> None:
    lines = (ROOT / "benchmarks" / "results" / "other_shuffles.jsonl").read_text().splitlines()
    newest = json.loads(lines[-1])
    page = PAGE.read_text()
    generated = page.partition(program.BEGIN)[2].partition(program.END)[0]
    assert generated.strip() == program.text(newest).strip()
    assert [row["row"] for row in newest["rows"]] == list(program.ROWS)
    pinned = (ROOT / "tools" / "envs" / "loaders.txt").read_text()
    for package, version in newest["versions"].items():
        if package not in ("torch", "headrace"):
            assert re.search(rf"^{package}=={re.escape(version)}$", pinned, re.MULTILINE)
