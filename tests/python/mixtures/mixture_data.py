"""Sources of mixtures whose rows say which they are, and what loaders give of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace._dataset import Mixture

SIZES = {"web": 37, "code": 11, "books": 5}
WEIGHTS = {"web": 5, "code": 2, "books": 1}


def row_of(source: str, number: int) -> list[int]:
    return [list(SIZES).index(source), number, 1000 * number]


def write_sources(root: Path) -> dict[str, str]:
    """Three arrays, whose rows say which they are."""
    paths = {}
    for name, samples in SIZES.items():
        path = root / name / "rows.npy"
        path.parent.mkdir()
        np.save(path, np.array([row_of(name, number) for number in range(samples)]))
        paths[name] = str(path)
    return paths


def rows_of(batch: Any) -> list[list[int]]:
    rows: list[list[int]] = np.asarray(batch[0]).tolist()
    return rows


def steps_of(
    mixture: Mixture, ranks: int = 1, global_batch: int = 8, epochs: int = 2, **more: Any
) -> list[list[list[list[int]]]]:
    """Of each step, of each rank, the rows of its batch."""
    loaders = [
        hr.Loader(
            mixture,
            batch_size=global_batch // ranks,
            order="exact",
            epochs=epochs,
            job=hr.Job(rank=rank, world_size=ranks),
            **more,
        )
        for rank in range(ranks)
    ]
    steps: list[list[list[list[int]]]] = []
    try:
        for _ in range(epochs):
            steps += [
                [rows_of(batch) for batch in of_ranks] for of_ranks in zip(*loaders, strict=True)
            ]
    finally:
        for loader in loaders:
            loader.close()
    return steps


def samples_of(step: list[list[list[int]]]) -> list[list[int]]:
    return sorted(row for rank in step for row in rank)


def same(sample: Any) -> Any:
    return (sample.value,)


PROGRAM = """
import json, sys
import numpy as np
import headrace as hr

mixture = hr.mix(json.loads(sys.argv[1]), json.loads(sys.argv[2]), stop="never", epoch_samples=64)
with hr.Loader(
    mixture, batch_size=4, order="exact", epochs=2, job=hr.Job(node=hr.Node()),
    tiers=hr.tiers.Ram("1KiB"),
) as loader:
    print(json.dumps([np.asarray(batch[0]).tolist() for _ in range(2) for batch in loader]))
"""
