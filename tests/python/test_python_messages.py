"""Messages of the Python package that other tests do not meet: each names its object and a way out,
and the way out is done where that is cheap."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import worker_functions
from loader_data import FLAT, made_profile

import headrace as hr
from headrace import errors
from headrace import profile as profiles
from headrace._measure import machine as _measure
from headrace._observe import monitor
from headrace._workers.worker import main
from headrace._workers.worker.protocol import InputField, Task
from headrace.formats import Builder


def message(function: Callable[[], object], kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        function()
    return str(raised.value)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> hr.Dataset:
    """A list of encoded images in each sample."""
    folder = tmp_path_factory.mktemp("pages")
    with Builder(folder / "pages.hri", folder) as builder:
        builder.add_field("scans", "bytes", shape=(None,), inline=True)
        builder.add_values("scans", [[b"P6 1 1 255 abc", b"P6 1 1 255 def"], [b"P6 1 1 255 ghi"]])
    return hr.open(folder / "pages.hri")


def test_images_in_lists_are_decoded_by_a_function(pages: hr.Dataset) -> None:
    says = (
        "transform of 'scans': the field has a list of them in each sample; decode them in a "
        "Python transform (transform=function)"
    )
    make = lambda: hr.Loader(pages, 1, transform={"scans": FLAT})  # noqa: E731
    assert message(make, errors.InvalidArgumentError) == says
    with hr.Loader(pages, 1, shuffle=False, transform=count_scans, workers=0) as loader:
        assert [int(batch[0]) for batch in loader] == [2, 1]


def count_scans(sample: hr.Sample) -> int:
    return len(sample.scans)


def test_groups_of_ranks_need_nodes_of_equal_size(numbered: Path) -> None:
    def of_node(size: int) -> hr.Loader:
        node = hr.Node(local_rank=0, local_world_size=size)
        job = hr.Job(rank=0, world_size=4, tensor=2, node=node)
        return hr.Loader(numbered, 2, transform=FLAT, job=job)

    assert message(lambda: of_node(3), errors.InvalidArgumentError).endswith(
        "with a node process: rank 0 of 4 is local rank 0 of 3: all nodes must have equal numbers "
        "of ranks, each node neighbours in the order of their local ranks"
    )


def test_no_name_of_a_socket_is_left_for_a_monitor(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_ORDINALS_MAX", 0)
    make = lambda: hr.Loader(numbered, engine=hr.EngineOptions(monitor=True))  # noqa: E731
    assert message(make, errors.UnavailableError) == (
        "EngineOptions.monitor: all 0 names of sockets for this process are taken; leave monitor= "
        "out"
    )
    hr.Loader(numbered).close()


def test_a_script_that_is_being_imported_starts_no_process(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loader() -> hr.Loader:
        workers = hr.Workers(1, start="spawn")
        return hr.Loader(numbered, 4, transform=worker_functions.record, workers=workers)

    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    says = message(loader, errors.FailedPreconditionError)
    assert "and came to the line that starts processes; put the code of " in says
    assert says.endswith(
        'that makes and uses loaders under this line:\n    if __name__ == "__main__":'
    )


def test_a_worker_names_the_row_whose_lists_are_damaged() -> None:
    names = ("scans", "scans[lengths]")
    fields = tuple(InputField(name, "uint8", (), ragged=True) for name in names)
    functions = main.Functions(count_scans, None, None)
    worker = main._Transforms(None, cast("Any", SimpleNamespace(fields=fields, seed=1)), functions)
    rows = [np.zeros(2, np.uint8), np.zeros(3, np.uint8)], [np.array([2]), np.array([1])]
    task = SimpleNamespace(columns=rows, number=5, first_slot=8)
    reply = worker._computed(cast("Task", task))
    assert (
        b"DataLossError: field scans: its inner lists have 1 entries, its values 3; make" in reply
    )


@pytest.mark.parametrize(
    ("transform", "says"),
    [
        (
            lambda sample: "odd" if sample.id == 3 else b"even",
            "the transform returned str 'odd', and for the samples before bytes b'even': rows of "
            "a batch have one type",
        ),
        (
            lambda sample: sample["pixels"],
            "'pixels': the sample has image, label; see hr.Output(fields=...)",
        ),
    ],
)
def test_a_wrong_function_is_told_what_there_is(
    numbered: Path, transform: Callable[[hr.Sample], Any], says: str
) -> None:
    with hr.Loader(numbered, 8, shuffle=False, transform=transform, workers=0) as loader:
        assert says in message(lambda: next(iter(loader)), errors.TransformError)


def test_a_tier_is_measured_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(f_bavail=100, f_frsize=4096)
    monkeypatch.setattr(_measure.os, "statvfs", lambda folder: full)
    says = message(lambda: _measure._probe_folder(tmp_path, 1), errors.ResourceExhaustedError)
    assert says.startswith(f"tier {tmp_path}: measuring takes ")
    assert says.endswith("at most 5 % of the free space, which is 20.0 KiB; free some")


def test_a_profile_without_the_disk_of_a_tier_says_how_to_measure_it(
    numbered: Path, tmp_path: Path
) -> None:
    profile = made_profile(Path("/proc"), storage=1e8, ram=1e9, disk=1e9)

    def loader() -> hr.Loader:
        tiers = [hr.tiers.Ssd(tmp_path / "tier", "1MB")]
        return hr.Loader(numbered, engine=hr.EngineOptions(profile=profile), tiers=tiers)

    folder = tmp_path / "tier"
    assert message(loader, errors.InvalidArgumentError) == (
        f"profile: it has no folder on the disk of tier {folder}; measure it again: "
        f"`headrace profile none --tier /proc --tier {folder} --output machine.toml`"
    )
    profile = made_profile(tmp_path, storage=1e8, ram=1e9, disk=1e9)
    loader().close()


def test_a_list_of_tables_has_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    made_profile(tmp_path, storage=1e8, ram=1e9, disk=1e9).save(path)
    text = path.read_text()
    path.write_text("preprocess = [3]\n" + text)
    says = message(lambda: profiles.load(path), errors.InvalidArgumentError)
    assert says == f"{path}:1: preprocess: got [3], must be tables, [[preprocess]]"
    path.write_text(text)
    assert profiles.load(path).preprocess == ()


def test_a_dataset_of_tensorflow_has_fields_of_one_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow itself is not needed for that."""
    import headrace.tensorflow

    monkeypatch.setitem(sys.modules, "tensorflow", cast("Any", SimpleNamespace(TensorSpec=tuple)))
    with Builder(tmp_path / "boxes.hri", tmp_path) as builder:
        builder.add_field("boxes", "array", "float32", (None, 4), inline=True)
        builder.add_ragged("boxes", np.ones((3, 4), np.float32), [1, 2])
    with hr.Loader(tmp_path / "boxes.hri", 2, output=hr.Output("numpy", ragged="list")) as loader:
        says = message(lambda: headrace.tensorflow.dataset(loader), errors.InvalidArgumentError)
    assert says == (
        "loader: samples differ in the shape of field 'boxes', which no tensor of a "
        "tf.data.Dataset holds: leave it out by Output.fields, or give the loader a Python "
        "transform that makes one shape, and signature="
    )
