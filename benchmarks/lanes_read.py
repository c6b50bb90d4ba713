"""Ranks of one node on throttled storage, one with four times the bytes, by each policy.

    python benchmarks/lanes_read.py [--bench build/release/benchmarks/lanes_bench] [--rounds N]

Needs root, and cgroup v1 with the blkio controller; elsewhere it says so and measures nothing.
Writes the table of docs/schedule.md.

Four ranks take batches of 16 samples of 100 KB, raw bytes, the second of them samples of 400 KB;
the device is limited to 200 MB/s, with which a global batch takes 56 ms; a step of training takes
60 ms. When the last rank has its batch, all train. Every run is a process of its own on a file of
which no page is in memory, that is checked; a round is every policy once and then once more in the
opposite order (ABBA).

An iteration counts as imbalanced if ranks differ by more than a tenth of the training in when,
after the training before began, their batch was done. The first ten of a run are not counted.
Nothing is discarded.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import _data
import _harness

POLICIES = ("shared_deadline", "lobster", "lobster_search", "fixed")
_THROTTLE = _harness.Throttle(200 * 10**6)
_ROOT = Path(__file__).parent.parent


def _run(
    bench: Path, folder: Path, group: _harness.DeviceGroup, policy: str, train_ms: int
) -> dict[str, Any]:
    group.join()
    command = [bench, folder, "--policy", policy, "--train-ms", str(train_ms)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _measure(bench: Path, folder: Path, policy: str, train_ms: int) -> dict[str, Any]:
    samples = folder / "samples"
    _harness.make_cold([samples])
    steal = _harness.steal_share()
    with _harness.DeviceGroup(samples, _THROTTLE) as group:
        run = _harness.in_child(_run, bench, folder, group, policy, train_ms)
        run["device"] = group.read_bytes
    run["steal"] = round(steal(), 4)
    steps = sorted(run["step_ms"])
    run["imbalanced_share"] = round(run["imbalanced"] / len(steps), 4)
    run["p50"], run["p99"] = median(steps), steps[int(0.99 * (len(steps) - 1))]
    print(
        f"  {policy}: imbalanced {run['imbalanced_share']:.1%}, p50 {run['p50']:.1f} ms, "
        f"p99 {run['p99']:.1f} ms, steal {run['steal']:.1%}",
        flush=True,
    )
    return run


def _table(runs: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "| policy | imbalanced iterations | step, p50 | p99 | p99 / p50 |",
        "|---|---:|---:|---:|---:|",
    ]
    for policy, kept in runs.items():
        steps = sorted(step for run in kept for step in run["step_ms"])
        shares = [run["imbalanced_share"] for run in kept]
        p50, p99 = median(steps), steps[int(0.99 * (len(steps) - 1))]
        lines.append(
            f"| {policy} | {sum(shares) / len(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})"
            f" | {p50:.1f} ms | {p99:.1f} ms | {p99 / p50:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--bench", type=Path, default=_ROOT / "build/release/benchmarks/lanes_bench"
    )
    parser.add_argument("--data", type=Path, default=_data.default_folder())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train-ms", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="one round, and writes nothing")
    arguments = parser.parse_args()
    if not _harness.can_throttle():
        raise SystemExit(
            "lanes_read: needs root and cgroup v1's blkio controller: nothing measured"
        )
    arguments.data.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="lanes-", dir=arguments.data)).resolve()
    runs: dict[str, list[dict[str, Any]]] = {policy: [] for policy in POLICIES}
    try:
        subprocess.run([arguments.bench, folder, "--make"], check=True)
        subprocess.run(["sync", folder / "samples"], check=True)
        for _ in range(1 if arguments.quick else arguments.rounds):
            for policy in (*POLICIES, *reversed(POLICIES)):
                runs[policy].append(_measure(arguments.bench, folder, policy, arguments.train_ms))
    finally:
        shutil.rmtree(folder)
    print(_table(runs))
    if arguments.quick:
        return
    _harness.record("lanes_read", {"train_ms": arguments.train_ms, "runs": runs})
    page = _ROOT / "docs/schedule.md"
    _harness.replace_generated(page, "<!-- lanes_read -->", "<!-- end -->", _table(runs))


if __name__ == "__main__":
    main()
