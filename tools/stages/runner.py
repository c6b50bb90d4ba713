"""Runs stages in order, goes on after one that failed, and says at the end what happened."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stages.failures import Failure, may_run_again
from stages.results import Results, of_ctest, of_pytest
from stages.table import Stage

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "unstable"  # the first output of each test that failed once
_AGAIN = 2  # times that a failed test is run alone
_TESTS_FAILED = {"pytest": 1, "ctest": 8}  # exit codes that say just this


def _build(name: str) -> Path:
    return ROOT / "build" / name


def _log(stage: Stage) -> Path:
    return _build(f"{stage.name}.log")


def _junit(path: Path) -> str:
    return f"--junitxml={shlex.quote(str(path))} -o junit_family=xunit1"


def _results(stage: Stage, junit: Path, failed_list: Path = Path()) -> Results:
    return of_pytest(junit, failed_list) if stage.runner == "pytest" else of_ctest(junit)


class Outcome(NamedTuple):
    """Of one stage that ran, or that could not."""

    stage: Stage
    seconds: float
    failed: str  # why; empty: it passed


class Runner:
    """One run. Not thread-safe."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._beside: dict[str, subprocess.Popen[bytes]] = {}
        self.outcomes: list[Outcome] = []
        self.passed = 0
        self.skipped: Counter[str] = Counter()  # by reason
        self.unstable: list[str] = []
        self.broken: list[str] = []  # one line for each test or stage that failed

    def run(self, stages: Sequence[Stage]) -> None:
        shutil.rmtree(KEPT, ignore_errors=True)
        for stage in stages:
            if stage.beside:
                self._beside[stage.name] = self._start(stage)
        try:
            for stage in stages:
                print(f"\n== {stage.name}: {stage.command}", flush=True)
                begin = time.monotonic()
                failed = self._not_run(stage) or self._run(stage)
                self.outcomes.append(Outcome(stage, time.monotonic() - begin, failed))
        finally:
            for process in self._beside.values():
                process.kill()
                process.wait()

    def _not_run(self, stage: Stage) -> str:
        """Why a stage cannot run; empty: it can."""
        failed = {each.stage.name for each in self.outcomes if each.failed}
        missing = [name for name in stage.needs if name in failed]
        return self._says(stage, f"not run: {', '.join(missing)} failed") if missing else ""

    def _says(self, stage: Stage, why: str) -> str:
        """Notes a failure of a stage that names no test; returns `why`."""
        self.broken.append(f"{stage.name}: {why}")
        return why

    def _start(self, stage: Stage) -> subprocess.Popen[bytes]:
        """Begins a stage whose output is shown when it is waited for."""
        with open(_log(stage), "wb") as log:
            return subprocess.Popen(
                ["bash", "-c", stage.command],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _run(self, stage: Stage) -> str:
        """Runs one stage; why it failed, or an empty string."""
        if stage.beside:
            code = self._beside.pop(stage.name).wait()
            print(_log(stage).read_text(errors="replace"), end="", flush=True)
        elif stage.runner:
            return self._run_tests(stage)
        else:
            code = self._bash(stage.command, self._environment)
        return self._says(stage, f"its command failed (exit {code})") if code else ""

    def _run_tests(self, stage: Stage) -> str:
        failed_list, junit = _build(f"failed-{stage.name}.jsonl"), _build(f"{stage.name}.xml")
        for old in (failed_list, junit):
            old.unlink(missing_ok=True)
        command, environment = stage.command, dict(self._environment)
        if stage.runner == "pytest":
            command += f" -n $CMAKE_BUILD_PARALLEL_LEVEL {_junit(junit)}"
            environment["HEADRACE_FAILED_LIST"] = str(failed_list)
        code = self._bash(command, environment)
        results = _results(stage, junit, failed_list)
        again = self._run_again(stage, results.failures) if results.failures else []
        self.passed += results.passed + len(again)
        self.skipped.update(results.skipped)
        failures = [each for each in results.failures if each.name not in again]
        for failure in failures:
            kind = f" ({failure.final}: final)" if failure.final else ""
            self.broken.append(f"{stage.name}: {failure.name}{kind}")
        if failures:
            return f"{len(failures)} tests failed"
        # Every failure was forgiven, and nothing else went wrong.
        if code and not (again and code == _TESTS_FAILED[stage.runner]):
            return self._says(stage, f"its command failed (exit {code}), and names no test")
        return "" if results.passed or again else self._says(stage, "ran no test")

    def _run_again(self, stage: Stage, failures: Sequence[Failure]) -> list[str]:
        """Runs failed tests alone; the names of those that pass each time."""
        if not may_run_again(failures, len(self.unstable)):
            return []
        passed = []
        for failure in failures:
            KEPT.mkdir(parents=True, exist_ok=True)
            file = re.sub(r"[^A-Za-z0-9.-]+", "_", failure.name)[-150:]
            kept = KEPT / f"{len(self.unstable)}-{file}"
            kept.write_text(failure.text, errors="backslashreplace")
            print(f"\n== again, alone, {_AGAIN} times: {failure.name}", flush=True)
            if all(self._passes(stage, failure.name) for _ in range(_AGAIN)):
                passed.append(failure.name)
                self.unstable.append(f"UNSTABLE {failure.name}: failed once; {kept}")
        return passed

    def _passes(self, stage: Stage, name: str) -> bool:
        """Runs one test alone: it runs, and passes."""
        junit = _build("again.xml")
        junit.unlink(missing_ok=True)
        if stage.runner == "pytest":
            command = f"pytest -W error -p no:cacheprovider {shlex.quote(name)} {_junit(junit)}"
        else:
            command = re.sub(r"--output-junit \S+", "--output-junit ../again.xml", stage.command)
            command += f" -R {shlex.quote('^' + re.escape(name) + '$')}"
        code = self._bash(command, self._environment)
        return code == 0 and _results(stage, junit).passed == 1

    @staticmethod
    def _bash(command: str, environment: dict[str, str]) -> int:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode

    def print_summary(self, purpose: str) -> bool:
        """The last lines of a run; whether it passed."""
        print(f"\n== {'stage':16} {'seconds':>8}   budget: cold  warm")
        for outcome in self.outcomes:
            stage, seconds = outcome.stage, round(outcome.seconds)
            over = "  over its budget" if seconds > stage.cold_s else ""
            failed = f"  FAILED: {outcome.failed}" if outcome.failed else ""
            row = f"{stage.name:16} {seconds:>8}   {stage.cold_s:>12} {stage.warm_s:>5}"
            print(f"   {row}{over}{failed}")
        print(f"   {'together':16} {round(sum(each.seconds for each in self.outcomes)):>8}")
        for reason, count in self.skipped.most_common():
            print(f"skipped {count}: {reason}")
        for line in (*self.unstable, *(f"FAILED {line}" for line in self.broken)):
            print(line)
        broken = [each for each in self.outcomes if each.failed]
        if broken:
            names = ", ".join(each.stage.name for each in broken)
            print(f"{purpose}: {len(broken)} of {len(self.outcomes)} stages failed: {names}")
        skipped = self.skipped.total()
        print(f"{purpose}: {self.passed} passed, {len(self.broken)} failed, {skipped} skipped")
        sys.stdout.flush()
        return not broken
