"""The rules of docs/simulate.md, the obvious way: one policy at a time, plain lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace import _core
from headrace.simulation import Scenario

Stream = list[int]


def streams(scenario: Scenario) -> list[Stream]:
    return [
        _core.OrderStream(
            "exact",
            {},
            index=(scenario.sizes.samples, 1),
            batch_size=scenario.batch_size,
            world_size=scenario.nodes,
            rank=node,
            seed=scenario.seed,
            drop_last=True,
            epochs=scenario.epochs,
        )
        .ids()
        .tolist()
        for node in range(scenario.nodes)
    ]


class Model:
    """Seconds that a policy takes."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.sizes = scenario.sizes.draw(scenario.seed).tolist()
        self.streams = streams(scenario)
        self.marks = [-1.0] * scenario.nodes
        self.clocks = [0.0] * scenario.nodes
        self.used = [0.0] * scenario.nodes
        self.staged: list[list[float | None]] = [[] for _ in self.streams]
        staging = scenario.staging
        self.write = max(1 / scenario.preprocess_rate, staging.threads / staging.rate)

    def compute(self, size: float) -> float:
        if self.scenario.compute_rate is None:
            assert self.scenario.sample_rate is not None
            return 1 / self.scenario.sample_rate
        return size / self.scenario.compute_rate

    def storage(self, readers: int) -> float:
        rates = self.scenario.storage
        together = float(np.interp(readers, rates.readers, rates.rates))
        link = 0 if rates.link_rate is None else 1 / rates.link_rate
        return max(readers / together, link)

    def peer(self, tier: int) -> float:
        return max(1 / self.scenario.network_rate, 1 / self.scenario.tiers[tier].rate)

    def readers(self, node: int, when: float) -> int:
        return 1 + sum(mark > when for other, mark in enumerate(self.marks) if other != node)

    def pooled(self, fetch: float) -> float:
        return (fetch + self.write) / self.scenario.staging.threads

    def run(self, policy: str) -> float:
        return getattr(self, f"_{policy}")()

    def loop(
        self,
        begin: float,
        fetch: Callable[[int, int, int, float], tuple[str, float]],
        after_fill: Callable[[int, float], None] = lambda node, when: None,
        on_storage: Callable[[int, int, float], None] = lambda node, sample, end: None,
    ) -> float:
        """`fetch` says how a sample comes ("staged", "storage" or "demand") and its seconds a
        byte."""
        scenario = self.scenario
        self.clocks = [begin] * scenario.nodes
        now = begin
        for step in range(len(self.streams[0]) // scenario.batch_size):
            ends = []
            for node, stream in enumerate(self.streams):
                at = now
                for place in range(step * scenario.batch_size, (step + 1) * scenario.batch_size):
                    self.fill(node, place, at, fetch, on_storage)
                    after_fill(node, max(self.clocks[node], at))
                    size = self.sizes[stream[place]]
                    staged = self.staged[node][place]
                    if staged is None:
                        seconds = self.storage(self.readers(node, at))
                        self.marks[node] = max(self.marks[node], at)
                        at += size * (seconds + self.write)
                    else:
                        at = max(at, staged)
                        self.used[node] -= size
                    at += self.compute(size)
                ends.append(at)
            now = max(ends)
        return now

    def fill(self, node, place, now, fetch, on_storage) -> None:  # type: ignore[no-untyped-def]
        stream, staged = self.streams[node], self.staged[node]
        while len(staged) < len(stream):
            sample = stream[len(staged)]
            size = self.sizes[sample]
            is_needed = len(staged) == place
            if not is_needed and self.used[node] + size > self.scenario.staging.capacity:
                return
            begin = max(self.clocks[node], now)
            how, seconds = fetch(node, len(staged), sample, begin)
            if how == "demand":
                staged.append(None)
                continue
            self.clocks[node] = begin + size * self.pooled(seconds)
            self.used[node] += size
            staged.append(self.clocks[node])
            if how == "storage":
                self.marks[node] = max(self.marks[node], self.clocks[node])
                on_storage(node, sample, self.clocks[node])

    def load(self, tier: int) -> tuple[float, list[list[int]]]:
        scenario = self.scenario
        count, nodes = len(self.sizes), scenario.nodes
        parts: list[list[int]] = []
        seconds = 0.0
        for node in range(nodes):
            used, part = 0.0, []
            for sample in range(count * node // nodes, count * (node + 1) // nodes):
                if used + self.sizes[sample] > scenario.tiers[tier].capacity:
                    break
                used += self.sizes[sample]
                part.append(sample)
            parts.append(part)
            seconds = max(seconds, used * self.pooled(self.storage(nodes)))
        return seconds, parts

    def _perfect(self) -> float:
        scenario = self.scenario
        seconds = np.array([self.compute(size) for size in self.sizes])
        of_steps = [
            seconds[stream].reshape(-1, scenario.batch_size).sum(1) for stream in self.streams
        ]
        return float(np.max(of_steps, axis=0).sum())

    def _naive(self) -> float:
        return self.loop(0, lambda *_: ("demand", 0))

    def _staging(self) -> float:
        return self.loop(
            0,
            lambda node, place, sample, begin: ("storage", self.storage(self.readers(node, begin))),
        )

    def _deepio_ordered(self) -> float:
        seconds, parts = self.load(0)
        held = {sample for part in parts for sample in part}
        return self.loop(
            seconds,
            lambda node, place, sample, begin: (
                ("staged", self.peer(0)) if sample in held else ("demand", 0)
            ),
        )

    def _locality_aware(self) -> float:
        last = len(self.scenario.tiers) - 1
        seconds, parts = self.load(last)
        held = {sample for part in parts for sample in part}
        return self.loop(
            seconds,
            lambda node, place, sample, begin: (
                ("staged", self.peer(last))
                if sample in held
                else ("storage", self.storage(self.readers(node, begin)))
            ),
        )

    def _lbann_preloading(self) -> float:
        return self.loop(self.load(0)[0], lambda *_: ("staged", self.peer(0)))

    def _lbann_dynamic(self) -> float:
        first = len(self.streams[0]) // self.scenario.epochs
        return self.loop(
            0,
            lambda node, place, sample, begin: (
                ("storage", self.storage(self.scenario.nodes))
                if place < first
                else ("staged", self.peer(0))
            ),
        )

    def _nopfs(self) -> float:
        return self.planned_tiers(cleanup=False)

    def _nopfs_cleanup(self) -> float:
        return self.planned_tiers(cleanup=True)

    def planned_tiers(self, cleanup: bool) -> float:
        tiers = self.scenario.tiers
        left: list[list[int]] = []
        room: list[list[float]] = []
        plans: list[dict[int, int]] = []
        kept: list[dict[int, float]] = [{} for _ in self.streams]
        waiting: list[list[list[int]]] = []
        threads = [[[0.0] * tier.threads for tier in tiers] for _ in self.streams]
        for stream in self.streams:
            uses = {sample: stream.count(sample) for sample in dict.fromkeys(stream)}
            plan: dict[int, int] = {}
            tier, used = 0, [0.0] * len(tiers)
            ranked = sorted(uses, key=lambda sample: (-uses[sample], sample))
            for sample in ranked:
                while tier < len(tiers) and used[tier] + self.sizes[sample] > tiers[tier].capacity:
                    tier += 1
                if tier == len(tiers):
                    break
                plan[sample] = tier
                used[tier] += self.sizes[sample]
            plans.append(plan)
            left.append([sample for sample in ranked if sample not in plan])
            room.append(used)
            waiting.append([[s for s in uses if plan.get(s) == tier] for tier in range(len(tiers))])

        def keep(node: int, sample: int, end: float) -> None:
            if sample in plans[node]:
                kept[node][sample] = min(kept[node].get(sample, np.inf), end)

        def fetch(node: int, place: int, sample: int, begin: float) -> tuple[str, float]:
            is_kept = kept[node].get(sample, np.inf) <= begin
            tier = plans[node].get(sample)
            if cleanup and tier is not None and sample not in self.streams[node][place + 1 :]:
                drop(node, place, sample, tier)
            if is_kept and tier is not None:
                return "staged", 1 / tiers[tier].rate
            return "storage", self.storage(self.readers(node, begin))

        def drop(node: int, place: int, sample: int, tier: int) -> None:
            """The room of a sample goes to others that are used later, while the next one fits."""
            del plans[node][sample]
            kept[node].pop(sample, None)
            if sample in waiting[node][tier]:
                waiting[node][tier].remove(sample)
            room[node][tier] -= self.sizes[sample]
            while left[node]:
                following = left[node][0]
                if following in self.streams[node][place + 1 :]:
                    if room[node][tier] + self.sizes[following] > tiers[tier].capacity:
                        return
                    room[node][tier] += self.sizes[following]
                    plans[node][following] = tier
                    waiting[node][tier].append(following)
                left[node].pop(0)

        def read_ahead(node: int, when: float) -> None:
            for tier, of_tier in enumerate(threads[node]):
                for thread, idle_from in enumerate(of_tier):
                    if idle_from > when or not waiting[node][tier]:
                        continue
                    sample = waiting[node][tier].pop(0)
                    seconds = self.storage(self.readers(node, when)) + self.write
                    end = when + self.sizes[sample] * seconds
                    of_tier[thread] = end
                    self.marks[node] = max(self.marks[node], end)
                    keep(node, sample, end)

        return self.loop(0, fetch, read_ahead, keep)

    def _lru(self) -> float:
        return self.cached(lambda node, place: place, min)

    def _belady(self) -> float:
        def key_of(node: int, place: int) -> int | None:
            stream = self.streams[node]
            later = stream[place + 1 :]
            return place + 1 + later.index(stream[place]) if stream[place] in later else None

        return self.cached(key_of, max)

    def cached(
        self,
        key_of: Callable[[int, int], int | None],
        evicted: Callable[[list[int]], int],
    ) -> float:
        """Nodes whose tiers are caches. `key_of`: of what is used at a place, None: it is not kept;
        `evicted`: of the keys in a tier."""
        capacities = [tier.capacity for tier in self.scenario.tiers]
        # By node and tier: the sample of each key.
        caches: list[list[dict[int, int]]] = [[{} for _ in capacities] for _ in self.streams]

        def keep(node: int, tier: int, key: int, sample: int) -> None:
            while tier < len(capacities) and self.sizes[sample] > capacities[tier]:
                tier += 1
            if tier == len(capacities):
                return
            cache = caches[node][tier]
            cache[key] = sample
            while sum(self.sizes[of] for of in cache.values()) > capacities[tier]:
                out = evicted(list(cache))
                keep(node, tier + 1, out, cache.pop(out))

        def fetch(node: int, place: int, sample: int, begin: float) -> tuple[str, float]:
            found = None
            for tier, cache in enumerate(caches[node]):
                for key in [key for key, of in cache.items() if of == sample]:
                    found = tier
                    del cache[key]
            kept_by = key_of(node, place)
            if kept_by is not None:
                keep(node, 0, kept_by, sample)
            if found is None:
                return "storage", self.storage(self.readers(node, begin))
            return "staged", 1 / self.scenario.tiers[found].rate

        return self.loop(0, fetch)

    def _coordl(self) -> float:
        kept: dict[int, tuple[float, int, int]] = {}
        tiers = self.scenario.tiers
        used = [[0.0] * len(tiers) for _ in self.streams]

        def keep(node: int, sample: int, end: float) -> None:
            for tier, of_tier in enumerate(tiers):
                if sample in kept or used[node][tier] + self.sizes[sample] > of_tier.capacity:
                    continue
                used[node][tier] += self.sizes[sample]
                kept[sample] = end, node, tier

        def fetch(node: int, place: int, sample: int, begin: float) -> tuple[str, float]:
            start, owner, tier = kept.get(sample, (np.inf, 0, 0))
            if start > begin:
                return "storage", self.storage(self.readers(node, begin))
            return "staged", 1 / tiers[tier].rate if owner == node else self.peer(tier)

        return self.loop(0, fetch, on_storage=keep)
