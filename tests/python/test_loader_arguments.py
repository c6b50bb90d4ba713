"""Arguments and paths that cannot be: one clear error that names them and says what would do."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import order_model as model
import pytest
import torch
from loader_data import COUNT, FLAT, epoch_ids

import headrace as hr
from headrace import errors
from headrace._dataset import index_folder
from headrace.pack import PackParameters, write_pack
from headrace.torch import DataLoader


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("dataset", 3),
        ("dataset", None),
        ("dataset", b"/data"),
        ("batch_size", 0),
        ("batch_size", -1),
        ("batch_size", 2.0),
        ("batch_size", "8"),
        ("batch_size", None),
        ("batch_size", True),
        ("batch_size", 2**40),
        ("shuffle", "no"),
        ("shuffle", 1),
        ("order", "random"),
        ("order", 1),
        ("seed", -1),
        ("seed", 2**64),
        ("seed", 1.5),
        ("seed", None),
        ("drop_last", "yes"),
        ("transform", 3),
        ("transform", {"image": 3}),
        ("transform", {"label": FLAT}),
        ("transform", {"picture": FLAT}),
        ("transform", hr.image.ImageTransform(size=(0, 4))),
        ("transform", hr.image.ImageTransform(size=(4, 4), flip=2.0)),
        ("fields", "label"),
        ("fields", 3),
        ("fields", []),
        ("fields", ["picture"]),
        ("fields", ["label", "label"]),
        ("fields", [3]),
        ("sampler", 3),
        ("batch_sampler", 3),
        ("epochs", 0),
        ("epochs", "all"),
        ("rank", 1),  # alone
        ("world_size", 2),  # alone
        ("memory", 0),
        ("memory", 1.5),
        ("memory", "lots"),
        ("memory", "0%"),
        ("memory", "200%"),
        ("threads", 0),
        ("threads", 10_000),
        ("threads", "2"),
        ("io", "fast"),
        ("io", None),
        ("on_error", "ignore"),
        ("verify", "no"),
        ("output", "jax"),
        ("ids", 1),
        ("prefetch", 0),
        ("prefetch", "2"),
        ("profile", ""),
    ],
)
def test_a_wrong_argument_is_named(numbered: Path, argument: str, value: Any) -> None:
    options: dict[str, Any] = {argument: value}
    if argument == "ids":
        options = {"output": hr.Output(**options)}
    if argument in ("rank", "world_size"):
        options = {"job": hr.Job(**options)}
    if argument in ("io", "verify", "prefetch", "profile"):
        options = {"engine": hr.EngineOptions(**options)}
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.Loader(**{"dataset": numbered} | options)
    assert argument in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda data: hr.Loader(data, batch_size=True),
        lambda data: hr.Loader(data, seed=True),
        lambda data: hr.Loader(data, epochs=True),
        lambda data: hr.Loader(data, job=hr.Job(rank=True, world_size=2)),
        lambda data: hr.Loader(data, memory=True),
        lambda data: hr.Loader(data, threads=True),
        lambda data: hr.Loader(data, engine=hr.EngineOptions(prefetch=True)),
        lambda data: hr.Loader(data, job=hr.Job(node=hr.Node(start_timeout=True))),
        lambda data: hr.Loader(data, workers=True, transform=len),
        lambda data: hr.Loader(data, tiers=[hr.tiers.Ram(True)]),
        lambda data: hr.Loader(data, order=hr.orders.Epoch(block_samples=True)),
        lambda data: hr.Loader(data, transform=hr.image.evaluate(8, resize_shorter=True)),
        lambda data: PackParameters(seed=True),
        lambda data: PackParameters(block_samples=True),
        lambda data: write_pack(hr.open(data), data.parent / "pack", workers=True),
    ],
)
def test_a_bool_is_no_integer(numbered: Path, make: Callable[[Path], object]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="got True, must be an integer"):
        make(numbered)


def test_sizes_of_images_are_integers_of_any_sort_but_bools() -> None:
    assert hr.image.resize(np.int64(7)).size == (7, 7)  # type: ignore[arg-type]
    assert hr.image.resize((7, np.uint8(9))).size == (7, 9)  # type: ignore[arg-type]
    for size in (True, (7, True), 0, (7,), (7, 65536), "77", 7.0):
        with pytest.raises(errors.InvalidArgumentError, match=r"image size .* must be pixels"):
            hr.image.resize(size)  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [2, -1, "0", 0.0])
def test_a_rank_outside_the_world_is_named(numbered: Path, rank: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="rank"):
        hr.Loader(numbered, job=hr.Job(rank=rank, world_size=2))


def test_a_batch_sampler_of_numbers_is_named(numbered: Path) -> None:
    with (
        hr.Loader(numbered, batch_sampler=[1, 2]) as loader,
        pytest.raises(
            errors.InvalidArgumentError, match="batch_sampler: gave 1, must give batches"
        ),
    ):
        iter(loader)


def test_a_python_callable_for_a_field_says_what_to_do(numbered: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="given for the whole sample"):
        hr.Loader(numbered, transform={"image": lambda image: image})


class Flip:
    """A callable transform, of which each program makes an object."""

    def __init__(self, probability: float = 0.5) -> None:
        self.probability = probability

    def __call__(self, sample: Any) -> Any:
        return sample.label


class Pair:
    def __init__(self, first: int, second: int) -> None:
        self.sum = first + second


class Row:
    """Made of one sample: a transform itself."""

    def __init__(self, sample: Any) -> None:
        self.label = int(sample.label)


class Squares:
    """A map-style dataset, of torch's class or not."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> int:
        return number**2


class Derived(Squares, torch.utils.data.Dataset[int]):
    pass


class Streamed(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(12))


class Iterated:
    def __iter__(self) -> Iterator[int]:
        return iter(range(12))


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (Squares(), "Squares is read by its own __getitem__: give it to headrace.torch.DataLoader"),
        (Derived(), "Derived is read by its own __getitem__"),
        (torch.utils.data.Subset(Derived(), [1]), "Subset is read by its own __getitem__"),
        ([1, 2], "list is read by its own __getitem__"),
        (Streamed(), "Streamed is an IterableDataset, which only its own code can iterate"),
        (Iterated(), "Iterated can only be iterated: derive it from torch.utils.data.Iterable"),
        (torch.utils.data.DataLoader(Derived()), "this is torch's DataLoader: give its dataset's"),
    ],
)
def test_a_dataset_of_python_code_names_what_reads_it(dataset: Any, says: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"^dataset: got ") as told:
        hr.Loader(dataset)
    assert says in str(told.value)
    assert "headrace.torch" in str(told.value)


def test_what_that_message_names_reads_them() -> None:
    for dataset in (Squares(), Derived()):
        assert torch.cat(list(DataLoader(dataset, 5))).tolist() == [n**2 for n in range(12)]
    assert torch.cat(list(DataLoader(Streamed(), 5))).tolist() == list(range(12))


def test_what_is_no_dataset_gets_no_advice_of_datasets() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"or a path$"):
        hr.Loader(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["alone", "in a dict", "in a pair", "first in a pair"])
@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (hr.image.train, r"headrace.image.train, .*call it, as headrace.image.train\(224\)"),
        (hr.image.evaluate, r"headrace.image.evaluate, .*call it"),
        (hr.image.resize, r"headrace.image.resize, .*call it"),
        (functools.partial(hr.image.train, 224), r"headrace.image.train, .*call it"),
        (hr.image.ImageTransform, r"the class ImageTransform, .*call it"),
        (Flip, r"the class Flip, .*call it, as Flip\(...\)"),
        (functools.partial(Flip, probability=0.1), r"the class Flip, .*call it"),
        (Pair, r"the class Pair, .*call it"),
    ],
)
def test_what_makes_a_transform_is_refused_at_once(
    numbered: Path, transform: Any, place: str, message: str
) -> None:
    given = {
        "alone": transform,
        "in a dict": {"image": transform},
        "in a pair": (FLAT, transform),
        "first in a pair": (transform, len),
    }
    with pytest.raises(errors.InvalidArgumentError, match=f"^transform.*: got .*{message}"):
        hr.Loader(numbered, transform=given[place], workers=None)


def test_a_class_that_is_made_of_a_sample_is_a_transform(numbered: Path) -> None:
    workers = hr.Workers(0, collate_fn=lambda rows: [row.label for row in rows])
    with hr.Loader(numbered, 7, shuffle=False, transform=Row, workers=workers) as loader:
        assert next(iter(loader)) == [0] * 7


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "1", "WORLD_SIZE": "x"}, "WORLD_SIZE='x'"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "rank"),
    ],
)
def test_a_wrong_environment_is_named(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.Loader(numbered)


def test_rank_and_world_size_are_found_in_the_environment(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with hr.Loader(numbered, batch_size=10, transform=FLAT, seed=2) as loader:
        assert epoch_ids(loader) == model.exact_epoch(COUNT, 10, seed=2, rank=1, world_size=3)


@pytest.mark.parametrize(
    ("method", "value"),
    [*itertools.product(["set_epoch", "explain"], [-1, "1", 2**24]), ("set_epoch", None)],
)
def test_a_wrong_epoch_or_step_is_named(numbered: Path, method: str, value: Any) -> None:
    with hr.Loader(numbered) as loader, pytest.raises(errors.InvalidArgumentError) as caught:
        getattr(loader, method)(value)
    assert str(caught.value).startswith("epoch" if method == "set_epoch" else "step")


def test_a_batch_above_the_dataset_is_refused_with_drop_last_alone(numbered: Path) -> None:
    with pytest.raises(
        errors.InvalidArgumentError,
        match=rf"batch_size 98 x world_size 1 with drop_last: dataset has {COUNT} samples",
    ):
        hr.Loader(numbered, batch_size=98, drop_last=True)
    with hr.Loader(numbered, batch_size=98, transform=FLAT) as loader:
        assert [len(batch) for batch in epoch_ids(loader)] == [COUNT]


def test_a_budget_below_one_batch_says_what_would_do(numbered: Path) -> None:
    options: dict[str, Any] = {"batch_size": 64, "transform": hr.image.train(64)}
    with pytest.raises(errors.InvalidArgumentError, match=r"^memory 1\.0 MiB: a batch") as caught:
        hr.Loader(numbered, memory="1MiB", **options)
    least = re.search(r"raise memory= to at least (\d+)\.0 MiB", str(caught.value))
    assert least is not None
    with hr.Loader(numbered, memory=f"{least[1]}MiB", **options) as loader:
        seen = sum(len(batch.label) for batch in loader)  # Without a warning, which would raise.
    assert seen == COUNT


# Paths.


def test_no_such_path_is_named_with_how_far_it_exists(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match=rf"nothing/here.*as far as {tmp_path}"):
        hr.Loader(tmp_path / "nothing" / "here")


@pytest.mark.parametrize(
    "use",
    [
        lambda data: hr.Loader(""),
        lambda data: hr.open(""),
        lambda data: hr.open(data, index=""),
        lambda data: index_folder(""),
        lambda data: index_folder(data, ""),
        lambda data: write_pack(hr.open(data), ""),
        lambda data: hr.profile.load(""),
    ],
)
def test_an_empty_path_is_not_the_current_folder(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(numbered)
    with pytest.raises(errors.InvalidArgumentError, match="'': the path is empty; the current"):
        use(numbered)
    hr.Loader(".").close()


@pytest.mark.parametrize("make", ["empty", "empty classes", "files"])
def test_a_folder_without_images_is_named(tmp_path: Path, make: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    if make == "empty classes":
        (root / "ant").mkdir()
    if make == "files":
        (root / "notes.txt").write_text("no images")
    with pytest.raises(errors.HeadraceError) as caught:
        hr.Loader(root)
    assert str(root) in str(caught.value)
