"""Which failures may be run again, and which are final. Pure.

A test that fails once and passes twice, alone, is reported as UNSTABLE, and the run goes on. That
must not hide what this product promises: a failure that a sanitizer found, a leak, a hang, a crash,
too much memory and wrong values of data is final, whatever a second run says.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

UNSTABLE_MAX = 2  # names in a run; where more tests fail, none is run again

_SANITIZER = re.compile(
    r"(Address|Leak|Thread|Memory|UndefinedBehavior)Sanitizer|runtime error: |libFuzzer"
)
_HANG = re.compile(r"\bTimeout\b|\*\*\*Timeout|TimeoutExpired|did not end within|TimeoutError")
_CRASH = re.compile(
    r"\bcrashed while running|Segmentation fault|SIGSEGV|SIGABRT|SIGBUS|Subprocess aborted"
    r"|\b(SEGFAULT|ILLEGAL|NUMERICAL|INTERRUPT|OTHER_FAULT)\b|Exception: \w+"
    r"|Fatal Python error|HEADRACE_CHECK|exited with code 139"
    r"|\bassert -(4|6|7|8|9|11) ==|\(-(4|6|7|8|9|11),"  # a process of the test, by its exit code
)
_LEAK = re.compile(r"left behind: |are left, perhaps|ResourceWarning|memory file|leaked")
_MEMORY = re.compile(r"MemoryError|bad_alloc|out of memory|Cannot allocate memory|oom-kill", re.I)
# numpy's and torch's comparisons, assertions of helpers and of a program's own, and GoogleTest's of
# two values.
_VALUES = re.compile(
    r"Arrays are not |Mismatched elements|Tensor-likes are not|array_equal|allclose|assert_equal"
    r"|^AssertionError|^E +\w*AssertionError$"
    r"|Traceback \(most recent call last\)[\s\S]*AssertionError"
    r"|^[>E] .*(\.all\(\)|torch\.equal|\.equals\()"
    r"|Expected equality of these values|Actual: |wrong (value|byte|sample|id)|checksum",
    re.MULTILINE,
)

_KINDS = (
    ("a sanitizer's finding", _SANITIZER),
    ("a hang", _HANG),
    ("a crash", _CRASH),
    ("a leak", _LEAK),
    ("memory", _MEMORY),
    ("values", _VALUES),
)


class Failure(NamedTuple):
    """A test that failed once."""

    name: str  # of pytest, its node; of ctest, the test
    text: str  # what it printed
    final: str  # why it is not run again; empty: it may be


def why_final(text: str) -> str:
    """The kind of failure that `text` shows, if no second run can excuse it; else an empty
    string."""
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "")


def holds_data(value: object) -> bool:
    """Whether a side of a comparison is samples, ids or bytes: an array, or numbers in a container.

    A single number, text and None are not: exit codes, counts and messages differ for other
    reasons, too.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return True
    if type(value).__module__.partition(".")[0] in ("numpy", "torch", "pyarrow", "jax", "jaxlib"):
        return True
    if isinstance(value, dict):
        return any(holds_data(part) or _is_number(part) for part in value.values())
    if isinstance(value, str) or not isinstance(value, Collection):
        return False
    return any(holds_data(part) or _is_number(part) for part in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def may_run_again(failures: Collection[Failure], unstable_before: int) -> bool:
    """Whether these failures, all of one stage, are run again: few, and none of them final."""
    few = len(failures) + unstable_before <= UNSTABLE_MAX
    return few and not any(failure.final for failure in failures)
