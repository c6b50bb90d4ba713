"""The order `batch` of docs/orders.md as slow Python, written from that page."""

from __future__ import annotations

from collections.abc import Sequence

import order_model


def final_batch_padded(
    n: int, global_batch: int, world_size: int, *, drop_last: bool
) -> list[list[int]]:
    """Positions of the epoch's permutation that each step takes."""
    if drop_last:
        return [
            list(range(first, first + global_batch))
            for first in range(0, n - global_batch + 1, global_batch)
        ]
    end = -(-n // world_size) * world_size
    steps = []
    for first in range(0, end, global_batch):
        real = min(n - first, global_batch)
        size = min(end - first, global_batch)
        steps.append([first + i % real for i in range(size)])
    return steps


def deal(
    costs: Sequence[int], homes: Sequence[Sequence[int]], rows: int, nodes: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Places in the global batch that each rank takes. `nodes`: the ranks on each."""
    places = range(len(costs))
    homes = [[home for home in some if 0 <= home < len(nodes)] for some in homes]
    room = [rows * len(ranks) for ranks in nodes]
    node_of: dict[int, int] = {}
    for i in sorted(places, key=lambda i: (len(homes[i]), -costs[i], i)):
        with_room = [home for home in homes[i] if room[home] > 0]
        if with_room:
            node_of[i] = min(with_room, key=lambda home: (-room[home], home))
            room[node_of[i]] -= 1
    load = [0] * sum(map(len, nodes))
    taken: list[list[int]] = [[] for _ in load]
    for i in sorted(places, key=lambda i: (-costs[i], i)):
        candidates = [
            (load[rank], rank, node)
            for node, ranks in enumerate(nodes)
            if (node_of[i] == node if i in node_of else room[node] > 0)
            for rank in ranks
            if len(taken[rank]) < rows
        ]
        _, rank, node = min(candidates)
        if i not in node_of:
            room[node] -= 1
        load[rank] += costs[i]
        taken[rank].append(i)
    return [sorted(some) for some in taken]


def batch_epoch(
    n: int,
    batch_size: int,
    *,
    world_size: int,
    ranks_per_node: int = 1,
    homes: Sequence[Sequence[int]] | None = None,
    costs: Sequence[int] | None = None,
    seed: int = 0,
    epoch: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    bijection_from: int = order_model.BIJECTION_FROM,
) -> list[list[list[int]]]:
    """The batches of each rank in one epoch: [rank][step][slot]."""
    samples = list(range(n))
    if shuffle:
        samples = order_model.permutation(n, seed, epoch, bijection_from=bijection_from)
    ranks = list(range(world_size))
    nodes = [
        ranks[first : first + ranks_per_node] for first in range(0, world_size, ranks_per_node)
    ]
    ours: list[list[list[int]]] = [[] for _ in ranks]
    for positions in final_batch_padded(
        n, batch_size * world_size, world_size, drop_last=drop_last
    ):
        batch = [samples[position] for position in positions]
        dealt = deal(
            [1 if costs is None else costs[sample] for sample in batch],
            [() if homes is None else homes[sample] for sample in batch],
            len(batch) // world_size,
            nodes,
        )
        for rank, places in enumerate(dealt):
            ours[rank].append([batch[place] for place in places])
    return ours
