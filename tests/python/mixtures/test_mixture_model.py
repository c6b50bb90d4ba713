"""The numbers of the samples of mixtures against docs/orders.md."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mixtures.mixture_model import MixtureModel

import headrace as hr
from headrace import errors


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("arrays")
    for samples in range(1, 31):
        np.save(root / f"{samples}.npy", np.arange(samples) + 1000 * samples)
    return root


@pytest.mark.parametrize("seed", range(40))
def test_batches_are_those_of_the_model(arrays: Path, seed: int) -> None:
    draw = random.Random(seed)
    sizes = {
        f"source {i} é": n for i, n in enumerate(draw.sample(range(1, 31), draw.randint(1, 6)))
    }
    stages: list[Any] = []
    begin = 0
    for _ in range(draw.randint(1, 3)):
        weights = {name: draw.choice([0, 1, 2.5, draw.random()]) for name in sizes}
        stages.append((begin, weights | {draw.choice(list(sizes)): 1e-3 + draw.random()}))
        begin += draw.randint(1, 50)
    stop: Any = draw.choice(["first", "all", "never"])
    passes = {name: draw.randint(1, 3) for name in sizes if draw.random() < 0.3}
    epoch = draw.randint(1, 70) if stop == "never" else None
    sources = {name: hr.open(arrays / f"{samples}.npy") for name, samples in sizes.items()}
    made: dict[str, Any] = {"stop": stop, "passes": passes, "epoch_samples": epoch}
    try:
        mixture = hr.mix(sources, stages, **made)
    except errors.InvalidArgumentError as error:
        reasons = ("never ends", "all sources have ended", "but it ends after")
        assert any(reason in str(error) for reason in reasons), error  # noqa: PT017
        return
    model = MixtureModel(sizes, stages, **made)
    ranks, size = draw.choice([1, 2, 3]), draw.randint(1, 5)
    drop_last = draw.random() < 0.4 and mixture.epoch_samples >= ranks * size
    job = {"seed": seed, "shuffle": draw.random() < 0.8, "drop_last": drop_last}
    wanted = model.epochs(size, 3, world_size=ranks, **job)
    for rank in range(ranks):
        found = []
        with hr.Loader(
            mixture,
            size,
            order="exact",
            epochs=3,
            output=hr.Output("numpy", ids=True),
            job=hr.Job(rank=rank, world_size=ranks),
            **job,
        ) as loader:
            for _ in range(3):
                found.append([batch.sample_id.tolist() for batch in loader])
        assert found == [[step[rank] for step in epoch] for epoch in wanted]
