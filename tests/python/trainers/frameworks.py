"""What a framework without torch is given. Run by test_trainers_frameworks.py.

Usage: frameworks.py DATA EXAMPLE numpy|jax|tensorflow

Runs the example, in a folder that has `images`, then the cells of a table. Prints a JSON object.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from loader_data import FLAT, LABELS

import headrace as hr

data, example, framework = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
EPOCHS = 2


def loader(**more: Any) -> hr.Loader:
    arrays: Any = {"tensorflow": "numpy"}.get(framework, framework)
    output = hr.Output(arrays, ids=more.pop("ids", False))
    return hr.Loader(data, 10, seed=1, output=output, **({"transform": FLAT} | more))


def batches(made: hr.Loader) -> Any:
    if framework == "tensorflow":
        return importlib.import_module("headrace.tensorflow").dataset(made)
    return made


def ids(batch: Any) -> list[int]:
    image, label = (np.asarray(field) for field in batch[:2])
    found = image[:, 0, 0, 0].astype(int)
    assert (image == image[:, :1, :1, :1]).all(), "a sample is mixed"
    assert (label == LABELS[found]).all()
    return [int(sample) for sample in found]


def as_rank(rank: int, ranks: int, drop_last: bool) -> list[int]:
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(ranks)})
    try:
        with loader(drop_last=drop_last) as made:
            source = batches(made)
            return [each for _ in range(EPOCHS) for batch in source for each in ids(batch)]
    finally:
        del os.environ["RANK"], os.environ["WORLD_SIZE"]


def kinds() -> list[str]:
    with loader(ids=True) as made:
        return [f"{type(field).__module__}.{type(field).__name__}" for field in next(iter(made))]


def went_on() -> list[list[int]]:
    """The samples of an epoch, and for each place in it those that follow its state."""
    with loader() as made:
        states = []
        taken = []
        for batch in batches(made):
            taken.append(ids(batch))
            states.append(made.state_dict())
    told = [[each for batch in taken for each in batch]]
    for state in states:
        with loader() as made:
            made.load_state_dict(state)
            told.append([each for batch in batches(made) for each in ids(batch)])
    return told


def left_early() -> list[int]:
    """The epoch after one that was left after a batch."""
    with loader() as made:
        source = batches(made)
        next(iter(source))
        return [each for batch in source for each in ids(batch)]


def spec(**more: Any) -> str:
    with loader(**more) as made:
        return str(batches(made).element_spec)


def encoded() -> list[int]:
    """Labels of images that TensorFlow decodes, as the grey of a sample is its number."""
    tensorflow: Any = importlib.import_module("tensorflow")
    with loader(transform=None) as made:
        image, label = next(iter(batches(made)))
        grey = [int(tensorflow.io.decode_jpeg(each).numpy()[0, 0, 0]) for each in image]
        assert label.numpy().tolist() == LABELS[grey].tolist()
        return grey


def given_signature() -> list[int]:
    tensorflow: Any = importlib.import_module("tensorflow")
    with loader(transform=(FLAT, lambda sample: {"n": sample.id}), workers=0) as made:
        dataset = importlib.import_module("headrace.tensorflow").dataset
        signature = {"n": tensorflow.TensorSpec((None,), tensorflow.int64)}
        (first,) = dataset(made, signature=signature).take(1)
        return [int(sample) for sample in first["n"]]


def error(case: Callable[[], Any]) -> str:
    try:
        return str(case())
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"


def of_tensorflow() -> Iterator[tuple[str, Any]]:
    yield "spec", spec()
    yield "spec, dropped", spec(drop_last=True, ids=True)
    yield "encoded", encoded()
    yield "given signature", given_signature()
    function = {"transform": (FLAT, lambda sample: sample), "workers": 0}
    yield "function", error(lambda: spec(**function))
    yield "no loader", error(lambda: importlib.import_module("headrace.tensorflow").dataset([]))


said = io.StringIO()
with contextlib.redirect_stdout(said):
    example_code = runpy.run_path(example)
told: dict[str, Any] = {"example": said.getvalue(), "kinds": kinds()}
for ranks in (1, 2, 4):
    for rank in range(ranks):
        for drop_last in (False, True):
            told[f"{ranks} {rank} {drop_last}"] = as_rank(rank, ranks, drop_last)
told["went on"] = went_on()
told["left early"] = left_early()
if framework == "tensorflow":
    told |= dict(of_tensorflow())
told["torch"] = "torch" in sys.modules
print(json.dumps(told))
