"""What a policy in Python costs beside the same in C++: microseconds a sample.

    python benchmarks/papers/own_policy.py

Runs the thesis's second scenario with its first tier alone: 1.5 M samples on 4 nodes. Prints the
least of three runs of each.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise
from time import perf_counter

from headrace.simulation import Fetch, Job, OwnPolicy, load_scenario, simulate

_RUNS = 3


class Staging(OwnPolicy):
    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        return "storage"


class Lru(OwnPolicy):
    """In the first tier alone."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.sizes: list[float] = job.sizes.tolist()
        self.rooms = [float(job.scenario.tiers[0].capacity)] * job.scenario.nodes
        self.caches = [OrderedDict[int, None]() for _ in job.streams]

    def fetch_of(self, node: int, place: int, sample: int, begin: float) -> Fetch:
        cache = self.caches[node]
        if sample in cache:
            cache.move_to_end(sample)
            return "tier", 0
        cache[sample] = None
        self.rooms[node] -= self.sizes[sample]
        while self.rooms[node] < 0:
            self.rooms[node] += self.sizes[cache.popitem(last=False)[0]]
        return "storage"


def main() -> None:
    scenario = load_scenario("thesis-s2")
    scenario = replace(scenario, tiers=scenario.tiers[:1])
    compared: tuple[str | type[OwnPolicy], ...] = ("staging", Staging, "lru", Lru)
    best = [float("inf")] * len(compared)
    begun: list[float] = []  # of each policy, then of each bound
    for _ in range(_RUNS):
        begun.clear()
        simulate(scenario, compared, lambda name: begun.append(perf_counter()))
        taken = [end - begin for begin, end in pairwise(begun)]
        best = [min(one, other) for one, other in zip(best, taken, strict=False)]
    samples = scenario.sizes.samples * scenario.epochs
    for policy, seconds in zip(compared, best, strict=True):
        name = policy if isinstance(policy, str) else f"{policy.__name__}, in Python"
        print(f"{name}: {seconds / samples * 1e6:.2f} us a sample")


if __name__ == "__main__":
    main()
