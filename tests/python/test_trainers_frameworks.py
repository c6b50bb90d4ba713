"""Loaders in NumPy, JAX and TensorFlow, the real packages, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import COUNT, FLAT, LABELS, epoch_ids, flat
from rank_scripts import environment, real_packages, run_script

import headrace as hr
from headrace.errors import InvalidArgumentError

pytestmark = pytest.mark.timeout(900)  # The first waits for the packages: TensorFlow has 1.4 GB.

SCRIPT = Path(__file__).parent / "trainers" / "frameworks.py"
EXAMPLES = Path(__file__).parents[2] / "examples" / "trainers"
FRAMEWORKS = ("numpy", "jax", "tensorflow")
EPOCHS = 2


@pytest.fixture(scope="module")
def given(
    request: pytest.FixtureRequest, numbered: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a framework was given, case by case."""
    name = request.param
    packages = None
    if name != "numpy":
        packages = real_packages(name)
    folder = tmp_path_factory.mktemp(name)
    (folder / "images").symlink_to(numbered)
    env = environment(packages, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore")
    example = EXAMPLES / f"train_{name}.py"
    ended = run_script(SCRIPT, numbered, example, name, env=env, folder=folder, timeout_s=800)
    assert ended.code == 0, ended.err
    told: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
    return told | {"framework": name}


def of_each(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("given", names or FRAMEWORKS, indirect=True)


def losses(images: Path) -> list[float]:
    """Of the steps of the examples, which train the same model."""
    weights = np.zeros((3 * 64 * 64, 3))
    found = []
    with hr.Loader(
        images, 16, transform=hr.image.train(64), output=hr.Output("numpy", ids=True)
    ) as loader:
        for _ in range(EPOCHS):
            for image, label, ids in loader:
                assert (label == LABELS[ids]).all()
                pixels = image.reshape(len(image), -1).astype(np.float64)
                scores = pixels @ weights
                likely = np.exp(scores - scores.max(axis=1, keepdims=True))
                likely /= likely.sum(axis=1, keepdims=True)
                rows = np.arange(len(label))
                found.append(-np.log(likely[rows, label]).mean())
                likely[rows, label] -= 1
                weights -= 1e-4 * pixels.T @ likely / len(label)
    return found


@of_each()
def test_the_example_s_losses_are_those_of_the_same_samples_in_numpy(
    given: dict[str, Any], numbered: Path
) -> None:
    lines = [line.split() for line in given["example"].splitlines()]
    assert [int(epoch) for epoch, _ in lines] == [0] * 7 + [1] * 7
    assert [float(loss) for _, loss in lines] == pytest.approx(losses(numbered), rel=1e-3)


@of_each()
def test_torch_is_not_imported(given: dict[str, Any]) -> None:
    assert not given["torch"]


@of_each()
def test_batches_are_arrays_of_the_framework(given: dict[str, Any]) -> None:
    kind = {"jax": "jaxlib._jax.ArrayImpl"}.get(given["framework"], "numpy.ndarray")
    assert given["kinds"] == [kind] * 3


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@of_each()
def test_every_rank_has_the_samples_of_its_loader(
    given: dict[str, Any], numbered: Path, ranks: int, drop_last: bool
) -> None:
    shares = []
    for rank in range(ranks):
        job = hr.Job(rank=rank, world_size=ranks)
        with hr.Loader(
            numbered, 10, seed=1, drop_last=drop_last, transform=FLAT, job=job
        ) as loader:
            own = [each for _ in range(EPOCHS) for each in flat(epoch_ids(loader))]
        shares.append(given[f"{ranks} {rank} {drop_last}"])
        assert shares[-1] == own
    if not drop_last:
        assert set(flat(shares)) == set(range(COUNT))


@of_each()
def test_a_state_of_each_step_goes_on_with_the_next_batch(given: dict[str, Any]) -> None:
    whole, *rests = given["went on"]
    assert sorted(whole) == list(range(COUNT))
    for step, rest in enumerate(rests[:-1], 1):
        assert rest == whole[step * 10 :]
    assert rests[-1] == given["1 0 False"][COUNT:]  # The end of an epoch: the start of the next.


@of_each()
def test_an_epoch_that_was_left_early_is_over(given: dict[str, Any]) -> None:
    assert given["left early"] == given["1 0 False"][COUNT:]


@of_each("tensorflow")
def test_the_signature_is_that_of_the_fields(given: dict[str, Any]) -> None:
    assert given["spec"] == (
        "(TensorSpec(shape=(None, 3, 8, 8), dtype=tf.uint8, name=None), "
        "TensorSpec(shape=(None,), dtype=tf.int64, name=None))"
    )
    assert given["spec, dropped"] == (
        "(TensorSpec(shape=(10, 3, 8, 8), dtype=tf.uint8, name=None), "
        "TensorSpec(shape=(10,), dtype=tf.int64, name=None), "
        "TensorSpec(shape=(10,), dtype=tf.int64, name=None))"
    )


@of_each("tensorflow")
def test_encoded_images_are_strings(given: dict[str, Any]) -> None:
    assert given["encoded"] == given["1 0 False"][:10]


@of_each("tensorflow")
def test_a_python_transform_needs_a_signature(given: dict[str, Any]) -> None:
    assert given["given signature"] == given["1 0 False"][:10]
    assert given["function"].startswith(
        "InvalidArgumentError: signature: the loader has a Python transform or a collate_fn, so it "
        "is not known what a batch has; give it, as signature=(tf.TensorSpec(...), ...)"
    )
    assert given["no loader"] == ("InvalidArgumentError: loader: got [], must be a headrace.Loader")


def test_jax_that_is_not_installed_is_named(numbered: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match="output='jax': jax is not installed; pip install jax"
    ):
        hr.Loader(numbered, output="jax")
