"""The least time that a job takes with an order, whatever reads it: a step waits for its slowest
node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.simulation.scenario import Scenario

BOUNDED = ("exact", "batch", "epoch")
"""Headrace's orders."""
_BLOCK_SAMPLES = 64  # of the order `epoch`
_STEPS = 1024  # planned at once


def bound_seconds(scenario: Scenario, sizes: npt.NDArray[np.float64], order: str) -> float:
    """All epochs without a stall.

    `exact` gives the bound that papers call *Perfect*. `batch` levels the bytes of the nodes of a
    step, so its bound is lower where sizes differ and decide how long a node computes; `epoch` does
    not level. Where a node computes by samples all have one bound. Takes as long as planning the
    epochs does.
    """
    seconds = compute_seconds(scenario, sizes)
    ranks = scenario.nodes * scenario.ranks
    costs = _costs(sizes) if _core.find_order(order).takes_costs else None
    stream = _core.OrderStream(
        order,
        {},
        index=(len(sizes), _BLOCK_SAMPLES),
        batch_size=scenario.batch_size,
        world_size=ranks,
        ranks=ranks,
        seed=scenario.seed,
        drop_last=True,
        epochs=scenario.epochs,
        costs=costs,
    )
    slowest, steps = 0.0, 0
    while len(ids := stream.ids(_STEPS)):
        of_ranks = seconds[ids].reshape(-1, ranks, scenario.batch_size).sum(2)
        slowest += float(of_ranks.max(1).sum())
        steps += len(of_ranks)
    return slowest * scenario.ranks + steps * scenario.allreduce


def compute_seconds(scenario: Scenario, sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """That a node computes on each sample, by its bytes or by its number."""
    seconds = np.zeros(len(sizes))
    if scenario.compute_rate is not None:
        seconds += sizes / scenario.compute_rate
    if scenario.sample_rate is not None:
        seconds += 1 / scenario.sample_rate
    return seconds


def _costs(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.uint32]:
    """Whole numbers in proportion to the sizes, as large as they may be."""
    largest = float(sizes.max(initial=0))
    scale = 1.0 if largest < 2**32 - 1 else (2**32 - 2) / largest
    return np.round(sizes * scale).astype(np.uint32)
