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
    """Of one stage, or of several."""

    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Results) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped.update(other.skipped)
        self.failures += other.failures


def of_pytest(junit: Path, failed: Path) -> Results:
    """From pytest's junit file, and from the list of failures that tests/conftest.py writes."""
    results = Results()
    if not junit.is_file():
        return results
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        skip = case.find("skipped")
        if skip is not None:
            results.skipped[_short(skip.get("message") or "")] += 1
        elif case.find("failure") is None and case.find("error") is None:
            results.passed += 1
    for line in failed.read_text().splitlines() if failed.is_file() else ():
        row = json.loads(line)
        results.failures.append(Failure(row["name"], row["text"], row["final"]))
    results.failed = len(results.failures)
    return results


def of_ctest(junit: Path) -> Results:
    """From the file that ctest writes; a test is a source of GoogleTest's tests, or a command."""
    results = Results()
    if not junit.is_file():
        return results
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name, status = case.get("name") or "", case.get("status")
        if status == "run":
            results.passed += 1
        elif status == "fail":
            message = (case.find("failure") or ElementTree.Element("")).get("message") or ""
            text = f"{message}\n{case.findtext('system-out') or ''}"
            results.failures.append(Failure(name, text, why_final(text)))
        else:
            results.skipped[_short(f"{name}: {status}")] += 1
    results.failed = len(results.failures)
    return results


def _short(reason: str) -> str:
    """Reasons that differ in a path or a number only are one."""
    first = re.sub(r"^Skipped: ", "", reason).partition("\n")[0]
    return re.sub(r"/\S+", "...", first)[:100]
