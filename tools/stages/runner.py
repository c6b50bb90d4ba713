"""Runs stages in order, goes on after one that failed, and says at the end what happened."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stages.failures import Failure, may_run_again
from stages.results import Results, of_ctest, of_pytest
from stages.table import Stage

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "unstable"  # the first output of each test that failed once
_AGAIN = 2  # times that a failed test is run alone


def _log(stage: Stage) -> Path:
    return ROOT / "build" / f"{stage.name}.log"


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
        self.results = Results()
        self.unstable: list[str] = []
        self.broken: list[str] = []  # one line for each test or stage that failed

    def run(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            if stage.beside:
                self._beside[stage.name] = self._start(stage)
        try:
            self._run_all(stages)
        finally:
            for process in self._beside.values():
                process.kill()
                process.wait()

    def _run_all(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            print(f"\n== {stage.name}: {stage.command}", flush=True)
            missing = [each.stage.name for each in self.outcomes if each.failed]
            missing = [name for name in stage.needs if name in missing]
            if missing:
                self._note(stage, 0, f"not run: {', '.join(missing)} failed")
                continue
            begin = time.monotonic()
            failed = self._run(stage)
            self._note(stage, time.monotonic() - begin, failed)

    def _note(self, stage: Stage, seconds: float, failed: str) -> None:
        self.outcomes.append(Outcome(stage, seconds, failed))

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
            return self._of_command(stage, code)
        failed_list = ROOT / "build" / f"failed-{stage.name}.jsonl"
        junit = ROOT / "build" / f"{stage.name}.xml"
        for old in (failed_list, junit):
            old.unlink(missing_ok=True)
        command, environment = stage.command, dict(self._environment)
        if stage.runner == "pytest":
            command += f" -n {os.cpu_count()} --junitxml={junit} -o junit_family=xunit1"
            environment["HEADRACE_FAILED_LIST"] = str(failed_list)
        code = self._bash(command, environment)
        if not stage.runner:
            return self._of_command(stage, code)
        results = of_pytest(junit, failed_list) if stage.runner == "pytest" else of_ctest(junit)
        again = self._run_again(stage, results.failures) if results.failures else []
        results.failed -= len(again)
        results.passed += len(again)
        for failure in results.failures:
            if failure.name not in again:
                kind = f" ({failure.final}: final)" if failure.final else ""
                self.broken.append(f"{stage.name}: {failure.name}{kind}")
        results.failures = [each for each in results.failures if each.name not in again]
        self.results.add(results)
        if results.failures:
            return f"{len(results.failures)} tests failed"
        if code and not again:
            self.broken.append(f"{stage.name}: its command failed (exit {code}), and names no test")
            return f"exit {code}"
        return "" if results.passed else "ran no test"

    def _of_command(self, stage: Stage, code: int) -> str:
        if code:
            self.broken.append(f"{stage.name}: its command failed (exit {code})")
        return f"exit {code}" if code else ""

    def _run_again(self, stage: Stage, failures: Sequence[Failure]) -> list[str]:
        """Runs failed tests alone; the names of those that pass each time."""
        if not may_run_again(failures, len(self.unstable)):
            return []
        passed = []
        for failure in failures:
            KEPT.mkdir(parents=True, exist_ok=True)
            kept = KEPT / (re.sub(r"[^\w.-]+", "_", failure.name)[:150] + ".txt")
            kept.write_text(failure.text)
            print(f"\n== again, alone, {_AGAIN} times: {failure.name}", flush=True)
            command = (
                f"pytest -W error -p no:cacheprovider {shlex.quote(failure.name)}"
                if stage.runner == "pytest"
                else re.sub(r" --output-junit \S+", "", stage.command)
                + f" -R {shlex.quote('^' + re.escape(failure.name) + '$')}"
            )
            if all(self._bash(command, self._environment) == 0 for _ in range(_AGAIN)):
                passed.append(failure.name)
                self.unstable.append(f"UNSTABLE {failure.name}: failed once; {kept}")
        return passed

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
        for reason, count in self.results.skipped.most_common():
            print(f"skipped {count}: {reason}")
        for line in (*self.unstable, *(f"FAILED {line}" for line in self.broken)):
            print(line)
        broken = [each for each in self.outcomes if each.failed]
        if broken:
            names = ", ".join(each.stage.name for each in broken)
            print(f"{purpose}: {len(broken)} of {len(self.outcomes)} stages failed: {names}")
        skipped = self.results.skipped.total()
        print(
            f"{purpose}: {self.results.passed} passed, {len(self.broken)} failed,"
            f" {skipped} skipped",
            flush=True,
        )
        return not broken
