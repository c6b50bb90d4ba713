"""How often a node uses each sample: counted in a planned order, beside what chance gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace import _core
from headrace._arguments import integer
from headrace.cli._parts import orders as _orders
from headrace.errors import InvalidArgumentError


def count_uses(planned: _orders.Planned, ranks_per_node: int, rank: int) -> dict[str, Any]:
    """The uses by the node of `rank`, as JSON: `uses[n]` samples are used n times in all epochs.

    `more_often`: by a number of uses, at least the mean, the samples that the node uses more often,
    and how many these are if each epoch gives each sample to a node at random.
    """
    integer("--ranks-per-node", ranks_per_node, 1, planned.ranks)
    if planned.ranks % ranks_per_node:
        raise InvalidArgumentError(
            f"--ranks-per-node: got {ranks_per_node}, must divide --ranks {planned.ranks}"
        )
    nodes, node = planned.ranks // ranks_per_node, rank // ranks_per_node
    counts = np.zeros(planned.source.samples, np.uint32)
    for local in range(ranks_per_node):
        stream = planned.stream(node * ranks_per_node + local)
        for places in _orders.rank_ids(stream, planned.batch // planned.ranks):
            np.add.at(counts, places, 1)
    uses = np.bincount(counts)
    mean = planned.epochs / nodes
    return {
        "order": planned.order,
        "samples": planned.source.samples,
        "epochs": planned.epochs,
        "nodes": nodes,
        "node": node,
        "mean": mean,
        "uses": uses.tolist(),
        "more_often": list(_more_often(uses, planned.epochs, nodes)),
    }


def _more_often(uses: np.ndarray[Any, Any], epochs: int, nodes: int) -> Iterator[dict[str, Any]]:
    """Down to less than one sample, counted and by chance."""
    samples, mean = int(uses.sum()), epochs / nodes
    for least in range(-(-epochs // nodes), epochs + 1):
        counted = int(uses[least + 1 :].sum())
        by_chance = samples * _core.used_more_often(epochs, nodes, least / mean)
        yield {"uses": least, "samples": counted, "by_chance": by_chance}
        if counted == 0 and by_chance < 1:
            return


def print_uses(found: dict[str, Any]) -> None:
    print(
        f"order {found['order']}, {found['epochs']:,} epochs, node {found['node']} of "
        f"{found['nodes']:,}: it uses each of {found['samples']:,} samples {found['mean']:.4g} "
        "times on average"
    )
    print(f"{'more than':>9}  {'samples':>12}  {'by chance':>14}")
    for row in found["more_often"]:
        print(f"{row['uses']:>9,}  {row['samples']:>12,}  {row['by_chance']:>14,.1f}")
