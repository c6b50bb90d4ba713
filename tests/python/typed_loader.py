"""What mypy knows of the package; read by test_signature.py, never run. An error that is expected
is ignored by its code: mypy reports those that are missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import headrace as hr
from headrace.pack import PackParameters

path = Path("images")

# Words.
hr.Loader(
    path,
    8,
    order="epoch",
    engine=hr.EngineOptions(io="threads"),
    on_error="substitute",
    output="numpy",
)
hr.Loader(
    path,
    8,
    output=hr.Output(ragged="pad"),
    workers=hr.Workers(start="fork"),
    tiers=hr.Cache(placement="belady"),
    job=hr.Job(node=hr.Node()),
)
hr.Loader(path, output=hr.Output("torch", fields={"x": "image"}, decode=False, ids=True))
hr.Loader(path, memory=hr.tiers.Budget("1GiB").part("train", 0.5), tiers=hr.tiers.Ram("1MiB"))
hr.Loader(path, job=hr.Job(rank=0, world_size=2, node=False), tiers=[hr.tiers.Ram("1MiB")])
hr.Loader(path, engine=hr.EngineOptions(schedule="lobster"))
hr.Loader(path, engine=hr.EngineOptions(schedule=path))
hr.Loader(path, order=hr.orders.Redox(mapping="interleaved", refill="random", ties="first"))
hr.Loader(path, order=hr.orders.Batch(costs="bytes"))
hr.Loader(path, order="epoh")  # type: ignore[arg-type]
hr.Loader(path, engine=hr.EngineOptions(io="uring"))  # type: ignore[arg-type]
hr.Loader(path, on_error="skip")  # type: ignore[arg-type]
hr.Loader(path, output="tensor")  # type: ignore[arg-type]
hr.Loader(path, output=hr.Output("tensor"))  # type: ignore[arg-type]
hr.Loader(path, job=hr.Job(node=True))  # type: ignore[arg-type]
hr.Loader(path, output=hr.Output(ragged="pack"))  # type: ignore[arg-type]
hr.Loader(path, workers=hr.Workers(start="spwan"))  # type: ignore[arg-type]
hr.Loader(path, tiers=hr.Cache(placement="best"))  # type: ignore[arg-type]
hr.Loader(path, job=hr.Job(node="process"))  # type: ignore[arg-type]
hr.Loader(path, workers="4")  # type: ignore[arg-type]
hr.Loader(path, tiers=hr.EngineOptions())  # type: ignore[arg-type]
hr.orders.Redox(mapping="interleave")  # type: ignore[arg-type]
hr.orders.Redox(refill="max")  # type: ignore[arg-type]
hr.orders.Redox(ties="last")  # type: ignore[arg-type]
hr.orders.Batch(costs="byte")  # type: ignore[arg-type]
hr.image.train(8, dtype="float16")  # type: ignore[arg-type]
PackParameters(order="random")  # type: ignore[arg-type]

# Names.
hr.Loader(path, num_workers=4)  # type: ignore[call-arg]
hr.Loader(path, prefetch=4)  # type: ignore[call-arg]
hr.EngineOptions(prefetchs=4)  # type: ignore[call-arg]
hr.Job(0, 1)  # type: ignore[call-arg]
hr.EngineOptions().prefetch = 4  # type: ignore[misc]
hr.Loader(path, 8, True)  # type: ignore[call-arg]
hr.Loader()  # type: ignore[call-arg]
hr.Loader(path, batch_size="8")  # type: ignore[arg-type]

# Batches.
plain = hr.Loader(path, 8)
for batch in plain:
    assert_type(batch, hr.Fields[Any])
    assert_type(batch.image, Any)
for image, label in plain:
    assert_type((image, label), tuple[Any, Any])

Array = NDArray[np.float32]
arrays: hr.Loader[hr.Fields[Array]] = hr.Loader(path, output="numpy")
for images, labels in arrays:
    assert_type(images, Array)
    labels.sum()
    labels.no_such_method()  # type: ignore[attr-defined]
for each in arrays:
    assert_type(each.label, Array)
    assert_type(each[0], Array)


def prepare(sample: hr.Sample) -> dict[str, Array]:
    return {"noise": sample.rng.normal(size=3).astype(np.float32)}


made: hr.Loader[dict[str, Array]] = hr.Loader(path, transform=prepare, workers=2)
for one in made:
    assert_type(one["noise"], Array)


def train(loader: hr.Loader, folder: os.PathLike[str]) -> int:
    """A bare `Loader` is one of any batches, in strict mode, too."""
    return sum(len(batch) for batch in loader)


train(plain, path)


def misspelt() -> None:
    """A name that headrace does not have is an error."""
    hr.Lodaer()  # type: ignore[attr-defined]
