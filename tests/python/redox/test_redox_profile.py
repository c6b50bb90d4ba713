"""Chunks of the order `redox` that a machine profile decides."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat, made_profile

import headrace as hr
from headrace import _core, errors
from headrace.pack import PackParameters, write_pack


def profile(folder: Path, enough: int, name: str = "machine") -> Path:
    """Of a machine whose storage is fast from reads of `enough` bytes on."""
    path = folder / f"{name}.toml"
    storage = {enough // 8: 1e5, enough: 1e6, 8 * enough: 1.05e6}
    made_profile(folder, storage=storage, ram=1e9, disk=1e9).save(path)
    return path


def loader(source: Path, machine: Path | None, order: str | hr.orders.Order) -> hr.Loader:
    engine = hr.EngineOptions(profile=machine)
    return hr.Loader(
        source,
        10,
        order=order,
        seed=3,
        transform=FLAT,
        output=hr.Output("numpy", ids=True),
        engine=engine,
    )


def mean_bytes(source: Path) -> int:
    sizes = _core.stored_bytes(hr.open(source).index)
    return int(sizes.sum()) // len(sizes)


def test_a_chunk_has_as_many_samples_as_take_least_time(numbered: Path, tmp_path: Path) -> None:
    size = mean_bytes(numbered)
    machine = profile(tmp_path, 5 * size)
    with loader(numbered, machine, "redox") as made:
        # Reads of 4 and 8 samples take 5.3 and 7.8 microseconds a byte of a sample; such chunks
        # are read 1.99 and 2.87 times.
        assert made.state_dict()["order_parameters"]["block_samples"] == 4
        chosen = made.explain(0).parameters["block_samples"]
        assert chosen == (4, "default, from the profile")
        got = epoch_ids(made)
    assert sorted(flat(got)) == list(range(COUNT))
    with loader(numbered, None, hr.orders.Redox(block_samples=4)) as given:
        assert epoch_ids(given) == got
    with loader(numbered, machine, hr.orders.Redox(block_samples=7)) as given:
        assert given.explain(0).parameters["block_samples"] == (7, "given")


def test_a_state_keeps_its_chunks_whatever_the_machine(numbered: Path, tmp_path: Path) -> None:
    size = mean_bytes(numbered)
    machine, other = profile(tmp_path, 5 * size), profile(tmp_path, 8 * size, "other")
    with loader(numbered, machine, "redox") as first:
        batches = iter(first)
        for _ in range(3):
            next(batches)
        state = json.loads(json.dumps(first.state_dict()))
        rest = [batch.sample_id.tolist() for batch in batches]
    for again in (machine, other, None):
        with loader(numbered, again, "redox") as second:
            second.load_state_dict(state)
            assert second.explain(5).parameters["block_samples"][0] == 4
            assert epoch_ids(second) == rest
    with loader(numbered, other, "redox") as second:
        assert second.state_dict()["order_parameters"]["block_samples"] == 8
    # A state without chunks of a profile keeps those of the dataset, or the default.
    with loader(numbered, None, "redox") as first:
        state, got = first.state_dict(), epoch_ids(first)
    with loader(numbered, machine, "redox") as second:
        second.load_state_dict(state)
        assert epoch_ids(second) == got


@pytest.mark.parametrize("order", ["redox", "epoch"])
def test_blocks_of_a_pack_and_other_orders_are_left_as_they_are(
    numbered: Path, tmp_path: Path, order: str
) -> None:
    machine = profile(tmp_path, 5 * mean_bytes(numbered))
    source = numbered
    if order == "redox":
        source = tmp_path / "pack"
        write_pack(hr.open(numbered), source, PackParameters(block_samples=9))
    with loader(source, machine, order) as made:
        assert made.explain(0).parameters["block_samples"] == (0, "default")


def test_slots_of_so_many_bytes_are_chunks_of_a_virtual_one(numbered: Path) -> None:
    whole = _core.resident_bytes(hr.open(numbered).index, 4)
    for slots, chunks in {"10%": 10, whole: 1, whole - 2: 2, whole // 3: 3, "12.4%": 9}.items():
        order = hr.orders.Redox(slots=slots, block_samples=4)
        with loader(numbered, None, order) as made:
            assert made.explain(0).parameters["chunks_per_virtual"] == (chunks, "given"), slots


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slots": 0}, "slots: got 0, must be in [1, "),
        ({"slots": -1}, "slots: got -1, must be in [1, "),
        ({"slots": "0MB"}, "slots: got 0, must be in [1, "),
        ({"remote_limit": -1}, "remote_limit: got -1, must be in [0, "),
        (
            {"remote_limit": "1.5Gb"},
            'remote_limit: "1.5Gb" may be bits; write bytes: "0.1875GB" if it is bits, else ',
        ),
        ({"memory": "64 Mibit"}, 'memory: "64 Mibit" may be bits; write bytes: "8MiB" if it is'),
    ],
)
def test_wrong_bytes_are_named_with_their_range(
    numbered: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        loader(numbered, None, hr.orders.Redox(**options))
    assert str(caught.value).startswith(says)


def test_small_letters_are_bytes_as_everywhere(numbered: Path) -> None:
    with loader(numbered, None, hr.orders.Redox(remote_limit="1.5gb")) as made:
        assert made.explain(0).parameters["remote_bytes"] == (1_500_000_000, "given")


@pytest.mark.parametrize("locations", [40, 333, 1000, 2500, 5000])
def test_slots_are_the_locations_that_fit_the_memory(tmp_path: Path, locations: int) -> None:
    """Brand, 3.2: memory C has M = C / d locations, for N samples of d bytes, and n = N / M chunks
    share the locations of one: so no more than C is resident, and at least 60 % of it."""
    samples, chunk = 5000, 8
    np.save(tmp_path / "rows.npy", np.zeros((samples, 1024), np.uint8))
    dataset = hr.open(tmp_path / "rows.npy")
    size = _core.resident_bytes(dataset.index, chunk) // samples
    order = hr.orders.Redox(slots=locations * size, block_samples=chunk, read="chunk")
    parameters = order.to_core(dataset).parameters
    assert parameters["chunks_per_virtual"] == math.ceil(samples / (locations + 1 / size))
    plan = _core.OrderStream(
        "redox",
        {name: value for name, value in parameters.items() if name != "block_samples"},
        index=dataset.index,
        block_samples=chunk,
        batch_size=25,
        epochs=1,
    )
    ids = plan.ids(samples)
    assert sorted(ids.tolist()) == list(range(samples))
    # Of the last virtual chunk some slots may be more than its part of the memory.
    assert plan.counters()["peak_resident_bytes"] <= (locations + chunk) * size
    assert plan.counters()["peak_resident_bytes"] >= 0.6 * locations * size


def test_a_state_with_the_former_name_of_the_table_of_homes_is_continued(numbered: Path) -> None:
    with loader(numbered, None, "redox") as first:
        batches = iter(first)
        next(batches)
        state = first.state_dict()
        rest = [batch.sample_id.tolist() for batch in batches]
    parameters = state["order_parameters"]
    parameters["homes"] = parameters.pop("home_table")
    with loader(numbered, None, "redox") as second:
        second.load_state_dict(state)
        assert epoch_ids(second) == rest
