"""Two jobs of one service that read the same pack from an object store: with a share and without.

    python shared_jobs.py [--mbps 100] [--latency-ms 20] [--rounds 5] [--samples 6000]

The server is that of link.py, paced below what a core can serve: the store is the limit. Each round
runs two jobs at the same time, with orders `epoch` of seeds 1 and 2, on a service without a share,
with one that holds the data, and with one of a quarter of it, in another order each round. Printed
are medians: the time of the slower job from when its loader was made (makespan), that over the one
without a share, and the bytes that the store sent over those of the data. A quarter is as good as
docs/design/shared-reads.md says only if it is far more than the reads in flight, 64 MiB a job.
Nothing else may run beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import link
from served_objects.object_server import ObjectServer

SHARES = {"none": 0.0, "all of the data": 1.3, "a quarter": 0.25}
_SIZE = 100_000  # bytes of a sample


@contextlib.contextmanager
def _service(share_bytes: int, env: dict[str, str]) -> Iterator[str]:
    name = f"shared-jobs-{random.randrange(1 << 40):x}"
    program = [sys.executable, "-m", "headrace", "node", "--name", name]
    program += ["--share", str(share_bytes)] if share_bytes else []
    with subprocess.Popen(program, env=os.environ | env, stderr=subprocess.DEVNULL) as process:
        try:
            yield name
        finally:
            process.terminate()


def _both(share_bytes: int, samples: int, env: dict[str, str], work: Path) -> dict[str, Any]:
    with _service(share_bytes, env) as name:
        jobs = []
        for seed in (1, 2):
            settings = {"data": "pack", "order": "epoch", "seed": seed, "service": name}
            cache = work / f"cache-{random.randrange(1 << 40):x}"
            arguments = ["read", "headrace", json.dumps(settings), str(samples), str(cache)]
            program = [sys.executable, str(link.READERS), *arguments]
            jobs.append(
                subprocess.Popen(program, env=os.environ | env, stdout=subprocess.PIPE, text=True)
            )
        found = [json.loads(job.communicate()[0].splitlines()[-1]) for job in jobs]
    wrong = sum(one["missing"] + one["repeated"] + one["foreign"] for one in found)
    return {"s": max(one["s"] - one["made_s"] for one in found), "wrong": wrong}


def measure(options: argparse.Namespace) -> None:
    size = options.samples * _SIZE
    work = Path(tempfile.mkdtemp(prefix="headrace-shared-", dir=options.work))
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in SHARES}
    try:
        with ObjectServer(pace=options.mbps * 1e6, latency=options.latency_ms / 1e3) as server:
            link.fill(server.put, "pack", options.samples, work)
            env = link.packages() | server.environment()
            for number in range(options.rounds):
                names = list(SHARES)
                random.Random(number).shuffle(names)
                for name in names:
                    server.clear_log()
                    found = _both(int(SHARES[name] * size), options.samples, env, work)
                    found["bytes"] = sum(one["sent"] for one in server.log("GET"))
                    results[name].append(found)
                    print(json.dumps([number, name, found]), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    alone = statistics.median(one["s"] for one in results["none"])
    print("| share | makespan, s | of that without | bytes of the data | wrong |")
    print("|---|---:|---:|---:|---|")
    for name, rounds in results.items():
        seconds = statistics.median(one["s"] for one in rounds)
        sent = statistics.median(one["bytes"] for one in rounds) / size
        wrong = sum(one["wrong"] for one in rounds)
        print(f"| {name} | {seconds:.1f} | {seconds / alone:.2f} | {sent:.2f} | {wrong or ''} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbps", type=float, default=100, help="the pace, in 10^6 bytes a second")
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--work", help="a folder for data and caches; the usual one for such files")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
