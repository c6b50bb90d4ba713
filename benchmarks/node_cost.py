"""What it costs to have the engine in another process: CPU a batch, and the trainer's own part.

    python benchmarks/node_cost.py [--batches 4000] [--rounds 5] [--batch 256]

Small records, made up in memory (io="synthetic"), so that little but handing over is left. Each
round has the engine in this process and in a node process, in turn. CPU is user and system time of
all threads: of this process, and of the node process from /proc. What a batch costs more with the
node process is what the processes have to say to each other, and wake each other for; medians of
rounds, and the range.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from workers_bench import write_source

import headrace as hr
from headrace._nodes import process as node


@dataclass
class Cost:
    """CPU microseconds a batch."""

    trainer: float
    engine: float  # of the node process; 0 without

    @property
    def together(self) -> float:
        return self.trainer + self.engine


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(source: str, isolation: str, batch: int, batches: int) -> Cost:
    """After a warm-up of a tenth."""
    with hr.Loader(
        source,
        batch,
        job=hr.Job(node=hr.Node()) if isolation == "process" else None,
        engine=hr.EngineOptions(io="synthetic"),
        output="numpy",
        memory="256MiB",
    ) as loader:
        pid = (
            [process.pid for process in node._started.values()][-1] if isolation == "process" else 0
        )
        steps = (step for _ in range(1_000_000) for step in loader)
        for _ in range(batches // 10):
            next(steps)
        own, other = cpu_seconds(), cpu_seconds_of(pid) if pid else 0.0
        for _ in range(batches):
            next(steps)
        own = cpu_seconds() - own
        other = cpu_seconds_of(pid) - other if pid else 0.0
        steps.close()
    return Cost(own / batches * 1e6, other / batches * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description="what a node process costs a batch")
    parser.add_argument("--batches", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--samples", type=int, default=200_000)
    options = parser.parse_args()
    costs: dict[str, list[Cost]] = {"thread": [], "process": []}
    with tempfile.TemporaryDirectory() as root:
        source = write_source(Path(root), options.samples).path
        for round_number in range(options.rounds):
            order = ("thread", "process") if round_number % 2 == 0 else ("process", "thread")
            for isolation in order:
                costs[isolation].append(measure(source, isolation, options.batch, options.batches))
    for isolation, found in costs.items():
        print(
            f"{isolation:8} {statistics.median(c.together for c in found):7.1f} us CPU a batch of "
            f"{options.batch}, of these in the trainer's process "
            f"{statistics.median(c.trainer for c in found):7.1f}"
        )
    more = sorted(
        b.together - a.together for a, b in zip(costs["thread"], costs["process"], strict=True)
    )
    print(
        f"a node process costs {statistics.median(more):.1f} us more a batch "
        f"({more[0]:.1f} to {more[-1]:.1f})"
    )


if __name__ == "__main__":
    main()
