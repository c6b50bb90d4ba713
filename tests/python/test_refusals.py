"""Messages that no other test makes: each names its object and what to do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run

import headrace as hr
from headrace import errors
from headrace.formats import Builder
from headrace.papers import nopfs
from headrace.tiers import Budget

Of = Callable[[hr.Dataset], object]


def loader_of(**options: Any) -> Of:
    return lambda dataset: hr.Loader(dataset, batch_size=5, **options)


def image(**options: Any) -> Of:
    return loader_of(transform=hr.image.ImageTransform(**{"size": 32, **options}))


class NoOrder(hr.orders.Exact):
    """Gives the core nothing."""

    def to_core(self, dataset: hr.Dataset) -> Any:
        return None


def a_part_twice(_: hr.Dataset) -> None:
    budget = Budget(memory="1GiB")
    budget.part("train", 0.5)
    budget.part("train", 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (image(dtype="int8"), "image dtype 'int8': must be 'float32' or 'uint8'"),
        (image(layout="CHW"), "image layout 'CHW': must be 'NCHW' or 'NHWC'"),
        (
            image(dtype="uint8", mean=(0.5, 0.5, 0.5)),
            "image mean/std with dtype 'uint8': .*; leave them out or use dtype='float32'",
        ),
        (image(random_crop_scale=(0.5,)), r"image scale \(0\.5,\): must be two numbers"),
        (image(mean=(0.5, 0.5)), r"image mean \(0\.5, 0\.5\): must be 3 numbers, one a channel"),
        (
            lambda dataset: hr.Loader(
                dataset, memory=Budget("1GiB").part("a", 0.5), tiers=hr.tiers.Ram("1MiB")
            ),
            r"memory: <part 'a' of a budget: 512\.0 MiB> has the budget's tiers, too: leave tiers",
        ),
        (loader_of(order=NoOrder()), r"order: NoOrder\.to_core\(\) gave None, must give"),
        (
            loader_of(order=hr.orders.Epoch(homes=2.5)),
            r"homes: got 2\.5, must be the number of nodes, or the node of each of 60 samples",
        ),
        (
            loader_of(order=hr.orders.Epoch(homes=[0, 1])),
            "homes: got 2 numbers, must be the node of each of 60 samples",
        ),
        (
            loader_of(order=hr.orders.Epoch(homes=[2**40] * 60)),
            r"homes: from 1099511627776 to 1099511627776, must be in \[0, 2\*\*32\)",
        ),
        (lambda _: Budget(memory=None), "budget: memory: missing, must be bytes or a size"),  # type: ignore[arg-type]
        (a_part_twice, "part 'train': the budget has one of that name"),
        (
            lambda dataset: hr.open(dataset.path, format=3),  # type: ignore[call-overload]
            "format: got 3, must be a format, such as",
        ),
        (
            lambda dataset: nopfs.NoPFSImageFolder(dataset, 3),  # type: ignore[arg-type]
            "job: got 3, must be a Job",
        ),
        (
            lambda dataset: nopfs.NoPFSDataLoader(dataset),  # type: ignore[arg-type]
            "dataset: got .*, must be a NoPFSImageFolder",
        ),
    ],
)
def test_what_options_cannot_be_is_said(original: Path, call: Of, message: str) -> None:
    dataset = hr.open(original)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        call(dataset)


def test_an_order_of_a_sampler_is_known_for_its_epoch_alone(original: Path) -> None:
    with hr.Loader(hr.open(original), batch_size=5, sampler=range(9)) as loader:
        next(iter(loader))
        with pytest.raises(errors.FailedPreconditionError, match=r"epoch 3: .*; leave epoch= out"):
            loader.explain(0, epoch=3)


def test_a_pack_has_its_own_index(source_pack: Path, tmp_path: Path) -> None:
    with pytest.raises(
        errors.InvalidArgumentError, match=r"a pack has its own .*; leave index out"
    ):
        hr.open(source_pack, index=tmp_path / "x.hri")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"LOCAL_RANK": "one", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK='one', .* must both be int"),
    ],
)
def test_an_environment_that_says_nothing_is_named(
    original: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    dataset = hr.open(original)
    with pytest.raises(errors.InvalidArgumentError, match=message):
        hr.Loader(dataset, batch_size=5, job=hr.Job(node=hr.Node()))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (np.zeros(3), "holds float64, must be whole numbers"),
        (np.zeros(0, np.int64), "holds no number; write the samples' numbers there"),
        (np.array([3, -1]), "holds -1, must be 0 or more"),
        (np.arange(5), "--epochs: got 2, the log holds 5 numbers, .*; give the number that"),
    ],
)
def test_a_log_of_samples_that_is_none_is_refused(
    tmp_path: Path, written: np.ndarray[Any, Any], message: str
) -> None:
    path = tmp_path / "ids.npy"
    np.save(path, written)
    command = ("order", "--samples", 9, "--ids", path, "--epochs", 2, "--batch", 1)
    assert_says(run(*command, code=2).stderr, message)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("order", "--samples", 9, "--print", -1), "--print: got -1, must be at least 0"),
        (("top", "--interval", 0), r"--interval: got 0\S*, must be \S+ s or more"),
        (("docs", "nothing"), "headrace docs nothing: no such page; "),
    ],
)
def test_what_commands_cannot_do_is_said(command: tuple[object, ...], message: str) -> None:
    assert_says(run(*command, code=2).stderr, message)


def assert_says(text: str, message: str) -> None:
    assert re.search(message, " ".join(text.split())), text


@pytest.mark.parametrize(
    ("events", "message"),
    [([{"ts": "late"}], "has a bad event; write it again"), (None, "limit 1,")],
)
def test_traces_that_are_none_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[object] | None, message: str
) -> None:
    clock = {"boot": "b", "host": "h", "pid": 1, "monotonic_ns": 0, "realtime_ns": 0}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"clock": clock, "traceEvents": events or []}))
    if events is None:
        monkeypatch.setattr("headrace._observe._steps.merge._TRACE_BYTES_MAX", 1)
    assert_says(
        run("report", "--merge", path, path, "--output", tmp_path / "out", code=2).stderr,
        message[:-1],
    )


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda b, path: b.add_file(path, part="1+2"), "part='1\\+2' needs a coding"),
        (
            lambda b, path: b.add_group(path, "0", 9, format="x"),
            "the builder must be made with decodes='groups'",
        ),
        (
            lambda b, path: b.add_extents("data", 0, np.zeros((2, 2), int), 1),
            "extents: got 2 dimensions, must be one number each",
        ),
    ],
)
def test_what_a_builder_cannot_add_is_said(
    tmp_path: Path, fill: Callable[[Any, str], object], message: str
) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"12345678")
    builder = Builder(tmp_path / "i.hri", root=tmp_path)
    builder.add_field("data", "bytes")
    with pytest.raises(errors.InvalidArgumentError, match=message):
        fill(builder, os.fspath(path))


def test_a_folder_without_hdf5_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="the folder has no HDF5 files"):
        hr.open(tmp_path, format=hr.formats.Hdf5())


def test_a_npy_file_has_a_shape(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}".ljust(117) + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(errors.DataLossError, match=r"its shape is \(-1,\); copy"):
        hr.open(path)


def test_a_pattern_without_files_says_how_to_look(tmp_path: Path) -> None:
    with pytest.raises(errors.HeadraceError, match=r"no file matches.*; see what is there with ls"):
        hr.open(f"{tmp_path}/train-*.tar", format=hr.formats.WebDataset())


def test_an_empty_dataset_is_not_packed(tmp_path: Path) -> None:
    with Builder(tmp_path / "i.hri", root=tmp_path) as builder:
        builder.add_field("data", "bytes")
    stderr = run("pack", tmp_path / "i.hri", tmp_path / "pack", code=2).stderr
    assert_says(stderr, "packing .*: it has no samples")
