"""`hr.Job(mesh=)`: the ranks of a DeviceMesh over which samples are divided."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest
from loader_data import FLAT, epoch_ids, flat

import headrace as hr
from headrace.errors import InvalidArgumentError

torch = pytest.importorskip("torch")
fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")

MakeMesh = Callable[..., Any]


@pytest.fixture
def make_mesh() -> Iterator[MakeMesh]:
    """`make_mesh(rank, pp=2, dp=2)`: a mesh of a job that this process is one rank of."""

    def make(rank: int, **sizes: int) -> Any:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        torch.distributed.init_process_group(
            "fake", store=fake.FakeStore(), rank=rank, world_size=prod(sizes.values())
        )
        return torch.distributed.device_mesh.init_device_mesh(
            "cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes)
        )

    yield make
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def share(data: Path, **sharding: Any) -> list[int]:
    with hr.Loader(data, 5, seed=1, transform=FLAT, job=hr.Job(**sharding)) as loader:
        return flat(epoch_ids(loader))


SIZES = [
    ({"pp": 2, "dp": 2, "tp": 2}, ("dp",)),
    ({"dp": 4, "tp": 2}, ("dp",)),
    ({"dp": 2, "pp": 2, "tp": 2}, ("dp",)),
    ({"pp": 2, "dp_replicate": 2, "dp_shard": 2, "cp": 1, "tp": 2}, ("dp_replicate", "dp_shard")),
    ({"tp": 4}, ()),
    ({"dp": 3}, ("dp",)),
]


@pytest.mark.parametrize(("sizes", "data"), SIZES)
def test_ranks_at_one_place_of_the_mesh_get_the_same_batches(
    numbered: Path, make_mesh: MakeMesh, sizes: dict[str, int], data: tuple[str, ...]
) -> None:
    sizes = sizes if data else sizes | {"dp": 1}  # A mesh of one rank: all get everything.
    data = data or ("dp",)
    places = prod(sizes[name] for name in data)
    for rank in range(prod(sizes.values())):
        mesh = make_mesh(rank, **sizes)[data if len(data) > 1 else data[0]]
        place = mesh.get_coordinate()
        number = 0
        for name, at in zip(data, place, strict=True):
            number = number * sizes[name] + at
        expected = share(numbered, rank=number, world_size=places)
        assert share(numbered, mesh=mesh) == expected, rank


def test_dimensions_of_one_batch_are_refused(numbered: Path, make_mesh: MakeMesh) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=re.escape(
            "Job.mesh: its dimensions are dp, tp, but ranks along 'tp' get the same batches: "
            "give the dimensions over which samples are divided, as mesh['dp']"
        ),
    ):
        share(numbered, mesh=make_mesh(1, dp=2, tp=2))


@pytest.mark.parametrize("name", ["dp_cp", "dp_shard_cp", "tensor_parallel"])
def test_a_dimension_made_of_several_is_refused_if_one_is_of_one_batch(
    numbered: Path, make_mesh: MakeMesh, name: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"ranks along '{name}' get the same batches"):
        share(numbered, mesh=make_mesh(1, **{name: 4}))


def test_ranks_without_one_distance_are_refused(numbered: Path, make_mesh: MakeMesh) -> None:
    mesh = make_mesh(5, dp_replicate=2, pp=2, dp_shard=2)["dp_replicate", "dp_shard"]
    with pytest.raises(
        InvalidArgumentError,
        match=re.escape(
            "Job.mesh: this is rank 5 of 8, and the mesh has the ranks [0, 1, 4, 5]: they "
            "must have one distance, with this rank among them; otherwise give the place in the "
            "mesh and its size as rank= and world_size="
        ),
    ):
        share(numbered, mesh=mesh)


@pytest.mark.parametrize("more", [{"tensor": 2}, {"rank": 0, "world_size": 2}])
def test_a_mesh_has_all_of_it(numbered: Path, make_mesh: MakeMesh, more: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="mesh has all of it; leave the others out"):
        share(numbered, mesh=make_mesh(0, dp=2)["dp"], **more)


def test_what_is_no_mesh_is_named(numbered: Path) -> None:
    assert "RANK" not in os.environ
    with pytest.raises(
        InvalidArgumentError,
        match=re.escape("Job.mesh: got 'dp', must be a torch.distributed DeviceMesh"),
    ):
        share(numbered, mesh="dp")
