"""What passed once is checked again as soon as anything that it is made from changes."""

from __future__ import annotations

from pathlib import Path

import pytest

import run_clang_tidy
from run_clang_tidy import Unit


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_clang_tidy, "ROOT", tmp_path)
    for name in (".clang-tidy", "tool", "a.cc", "a.h"):
        (tmp_path / name).write_text(name)
    return tmp_path


def key(project: Path, command: str = "clang++ -c a.cc") -> str:
    run_clang_tidy.digest.cache_clear()
    unit = Unit(project / "a.cc", "a.o", command)
    return run_clang_tidy.key(unit, [project / "a.h"], str(project / "tool"))


@pytest.mark.parametrize("name", [".clang-tidy", "tool", "a.cc", "a.h"])
def test_a_change_of_any_input_changes_the_key(project: Path, name: str) -> None:
    before = key(project)
    assert key(project) == before
    (project / name).write_text("changed")
    assert key(project) != before


def test_a_change_of_the_command_changes_the_key(project: Path) -> None:
    assert key(project, "clang++ -O2 -c a.cc") != key(project)


def test_headers_of_a_stale_record_or_that_are_gone_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    (tmp_path / "a.h").touch()
    log.write_text(
        "a.o: #deps 1 (VALID)\n    a.h\n\nb.o: #deps 1 (STALE)\n    a.h\n\n"
        "c.o: #deps 3 (VALID)\n    a.h\n    gone.h\n    a.h\n"
    )
    ninja = tmp_path / "ninja"
    ninja.write_text(f"#!/bin/sh\ncat '{log}'\n")
    ninja.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run_clang_tidy.recorded_headers(tmp_path) == {"a.o": [tmp_path / "a.h"]}
