"""tools/soak.sh and tools/repeat_tests.py, which it calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import repeat_tests

ROOT = Path(__file__).parents[1]


def soak(folder: Path, *stages: str, **variables: str) -> tuple[int, list[str]]:
    """The exit status, and what its programs were called with: stand-ins that end at once."""
    programs = folder / "bin"
    programs.mkdir()
    calls = folder / "calls"
    for name in ("python", "pytest"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $* ${{HEADRACE_SOAK:-short}}" >> {calls}\n')
        program.chmod(0o755)
    ended = subprocess.run(
        ["tools/soak.sh", *stages],
        cwd=ROOT,
        env={**os.environ, "VENV": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, calls.read_text().splitlines() if calls.exists() else []


def test_a_stage_repeats_tests_as_they_are(tmp_path: Path) -> None:
    called = ["python tools/repeat_tests.py 3 short"]
    assert soak(tmp_path, "again", HEADRACE_ROUNDS="3") == (0, called)


def test_the_others_make_tests_long(tmp_path: Path) -> None:
    called = ["pytest -W error tests/python/test_node_kills.py 1"]
    assert soak(tmp_path, "kills") == (0, called)


def test_a_stage_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert soak(tmp_path, "agian") == (2, [])


def test_the_stage_goes_back_to_its_group_of_slow_disks() -> None:
    cgroups = "8:pids:/\n7:blkio,io:/jobs/a:b\n0::/other\n"
    assert repeat_tests.group_of(cgroups) == "jobs/a:b"
    assert repeat_tests.group_of("7:blkio:/\n") == ""
    with pytest.raises(ProcessLookupError, match="cgroup 1 is not mounted"):
        repeat_tests.group_of("0::/\n")


@pytest.mark.parametrize("own", ["", "jobs/own"])
def test_a_busy_round_leaves_the_process_in_its_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    (tmp_path / own).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(repeat_tests, "SLOW_DISK", tmp_path / "slow")
    monkeypatch.setattr(repeat_tests, "group_of", lambda _: own)
    with repeat_tests.beside(busy=True):
        assert (tmp_path / "slow" / "cgroup.procs").read_text() == str(os.getpid())
        assert not (tmp_path / own / "cgroup.procs").exists()
    assert (tmp_path / own / "cgroup.procs").read_text() == str(os.getpid())
