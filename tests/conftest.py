"""What holds for all tests: their order, which of them `make check` has alone, what they may leave,
and a list of failures for tools/stages."""

from __future__ import annotations

import json
import math
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import leftovers
import pytest
from message_recorder import Recorder

from stages import times
from stages.failures import holds_data, why_final

TESTS = Path(__file__).parent

# Their assertions are explained as those of tests, and comparisons of data are known as such.
_HELPERS = {
    path.stem for path in TESTS.rglob("*.py") if not path.stem.startswith(("test_", "conf"))
}
pytest.register_assert_rewrite(*sorted(_HELPERS - {"leftovers", "message_recorder", "__init__"}))

# What makes an environment of tools/envs: a test that calls one of them, or whose fixture does, is
# marked `foreign`.
_MAKE_PACKAGES = frozenset({"real_packages", "package_env", "write_with_packages"})
FOREIGN = "HEADRACE_FOREIGN"  # of the test that runs: "yes" or "no"

_values_differ = pytest.StashKey[bool]()
_current: list[pytest.Item] = []  # the one that runs


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "foreign: needs packages of tools/envs; `make check` alone runs it",
        "long: takes long (tests/times.json); `make check` alone runs it",
        "house: of sources, tools and benchmarks; `make check` alone runs it",
    ):
        config.addinivalue_line("markers", line)
    # No test asks a cloud's machine for credentials: such a request may take long to fail.
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    if config.rootpath == TESTS.parent:
        config.pluginmanager.register(Recorder(config))
    # Not for the processes of tests, which may run pytest themselves.
    path = os.environ.pop("HEADRACE_FAILED_LIST", None)
    if path is not None:
        config.pluginmanager.register(FailedList(Path(path)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, for all processes to end together; before them those of which
    nothing is known. HEADRACE_SHUFFLE=SEED runs the tests in a random order: none may need another
    before it."""
    seconds = times.read(TESTS / "times.json")
    of_files = times.of_files(seconds)
    for item in items:
        if item.path.parent == TESTS:
            item.add_marker("house")
        if _needs_packages(item):
            item.add_marker("foreign")
        if seconds.get(times.function_of(item.nodeid), 0) > times.LONG_S:
            item.add_marker("long")
    seed = os.environ.get("HEADRACE_SHUFFLE")
    if seed is None:
        items.sort(key=lambda item: -of_files.get(times.file_of(item.nodeid), math.inf))
    else:
        random.Random(seed).shuffle(items)


def _needs_packages(item: pytest.Item) -> bool:
    fixtures: dict[str, Any] = item._fixtureinfo.name2fixturedefs
    functions = [each[-1].func for each in fixtures.values() if each]
    functions.append(getattr(item, "function", None))
    return any(
        not _MAKE_PACKAGES.isdisjoint(_names(function.__code__))
        for function in functions
        if hasattr(function, "__code__")
    )


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function uses, those of its comprehensions, too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@pytest.fixture(autouse=True, scope="session")
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Other processes of this machine leave files in /tmp, too."""
    folder = tmp_path_factory.mktemp("t", numbered=False)
    before, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), str(folder)
    tempfile.tempdir = None
    leftovers.mark_processes()
    yield
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    tempfile.tempdir = None


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left(own_temporary_folder: None) -> Iterator[None]:
    """The tests of a file leave no process, socket, memory file or temporary file."""
    watch = leftovers.Watch()
    yield
    left = watch.left()
    watch.kill()
    assert not left, "left behind: " + "; ".join(left)


def pytest_runtest_protocol(item: pytest.Item) -> None:
    _current[:] = [item]
    os.environ[FOREIGN] = "yes" if item.get_closest_marker("foreign") else "no"


def pytest_assertrepr_compare(left: object, right: object) -> None:
    """Called for each comparison that failed: whether it is one of data."""
    if _current and (holds_data(left) or holds_data(right)):
        _current[0].stash[_values_differ] = True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if report.failed:
        values = item.stash.get(_values_differ, False)
        final = "values" if values else why_final(_text(report))
        report.user_properties.append(("final", final))


class FailedList:
    """A plugin of the process that has all reports: writes a line for each failure."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Without the property no test has failed but the process that ran it.
        final = dict(report.user_properties).get("final", "a crash")
        self._write(report, final)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._write(report, "it cannot be imported")

    def _write(self, report: pytest.TestReport | pytest.CollectReport, final: object) -> None:
        if report.failed:
            row = {"name": report.nodeid, "text": _text(report), "final": final}
            with open(self._path, "a") as file:
                file.write(json.dumps(row) + "\n")


def _text(report: pytest.TestReport | pytest.CollectReport) -> str:
    return f"{report.longreprtext}\n" + "\n".join(body for _, body in report.sections)
