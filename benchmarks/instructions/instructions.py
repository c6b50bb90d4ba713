"""Instructions that the engine executes for a sample, counted by callgrind, against a baseline.

    python benchmarks/instructions/instructions.py [--build build/release] [--write] [CASE ...]

Prints a line for each case of instructions_bench: instructions a sample, and how many of them do
anything but copy, clear or hash bytes; these hide the engine where samples are large. Both are
compared with baseline.json beside this file. Growth above 2 % is marked. Above 5 % it fails, and
says how to see what grew. `--write` makes what was counted the baseline; the commit says why.

A count depends on compiler and C library, but on no clock, load or cache, and hardly on the
processor: libc copies with instructions that every x86-64 has. It is compared only where compiler
and libc are of the baseline's version.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BASELINE = Path(__file__).with_name("baseline.json")
KINDS = ("exact", "epoch", "tiers", "epoch_tiers", "lanes")
CASES = tuple(f"{kind}/{size}" for size in (4, 100) for kind in KINDS)

MARKED = 1.02
FAILS = 1.05

BYTES = re.compile(r"mem(cpy|move|set|pcpy)|XXH|headrace::Hash")
PLAIN_COPIES = "glibc.cpu.hwcaps=" + ",".join(
    f"-{feature}{usable}"
    for feature in ("AVX2", "AVX", "ERMS", "FSRM", "AVX_Fast_Unaligned_Load")
    for usable in ("", "_Usable")
)

Counts = dict[str, Any]


def self_costs(profile: str) -> dict[str, int]:
    """The instructions of each function, without those that it calls, of a callgrind.out file."""
    names: dict[str, str] = {}
    costs: dict[str, int] = {}
    function, skip = "", False
    for line in profile.splitlines():
        named = re.match(r"c?fn=(\(\d+\))(?: (.*))?$", line)
        if named is not None:
            if named[2]:
                names[named[1]] = named[2]
            if line.startswith("fn"):
                function = names[named[1]]
        elif line.startswith("calls="):
            skip = True  # What follows is the callee's.
        elif re.match(r"[\d+*-]", line):
            if not skip:
                costs[function] = costs.get(function, 0) + int(line.split()[1])
            skip = False
    return costs


def count(program: Path, case: str) -> Counts:
    """Runs one case; its instructions a sample, what it did, and where its profile lies."""
    profile = program.with_name(f"callgrind.{case.replace('/', '-')}.out")
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}"]
    command += ["--toggle-collect=headrace::MeasuredBatches*", str(program), case]
    environment = os.environ | {"GLIBC_TUNABLES": PLAIN_COPIES}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"instructions: {' '.join(command)}\n{done.stderr}")
    did = json.loads(done.stdout)
    costs = self_costs(profile.read_text())
    without = sum(cost for name, cost in costs.items() if not BYTES.search(name))
    return {
        "instructions": round(sum(costs.values()) / did["samples"], 1),
        "without_bytes": round(without / did["samples"], 1),
        "reads": did["reads"],
        "from_tier": did["from_tier"],
        "profile": profile,
    }


def made_by(build: Path) -> dict[str, str]:
    """What a count depends on beside the sources."""
    cache = (build / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.M)
    if compiler is None:
        sys.exit(f"instructions: {build} has no CMAKE_CXX_COMPILER; it must be a build folder")
    command = [compiler[1], "-dumpfullversion", "-dumpversion"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return {
        "compiler": f"{Path(compiler[1]).name} {version}",
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
    }


def compare(case: str, counted: Counts, before: Counts | None) -> bool:
    """Prints the line of a case; whether it stays below the limit."""
    line, worst = f"{case:16}", 0.0
    for key in ("instructions", "without_bytes"):
        ratio = counted[key] / before[key] if before else 1.0
        line += f"{counted[key]:12,.1f}" + (f"  x {ratio:.3f}" if before else "")
        worst = max(worst, ratio)
    line += "  grew" if worst > MARKED else ""
    for key in ("reads", "from_tier"):  # A plan that is run otherwise takes other instructions.
        if before and counted[key] != before[key]:
            line += f"  {key} {before[key]} -> {counted[key]}"
    print(line)
    return worst <= FAILS


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--write", action="store_true", help="makes this the baseline")
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE")
    arguments = parser.parse_args()
    program = arguments.build / "benchmarks" / "instructions" / "instructions_bench"
    if shutil.which("valgrind") is None:
        sys.exit("instructions: there is no valgrind; `make setup-checks` installs it")
    if not program.exists():
        sys.exit(f"instructions: there is no {program}: build the preset release")
    here = made_by(arguments.build)
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"cases": {}}
    comparable = {key: baseline.get(key) for key in here} == here
    if not comparable and not arguments.write:
        print(f"instructions: not compared; counted here with {here}, in the baseline with others")
    cases = arguments.cases or CASES
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        counted = dict(
            zip(cases, threads.map(lambda case: count(program, case), cases), strict=True)
        )
    print(f"{'a sample':16}{'instructions':>12}{'but for copies and hashes':>28}")
    grown = []
    for case, counts in counted.items():
        before = baseline["cases"].get(case) if comparable else None
        if not compare(case, counts, before):
            grown.append(case)
    if arguments.write:
        told = {
            case: {k: v for k, v in counts.items() if k != "profile"}
            for case, counts in counted.items()
        }
        BASELINE.write_text(json.dumps(here | {"cases": baseline["cases"] | told}, indent=1) + "\n")
        return 0
    for case in grown:
        print(
            f"instructions: {case} takes more than {FAILS - 1:.0%} more than its baseline: "
            f"callgrind_annotate --inclusive=yes {os.path.relpath(counted[case]['profile'])}"
        )
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
