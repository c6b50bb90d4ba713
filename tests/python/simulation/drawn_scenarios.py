"""Scenarios of any shape."""

from __future__ import annotations

import numpy as np

from headrace.simulation import Scenario, Sizes, Staging, StorageRates, TierRates


def drawn(seed: int) -> Scenario:
    """A small cluster and dataset of any shape."""
    random = np.random.default_rng(seed)

    def rate() -> float:
        return float(random.uniform(5, 300))

    by_samples = seed % 3 == 0
    nodes, batch_size = int(random.integers(1, 6)), int(random.integers(1, 6))
    samples = nodes * batch_size * int(random.integers(1, 12)) + int(random.integers(0, 5))
    return Scenario(
        title="drawn",
        sizes=Sizes(samples, 20, float(random.uniform(0, 20))),
        nodes=nodes,
        batch_size=batch_size,
        compute_rate=None if by_samples else rate(),
        sample_rate=rate() / 20 if by_samples else None,
        preprocess_rate=rate(),
        storage=StorageRates((1.0, 2.0, 4.0), (rate(), rate(), rate()), rate(), "nodes"),
        network_rate=rate(),
        staging=Staging(int(random.integers(1, 400)), int(random.integers(1, 5)), rate()),
        tiers=tuple(
            TierRates(name, int(random.integers(0, 1000)), int(random.integers(1, 4)), rate())
            for name in ("RAM", "SSD")[: int(random.integers(1, 3))]
        ),
        epochs=int(random.integers(1, 5)),
        seed=seed,
    )
