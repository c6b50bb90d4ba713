"""Runs the stages of `make test` or `make check`; goes on after one that failed.

Usage: python tools/stages test|check|lint [STAGE ...]     all its stages, or these
       python tools/stages times     writes tests/times.json from what the last runs left

Ends with the seconds of each stage beside its budget, what was skipped and why, tests that are not
stable, failures, and one line of counts. Exits with 1 if a stage failed.

A stage that is run alone expects what those before it make. Environment: VENV, the environment that
tools/setup.sh made (.venv); HEADRACE_SEED, one more seed for the tests that draw schedules (the
commit's hash); CMAKE_BUILD_PARALLEL_LEVEL (the number of cores).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stages import times
from stages.runner import ROOT, Runner
from stages.table import RUNS


def environment() -> dict[str, str]:
    """As the stages' commands expect it."""
    made = dict(os.environ)
    venv = Path(made.get("VENV") or ".venv")
    made["VENV"] = str(venv if venv.is_absolute() else ROOT / venv)
    made["PATH"] = f"{made['VENV']}/bin:{made['PATH']}"
    # With it each of a thousand processes of tests would compile torch's sources again.
    made.pop("PYTHONDONTWRITEBYTECODE", None)
    made.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(len(os.sched_getaffinity(0))))
    if "HEADRACE_SEED" not in made:
        asked = ["git", "-C", str(ROOT), "rev-parse", "--verify", "-q", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        made["HEADRACE_SEED"] = str(int((commit or "0")[:15], 16))
    return made


def main(arguments: list[str]) -> int:
    if arguments == ["times"]:
        junits = [ROOT / "build" / f"{name}.xml" for name in ("pytest", "pytest-check")]
        path = ROOT / "tests" / "times.json"
        times.write(path, times.of_runs(junits, times.read(path), ROOT))
        return 0
    if not arguments or arguments[0] not in RUNS:
        print(__doc__, file=sys.stderr)
        return 2
    purpose, *names = arguments
    stages = RUNS[purpose]
    unknown = [name for name in names if name not in {stage.name for stage in stages}]
    if unknown:
        known = " ".join(stage.name for stage in stages)
        print(f"{purpose}: no stage {unknown[0]!r}; there are: {known}", file=sys.stderr)
        return 2
    made = environment()
    print(f"{purpose}: HEADRACE_SEED={made['HEADRACE_SEED']}", flush=True)
    (ROOT / "build").mkdir(exist_ok=True)
    runner = Runner(made)
    runner.run([stage for stage in stages if not names or stage.name in names])
    return 0 if runner.print_summary(purpose) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
