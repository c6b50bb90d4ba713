"""Batches that processes write row by row, or pack, are those of torch, whatever samples are."""

from __future__ import annotations

import collections
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from map_data import WAYS
from torch.utils.data import default_collate

from headrace.torch import DataLoader
from headrace.torch._dataloader.workers import packing, rows

Point = collections.namedtuple("Point", ["x", "y"])


def leaves(value: Any) -> Any:
    """Types, dtypes, strides and values."""
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            return "nested", [leaves(each) for each in value.unbind()]
        return type(value).__name__, value.dtype, value.shape, value.stride(), value.tolist()
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.shape, value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(key, leaves(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [leaves(each) for each in value]
    return type(value).__name__, value


class Listed(torch.utils.data.Dataset[Any]):
    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> Any:
        return self.samples[number]


SAMPLES: dict[str, list[Any]] = {
    "numbers": [(n, n / 2, bool(n % 2)) for n in range(20)],
    "of numpy": [
        {"f": np.float32(n), "d": np.float64(n), "i": np.int16(n), "b": np.bool_(n % 2)}
        for n in range(20)
    ],
    "texts": [{"text": f"{n}", "pair": (f"a{n}", b"b"), "deep": {"t": "x"}} for n in range(20)],
    "a text": [f"text {n}" for n in range(20)],
    "tensors": [(torch.full((2, 3), float(n)), torch.tensor(n)) for n in range(20)],
    "turned": [torch.arange(6.0).reshape(2, 3).t() + n for n in range(20)],
    "arrays": [[np.full((2, 2), n, np.uint8), np.array(n)] for n in range(20)],
    "half": [torch.full((3,), n, dtype=torch.bfloat16) for n in range(20)],
    "complex": [torch.full((3,), n, dtype=torch.complex64) for n in range(20)],
    "empty": [(torch.empty(0, 3), np.empty((2, 0), np.float32)) for _ in range(20)],
    "nothing in dims": [torch.tensor(n).expand(4) for n in range(20)],
    "named": [Point(n, torch.ones(2) * n) for n in range(20)],
    "nested": [{"a": [{"b": (n, [n + 0.5])}], "c": Point("t", (n,))} for n in range(20)],
    "other dicts": [collections.OrderedDict(a=n, b=torch.ones(1)) for n in range(20)],
    "keys in another order": [{"a": n, "b": 1} if n % 3 else {"b": 1, "a": n} for n in range(20)],
    "ints and floats": [1.5 if n == 0 else n for n in range(20)],
    "dtypes that change": [torch.ones(2, dtype=float if n < 10 else int) for n in range(20)],
    "shapes that change": [torch.ones(2 if n < 8 else 3) * n for n in range(20)],
    "types that change": [torch.ones(2) if n < 8 else np.ones(2) for n in range(20)],
    "arrays, then tensors": [(torch.ones if n % 4 else np.ones)(2) for n in range(20)],
    "texts that change": [f"{n}" if n < 8 else n for n in range(20)],
    "parameters": [torch.nn.Parameter(torch.ones(2) * n, requires_grad=False) for n in range(20)],
    "large": [torch.full((3, 200, 200), float(n)) for n in range(20)],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_batches_are_those_of_default_collate(name: str) -> None:
    data = Listed(SAMPLES[name])
    expected = [leaves(batch) for batch in torch.utils.data.DataLoader(data, 4)]
    for how in ({"num_workers": 2}, {"num_workers": 1, "pool_size": 3}):
        loader = DataLoader(data, 4, **how)  # type: ignore[arg-type]
        for _ in range(2):
            assert [without_strides(leaves(batch)) for batch in loader] == [
                without_strides(batch) for batch in expected
            ]


def without_strides(value: Any) -> Any:
    """Workers of torch make rows closely packed, too; without workers it keeps other strides."""
    if isinstance(value, tuple) and len(value) == 5:
        return (*value[:3], value[4])
    if isinstance(value, (list, tuple)):
        return type(value)(map(without_strides, value))
    return value


@pytest.mark.parametrize(
    "samples",
    [
        [torch.ones(2), torch.ones(3)],
        [torch.ones(2, dtype=torch.float64), np.ones(2)],
        [{"a": 1, "b": torch.tensor(1)}, {"a": 1, "b": 1}],
        [1, "a"],
        [None, None],
        [(1, 2), (1,)],
        [np.array(["a"]), np.array(["b"])],
        [2**70, 1],
        [{"a": 1}, {"b": 1}],
        [1j, 2j],
        [np.datetime64("2020-01-01"), np.datetime64("2020-01-02")],
    ],
)
def test_what_default_collate_refuses_is_its_error(samples: list[Any]) -> None:
    with pytest.raises((RuntimeError, TypeError, KeyError, ValueError)) as own:
        default_collate(list(samples))
    loader = DataLoader(Listed(samples * 4), 2, num_workers=2)
    iterator = iter(loader)
    for _ in range(2):
        with pytest.raises(type(own.value)) as raised:
            next(iterator)
        assert str(own.value) in str(raised.value)
        assert "collating batch" in str(raised.value)
    iterator.close()


def test_a_changed_map_of_default_collate_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows.is_known()
    functions = torch.utils.data._utils.collate.default_collate_fn_map
    monkeypatch.setitem(functions, int, lambda batch, **_: sum(batch))
    assert not rows.is_known()
    loader = DataLoader(Listed(list(range(8))), 4, num_workers=2, multiprocessing_context="fork")
    assert list(loader) == [6, 22]


def test_rows_are_views_of_memory_that_is_used_again() -> None:
    """A batch that the loop keeps is not written over."""
    samples = [torch.full((1000,), float(n)) for n in range(64)]
    loader = DataLoader(Listed(samples), 4, num_workers=2, persistent_workers=True)
    kept = []
    for _ in range(3):
        for number, batch in enumerate(loader):
            if number % 5 == 0:
                kept.append((number, batch))
    loader.close()
    for number, batch in kept:
        assert batch[:, 0].tolist() == [float(number * 4 + row) for row in range(4)]
        assert (batch == batch[:, :1]).all()
        batch += 1  # It is the loop's.


def nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of a prototype.
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def test_a_function_for_a_container_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = torch.utils.data._utils.collate.default_collate_fn_map
    for kind in (Point, dict, bool, object):
        with monkeypatch.context() as patch:
            patch.setitem(functions, kind, lambda batch, **_: len(batch))
            assert not rows.is_known()
    monkeypatch.setitem(functions, random.Random, lambda batch, **_: len(batch))
    assert rows.is_known()


class GivesBatches(Listed):
    def __getitems__(self, numbers: list[int]) -> Any:
        return {"x": torch.tensor(numbers)}


@pytest.mark.parametrize("way", [*WAYS])
def test_what_getitems_gives_is_collated_as_it_is(way: str) -> None:
    loader = DataLoader(GivesBatches([0] * 8), 4, collate_fn=same, **WAYS[way])
    assert [batch["x"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader.close()


def same(batch: Any) -> Any:
    return batch


BATCHES: dict[str, Callable[[], list[Any]]] = {
    "tuple": lambda: [(0, 1), (2,), (3, 1, 2)],
    "ndarray": lambda: [np.array([3, 0]), np.array([1])],
    "set": lambda: [{0, 1}, {2}],
    "list": lambda: [iter((3, 0)), iter((1,))],
}
"""By the type in which `__getitems__` gets them. torch would send an iterator to no process."""


class SaysKeys(Listed):
    def __getitems__(self, keys: Any) -> Any:
        return type(keys).__name__, [int(key) for key in keys]


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("way", ["direct", "threads", "processes"])
def test_getitems_gets_the_keys_as_the_batch_sampler_gave_them(way: str, kind: str) -> None:
    batches = BATCHES[kind]
    keys = [[int(key) for key in batch] for batch in batches()]
    data = SaysKeys([0] * 4)
    if kind != "list":
        torchs = torch.utils.data.DataLoader(data, batch_sampler=batches(), collate_fn=same)
        assert list(torchs) == [(kind, numbers) for numbers in keys]
    loader = DataLoader(data, batch_sampler=batches(), collate_fn=same, **WAYS[way])
    assert list(loader) == [(kind, numbers) for numbers in keys]
    loader.close()
    samples = DataLoader(Listed([0, 1, 2, 3]), batch_sampler=batches(), **WAYS[way])
    assert [batch.tolist() for batch in samples] == keys
    samples.close()


def without_writing(array: Any) -> Any:
    array.flags.writeable = False
    return array


ARRAYS: dict[str, Any] = {
    "read-only": without_writing(np.arange(6)),
    "large and read-only": without_writing(np.arange(5000.0)),
    "of the other byte order": np.arange(6).astype(">i4"),
    "large and of the other byte order": np.arange(5000).astype(">f8"),
    "times": np.array(["2020-01-01", "2021-02-03"], ">M8[D]"),
    "fields": without_writing(np.zeros(3, [("a", ">i4"), ("b", "f8")])),
    "turned": without_writing(np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    "strided": without_writing(np.arange(12)[::2]),
    "objects": without_writing(np.array([1, "a", None], object)),
}


def array_facts(array: Any) -> Any:
    return array.dtype.str, array.dtype, array.flags.writeable, array.tolist()


def test_arrays_of_a_collate_fn_are_as_from_torchs_workers() -> None:
    data = Listed(list(ARRAYS.values()))
    expected = torch.utils.data.DataLoader(data, 1, num_workers=1, collate_fn=same)
    batches = DataLoader(data, 1, num_workers=1, collate_fn=same)
    for name, (one,), (other,) in zip(ARRAYS, batches, expected, strict=True):
        assert array_facts(one) == array_facts(other), name
        assert one.flags.writeable


@pytest.mark.parametrize("collate", [None, torch.stack])
def test_a_batch_of_a_forked_child_stays_as_it_was(collate: Any) -> None:
    samples = [torch.full((1000,), float(n)) for n in range(160)]
    loader = DataLoader(Listed(samples), 4, num_workers=2, collate_fn=collate)
    children = []
    for number, batch in enumerate(loader):
        if number % 10 == 0:
            goes, tells = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(tells)
                os.read(goes, 1)  # Until the parent has read all other batches.
                right = all(int(row[0]) == int(row[-1]) for row in batch)
                first = [int(row[0]) for row in batch]
                os._exit(0 if right and first == list(range(4 * number, 4 * number + 4)) else 1)
            os.close(goes)
            children.append((child, tells))
    for _, tells in children:
        os.close(tells)
    assert [os.waitpid(child, 0)[1] for child, _ in children] == [0] * 4


class GatesSecond(Listed):
    """Its second batch waits until the first one was given."""

    def __init__(self, gate: str) -> None:
        super().__init__(list(range(4)))
        self.gate = gate

    def __getitem__(self, number: int) -> int:
        if number >= 2:
            with open(f"{self.gate}{number}", "rb") as gate:
                gate.read()
        return number


@pytest.mark.parametrize("collate", [None, torch.tensor])
def test_a_batch_does_not_wait_for_the_next_one_of_its_worker(collate: Any, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    for number in (2, 3):
        os.mkfifo(f"{gate}{number}")
    loader = DataLoader(GatesSecond(gate), 2, num_workers=1, collate_fn=collate, timeout=60)
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1]
    for number in (2, 3):
        os.close(os.open(f"{gate}{number}", os.O_WRONLY))
    assert next(iterator).tolist() == [2, 3]
    iterator.close()


BASE = torch.arange(10_000.0)
PACKED: dict[str, Any] = {
    "transposed": torch.arange(3000.0).reshape(30, 100).t(),
    "channels last": torch.ones(4, 3, 20, 20).contiguous(memory_format=torch.channels_last),
    "expanded": torch.ones(1, 600).expand(40, 600),
    "a part": BASE[5000:9000:2],
    "small": torch.arange(6).reshape(2, 3).t(),
    "spread": torch.arange(1_000_000.0)[::100_000],
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(3, 0, 2),
    "nested": nested(),
    "bytes": bytearray(b"x" * 10_000),
    "arrays": [np.arange(5000.0), np.asfortranarray(np.ones((50, 60))), np.array(["a", None])],
    "many": [torch.full((600,), n) for n in range(5000)],
    "other": {"a": {1, 2}, "b": Point("x", None)},
}


@pytest.mark.parametrize("name", PACKED)
def test_what_is_packed_comes_back_as_it_was(name: str) -> None:
    value = PACKED[name]
    parts = packing.pack(value, parts_max=4096)
    assert len(parts) <= 4096
    found = packing.unpack([part.copy() for part in parts])
    expected = leaves(value)
    if name == "spread":
        assert found.stride() == (1,)
        expected = without_strides(expected)
        assert without_strides(leaves(found)) == expected
    else:
        assert leaves(found) == expected


def test_views_of_one_memory_are_so_again_and_are_sent_once() -> None:
    base = torch.arange(10_000.0)
    parts = packing.pack([base[:9000], base[1000:].view(90, 100), base], parts_max=4096)
    assert sum(part.nbytes for part in parts) < 1.1 * 40_000
    first, second, whole = packing.unpack([part.copy() for part in parts])
    whole[1000] = -1.0
    assert first[1000] == second[0, 0] == -1.0


def test_storages_of_several_sizes_that_begin_together_are_one_memory() -> None:
    base = np.arange(10_000.0)
    value = [torch.from_numpy(base[:4]), torch.from_numpy(base), torch.from_numpy(base[:2000])]
    found = packing.unpack([part.copy() for part in packing.pack(value, parts_max=4096)])
    assert [each.tolist() for each in found] == [each.tolist() for each in value]


def test_tensors_that_lie_scattered_in_a_large_memory_are_sent_alone() -> None:
    base = torch.arange(2_000_000.0).view(2000, 1000)
    value = [base[7], base[1990], base[40, ::2]]
    parts = packing.pack(value, parts_max=4096)
    assert sum(part.nbytes for part in parts) < 20_000
    found = packing.unpack([part.copy() for part in parts])
    assert [leaves(each) for each in found] == [leaves(each) for each in value]


def test_only_what_a_tensor_spans_is_sent() -> None:
    base = torch.zeros(10_000_000)
    parts = packing.pack(base[5_000_000:5_001_000], parts_max=4096)
    assert sum(part.nbytes for part in parts) < 6000


def test_random_batches_are_packed_and_unpacked() -> None:
    draw = random.Random(7)
    for _ in range(200):
        base = torch.arange(float(draw.randrange(1, 4000)))
        value = []
        for _ in range(draw.randrange(1, 6)):
            low = draw.randrange(len(base))
            step = draw.randrange(1, 4)
            value.append(base[low::step])
        found = packing.unpack([part.copy() for part in packing.pack(value, parts_max=8)])
        assert [each.tolist() for each in found] == [each.tolist() for each in value]
