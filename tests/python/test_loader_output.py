"""What batches are made of: tensors, arrays, DLPack; and who holds their memory for how long."""

from __future__ import annotations

import gc
import pickle
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loader_data import COUNT, FLAT, LABELS, as_bytes, payload_ids, run_python, write_tiny

import headrace as hr
from headrace import errors
from headrace.formats import Builder

AUGMENT = hr.image.train(16)


@pytest.fixture
def dataset(numbered: Path) -> hr.Dataset:
    return hr.open(numbered)


def first(loader: hr.Loader) -> Any:
    for batch in loader:
        return batch
    raise AssertionError("no batch")


def test_torch_tensors_by_default_where_torch_is_installed(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=6, transform=AUGMENT, output=hr.Output(ids=True)) as loader:
        batch = first(loader)
    assert [type(field) for field in batch] == [torch.Tensor] * 3
    assert batch._fields == ("image", "label", "sample_id")
    assert (batch.image.dtype, batch.image.shape) == (torch.float32, (6, 3, 16, 16))
    assert (batch.label.dtype, batch.label.shape) == (torch.int64, (6,))
    assert (batch.sample_id.dtype, batch.sample_id.shape) == (torch.int64, (6,))
    assert batch.image.is_contiguous()


@pytest.mark.parametrize(
    ("options", "dtype", "shape"),
    [
        ({"dtype": "uint8"}, np.uint8, (4, 3, 9, 7)),
        ({"dtype": "uint8", "layout": "NHWC"}, np.uint8, (4, 9, 7, 3)),
        ({}, np.float32, (4, 3, 9, 7)),
        ({"layout": "NHWC"}, np.float32, (4, 9, 7, 3)),
    ],
)
def test_numpy_arrays_have_the_dtype_and_layout_asked_for(
    dataset: hr.Dataset, options: Any, dtype: Any, shape: tuple[int, ...]
) -> None:
    transform = hr.image.resize((9, 7), **options)
    with hr.Loader(dataset, batch_size=4, transform=transform, output="numpy") as loader:
        batch = first(loader)
        assert [type(field) for field in batch] == [np.ndarray] * 2
        assert (batch.image.dtype, batch.image.shape) == (dtype, shape)
        assert batch.image.flags.writeable


def test_dlpack_exporters_are_taken_by_torch_and_numpy_without_a_copy(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=4, transform=AUGMENT, output="dlpack") as loader:
        image, label = first(loader)
    assert not isinstance(image, (np.ndarray, torch.Tensor))
    tensor = torch.from_dlpack(image)
    array = np.from_dlpack(image)
    assert tensor.data_ptr() == array.ctypes.data
    assert torch.from_dlpack(label).dtype == torch.int64


def test_all_outputs_hold_the_same_bits(dataset: hr.Dataset) -> None:
    found = []
    for output in ("torch", "numpy", "dlpack"):
        with hr.Loader(
            dataset, batch_size=30, transform=AUGMENT, seed=3, output=hr.Output(output, ids=True)
        ) as loader:
            found.append([as_bytes(batch) for batch in loader])
    assert found[0] == found[1] == found[2]


def test_rows_of_bytes_are_a_list_of_arrays(dataset: hr.Dataset) -> None:
    for output, kind in (("torch", torch.Tensor), ("numpy", np.ndarray)):
        with hr.Loader(dataset, batch_size=5, output=output) as loader:
            image, label = first(loader)
        assert [type(row) for row in image] == [kind] * 5
        assert type(label) is kind


WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return None

sys.meta_path.insert(0, NoTorch())
import numpy as np
import headrace as hr
from headrace import errors

for output in ("auto", "numpy"):
    with hr.Loader(sys.argv[1], batch_size=8, output=output, transform=hr.image.train(8)) as loader:
        for image, label in loader:
            assert type(image) is np.ndarray and type(label) is np.ndarray
with hr.Loader(sys.argv[1], batch_size=8, output=hr.Output("dlpack", ids=True)) as loader:
    for image, label, sample_id in loader:
        assert np.from_dlpack(label).shape == sample_id.shape
try:
    hr.Loader(sys.argv[1], output="torch")
except hr.errors.InvalidArgumentError as error:
    print(error)
assert "torch" not in sys.modules
"""


def test_what_is_not_installed_is_named(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        errors.InvalidArgumentError, match="output='torch': torch is not installed; pip install"
    ):
        hr.Loader(numbered, output="torch")


def test_without_torch_batches_are_numpy_arrays(numbered: Path) -> None:
    printed = run_python(WITHOUT_TORCH, numbered)
    assert printed.startswith("output='torch': torch is not installed; pip install torch")


# Memory.


def test_memory_is_held_until_the_last_view_dies_and_then_used_again(dataset: hr.Dataset) -> None:
    with hr.Loader(
        dataset,
        batch_size=8,
        transform=AUGMENT,
        threads=1,
        engine=hr.EngineOptions(prefetch=1),
        output="numpy",
    ) as loader:
        iteration = iter(loader)
        held = next(iteration)
        view = held.image[2:5, 0]  # a view of a view
        before = view.tobytes()
        address = held.image.ctypes.data
        gone = weakref.ref(held.image)
        del held
        gc.collect()
        addresses = {next(iteration).image.ctypes.data for _ in range(6)}
        assert address not in addresses
        assert view.tobytes() == before
        assert gone() is not None or view.base is not None
        del view
        gc.collect()
        while loader.epoch < 3:  # the memory is in turn again
            addresses |= {batch.image.ctypes.data for batch in loader}
        assert address in addresses


def test_writing_into_a_batch_changes_no_other(dataset: hr.Dataset) -> None:
    def run(write: bool) -> list[list[bytes]]:
        batches = []
        with hr.Loader(dataset, batch_size=8, transform=AUGMENT, seed=2) as loader:
            previous = None
            for batch in loader:
                batches.append(as_bytes(batch))
                if write and previous is not None:
                    previous.image.fill_(-7)
                    previous.label.fill_(-7)
                previous = batch
        return batches

    assert run(write=True) == run(write=False)


@pytest.mark.parametrize("transform", [AUGMENT, None], ids=["fixed", "ragged"])
@pytest.mark.parametrize("output", ["torch", "numpy", "dlpack"])
def test_batches_outlive_their_loader(
    dataset: hr.Dataset, output: str, transform: hr.image.ImageTransform | None
) -> None:
    loader = hr.Loader(dataset, batch_size=30, transform=transform, output=output)
    batches = list(loader)
    before = [as_bytes(batch) for batch in batches]
    loader.close()
    assert [as_bytes(batch) for batch in batches] == before
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None
    assert [as_bytes(batch) for batch in batches] == before
    parts = [batches[1].image, batches[2].label]  # of two batches, of which the rest dies
    before_parts = as_bytes(parts)
    del batches
    gc.collect()
    assert as_bytes(parts) == before_parts


def test_holding_all_batches_ends_with_one_warning_and_counted_memory(dataset: hr.Dataset) -> None:
    transform = hr.image.train(96, dtype="uint8")  # 221 KB a batch of 8, 3 MB in all
    with (
        hr.Loader(
            dataset, batch_size=8, transform=transform, memory="1MiB", seed=1, epochs=2
        ) as loader,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        held = [*loader, *loader]
        assert len(held) == 2 * len(loader)
        for epoch in range(2):
            batches = held[epoch * len(loader) : (epoch + 1) * len(loader)]
            ids = [i for batch in batches for i in payload_ids(batch)]
            assert sorted(ids) == list(range(COUNT))
        memory = loader.stats()["memory"]
        image_bytes = sum(batch.image.nbytes for batch in held)
        assert memory["beyond"] == memory["beyond_peak"] > 0
        assert memory["beyond"] + memory["batches"] >= image_bytes
        assert memory["batches_peak"] <= memory["batches_budget"]
        assert memory["staging_peak"] <= memory["staging_budget"]
        assert memory["batches_budget"] + memory["staging_budget"] <= 2**20
        del batches, held
        gc.collect()
        assert loader.stats()["memory"]["beyond"] == 0
    assert [(w.category, w.filename) for w in caught] == [(RuntimeWarning, __file__)]
    assert "drop batches when done with them, or raise memory=" in str(caught[0].message)


def test_without_held_batches_nothing_is_taken_beyond_the_budget(dataset: hr.Dataset) -> None:
    transform = hr.image.train(96, dtype="uint8")
    with hr.Loader(dataset, batch_size=8, transform=transform, memory="1MiB") as loader:
        for batch in loader:
            assert (np.asarray(batch.label) == LABELS[payload_ids(batch)]).all()
            del batch
        assert loader.stats()["memory"]["beyond_peak"] == 0


def test_names_that_are_no_attributes_are_taken_in_brackets(tmp_path: Path) -> None:
    names = ("st.w", "class", "_x", "label")
    with Builder(tmp_path / "a.hri", root=tmp_path) as builder:
        for place, name in enumerate(names):
            builder.add_field(name, "array", "int64", inline=True)
            builder.add_values(name, np.arange(4) + 10 * place)
    with hr.Loader(
        tmp_path / "a.hri", 4, shuffle=False, output=hr.Output("numpy", ids=True)
    ) as loader:
        batch = first(loader)
    for place, name in enumerate(names):
        assert batch[name].tolist() == batch[place].tolist() == [10 * place + i for i in range(4)]
    assert batch.label is batch["label"]
    assert batch["sample_id"].tolist() == batch[-1].tolist() == [0, 1, 2, 3]
    assert batch._fields == (*names, "sample_id")
    assert len(batch[1:3]) == 2
    assert pickle.loads(pickle.dumps(batch))["st.w"].tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError, match=r"a batch has no field 'w'; it has st\.w, class, _x, label"):
        batch["w"]


def test_fields_of_the_index_alone_are_read_without_any_file(tmp_path: Path) -> None:
    index = write_tiny(tmp_path / "tiny.hri", 10)
    with hr.Loader(index, batch_size=4, shuffle=False) as loader:
        assert [batch.label.tolist() for batch in loader] == [
            [1, 4, 7, 10],
            [13, 16, 19, 22],
            [25, 28],
        ]
        assert loader.stats()["io"]["reads"] == 0


def test_image_transforms_do_not_change_which_sample_it_is(dataset: hr.Dataset) -> None:
    for transform in (FLAT, hr.image.evaluate(8, dtype="uint8"), hr.image.resize(5, dtype="uint8")):
        with hr.Loader(
            dataset, batch_size=50, transform=transform, output=hr.Output(ids=True)
        ) as loader:
            assert sorted(i for batch in loader for i in payload_ids(batch)) == list(range(COUNT))
