"""Every rule of tools/tidy.py refuses its violation, planted in a small tree that it accepts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidy

ROOT = Path(__file__).resolve().parent.parent

CLEAN = {
    "cmake/Headrace.cmake": (
        'set(HEADRACE_MAY_USE_base "")\n'
        "set(HEADRACE_MAY_USE_plan base)\n"
        "set(HEADRACE_MAY_USE_store base)\n"
        "set(HEADRACE_MAY_USE_runtime base plan store)\n"
    ),
    "src/base/CMakeLists.txt": "headrace_library(base\n  SRCS ids.cc)\nheadrace_test(ids_test)\n",
    "src/base/ids.h": "#pragma once\n",
    "src/base/ids.cc": '#include "base/ids.h"\n',
    "src/base/ids_test.cc": '#include "gtest/gtest.h"\n',
    "src/plan/CMakeLists.txt": "headrace_test(order_test DEPS plan)\n",
    "src/plan/order_test.cc": "",
    "src/plan/order.h": '#pragma once\n#include "base/ids.h"\n',
    "src/runtime/threads.h": "#pragma once\nstd::jthread worker;\n",
    "python/headrace/cli.py": "tensor.detach()\n",
}


def findings(root: Path, planted: dict[str, str]) -> list[str]:
    for path, text in {**CLEAN, **planted}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return [str(finding) for finding in tidy.check(root)]


def test_accepts_a_clean_tree(tmp_path: Path) -> None:
    assert findings(tmp_path, {}) == []


HEADER = "#pragma once\n"

VIOLATIONS = [
    ("src/base/a.h", HEADER + '#include "plan/order.h"\n', 2, "'base' may not use 'plan'"),
    ("src/plan/a.h", HEADER + '# include "store/s.h"\n', 2, "use 'store' (allowed: base)"),
    ("src/plan/a.h", HEADER + "#include <store/s.h>\n", 2, "'plan' may not use 'store'"),
    ("src/plan/order_test.cc", '#include "store/s.h"\n', 1, "'plan' may not use 'store'"),
    ("src/novel/a.h", HEADER, 1, "layer 'novel' has no row in cmake/Headrace.cmake"),
    (
        "src/base/testing/a.h",
        HEADER + '#include "plan/order.h"\n',
        2,
        "'base' may not use 'plan'",
    ),
    ("src/base/a.h", HEADER + '#include "base/testing/a.h"\n', 2, "test double outside tests"),
    ("src/base/a.h", HEADER + "\n" * 300, 301, "301 lines, limit 300"),
    ("src/base/ids.cc", "\n" * 601, 601, "601 lines, limit 600"),
    ("python/headrace/a.py", "\n" * 501, 501, "501 lines, limit 500"),
    ("ARCHITECTURE.md", "\n" * 301, 301, "301 lines, limit 300"),
    ("src/base/a.h", "// #pragma once\n", 1, "header without #pragma once"),
    ("src/base/forgotten.cc", "", 1, "not named in a CMakeLists.txt"),
    ("src/base/forgotten_test.cc", "", 1, "not named in a CMakeLists.txt: headrace_test("),
    ("src/base/forgotten_fuzz.cc", "", 1, "not named in a CMakeLists.txt: headrace_fuzz("),
    ("src/plan/order.cc", "", 1, "not named in a CMakeLists.txt"),
    ("python/headrace/test_cli.py", "def test_it():\n", 1, "pytest reads only tests/"),
    ("tests/cli_checks.py", "\nasync def test_it():\n", 2, "pytest reads only tests/"),
    ("src/base/a.h", HEADER + "// FIXME\n", 2, "marker"),
    ("cmake/A.cmake", "# TODO: later\n", 1, "marker"),
    ("src/base/a.h", HEADER + "std::cout << 1;\n", 2, "std::cout"),
    ("src/runtime/a.h", HEADER + "worker.detach();\n", 2, "detached thread"),
    ("src/base/a.h", HEADER + "std::default_random_engine r;\n", 2, "order differs by library"),
    ("src/base/a.h", HEADER + "std::mt19937_64 r;\n", 2, "order differs by library"),
    ("src/base/a.h", HEADER + "std::shuffle(a, b, r);\n", 2, "order differs by library"),
    ("src/base/a.h", HEADER + "std::uniform_int_distribution<int> d;\n", 2, "order differs"),
    ("src/plan/a.h", HEADER + "std::this_thread::sleep_for(1s);\n", 2, "sleep"),
    ("src/base/ids_test.cc", "std::this_thread::sleep_for(1s);\n", 1, "sleep"),
    ("tests/test_a.py", "time.sleep(1)\n", 1, "sleep"),
    ("src/plan/a.h", HEADER + "std::thread t;\n", 2, "thread: only runtime/"),
    ("src/base/a.h", HEADER + "std::jthread t;\n", 2, "thread: only runtime/"),
    ("src/base/a.h", HEADER + "auto f = std::async(g);\n", 2, "thread: only runtime/"),
    ("src/base/a.h", HEADER + "int a;  // NOLINT\n", 2, "NOLINT must say"),
    ("src/base/a.h", HEADER + "int a;  // NOLINT: because\n", 2, "NOLINT must say"),
    ("src/base/a.h", HEADER + "// NOLINTNEXTLINE(bugprone-x)\n", 2, "NOLINT must say"),
    ("src/base/a.h", HEADER + "// NOLINTBEGIN(bugprone-x)\n", 2, "NOLINT must say"),
    ("src/base/a.h", HEADER + "// NOLINTEND\n", 2, "NOLINTEND must name"),
    ("src/base/ids_test.cc", "TEST(IdsTest, DISABLED_AreTypes)\n", 1, "disabled"),
    ("src/base/a.h", HEADER + "#if 0\n", 2, "disabled"),
    ("tests/test_a.py", "@pytest.mark.skip(reason='slow')\n", 1, "disabled"),
    ("tests/test_a.py", "@pytest.mark.xfail\n", 1, "disabled"),
    ("src/store/CMakeLists.txt", "set_tests_properties(a PROPERTIES DISABLED ON)\n", 1, "disabled"),
    ("src/store/CMakeLists.txt", "file(GLOB sources *.cc)\n", 1, "glob"),
    ("src/base/a.h", HEADER + "#include <Python.h>\n", 2, "Python outside bindings/"),
    ("src/base/a.h", HEADER + '#include "nanobind/nanobind.h"\n', 2, "Python outside bindings/"),
    ("bindings/a.h", HEADER + "#include <nanobind/stl/string.h>\n", 2, "use bindings/convert"),
    ("src/base/a.h", HEADER + "#include <absl/status/status.h>\n", 2, "gRPC and Abseil"),
    ("docs/a.md", "see /home/somebody/data\n", 1, "path of one machine"),
    (".ci/run", "cd /root/x\n", 1, "path of one machine"),
]


@pytest.mark.parametrize(("path", "text", "line", "rule"), VIOLATIONS)
def test_refuses_a_violation_and_says_where(
    tmp_path: Path, path: str, text: str, line: int, rule: str
) -> None:
    found = findings(tmp_path, {path: text})
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}:{line}: ")
    assert rule in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/plan/a.h", HEADER + "unsigned n = std::thread::hardware_concurrency();\n"),
        ("src/base/clock.h", HEADER + "std::this_thread::sleep_for(pause);\n"),
        ("src/base/ids_test.cc", "std::jthread racer;\n"),
        ("src/base/a.h", HEADER + "int a;  // NOLINT(bugprone-x): it is so\n"),
        ("src/base/a.h", HEADER + "// NOLINTBEGIN(bugprone-x): why\n// NOLINTEND(bugprone-x)\n"),
        ("tests/test_a.py", "@pytest.mark.skipif(no_torch, reason='optional')\ndef test_it():\n"),
        ("src/base/ids_test.cc", '#include "base/testing/a.h"\n'),
        ("src/base/clock_conformance.h", HEADER + '#include "base/testing/a.h"\n'),
        ("src/base/testing/a.h", HEADER + '#include "base/testing/b.h"\n'),
        ("src/base/testing/a.h", HEADER + '#include "base/ids.h"\nstd::jthread worker;\n'),
        ("bindings/module.h", HEADER + "#include <nanobind/nanobind.h>\n"),
        ("docs/a.md", "see ~/home/data and src/root/a and https://a.b/home/c\n"),
        ("build/dev/a.h", "FIXME\n"),
        (".venv/lib/a.py", "FIXME\n"),
    ],
)
def test_accepts_what_only_looks_like_one(tmp_path: Path, path: str, text: str) -> None:
    assert findings(tmp_path, {path: text}) == []


def test_refuses_a_folder_of_sixteen_modules_not_counting_tests(tmp_path: Path) -> None:
    fifteen = {f"python/headrace/m{n}.py": "" for n in range(14)}  # and cli.py
    tests = {f"tests/test_{n}.py": "" for n in range(20)}
    assert findings(tmp_path, {**fifteen, **tests}) == []
    assert findings(tmp_path, {"python/headrace/one_more.py": ""}) == [
        "python/headrace:1: 16 modules in one folder, limit 15: split it"
    ]


CIRCLES = [
    ({"a.py": "import p.b\n", "b.py": "\nimport p.a\n"}, "p/a.py:1: .*p.a -> p.b -> p.a"),
    (
        {"a.py": "from p import b\n", "b.py": "from p.c import X\n", "c.py": "from p import a\n"},
        "p/a.py:1: .*p.a -> p.b -> p.c -> p.a",
    ),
    ({"a.py": "if TYPE_CHECKING:\n    from .b import X\n", "b.py": "import p.a\n"}, "p/a.py:2: "),
    ({"a.py": "def f():\n    from . import b\n", "b.py": "from .a import f\n"}, "p/a.py:2: "),
    ({"__init__.py": "from p import a\n", "a.py": "from p import NAME\n"}, "p/__init__.py:1: "),
    (
        {"q/__init__.py": "from . import x\n", "q/x.py": "from p.q import Y\n"},
        "p/q/__init__.py:1: ",
    ),
]


@pytest.mark.parametrize(("modules", "told"), CIRCLES)
def test_refuses_modules_that_import_each_other(
    tmp_path: Path, modules: dict[str, str], told: str
) -> None:
    (found,) = findings(tmp_path, {f"python/p/{path}": text for path, text in modules.items()})
    assert re.match(f"python/{told}", found), found


def test_modules_may_import_in_one_direction_and_from_a_package_what_is_a_module(
    tmp_path: Path,
) -> None:
    planted = {
        "python/p/__init__.py": "from p import _core, a, b\n",
        "python/p/_core.pyi": "",
        "python/p/a.py": "from p import _core, b\nimport os\nfrom p.b import X\n",
        "python/p/b.py": "from p import _core\n",
    }
    assert findings(tmp_path, planted) == []


def test_a_name_in_a_comment_of_a_cmakelists_does_not_count(tmp_path: Path) -> None:
    planted = {
        "src/store/CMakeLists.txt": "# order.cc\nheadrace_library(store SRCS disorder.cc)\n",
        "src/store/order.cc": "",
    }
    assert findings(tmp_path, planted) == ["src/store/order.cc:1: not named in a CMakeLists.txt"]


def test_the_command_prints_findings_and_exits_with_1(tmp_path: Path) -> None:
    findings(tmp_path, {"src/base/a.h": ""})
    command = [sys.executable, str(ROOT / "tools" / "tidy.py"), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (
        1,
        "src/base/a.h:1: header without #pragma once\n",
    )
