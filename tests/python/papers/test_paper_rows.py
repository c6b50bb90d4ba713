"""docs/paper-rows.md says which tests prove what works: they exist, and every row is there once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.house  # It reads the core's sources.

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGE = DOCS / "paper-rows.md"
HEAD = "| row | mechanism | state | proof, or what is missing |"
STATES = ("done", "by choice", "open", "not yet", "remark")


def numbered(prefix: str, *ranges: tuple[int, int], width: int = 1) -> list[str]:
    return [f"{prefix}{at:0{width}}" for first, last in ranges for at in range(first, last + 1)]


ROWS = [
    *numbered("0.", (1, 10)),
    *numbered("RX-", (1, 17), (20, 28), (30, 33), (40, 46), width=2),
    *("RX-T1", "RX-T4", "RX-T5", "RX-C", *numbered("RX-F", (2, 7)), "RX-T6", "RX-T7", "RX-TH"),
    *numbered("NP-", (1, 18), (20, 27), width=2),
    *("1.6", "1.7"),
    *numbered("LB-", (1, 17), width=2),
    *numbered("RN-", (1, 13), width=2),
    *numbered("X-", (1, 4), width=2),
    *numbered("4.1.", (1, 23)),
    *numbered("4.2.", (1, 17)),
    *numbered("4.3.", (1, 13)),
    *numbered("4.4.", (1, 11)),
    *numbered("4.5.", (1, 5)),
]
"""What the papers describe, as the page numbers it."""


class Row(NamedTuple):
    number: str
    mechanism: str
    state: str
    proof: str


def rows(page: str) -> Iterator[Row]:
    """The rows of the tables with these columns."""
    inside = False
    for line in page.splitlines():
        inside = line == HEAD or (inside and line.startswith("|"))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if inside and line != HEAD and set(line) != {"|", "-"}:
            assert len(cells) == 4, line
            yield Row(*cells)


def python_tests(proof: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+\.py)::(test_\w+)`", proof)


def core_tests(proof: str) -> list[tuple[str, str]]:
    return re.findall(r"`(\w+_test): (\w+\.\w+)`", proof)


@cache
def names_in_file(name: str) -> set[str]:
    path = ROOT / "tests" / "python" / name
    text = path.read_text() if path.is_file() else ""
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))


@cache
def names_in_program(name: str) -> set[str]:
    """Of the core: a source is a program of ctest."""
    found = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
    paths = [path for path in (ROOT / "src").rglob("*.cc") if path.stem == name]
    return {f"{suite}.{test}" for path in paths for suite, test in found.findall(path.read_text())}


def faults(page: str) -> list[str]:
    """What is wrong with the page."""
    found = list(rows(page))
    numbers = [row.number for row in found]
    wrong = [] if numbers == ROWS else [f"rows: {sorted(set(ROWS) ^ set(numbers)) or numbers}"]
    for number, _, state, proof in found:
        if state not in STATES:
            wrong.append(f"{number}: no state {state!r}")
        in_files, in_core = python_tests(proof), core_tests(proof)
        named = len(in_files) + len(in_core)
        wrong += [
            f"{number}: no {test}" for test in in_files if test[1] not in names_in_file(test[0])
        ]
        wrong += [
            f"{number}: no {test}" for test in in_core if test[1] not in names_in_program(test[0])
        ]
        scripts = re.findall(r"`python (\S+)[^`]*`", proof)
        wrong += [f"{number}: no {path}" for path in scripts if not (ROOT / path).is_file()]
        looks_like_tests = len(re.findall(r"::|`\w+: ", proof))
        if looks_like_tests != named:
            wrong.append(f"{number}: {looks_like_tests - named} names of tests that are none")
        if state == "done" and named == 0:
            wrong.append(f"{number}: done without a test")
        if state in ("by choice", "open", "not yet") and not re.sub(r"[`|]|::", "", proof):
            wrong.append(f"{number}: {state} without a reason")
        if state == "by choice" and "](" not in proof:
            wrong.append(f"{number}: by choice without the page that says why")
    return wrong


def test_every_row_is_there_once_with_tests_that_exist() -> None:
    assert faults(PAGE.read_text()) == []


def test_links_lead_to_headings() -> None:
    for path, heading in re.findall(r"\]\(([\w./-]+\.md)(#[\w-]+)?\)", PAGE.read_text()):
        lines = (DOCS / path).read_text().splitlines()
        headings = {
            "#" + re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in lines
            if line.startswith("#")
        }
        assert not heading or heading in headings, path + heading


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("TableSixWithPrefetch", "TableSeven", "0.1: no ('redox_papers_test', 'RedoxPapersTest."),
        ("::test_labels_and_payload", "::test_payload", "RX-17: no ('redox/test_redox_core.py'"),
        ("| RX-14 |", "| RX-13 |", "rows: ['RX-14']"),
        ("_test: LaneQueuesTest.AL", "_test: AL", "LB-01: 1 names of tests that are none"),
        (
            "python benchmarks/convergence.py",
            "python benchmarks/no.py",
            "RX-F7: no benchmarks/no.py",
        ),
        ("`thread_split_test: ", "`thread_split: ", "LB-02: 1 names of tests"),
        ("| by choice |", "| perhaps |", "4.1.15: no state 'perhaps'"),
        (
            "`lane_shares_test: ProportionalTest.FollowsTheWeights`",
            "",
            "LB-04: done without a test",
        ),
    ],
)
def test_what_is_wrong_is_found(was: str, now: str, says: str) -> None:
    page = PAGE.read_text()
    assert was in page
    assert any(says in fault for fault in faults(page.replace(was, now))), faults(
        page.replace(was, now)
    )
