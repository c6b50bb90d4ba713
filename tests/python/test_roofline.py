"""benchmarks/roofline: the program runs on a small file and tells what it measured."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FILE_BYTES = 4 * 2**20
pytestmark = pytest.mark.house  # `make check` builds the benchmarks.
QUICK = ("--seconds", "0.02", "--rounds", "1", "--block", "4K,100K", "--depth", "4")


@pytest.fixture
def roofline(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from roofline import bound

    if not bound.PROGRAM.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{bound.PROGRAM} was not built")
        pytest.skip("needs the release build of the benchmarks")
    return bound


@pytest.fixture
def file(roofline: Any, tmp_path: Path) -> Path:
    """Made by the program, on a file system whose pages can leave the page cache."""
    path = tmp_path / "data.bin"
    command = [roofline.PROGRAM, path, "--make", "4M", *QUICK, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode == 1:
        for row in json.loads(done.stdout)["rows"]:
            for cell in row["cells"].values():
                if "page cache holds" in cell.get("reason", ""):
                    pytest.skip(cell["reason"])
                if "io_uring" in cell.get("reason", ""):
                    pytest.skip(cell["reason"])
    assert done.returncode == 0, done.stderr
    return path


def cells(found: dict[str, Any]) -> dict[tuple[str, str, int, str], dict[str, Any]]:
    return {
        (row["phase"], row["pattern"], row["block_bytes"], name): cell
        for row in found["rows"]
        for name, cell in row["cells"].items()
    }


def test_a_file_that_is_not_there_is_made_of_bytes_that_cannot_be_compressed(file: Path) -> None:
    import zlib

    data = file.read_bytes()
    assert len(data) == FILE_BYTES
    assert len(zlib.compress(data)) > 0.99 * FILE_BYTES


@pytest.mark.parametrize(
    ("phase", "patterns", "names"),
    [
        ("cold", ["random", "sequential"], ["store", "ring"]),
        ("warm", ["random", "sequential"], ["store", "pread", "gather"]),
        ("memory", ["random"], ["copy", "checksum", "copy_checksum"]),
    ],
)
def test_each_phase_measures_its_cells(
    roofline: Any, file: Path, phase: str, patterns: list[str], names: list[str]
) -> None:
    found = roofline.measure([file], f"--{phase}", *QUICK)
    assert found["benchmark"] == "roofline"
    assert found["files"] == [str(file)]
    assert found["file_bytes"] == FILE_BYTES
    measured = cells(found)
    assert sorted(measured) == sorted(
        (phase, pattern, block, name)
        for pattern in patterns
        for block in (4096, 102400)
        for name in names
    )
    for cell in measured.values():
        assert cell["state"] == "reading"
        assert cell["readings_MB_per_s"] == [cell["MB_per_s"]]
        assert cell["MB_per_s"] > 0
        assert cell["blocks_per_s"] > 0
        assert cell["cpu_us_per_block"] > 0
    for row in found["rows"]:
        block = row["block_bytes"]
        for cell in row["cells"].values():
            assert cell["MB_per_s"] == pytest.approx(
                cell["blocks_per_s"] * block / 1e6, rel=0.01, abs=0.05
            )


def test_readings_that_do_not_agree_give_no_figure(roofline: Any, file: Path) -> None:
    found = roofline.measure([file], "--warm", *QUICK, "--rounds", "5", "--range", "0")
    for cell in cells(found).values():
        assert cell["state"] == "discarded"
        assert cell["range"] > 0
        assert len(cell["readings_MB_per_s"]) == 5
        assert "MB_per_s" not in cell


def test_a_file_that_stays_in_the_page_cache_gives_no_cold_figure(
    roofline: Any, tmp_path: Path
) -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("no file system in memory")
    path = memory / f"headrace-roofline-{os.getpid()}"
    try:
        path.write_bytes(bytes(FILE_BYTES))
        with pytest.raises(RuntimeError, match="the page cache holds 1024 of the files' 1024"):
            roofline.measure([path], "--cold", *QUICK)
    finally:
        path.unlink()


def test_the_benchmarks_bound_is_a_rate_for_each_depth(roofline: Any, file: Path) -> None:
    reads = roofline.Roofline([file, file], 98304)
    best, rates = reads.best_depth((2, 4), 0.02)
    assert set(rates) == {2, 4}
    assert rates[best] == max(rates.values()) > 0
    assert reads.run(2, 0.02) > 0
    assert reads.run_sequential(2, 0.02) > 0
