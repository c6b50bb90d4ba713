"""What passed once is checked again as soon as anything that it is made from changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import run_clang_tidy
from run_clang_tidy import Unit


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_clang_tidy, "system_packages", lambda: b"gcc 12")
    root = tmp_path / "project"
    texts = {
        ".clang-tidy": "",
        "tool": tool(root),
        "a.cc": '#include "a.h"\n#include <vector>\n',
        "b_test.cc": "",
        "a.h": '  # include "b/b.h"\n',
        "src/b/b.h": '#include "c.h"\n#include "gone.h"\n',
        "src/b/c.h": '#include "b/b.h"\n',
        "src/b/other.h": "",
    }
    monkeypatch.setattr(run_clang_tidy, "ROOT", root)
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tool").chmod(0o755)
    return root


def tool(root: Path, version: str = "14") -> str:
    """As pip installs one: its text names the environment, and not the version."""
    return f"#!/bin/sh\n# {root}/.venv/bin/python\necho version {version}\n"


def key(project: Path, options: str = "") -> str:
    for cached in (run_clang_tidy.digest, run_clang_tidy.includes, run_clang_tidy.version):
        cached.cache_clear()
    sources = (project / "a.cc", project / "b_test.cc")
    unit = Unit(sources, f"clang++ {options} -I{project}/src -c {project}/a.cc")
    return run_clang_tidy.key(unit, str(project / "tool"))


@pytest.mark.parametrize(
    "name", [".clang-tidy", "a.cc", "b_test.cc", "a.h", "src/b/b.h", "src/b/c.h"]
)
def test_a_change_of_any_input_changes_the_key(project: Path, name: str) -> None:
    before = key(project)
    assert key(project) == before
    path = project / name
    path.write_text(path.read_text() + "// changed")
    assert key(project) != before


def test_a_change_of_the_command_the_tool_or_a_package_changes_the_key(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(project)
    assert key(project, "-O2") != before
    (project / "tool").write_text(tool(project, version="15"))
    assert key(project) != before
    (project / "tool").write_text(tool(project))
    assert key(project) == before
    monkeypatch.setattr(run_clang_tidy, "system_packages", lambda: b"other")
    assert key(project) != before


def test_another_clone_has_the_same_key(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(project)
    clone = tmp_path_factory.mktemp("clone") / "project"
    shutil.copytree(project, clone)
    (clone / "tool").write_text(tool(clone))
    monkeypatch.setattr(run_clang_tidy, "ROOT", clone)
    assert key(clone) == before


def test_a_file_that_is_not_included_does_not_count(project: Path) -> None:
    before = key(project)
    (project / "src" / "b" / "other.h").write_text("changed")
    assert key(project) == before


def test_tests_of_a_folder_are_checked_together_and_other_files_alone(project: Path) -> None:
    names = ["a.cc", *(f"src/b/{number}_test.cc" for number in range(12)), "src/c_test.cc"]
    entries = []
    for name in names:
        (project / name).touch()
        command = f"clang++ -DX -o {name}.o -c {project / name}"
        entries.append({"directory": str(project), "file": name, "command": command})
    (project / "compile_commands.json").write_text(json.dumps(entries))
    found = run_clang_tidy.units(project)
    assert [len(unit.sources) for unit in found] == [1, 10, 2, 1]
    assert [unit.name for unit in found[:2]] == ["a.cc", "src/b/*_test.cc"]
    assert {tuple(unit.flags) for unit in found} == {("-DX",)}
    assert [bool(unit.options) for unit in found] == [False, True, True, True]
    assert {str(source.relative_to(project)) for unit in found for source in unit.sources} == {
        *names
    }
