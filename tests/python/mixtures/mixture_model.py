"""Mixtures as docs/orders.md has them, in slow Python, to be compared with the C++."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import frexp

from order_model import BIJECTION_FROM, ORDER, Words, permutation, shuffled

from headrace import _core

MIXTURE = 10


def whole_weights(weights: Sequence[float]) -> list[int]:
    x = frexp(max(weights))[1]
    c = (len(weights) - 1).bit_length()
    scale = Fraction(2) ** (60 - c - x)
    return [0 if weight == 0 else max(1, round(Fraction(weight) * scale)) for weight in weights]


Node = tuple[int, int, "Node | int", "Node | int"]  # left weight, weight, left, right


def tree_of(weights: Sequence[int]) -> Node | int:
    parts: list[tuple[int, int, Node | int]] = [
        (weight, source, source) for source, weight in enumerate(weights) if weight
    ]
    heapq.heapify(parts)
    joined = 0
    while len(parts) > 1:
        light, _, lighter = heapq.heappop(parts)
        heavy, _, heavier = heapq.heappop(parts)
        joined += 1
        made = (heavy, light + heavy, heavier, lighter)
        heapq.heappush(parts, (light + heavy, len(weights) + joined, made))
    return parts[0][2]


def source_at(tree: Node | int, n: int) -> int:
    while not isinstance(tree, int):
        left_weight, weight, left, right = tree

        def before(n: int, left_weight: int = left_weight, weight: int = weight) -> int:
            return (2 * left_weight * n + weight) // (2 * weight)

        is_left = before(n + 1) > before(n)
        tree, n = (left, before(n)) if is_left else (right, n - before(n))
    return tree


@dataclass(frozen=True)
class MixtureModel:
    sizes: Mapping[str, int]
    stages: Sequence[tuple[int, Mapping[str, float]]]
    stop: str = "first"
    passes: Mapping[str, int] = ()  # type: ignore[assignment]
    epoch_samples: int | None = None

    def draws(self) -> Iterator[tuple[int, int]]:
        """(source, number), position by position."""
        names, passes = list(self.sizes), dict(self.passes)
        counts = [0] * len(names)
        now: list[float] | None = None
        stage, begin, position = 0, 0, 0
        tree: Node | int = 0
        while True:
            had = [
                count >= passes.get(name, 1) * self.sizes[name]
                for name, count in zip(names, counts, strict=True)
            ]
            if all(each and name in passes for name, each in zip(names, had, strict=True)):
                return
            if (self.stop == "first" and any(had)) or (self.stop == "all" and all(had)):
                return
            new_stage = stage + 1 < len(self.stages) and self.stages[stage + 1][0] == position
            stage += new_stage
            weights = [
                0.0 if each and name in passes else float(self.stages[stage][1].get(name, 0))
                for name, each in zip(names, had, strict=True)
            ]
            if new_stage or weights != now:
                now, begin, tree = weights, position, tree_of(whole_weights(weights))
            source = source_at(tree, position - begin)
            yield source, counts[source]
            counts[source] += 1
            position += 1

    def epochs(
        self,
        size: int,
        epochs: int,
        *,
        world_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> list[list[list[list[int]]]]:
        """Of each epoch, of each step, of each rank, the numbers of its samples."""
        endless = self.draws()
        if self.epoch_samples is None:
            once = list(endless)
            of_epochs = [
                [
                    (source, number + e * sum(s == source for s, _ in once))
                    for source, number in once
                ]
                for e in range(epochs)
            ]
        else:
            of_epochs = [[next(endless) for _ in range(self.epoch_samples)] for _ in range(epochs)]
        found, step = [], 0
        for draws in of_epochs:
            total = size * world_size
            count = len(draws)
            rows = count // total * size if drop_last else -(-count // world_size)
            steps = []
            for first in range(0, rows, size):
                here = range(first * world_size, min(first + size, rows) * world_size)
                steps.append(
                    self._dealt([draws[p % count] for p in here], world_size, seed, shuffle, step)
                )
                step += 1
            found.append(steps)
        return found

    def _dealt(
        self, draws: list[tuple[int, int]], ranks: int, seed: int, shuffle: bool, step: int
    ) -> list[list[int]]:
        turn = shuffled(ranks, Words(seed, 0, MIXTURE, step // ranks))
        by_source = sorted(range(len(draws)), key=lambda i: (draws[i][0], i))
        rank_of = {i: turn[(j + step) % ranks] for j, i in enumerate(by_source)}
        return [
            [
                self._sample(*draw, seed, shuffle)
                for i, draw in enumerate(draws)
                if rank_of[i] == rank
            ]
            for rank in range(ranks)
        ]

    def _sample(self, source: int, number: int, seed: int, shuffle: bool) -> int:
        name = list(self.sizes)[source]
        size = self.sizes[name]
        first = sum(list(self.sizes.values())[:source])
        if not shuffle:
            return first + number % size
        item = _core.hash64(name.encode())
        assert sum(self.sizes.values()) < BIJECTION_FROM
        return first + permutation(size, seed, number // size, ORDER, item=item)[number % size]
