"""The stages of `make test` and `make check`, in order, and how long each may take.

`make test` is for people: what is shipped, and whether it works here. `make check` is the rest.
Together they are everything; no test is in both.
"""

from __future__ import annotations

from typing import NamedTuple

# Tests of the package that `make test` leaves to `make check`; tests/conftest.py marks them.
CHECK_ONLY = "foreign or house or long"


class Stage(NamedTuple):
    """One row of the table. Its command is a line for bash, run in the root of the project."""

    name: str
    command: str
    cold_s: int  # its budget with empty caches, on two idle cores; more is noted, not refused
    warm_s: int  # and where nothing that it builds has changed
    needs: tuple[str, ...] = ()  # stages of the same run: not run if one of these failed
    runner: str = ""  # "pytest" or "ctest": it leaves a list of its tests
    # It waits for the network: begins with the run, and is waited for at its place.
    beside: bool = False


def build(preset: str, target: str = "all") -> str:
    """Configures and builds; what configuring prints is shown if it fails."""
    log = f"build/configure-{preset}.log"
    return (
        f"{{ cmake --preset {preset} >{log} 2>&1 || {{ cat {log}; false; }}; }}"
        f" && cmake --build --preset {preset} --target {target}"
    )


def ctest(preset: str) -> str:
    return f"ctest --preset {preset} --output-junit ../ctest-{preset}.xml"


def pytest(marks: str) -> str:
    """A file's tests stay in one process: what they share is made once."""
    return (
        f"pytest -W error -m '{marks}' --dist loadfile --no-loadscope-reorder"
        " --durations=20 --durations-min=1"
    )


# Debian's clang: the bindings, too, as clang-tidy sees what dev compiles.
CLANG_TIDY = (
    '{ cmake --preset dev -D HEADRACE_PYTHON=ON -D Python_EXECUTABLE="$VENV/bin/python"'
    " >build/configure-dev.log 2>&1 || { cat build/configure-dev.log; false; }; }"
    " && cmake --build build/dev --target headrace_generated"
    " && python tools/run_clang_tidy.py --build build/dev"
    " --jobs $CMAKE_BUILD_PARALLEL_LEVEL"
)

TEST = (
    Stage("package", "tools/build_python.sh", 180, 5),
    Stage("build-release", build("release", "headrace_tests"), 250, 5),
    Stage("ctest-release", ctest("release"), 65, 65, ("build-release",), "ctest"),
    Stage("pytest", pytest(f"not ({CHECK_ONLY})"), 235, 215, ("package",), "pytest"),
)

LINT = (
    Stage("ruff", "ruff check .", 3, 2),
    Stage("ruff-format", "ruff format --check .", 3, 2),
    Stage("tidy", "python tools/tidy.py", 10, 10),
    Stage("format", "python tools/check_format.py", 5, 5),
    Stage("mypy", "mypy --strict", 35, 5),
    Stage("clang-tidy", CLANG_TIDY, 580, 5),
)

CHECK = (
    *LINT,
    Stage("build-asan", build("asan"), 425, 5),
    Stage("ctest-asan", ctest("asan"), 285, 285, ("build-asan",), "ctest"),
    Stage("build-tsan", build("tsan"), 190, 5),
    Stage("ctest-tsan", ctest("tsan"), 80, 80, ("build-tsan",), "ctest"),
    Stage("build-bench", build("release"), 35, 5),
    Stage("instructions", "python benchmarks/instructions/instructions.py", 5, 5, ("build-bench",)),
    Stage("package-check", "tools/build_python.sh", 3, 3),
    Stage("environments", "python tools/package_env.py --all", 5, 5, beside=True),
    Stage("pytest-check", pytest(CHECK_ONLY), 690, 690, ("package-check",), "pytest"),
)

RUNS = {"test": TEST, "lint": LINT, "check": CHECK}
