"""The rank that a Loader reads for: found once, and never another than the process has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat
from rank_scripts import environment, free_port, run_script

import headrace as hr
from headrace import errors

torch = pytest.importorskip("torch")


_SPAWNED = """
import json, os, sys
import torch.distributed as dist
import torch.multiprocessing as mp
from loader_data import FLAT, epoch_ids, flat
import headrace as hr


def main(rank, data, port):
    # As most scripts with mp.spawn do: no environment tells the rank.
    loaders = {"before": hr.Loader(data, batch_size=10, transform=FLAT)}
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    loaders["after"] = hr.Loader(data, batch_size=10, transform=FLAT)
    job = hr.Job(rank=0, world_size=1)
    loaders["given"] = hr.Loader(data, batch_size=10, transform=FLAT, job=job)
    told = {}
    for made, loader in loaders.items():
        with loader:
            try:
                told[made] = flat(epoch_ids(loader))
            except hr.errors.FailedPreconditionError as error:
                told[made] = str(error)
    os.write(1, (json.dumps([rank, told]) + chr(10)).encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=sys.argv[1:], nprocs=2)
"""


@pytest.fixture(scope="module")
def spawned(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks of mp.spawn told of loaders made before and after their process group, and
    of one whose rank was given."""
    script = tmp_path_factory.mktemp("spawned") / "spawned.py"
    script.write_text(_SPAWNED)
    ended = run_script(script, numbered, free_port(), env=environment())
    assert ended.code == 0, ended.err
    return [told for _, told in sorted(map(json.loads, ended.out.splitlines()))]


def test_a_loader_made_before_the_process_group_is_refused(spawned: list[dict[str, Any]]) -> None:
    for rank, told in enumerate(spawned):
        assert told["before"] == (
            "iterating: the loader was made for rank 0 of 1, because no other ranks were "
            f"known; torch.distributed now says rank {rank} of 2: samples would be lost or "
            "repeated; make the loader after init_process_group() (with Lightning: in "
            "train_dataloader()), or give job=hr.Job(rank=..., world_size=...); "
            "load_state_dict() takes a place over to another loader"
        )


def test_a_loader_made_after_the_process_group_has_its_share(spawned: list[dict[str, Any]]) -> None:
    shares = [told["after"] for told in spawned]
    assert set(flat(shares)) == set(range(COUNT))
    assert [len(share) for share in shares] == [COUNT // 2 + 1] * 2  # One is repeated, as declared.


def test_ranks_that_were_given_are_not_questioned(spawned: list[dict[str, Any]]) -> None:
    for told in spawned:
        assert sorted(told["given"]) == list(range(COUNT))


@pytest.fixture
def no_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch  # type: ignore[return-value]


def test_a_rank_that_the_environment_tells_later_is_refused(
    numbered: Path, no_ranks: pytest.MonkeyPatch
) -> None:
    with hr.Loader(numbered, batch_size=10, transform=FLAT) as loader:
        state = loader.state_dict()
        no_ranks.setenv("RANK", "1")
        no_ranks.setenv("WORLD_SIZE", "2")
        with pytest.raises(errors.FailedPreconditionError, match="now says rank 1 of 2"):
            iter(loader)
        assert loader.state_dict() == state


def label(sample: hr.Sample) -> int:
    return int(sample.label)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_rank_that_is_told_later_is_refused_with_workers(
    numbered: Path, no_ranks: pytest.MonkeyPatch, workers: int
) -> None:
    with hr.Loader(numbered, batch_size=10, transform=label, workers=workers) as loader:
        no_ranks.setenv("RANK", "1")
        no_ranks.setenv("WORLD_SIZE", "2")
        with pytest.raises(errors.FailedPreconditionError, match="now says rank 1 of 2"):
            list(loader)


def test_a_rank_that_changes_between_epochs_is_refused_and_another_loader_goes_on(
    numbered: Path, no_ranks: pytest.MonkeyPatch
) -> None:
    no_ranks.setenv("RANK", "0")
    no_ranks.setenv("WORLD_SIZE", "2")
    with hr.Loader(numbered, batch_size=10, transform=FLAT) as loader:
        first = flat(epoch_ids(loader))
        state = loader.state_dict()
        no_ranks.setenv("WORLD_SIZE", "1")  # The other one is gone.
        with pytest.raises(errors.FailedPreconditionError, match="made for rank 0 of 2, found by"):
            iter(loader)
    with hr.Loader(numbered, batch_size=20, transform=FLAT) as loader:
        loader.load_state_dict(state)
        assert sorted(flat(epoch_ids(loader))) == list(range(COUNT))
        assert loader.epoch == 2
    assert len(first) == COUNT // 2 + 1


def test_ranks_go_on_after_their_process_group_has_ended(
    numbered: Path, no_ranks: pytest.MonkeyPatch
) -> None:
    distributed = torch.distributed
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        loader = hr.Loader(numbered, batch_size=10, transform=FLAT)
        assert sorted(flat(epoch_ids(loader))) == list(range(COUNT))
    finally:
        distributed.destroy_process_group()
    with loader:
        assert sorted(flat(epoch_ids(loader))) == list(range(COUNT))


def test_a_child_of_lightning_s_launcher_is_told_what_is_missing(
    numbered: Path, no_ranks: pytest.MonkeyPatch
) -> None:
    no_ranks.setenv("WORLD_SIZE", "2")
    no_ranks.setenv("LOCAL_RANK", "1")
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.Loader(numbered)
    assert str(caught.value) == (
        "environment WORLD_SIZE='2', LOCAL_RANK='1', but no RANK: cannot determine which of "
        "several processes this is; make the loader after init_process_group() (with Lightning: "
        "in train_dataloader()), or give job=hr.Job(rank=..., world_size=...)"
    )


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ],
)
def test_several_processes_of_a_launcher_each_get_their_share(
    numbered: Path, no_ranks: pytest.MonkeyPatch, rank: str, size: str
) -> None:
    no_ranks.setenv(size, "2")
    shares = []
    for number in range(2):
        no_ranks.setenv(rank, str(number))
        with hr.Loader(numbered, batch_size=10, transform=FLAT) as loader:
            shares.append(flat(epoch_ids(loader)))
    assert [len(share) for share in shares] == [COUNT // 2 + 1] * 2  # One is repeated.
    assert set(flat(shares)) == set(range(COUNT))
    everything = hr.Job(rank=0, world_size=1)
    with hr.Loader(numbered, batch_size=10, transform=FLAT, job=everything) as loader:
        assert sorted(flat(epoch_ids(loader))) == list(range(COUNT))
    no_ranks.setenv("RANK", "0")  # As torchrun does below srun.
    no_ranks.setenv("WORLD_SIZE", "1")
    with hr.Loader(numbered, batch_size=10, transform=FLAT) as loader:
        assert sorted(flat(epoch_ids(loader))) == list(range(COUNT))


def test_several_processes_of_unknown_number_do_not_each_get_all_samples_unasked(
    numbered: Path, no_ranks: pytest.MonkeyPatch
) -> None:
    no_ranks.setenv("PMIX_RANK", "1")
    with pytest.raises(errors.InvalidArgumentError, match=r"PMIX_RANK=1.*does not say of how many"):
        hr.Loader(numbered)


@pytest.mark.parametrize(
    "told",
    [
        {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"},
        {"WORLD_SIZE": "4", "LOCAL_RANK": "1"},
        {"RANK": "1"},
    ],
)
@pytest.mark.parametrize("batches", [False, True])
def test_with_a_sampler_that_divides_the_samples_no_rank_is_missed(
    numbered: Path, no_ranks: pytest.MonkeyPatch, told: dict[str, str], batches: bool
) -> None:
    for name, value in told.items():
        no_ranks.setenv(name, value)
    share = torch.utils.data.DistributedSampler(range(COUNT), num_replicas=4, rank=1, seed=2)
    expected = list(share)
    given: dict[str, Any] = {"sampler": share, "batch_size": 10}
    if batches:
        given = {"batch_sampler": torch.utils.data.BatchSampler(share, 10, False)}
    with hr.Loader(numbered, transform=FLAT, **given) as loader:
        assert flat(epoch_ids(loader)) == expected
        no_ranks.setenv("RANK", "3")
        no_ranks.setenv("WORLD_SIZE", "4")
        assert flat(epoch_ids(loader)) == expected


def test_a_batch_script_s_slurm_variables_are_no_rank(
    numbered: Path, no_ranks: pytest.MonkeyPatch
) -> None:
    """What sbatch did not start with srun is one process, whatever the job has."""
    no_ranks.setenv("SLURM_PROCID", "0")
    no_ranks.setenv("SLURM_NTASKS", "8")
    with hr.Loader(numbered, batch_size=10, transform=FLAT) as loader:
        assert sorted(flat(epoch_ids(loader))) == list(range(COUNT))


def test_an_iteration_that_took_nothing_is_repeated(numbered: Path) -> None:
    """Lightning calls iter() to see whether it can, and drops what it gets."""
    with hr.Loader(numbered, batch_size=10, transform=FLAT, seed=3) as loader:
        epoch = epoch_ids(loader)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = epoch_ids(batches)
    with hr.Loader(numbered, batch_size=10, transform=FLAT, seed=3) as loader:
        iter(loader)
        assert loader.state_dict()["samples"] == 0
        assert epoch_ids(loader) == epoch
        loader.load_state_dict(state)
        iter(loader)
        assert loader.state_dict() == state
        assert epoch_ids(loader) == rest
        iter(loader)
        loader.set_epoch(0)
        assert epoch_ids(loader) == epoch


def test_an_iteration_that_took_nothing_draws_its_sampler_once(numbered: Path) -> None:
    def loader_of_the_sampler() -> hr.Loader:
        generator = torch.Generator().manual_seed(5)
        sampler = torch.utils.data.RandomSampler(range(COUNT), generator=generator)
        return hr.Loader(numbered, batch_size=10, transform=FLAT, sampler=sampler)

    with loader_of_the_sampler() as loader:
        epochs = [epoch_ids(loader), epoch_ids(loader)]
    with loader_of_the_sampler() as loader:
        iter(loader)
        assert epoch_ids(loader) == epochs[0]
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
    with loader_of_the_sampler() as loader:
        loader.load_state_dict(state)
        iter(loader)
        assert loader.state_dict() == state
        iter(loader)
        assert epoch_ids(loader) == epochs[1][1:]
