"""Commands that plan, show and measure what `--skip` leaves: the same samples as a loader's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run, run_json
from test_left_out import BROKEN, LEFT, SAMPLES, write_folder, write_tar

import headrace as hr
from headrace.cli._parts import orders as _orders
from headrace.orders import costs_in_bytes

BATCH = 8


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tar(tmp_path_factory.mktemp("tar") / "data.tar")


@pytest.fixture(scope="module")
def skip(tar: Path) -> str:
    listed = tar.parent / "broken.txt"
    run("verify", tar, "--decode", "--failures", listed, code=1)
    return f"@{listed}"


IN_BLOCKS = ("--block-samples", "4")
ORDERS: dict[str, tuple[hr.orders.Order, tuple[str, ...]]] = {
    "exact": (hr.orders.Exact(), ()),
    "batch": (hr.orders.Batch(), ()),
    "epoch": (hr.orders.Epoch(block_samples=4), IN_BLOCKS),
    "epoch of blocks as they are": (hr.orders.Epoch(), ()),
    "redox": (hr.orders.Redox(block_samples=4), IN_BLOCKS),
}


def ids_of(loader: hr.Loader[Any], epochs: int) -> list[int]:
    return [
        int(each) for _ in range(epochs) for batch in loader for each in batch.sample_id.tolist()
    ]


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_order_is_the_loader_s(tar: Path, skip: str, name: str, ranks: int) -> None:
    """Sample by sample, of each rank, for two epochs; `hr.open(skip=)` leaves the same out."""
    dataset = hr.open(tar, skip=skip)
    order, words = ORDERS[name]
    for rank in range(ranks):
        output = hr.Output("numpy", fields=("label",), ids=True)
        with hr.Loader(
            dataset, BATCH // ranks, order=order, output=output, seed=3, epochs=2,
            job=hr.Job(rank=rank, world_size=ranks),
        ) as loader:  # fmt: skip
            expected = ids_of(loader, 2)
        planned = run_json(
            "order", tar, "--skip", skip, "--order", name.split()[0], *words,
            "--batch", BATCH, "--ranks", ranks, "--rank", rank, "--seed", 3, "--epochs", 2,
            "--print", 1000,
        )  # fmt: skip
        assert planned["ids"] == expected
        assert planned["samples"] == len(LEFT)
        assert not set(BROKEN) & set(expected)


def test_labels_and_costs_are_those_of_the_samples_that_are_left(tar: Path, skip: str) -> None:
    """Of a `batch` order, which balances bytes; and the measure of labels."""
    report = run_json("order", tar, "--skip", skip, "--order", "batch", "--batch", BATCH)
    assert (report["samples"], report["positions"]) == (len(LEFT), len(LEFT))
    assert (report["missing"], report["unknown"], report["duplicated"]) == (0, 0, 0)
    dataset = hr.open(tar, skip=skip)
    source = _orders.make_source(dataset, None, 4)
    sizes = costs_in_bytes(dataset)
    assert sizes is not None
    assert source.costs is not None
    assert source.costs.tolist() == sizes[LEFT].tolist()
    assert source.labels is not None
    assert len(set(source.labels.tolist())) == len(LEFT)  # Each has a label of its own.
    assert source.blocks.bounds().tolist() == [
        sum(number < first for number in LEFT) for first in range(0, SAMPLES + 1, 4)
    ]


def test_a_log_that_has_a_sample_that_is_left_out_is_measured_so(
    tar: Path, skip: str, tmp_path: Path
) -> None:
    log = tmp_path / "log.npy"
    np.save(log, np.array(LEFT[::-1], np.uint64))
    report = run_json("order", tar, "--skip", skip, "--ids", log, "--batch", BATCH)
    assert (report["missing"], report["unknown"]) == (0, 0)
    np.save(log, np.array([*LEFT[1:], BROKEN[1]], np.uint64))
    report = run_json("order", tar, "--skip", skip, "--ids", log, "--batch", BATCH)
    assert (report["missing"], report["unknown"]) == (1, 1)


def test_a_plan_reads_what_is_left(tar: Path, skip: str) -> None:
    plans = [run_json("plan", tar, *more, "--epochs", 1) for more in ((), ("--skip", skip))]
    assert [plan["epochs"][0]["samples"] for plan in plans] == [SAMPLES, len(LEFT)]


def test_inspect_shows_samples_that_are_left(tar: Path, skip: str, tmp_path: Path) -> None:
    shown = run_json("inspect", tar, "--skip", skip, "--samples", 100)
    assert [each["sample"] for each in shown["examples"]] == LEFT
    assert not any("error" in each["values"] for each in shown["examples"])
    assert [(each["kind"], each["count"]) for each in shown["report"]] == [("skipped", len(BROKEN))]


@pytest.mark.parametrize("command", ["order", "plan", "inspect"])
def test_patterns_leave_files_of_a_folder_out(tmp_path: Path, command: str) -> None:
    folder = write_folder(tmp_path / "images")
    skip = ["--skip", "class1", "--skip", "/class0/0003.jpg"]
    found = run_json(command, folder, *skip)
    samples = found["epochs"][0]["samples"] if command == "plan" else found["samples"]
    assert samples == SAMPLES - 21
    done = run(command, folder, "--skip", "*.webp")
    assert "skip" in done.stderr
    assert "*.webp" in done.stderr


@pytest.mark.parametrize("options", [(), ("--hash",)])
def test_to_leave_all_samples_out_is_refused(
    tar: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    every = tmp_path / "every.txt"
    every.write_text("".join(f"{number}\n" for number in range(SAMPLES)))
    done = run("order", tar, *options, "--skip", f"@{every}", code=2)
    assert done.stderr == (
        f"headrace: --skip: leaves out all 60 samples of {tar}; leave fewer out\n"
    )


@pytest.mark.parametrize("options", [(), ("--hash",)])
def test_skip_without_a_dataset_is_refused(options: tuple[str, ...]) -> None:
    done = run("order", *options, "--samples", 100, "--skip", "@broken.txt", code=2)
    assert done.stderr == "headrace: --skip: leaves out samples of a DATASET; give its path, too\n"
