"""What the tests of a stage did: counts, reasons of skips, and the failures, read from what it
left."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from stages.failures import Failure, why_final


@dataclass
class Results:
    """Of one stage."""

    passed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    failures: list[Failure] = field(default_factory=list)


def of_pytest(junit: Path, failed: Path) -> Results:
    """From pytest's junit file, and from the list of failures that tests/conftest.py writes."""
    results = Results()
    for case in _cases(junit):
        skip = case.find("skipped")
        if skip is not None:
            results.skipped[_short(skip.get("message") or "")] += 1
        elif case.find("failure") is None and case.find("error") is None:
            results.passed += 1
    found: dict[str, Failure] = {}
    for line in failed.read_text().splitlines() if failed.is_file() else ():
        new = Failure(**json.loads(line))
        old = found.get(new.name, Failure(new.name, "", ""))  # A test and its teardown are one.
        found[new.name] = Failure(new.name, old.text + new.text, old.final or new.final)
    results.failures = list(found.values())
    return results


def of_ctest(junit: Path) -> Results:
    """From the file that ctest writes; a test is a source of GoogleTest's tests, or a command."""
    results = Results()
    for case in _cases(junit):
        name, status = case.get("name") or "", case.get("status")
        if status == "run":
            results.passed += 1
        elif status == "disabled":
            results.skipped[_short(f"{name}: disabled")] += 1
        else:
            failure = case.find("failure")
            message = (failure.get("message") if failure is not None else None) or status or ""
            text = f"{message}\n{case.findtext('system-out') or ''}"
            final = why_final(text) or ("" if message == "Failed" else message)
            results.failures.append(Failure(name, text, final))
    return results


def _cases(junit: Path) -> list[ElementTree.Element]:
    """Empty if the file is not there, or not whole, as its writer was killed."""
    try:
        return list(ElementTree.parse(junit).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def _short(reason: str) -> str:
    """Reasons that differ in a path only are one."""
    first = re.sub(r"^Skipped: ", "", reason).partition("\n")[0]
    return re.sub(r"/\S+", "...", first)[:100]
