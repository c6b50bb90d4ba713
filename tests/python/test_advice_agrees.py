"""What a Loader, `order`, `plan` and `advise` take and advise for a dataset is the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import run, run_json
from loader_data import sample_file, write_numbered
from worker_functions import write_records

import headrace as hr
from headrace import _core, errors
from headrace.pack import PackParameters, write_pack

BATCH = 32
GRADES = ("excellent", "good", "fair", "poor", "broken")
WARNING = "mix of labels"


class Sort(NamedTuple):
    """A dataset, and what is known of its blocks."""

    path: Path
    pool: str
    """Too small for blocks of one class, in bytes."""
    alike: bool
    """The labels of a block, much more than by chance."""


def write_sorted(root: Path, order: str) -> Path:
    """A pack of 4 classes of 64 images in blocks of 8: 32 of them."""
    images = write_numbered(root / "images", (64,) * 4)
    write_pack(hr.open(images), root / "pack", PackParameters(order=order, block_samples=8))
    return root / "pack"


@pytest.fixture(scope="module")
def sorts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Sort]:
    root = tmp_path_factory.mktemp("sorts")
    images = write_numbered(root / "folder", (64,) * 4)
    stored = sum(path.stat().st_size for path in images.rglob("*.jpg"))
    small = str(stored // 6)
    return {
        "records": Sort(write_records(root / "records", count=4000, width=4), "0", False),
        "folder": Sort(images, small, True),
        "sorted pack": Sort(write_sorted(root / "sorted", "source"), small, True),
        "shuffled pack": Sort(write_sorted(root / "shuffled", "shuffled"), small, False),
    }


SORTS = ("records", "folder", "sorted pack", "shuffled pack")


@contextmanager
def loader_of(path: Path, **options: Any) -> Iterator[tuple[hr.Loader, list[str]]]:
    """A loader, and what it warned of labels."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with hr.Loader(
            path,
            BATCH,
            output=hr.Output(fields=["label"]),
            job=hr.Job(rank=0, world_size=1),
            **options,
        ) as loader:
            yield loader, [str(each.message) for each in caught if WARNING in str(each.message)]


def values_of(loader: hr.Loader) -> dict[str, int | str]:
    return {name: each.value for name, each in loader.explain(0).parameters.items()}


@pytest.mark.parametrize("order", ["exact", "batch", "epoch", "redox"])
@pytest.mark.parametrize("sort", SORTS)
def test_all_take_the_same_parameters_by_default(
    sorts: dict[str, Sort], sort: str, order: Any
) -> None:
    path = sorts[sort].path
    options = ("--order", order, "--batch", BATCH)
    with loader_of(path, order=order) as (loader, warned):
        taken, expected = values_of(loader), loader.expected_inflation
        assert taken == loader.state_dict()["order_parameters"]
    planned = run_json("plan", path, *options, "--epochs", 1)
    assert (planned["order"], planned["parameters"]) == (order, taken)
    assert planned["expected"] == expected
    taken.pop("block_samples", None)  # Which blocks there are: no parameter of their order.
    graded = run_json("order", path, *options)
    ordered = run_json("order", path, *options, "--hash")
    assert graded["parameters"] == ordered["parameters"] == taken
    if order == "epoch":
        assert graded["expected"] == pytest.approx(expected)
        assert graded["verdict"] in ("excellent", "good")
        assert graded["change"] == ""
        assert not warned


@pytest.mark.parametrize("order", ["exact", "batch", "epoch", "redox"])
@pytest.mark.parametrize("sort", SORTS)
def test_all_give_the_same_samples(sorts: dict[str, Sort], sort: str, order: Any) -> None:
    """Of the second of two ranks, whose share of a batch `batch` chooses."""
    path = sorts[sort].path
    with hr.Loader(
        path,
        BATCH // 2,
        order=order,
        seed=3,
        output=hr.Output("numpy", fields=["label"], ids=True),
        job=hr.Job(rank=1, world_size=2),
        epochs=1,
    ) as loader:
        ids = [int(i) for batch in loader for i in batch.sample_id]
    job = ("--order", order, "--batch", BATCH, "--ranks", 2, "--rank", 1, "--seed", 3)
    assert run_json("order", path, *job, "--print", len(ids))["ids"] == ids


@pytest.mark.parametrize("sort", ["folder", "sorted pack", "shuffled pack"])
def test_memory_that_is_too_little_is_refused_in_the_same_words(
    sorts: dict[str, Sort], sort: str
) -> None:
    options = {"order": "epoch", "memory": "64KiB", "job": hr.Job(rank=0, world_size=1)}
    with pytest.raises(errors.InvalidArgumentError) as raised:
        hr.Loader(sorts[sort].path, BATCH, **options)
    job = ("--order", "epoch", "--batch", BATCH, "--memory", "64KiB")
    assert run("plan", sorts[sort].path, *job, code=2).stderr.strip() == f"headrace: {raised.value}"


@pytest.mark.parametrize("memory", ["1100KiB", "4MiB", None])
@pytest.mark.parametrize("sort", ["folder", "sorted pack", "shuffled pack"])
def test_memory_limits_the_pool_of_a_loader_as_of_a_plan(
    sorts: dict[str, Sort], sort: str, memory: str | None
) -> None:
    path = sorts[sort].path
    given = () if memory is None else ("--memory", memory)
    planned = run_json("plan", path, "--order", "epoch", "--batch", BATCH, "--epochs", 1, *given)
    with hr.Loader(
        path, BATCH, order="epoch", memory=memory, job=hr.Job(rank=0, world_size=1)
    ) as loader:
        assert planned["parameters"] == values_of(loader)
        assert planned["expected"] == loader.expected_inflation
        pool = int(planned["parameters"]["pool_bytes"])
    graded = run_json("order", path, "--order", "epoch", "--batch", BATCH, "--memory", pool)
    assert graded["parameters"]["pool_bytes"] == pool


@pytest.mark.parametrize("share", ["60%", "150%"])
@pytest.mark.parametrize("sort", ["folder", "sorted pack", "shuffled pack"])
def test_a_share_of_the_dataset_is_the_same_for_a_loader_and_a_command(
    sorts: dict[str, Sort], sort: str, share: str
) -> None:
    path = sorts[sort].path
    with loader_of(path, order=hr.orders.Epoch(pool=share)) as (loader, _):
        wanted = values_of(loader)["pool_bytes"]
    found = run_json("order", path, "--order", "epoch", "--batch", BATCH, "--memory", share)
    assert found["parameters"]["pool_bytes"] == wanted


@pytest.mark.parametrize("sort", ["folder", "sorted pack", "shuffled pack"])
def test_with_a_small_pool_a_warning_a_grade_and_a_plan_are_one_opinion(
    sorts: dict[str, Sort], sort: str
) -> None:
    path, pool, alike = sorts[sort]
    block = {} if "pack" in sort else {"block_samples": 8}
    order = hr.orders.Epoch(pool=pool, pools=1, **block)
    parameters = ["--set", f"pool_bytes={pool}", "--set", "pools=1"]
    job = ["--order", "epoch", "--batch", BATCH, *(["--block-samples", 8] if block else [])]
    with loader_of(path, order=order) as (loader, warned):
        expected = loader.expected_inflation
    graded = run_json("order", path, *job, *parameters, "--epochs", 4)
    labels = next(each for each in graded["effects"] if each["name"] == "label_mix")
    assert bool(warned) == alike
    assert (labels["grade"] in GRADES[2:]) == alike, labels
    assert graded["expected"] == pytest.approx(expected)
    text = run("plan", path, *job, *parameters, "--epochs", 1).stdout
    assert (WARNING in text) == alike
    if alike:
        assert f"note: {warned[0].removeprefix('headrace: ')}" in text
        assert labels["good"] == _core.good_label_inflation
        for told in (warned[0], graded["change"]):
            assert "headrace pack" in told
        with loader_of(sorts["shuffled pack"].path, order=order) as (_, warned):
            assert not warned  # The remedy that all name.


def test_blocks_that_were_stored_shuffled_are_mixed_and_those_of_the_source_are_not(
    sorts: dict[str, Sort],
) -> None:
    def verdict(sort: str, *options: str) -> str:
        path, pool, _ = sorts[sort]
        job = ("--order", "epoch", "--batch", BATCH, "--set", "pools=1", "--set")
        return str(run_json("order", path, *job, f"pool_bytes={pool}", *options)["verdict"])

    assert verdict("shuffled pack", "--epochs", "3") in GRADES[:2]
    assert verdict("sorted pack", "--epochs", "3") in GRADES[2:]
    unshuffled = ("--order", "exact", "--no-shuffle", "--epochs", 2)
    assert run_json("order", sorts["shuffled pack"].path, *unshuffled)["verdict"] == "poor"


def test_advise_expects_of_the_labels_what_the_loader_does(
    sorts: dict[str, Sort], tmp_path: Path
) -> None:
    profile = tmp_path / "machine.toml"
    for sort in SORTS:
        path = sorts[sort].path
        run("profile", path, "--seconds", "0.2", "--raw", "--output", profile)
        options = ("--profile", profile, "--batch-size", BATCH, "--epochs", 1)
        for each in run_json("advise", path, *options)["candidates"]:
            if each["order"] != "epoch":
                assert each["label_inflation"] is None
                continue
            order = hr.orders.Epoch(block_samples=each["block_samples"])
            batch = {"output": hr.Output(fields=["label"]), "job": hr.Job(rank=0, world_size=1)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with hr.Loader(path, 256, order=order, **batch) as loader:
                    expected = loader.expected_inflation
            assert expected is not None
            assert each["label_inflation"] == pytest.approx(expected["of_labels"])


def test_a_label_sorted_folder_is_warned_of_with_the_defaults_of_epoch(
    sorts: dict[str, Sort], tmp_path: Path
) -> None:
    """1.1 GB in files of 400 kB, nearly all of it holes; a tenth to a quarter is resident."""
    image = sample_file(sorts["folder"].path, 0).read_bytes()
    for label in range(9):
        folder = tmp_path / "images" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(300):
            with (folder / f"{number:03}.jpg").open("wb") as file:
                file.write(image)
                file.truncate(400_000)
    with (
        pytest.warns(
            RuntimeWarning, match=r"1\.[0-9]+ times .*Shuffle the dataset once \(headrace"
        ),
        hr.Loader(tmp_path / "images", 256, order="epoch") as loader,
    ):
        expected = loader.expected_inflation
    assert expected is not None
    assert (expected["of_labels"] or 0) > 1.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hr.Loader(tmp_path / "images", 256).close()  # `exact`, the default
