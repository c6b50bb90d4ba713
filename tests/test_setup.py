"""tools/setup.sh: the demo gets no tools of the checks; each environment is made once."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS_OF_CHECKS = re.compile("clang|llvm|fio|valgrind|ibverbs|rdma|ruff|mypy")
TOOLS_OF_TESTS = re.compile("gtest|gmock|pytest")
FILES = ("requirements.txt", "requirements-tests.txt", "requirements-checks.txt")


def packages_of(which: str) -> list[str]:
    command = [ROOT / "tools" / "setup.sh", "--list", which]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    return done.stdout.split()


def pinned(name: str) -> set[str]:
    text = (ROOT / "tools" / name).read_text(encoding="utf-8")
    return {each.lower().replace("_", "-") for each in re.findall(r"(?m)^([\w.-]+)==", text)}


def test_building_needs_no_tool_of_the_tests_and_these_none_of_the_checks() -> None:
    for name in (*packages_of("build"), *pinned("requirements.txt")):
        assert not TOOLS_OF_TESTS.search(name)
        assert not TOOLS_OF_CHECKS.search(name)
    for name in (*packages_of("tests"), *pinned("requirements-tests.txt")):
        assert not TOOLS_OF_CHECKS.search(name)


def test_each_purpose_needs_all_of_the_one_before_and_more() -> None:
    assert set(packages_of("build")) < set(packages_of("tests")) < set(packages_of("checks"))
    assert any(TOOLS_OF_TESTS.search(name) for name in packages_of("tests"))
    assert any(TOOLS_OF_CHECKS.search(name) for name in packages_of("checks"))


def test_no_package_is_pinned_in_two_files() -> None:
    pins = [pinned(name) for name in FILES]
    assert all(pins)
    assert len(set.union(*pins)) == sum(map(len, pins))


def chosen_of(alternatives: list[str]) -> str:
    """The first that this distribution has; the last is not asked for."""
    for name in alternatives[:-1]:
        command = ["apt-cache", "show", name]
        if subprocess.run(command, capture_output=True, timeout=280, check=False).returncode == 0:
            return name
    return alternatives[-1]


def simulated_install(packages: list[str]) -> list[str]:
    """What apt would install on a machine that has no package at all."""
    chosen = [chosen_of(group.split("|")) for group in packages]
    command = ["apt-get", "install", "--simulate", "--no-install-recommends"]
    # Simulating needs no rights, and an empty status file says that nothing is installed.
    command += ["-o", "Dir::State::status=/dev/null"]
    # apt would keep its cache of that state where the machine's is.
    command += ["-o", "Dir::Cache::pkgcache=", *chosen]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode != 0:
        pytest.skip(f"apt cannot simulate it here (no package lists?): {done.stderr.strip()}")
    return re.findall(r"(?m)^Inst (\S+)", done.stdout)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")
def test_a_bare_machine_gets_no_tool_of_the_checks_through_dependencies_either() -> None:
    installed = simulated_install(packages_of("tests"))
    assert {"g++", "liburing-dev", "libspng-dev", "libgtest-dev"} <= set(installed)
    assert not [name for name in installed if TOOLS_OF_CHECKS.search(name)]


class Checkout:
    """A checkout with stand-ins for dpkg-query and for the Python of its environment."""

    def __init__(self, root: Path) -> None:
        self.tools = root / "tools"
        self.tools.mkdir(parents=True)
        for name in ("setup.sh", *FILES):
            shutil.copy(ROOT / "tools" / name, self.tools)
        self._calls = root / "calls"
        calls = shlex.quote(str(self._calls))
        self._write(root / ".venv" / "bin" / "python", f'echo "$@" >>{calls}')
        self._write(root / "path" / "dpkg-query", "echo installed")
        self._path = f"{root / 'path'}:{os.environ['PATH']}"

    @staticmethod
    def _write(file: Path, script: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def setup(self, which: str) -> list[str]:
        """The requirement files that pip was called with."""
        self._calls.write_text("")
        environment = {**os.environ, "PATH": self._path, "VENV": ".venv"}
        command = [self.tools / "setup.sh", which]
        subprocess.run(command, env=environment, timeout=280, check=True, capture_output=True)
        return re.findall(r"-m pip install .*-r tools/(\S+)", self._calls.read_text())


def test_an_environment_for_building_is_extended_and_serves_for_building_then(
    tmp_path: Path,
) -> None:
    checkout = Checkout(tmp_path)
    assert checkout.setup("build") == ["requirements.txt"]
    assert checkout.setup("build") == []
    assert checkout.setup("tests") == ["requirements-tests.txt"]
    assert checkout.setup("checks") == ["requirements-checks.txt"]
    assert checkout.setup("tests") == checkout.setup("checks") == []
    assert checkout.setup("build") == []


def test_what_changed_is_installed_again_and_nothing_else(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    assert checkout.setup("checks") == list(FILES)
    for name in FILES:
        with open(checkout.tools / name, "a", encoding="utf-8") as file:
            file.write("one-more==1.0\n")
        assert checkout.setup("checks") == [name]
        assert checkout.setup("checks") == []
