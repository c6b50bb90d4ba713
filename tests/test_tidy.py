"""Every rule of tools/tidy.py refuses its violation, planted in a small tree that it accepts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidy
import tidy_classes

ROOT = Path(__file__).resolve().parent.parent

PUBLIC = "set(HEADRACE_PUBLIC_base status)\nset(HEADRACE_PUBLIC_plan options position)\n"
CLEAN = {
    "cmake/Headrace.cmake": (
        'set(HEADRACE_MAY_USE_base "")\n'
        "set(HEADRACE_MAY_USE_plan base)\n"
        "set(HEADRACE_MAY_USE_store base)\n"
        "set(HEADRACE_MAY_USE_loader base plan store)\n"
        "set(HEADRACE_MAY_USE_node_client base)\n"
        "set(HEADRACE_MAY_USE_node_server base)\n"
        "set(HEADRACE_MAY_USE_node base node_client node_server)\n"
        "set(HEADRACE_MAY_USE_loader_testing node_client)\n" + PUBLIC
    ),
    "include/headrace/status.h": "#pragma once\n#include <string>\n",
    "include/headrace/position.h": "#pragma once\n",
    "include/headrace/options.h": (
        '#pragma once\n#include "headrace/position.h"\n#include "headrace/status.h"\n'
    ),
    "examples/cpp/CMakeLists.txt": "add_executable(main main.cc)\n",
    "examples/cpp/main.cc": '#include <unistd.h>\n#include "headrace/options.h"\n',
    "src/base/CMakeLists.txt": "headrace_library(base\n  SRCS ids.cc)\nheadrace_test(ids_test)\n",
    "src/base/ids.h": "#pragma once\n",
    "src/base/ids.cc": '#include "base/ids.h"\n',
    "src/base/ids_test.cc": '#include "gtest/gtest.h"\n',
    "src/plan/CMakeLists.txt": "headrace_test(order_test DEPS plan)\n",
    "src/plan/order_test.cc": "",
    "src/plan/order.h": '#pragma once\n#include "base/ids.h"\n',
    "src/loader/threads.h": "#pragma once\nstd::jthread worker;\n",
    "src/loader/config/options.h": "#pragma once\n",
    "src/loader/session/run.h": (
        '#pragma once\n#include "loader/config/options.h"\n#include "loader/config/job.h"\n'
        '#include "loader/threads.h"\n#include "loader/source.h"\n'
    ),
    # Below everything else, a test may include what is above it.
    "src/loader/config/CMakeLists.txt": "headrace_test(options_test)\n",
    "src/loader/config/options_test.cc": '#include "loader/session/run.h"\n',
    # A row of their own lets tests and test doubles of a layer use more.
    "src/loader/CMakeLists.txt": "headrace_test(loader_test)\n",
    "src/loader/loader_test.cc": '#include "node/client/a.h"\n',
    "src/loader/testing/nodes.h": '#pragma once\n#include "node/client/a.h"\n',
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
    ("src/base/a.h", HEADER + '#include "headrace/options.h"\n', 2, "'base' may not use 'plan'"),
    (
        "include/headrace/status.h",
        HEADER + '#include "headrace/position.h"\n',
        2,
        "'base' may not use 'plan'",
    ),
    (
        "include/headrace/options.h",
        HEADER + '#include "base/ids.h"\n',
        2,
        "public header includes the private base/ids.h",
    ),
    (
        "include/headrace/options.h",
        HEADER + "#include <plan/order.h>\n",
        2,
        "public header includes the private plan/order.h",
    ),
    ("include/headrace/a.h", HEADER, 1, "public header without a row HEADRACE_PUBLIC_* in"),
    (
        "examples/cpp/main.cc",
        '#include "headrace/loader/threads.h"\n',
        1,
        "example includes the private headrace/loader/threads.h",
    ),
    ("examples/cpp/main.cc", '#include "plan/order.h"\n', 1, "example includes the private"),
    ("src/novel/a.h", HEADER, 1, "layer 'novel' has no row in cmake/Headrace.cmake"),
    (
        "src/base/testing/a.h",
        HEADER + '#include "plan/order.h"\n',
        2,
        "'base' may not use 'plan'",
    ),
    (
        "src/loader/threads.h",
        HEADER + '#include "loader/session/run.h"\n',
        2,
        "folders in a circle: loader -> loader/session -> loader",
    ),
    (
        "src/loader/testing/a.h",
        HEADER + '#include "loader/session/run.h"\n',
        2,
        "folders in a circle: loader -> loader/session -> loader",
    ),
    (
        "src/loader/config/options.h",
        HEADER + '#include "loader/planning/a.h"\n#include "loader/session/run.h"\n',
        3,
        "folders in a circle: loader/config -> loader/session -> loader/config",
    ),
    (
        "cmake/Headrace.cmake",
        'set(HEADRACE_MAY_USE_base "")\n'
        "set(HEADRACE_MAY_USE_plan base store)\n"
        "set(HEADRACE_MAY_USE_store base loader)\n"
        "set(HEADRACE_MAY_USE_loader base plan store)\n" + PUBLIC,
        1,
        "layers in a circle: loader -> store -> loader",
    ),
    ("src/base/a.h", HEADER + '#include "base/testing/a.h"\n', 2, "test double outside tests"),
    ("src/base/a.h", HEADER + '#include "base/b/testing/a.h"\n', 2, "test double outside tests"),
    (
        "src/node/client/a.h",
        HEADER + '#include "node/server/b.h"\n',
        2,
        "'node_client' may not use 'node_server' (allowed: base)",
    ),
    (
        "src/node/client/testing/a.h",
        HEADER + '#include "node/server/testing/b.h"\n',
        2,
        "'node_client' may not use 'node_server'",
    ),
    ("src/node/client/a.h", HEADER + '#include "node/main.h"\n', 2, "may not use 'node'"),
    ("src/loader/a.h", HEADER + '#include "node/client/a.h"\n', 2, "may not use 'node_client'"),
    (
        "src/loader/testing/a.h",
        HEADER + '#include "node/server/a.h"\n',
        2,
        "'loader' may not use 'node_server' (allowed: base node_client plan store)",
    ),
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
    ("bindings/a.h", HEADER + '#include "papers/a.h"\n', 2, "papers register: ask an interface"),
    ("src/loader/a.h", HEADER + "worker.detach();\n", 2, "detached thread"),
    ("src/base/a.h", HEADER + "std::default_random_engine r;\n", 2, "order differs by library"),
    ("src/base/a.h", HEADER + "std::mt19937_64 r;\n", 2, "order differs by library"),
    ("src/base/a.h", HEADER + "std::shuffle(a, b, r);\n", 2, "order differs by library"),
    ("src/base/a.h", HEADER + "std::uniform_int_distribution<int> d;\n", 2, "order differs"),
    ("src/plan/a.h", HEADER + "std::this_thread::sleep_for(1s);\n", 2, "sleep"),
    ("src/base/ids_test.cc", "std::this_thread::sleep_for(1s);\n", 1, "sleep"),
    ("tests/test_a.py", "time.sleep(1)\n", 1, "sleep"),
    ("src/plan/a.h", HEADER + "std::thread t;\n", 2, "thread: take an Executor"),
    ("src/base/a.h", HEADER + "std::jthread t;\n", 2, "thread: take an Executor"),
    ("src/base/a.h", HEADER + "auto f = std::async(g);\n", 2, "thread: take an Executor"),
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
    ("src/base/a.h", HEADER + "#include <fmt/core.h>\n", 2, "fmt in a header"),
    ("src/base/a.h", HEADER + '#include "nanobind/nanobind.h"\n', 2, "Python outside bindings/"),
    ("bindings/a.h", HEADER + "#include <nanobind/stl/string.h>\n", 2, "use bindings/convert"),
    ("src/base/a.h", HEADER + "#include <absl/status/status.h>\n", 2, "gRPC and Abseil"),
    ("python/headrace/a.py", "def __getattribute__(self, name):\n", 1, "disguise"),
    ("python/headrace/a.py", "given = frame.f_locals\n", 1, "disguise"),
    ("python/headrace/a.py", "self.__class__ = Other\n", 1, "disguise"),
    ("python/headrace/a.py", "class A:\n    def __class__(self):\n", 2, "disguise"),
    ("python/headrace/a.py", "A = {'__class__': property(kind)}\n", 1, "disguise"),
    ("python/headrace/a.py", "frame = sys._getframe(1)\n", 1, "a caller's frame"),
    ("python/headrace/a.py", "frames = inspect.stack()\n", 1, "a caller's frame"),
    ("docs/a.md", "see /home/somebody/data\n", 1, "path of one machine"),
    (".ci/run", "cd /root/x\n", 1, "path of one machine"),
    ("docs/a.md", "Threads\ncan not stop.\n", 2, "'can not' hides its meaning; write: cannot"),
    ("src/base/a.h", HEADER + "// resources that may not be had\n", 2, "'be had'"),
    ("src/base/a.h", HEADER + "// decided, and nothing of it opened\n", 2, "'nothing of it'"),
    ("python/headrace/a.py", '"""Nothing came of a run."""\n', 1, "'came of'"),
    ("src/base/a.h", HEADER + "// Inside a step that order is not told.\n", 2, "'is not told'"),
    ("src/base/a.h", HEADER + "// What the job tells of itself.\n", 2, "'tells of'"),
    ("src/base/a.h", HEADER + "// notices wait to be said\n", 2, "'be said'"),
    ("src/base/a.h", HEADER + "// Notes said together.\n", 2, "batched into one message"),
    ("src/base/a.h", HEADER + "// a second call is of no use\n", 2, "'of no use'"),
    ("python/headrace/a.py", 'E = "of no type that it may have"\n', 1, "expected {type}"),
    ("python/headrace/a.py", 'E = "an argument has no such name"\n', 1, "did you mean"),
    ("docs/a.md", "It ends, the reason named.\n", 1, "write: prints the reason"),
    ("docs/a.md", "a page that names what it is about\n", 1, "write: name the subject"),
    ("src/base/a.h", HEADER + "// Inserts that wait are as many as fit.\n", 2, "'is unbounded'"),
    ("docs/a.md", "What cannot go on ends.\n", 1, "a deadlock becomes an error"),
    ("src/base/a.h", HEADER + "// What a look at the index shows.\n", 2, "'a look at'"),
    ("src/base/a.h", HEADER + "// What a run and its consumer meet at.\n", 2, "shared by"),
    ("python/headrace/a.py", 'E = "what it is made from now gives 3"\n', 1, "'the saved state'"),
    ("src/base/a.h", HEADER + "// What a job leaves that ended.\n", 2, "write: name it"),
    ("src/base/a.h", HEADER + "// bytes that nobody vouches for\n", 2, "write: untrusted"),
    ("docs/a.md", "What a batch was waited for is not in them.\n", 1, "exclude the wait"),
    ("src/base/a.h", HEADER + "// as long as `visit` says true\n", 2, "write: returns true"),
    ("docs/a.md", "It takes what memory= leaves.\n", 1, "the memory left after"),
    ("docs/a.md", "Blocks of random mates.\n", 1, "randomly chosen samples"),
    ("python/headrace/a.py", "for each in fields:\n    print(each)\n", 1, "'each' does not say"),
    ("python/headrace/a.py", "names = [\n    each for each in fields]\n", 2, "name the element"),
    ("python/headrace/a.py", "def show(told):\n    print(told)\n", 1, "'told' does not say"),
    ("python/headrace/a.py", "self._told = []\n", 1, "name the text or the values"),
    ("python/headrace/a.py", "class A:\n    each: int = 3\n", 2, "'each' does not say"),
    ("python/headrace/a.py", "def _each():\n    pass\n", 1, "'_each' does not say"),
    ("src/base/a.h", HEADER + "// as `noSuchWord` does\n", 2, "cites 'noSuchWord'"),
    ("src/base/a.h", HEADER + "// see NoSuchCall() there\n", 2, "cites 'NoSuchCall'"),
    ("src/base/a.h", HEADER + "/* see Noone::Reads */\n", 2, "cites 'Noone::Reads'"),
    ("src/base/a.h", HEADER + "class Order;  // not Noone::Order\n", 2, "cites 'Noone::Order'"),
    ("python/headrace/a.py", "x = 1  # as `no_such_word`\n", 1, "cites 'no_such_word'"),
    ("python/headrace/a.py", '"""A.\n\nAs `no_such_word()`.\n"""\n', 3, "cites 'no_such_word'"),
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
        ("python/headrace/a.py", "same = self.__class__ == other.__class__\n"),
        ("python/headrace/formats/_base/findings.py", "frame = sys._getframe(1)\n"),
        ("tests/a.py", "data.__class__ = Own  # a dataset of the user's\n"),
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
        ("src/node/client/a.h", HEADER + '#include "node/client/b.h"\n'),
        ("src/node/a.h", HEADER + '#include "node/client/b.h"\n'),
        ("docs/a.md", "see ~/home/data and src/root/a and https://a.b/home/c\n"),
        ("build/dev/a.h", "FIXME\n"),
        (".venv/lib/a.py", "FIXME\n"),
        ("docs/a.md", "It cannot stop: a batch had to be read, all that it had had.\n"),
        ("src/base/a.h", HEADER + "int a_word;  // `a_word`, not `word`\n"),
        ("src/base/a.h", HEADER + 'const char* a = "http://Noone::Reads";\n'),
        ("src/base/a.h", HEADER + "struct Job { int Size(); };  // Job::Size, Size()\n"),
        (
            "src/base/a.h",
            HEADER + "struct A { int Size(); };\nstruct Job : A {};  // Job::Size\n",
        ),
        ("python/headrace/a.py", 'a_word = "NoSuch()"  # `a_word`\n'),
        ("python/headrace/a.py", 'for_each = "each"  # told of each\nprint(library.each)\n'),
        ("tests/a.py", "for each in fields:\n    print(each)\n"),
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


ROOMS = [
    ({"formats/a.py": "from headrace import cli\n"}, ["1: 'formats' is on the floor of data, and"]),
    (
        {"_loading/a.py": "def f():\n    from headrace.torch import b\n", "torch/b.py": ""},
        ["2: '_loading' is on the floor of run, and imports 'torch' of adapters"],
    ),
    (
        {"_text.py": "if TYPE_CHECKING:\n    from headrace.pack import a\n", "pack/a.py": ""},
        ["2: '_text' is on the floor of values, and imports 'pack' of data"],
    ),
    ({"tiers.py": "import headrace.news.a\n", "news/a.py": ""}, ["1: room 'news' has no floor"]),
    (
        {
            "_nodes/a.py": "from headrace._options import b\n",
            "_options/b.py": "from headrace import tiers\n",
            "tiers.py": "from headrace._nodes import c\n",
            "_nodes/c.py": "",
        },
        ["1: rooms in a circle: _nodes -> _options -> tiers -> _nodes"],
    ),
    (
        {
            "formats/a.py": "from headrace.formats._tars import b\n",
            "formats/_tars/b.py": "from headrace.formats._files.c import C\n",
            "formats/_files/c.py": "def f():\n    from headrace.formats import d\n",
            "formats/d.py": "",
        },
        ["folders in a circle: python/headrace/formats -> python/headrace/formats/_tars -> "],
    ),
    ({"formats/a.py": "from headrace import errors\n", "errors.py": ""}, []),
    ({"torch/a.py": "from headrace.pack import b\n", "pack/b.py": "import headrace._text\n"}, []),
]


@pytest.mark.parametrize(("modules", "told"), ROOMS)
def test_refuses_rooms_of_the_package_that_import_upwards_or_in_a_circle(
    tmp_path: Path, modules: dict[str, str], told: list[str]
) -> None:
    planted = {f"python/headrace/{path}": text for path, text in modules.items()}
    found = findings(tmp_path, planted)
    assert len(found) == len(told), found
    for finding, text in zip(found, told, strict=True):
        assert text in finding


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


def test_a_member_stands_where_its_class_is_declared(tmp_path: Path) -> None:
    planted = {
        "src/plan/a.h": HEADER + "class Factory { int Bytes(); };\n",
        "src/plan/b.h": HEADER + "// Factory::Bytes(), Factory::Size()\nint Size(Factory f);\n",
    }
    assert findings(tmp_path, planted) == [
        "src/plan/b.h:2: the comment cites 'Factory::Size', which the code does not have"
    ]


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


def members(public: int, private: int) -> str:
    """The body of a C++ class of so many methods and attributes."""
    methods = "".join(
        f"  // Says {n}; it does.\n  int m{n}() const {{ return {n}; }}\n" for n in range(public)
    )
    return f" public:\n  ~A() = default;\n{methods} private:\n" + "".join(
        f"  std::map<int, std::function<void()>> f{n}_ HEADRACE_GUARDED_BY(mutex_) = {{}};\n"
        for n in range(private)
    )


@pytest.mark.parametrize(("public", "private", "refused"), [(18, 36, 0), (19, 0, 1), (0, 37, 1)])
def test_refuses_a_class_that_declares_too_much(
    tmp_path: Path, public: int, private: int, refused: int
) -> None:
    text = HEADER + f"// Does all.\nclass A {{\n{members(public, private)}}};\n"
    found = findings(tmp_path, {"src/base/a.h": text})
    assert len(found) == refused
    if refused:
        assert found[0].startswith(
            f"src/base/a.h:3: class A: {public} public and {private} private declarations"
        )
    why = text.replace("// Does all.", "// Does all.\n//\n// Large: a row a field of the format.")
    assert findings(tmp_path, {"src/base/a.h": why}) == []


def test_the_fields_of_a_struct_are_no_declarations_and_its_methods_are(tmp_path: Path) -> None:
    fields = "".join(f"  std::function<void(int)> f{n} = nullptr;\n" for n in range(40))
    text = HEADER + f"struct A {{\n{fields}}};\nenum class B {{ kOne }};\n"
    assert findings(tmp_path, {"src/base/a.h": text}) == []
    methods = "".join(f"  void m{n}();\n" for n in range(19))
    (found,) = findings(tmp_path, {"src/base/a.h": text.replace("};", f"{methods}}};", 1)})
    assert "class A: 19 public and 0 private" in found


def test_refuses_a_class_whose_methods_are_in_two_sources(tmp_path: Path) -> None:
    planted = {
        "src/base/ids.h": HEADER + "class A {\n public:\n  void B();\n  int C();\n};\n",
        "src/base/ids.cc": "void A::B() {}\n",
        "src/base/more.cc": "  // A::C( is\nint A::C() { return A::D(); }\n",
        "src/base/CMakeLists.txt": "set(SRCS ids.cc more.cc)\nheadrace_test(ids_test)\n",
    }
    (found,) = findings(tmp_path, planted)
    assert found.startswith("src/base/ids.h:2: class A: 2 public and 0 private declarations in 2 s")


def test_refuses_a_python_class_that_declares_too_much(tmp_path: Path) -> None:
    own = "".join(f"        self._f{n} = {n}\n" for n in range(37))
    text = f"class A:\n    def __init__(self):\n{own}        self._f0 = 1\n"
    (found,) = findings(tmp_path, {"python/headrace/a.py": text})
    assert found.startswith("python/headrace/a.py:1: class A (Python): 0 public and 37 private")
    text = text.replace("class A:\n", 'class A:\n    """All.\n\n    Large: it is a table."""\n')
    assert findings(tmp_path, {"python/headrace/a.py": text}) == []
    fields = "".join(f"    f{n}: int = {n}\n" for n in range(40))
    text = f"@dataclass(frozen=True)\nclass A:\n{fields}"
    assert findings(tmp_path, {"python/headrace/a.py": text}) == []


def test_every_exception_is_of_a_class_that_is_there_and_still_large() -> None:
    found = tidy_classes.classes(tidy_classes.shipped(ROOT))
    assert set(tidy_classes.EXCEPTIONS) <= {each.name for each in found if each.is_large}
