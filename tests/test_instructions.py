"""benchmarks/instructions/instructions.py: what it reads of a profile, and where it fails."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "instructions" / "instructions.py"

PROFILE = """\
version: 1
events: Ir
summary: 1175

fl=(1) engine.cc
fn=(1) headrace::Engine::Advance()
0 100
+3 40
cfi=(2) memmove.S
cfn=(2) __memmove_sse2_unaligned_erms
calls=3 0
0 1000
* 5

fn=(2)
0 1000

fn=(1)
-2 30
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("instructions", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_calls_are_counted_where_they_are_executed(script: ModuleType) -> None:
    costs = script.self_costs(PROFILE)
    assert costs == {
        "headrace::Engine::Advance()": 175,
        "__memmove_sse2_unaligned_erms": 1000,
    }
    assert [name for name in costs if script.BYTES.search(name)] == [
        "__memmove_sse2_unaligned_erms"
    ]


@pytest.mark.parametrize(
    ("total", "without", "passes", "marked"),
    [
        (1000.0, 100.0, True, False),
        (1020.0, 90.0, True, False),
        (1021.0, 100.0, True, True),
        (1000.0, 105.0, True, True),
        (1000.0, 105.2, False, True),
        (1051.0, 100.0, False, True),
    ],
)
def test_either_count_may_grow_by_five_percent(
    script: ModuleType,
    capsys: pytest.CaptureFixture[str],
    total: float,
    without: float,
    passes: bool,
    marked: bool,
) -> None:
    before = {"instructions": 1000.0, "without_bytes": 100.0, "reads": 64, "from_tier": 0}
    counted = before | {"instructions": total, "without_bytes": without}
    assert script.compare("exact/4", counted, before) is passes
    assert ("grew" in capsys.readouterr().out) is marked


def test_a_case_that_reads_otherwise_says_so(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {"instructions": 1000.0, "without_bytes": 100.0, "reads": 64, "from_tier": 0}
    assert script.compare("exact/4", before | {"reads": 65}, before)
    assert "reads 64 -> 65" in capsys.readouterr().out
