"""NoPFS's interface: the paper's listing runs as it is printed, with a loader's samples."""

from __future__ import annotations

import ctypes
import functools
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import COUNT, FLAT, LABELS, NUMBERED, epoch_ids, flat, sample_file

import headrace as hr
from headrace import errors
from headrace.papers import nopfs
from headrace.papers.nopfs import Job, NoPFSDataLoader, NoPFSImageFolder

torch = pytest.importorskip("torch")

LISTING = """
job = Job(data_dir, batch_size, num_epochs, \u2019uniform\u2019, drop_last)
dataset = NoPFSImageFolder(data_dir, job, data_transforms)
dataloader = NoPFSDataLoader(dataset)
"""
"""Dryden et al. 2021, figure 7, with the quotation marks that it is printed with."""


def to_tensor(image: Any) -> Any:
    """As data_transforms may be: takes a Pillow image."""
    return torch.from_numpy(np.array(image.resize((4, 4)))).permute(2, 0, 1)


def doubled(label: int) -> int:
    return 2 * label


def count_pairs(pairs: list[Any]) -> tuple[int, list[int]]:
    return len(pairs), [int(label) for _, label in pairs]


def run_listing(**names: Any) -> NoPFSDataLoader:
    given = {each: getattr(nopfs, each) for each in nopfs.__all__} | names
    exec(LISTING.replace("\u2019", "'"), given)  # It is ours.
    found: NoPFSDataLoader = given["dataloader"]
    return found


def ids_of(batches: Any) -> list[list[int]]:
    """The samples of batches, which every pixel tells."""
    found = []
    for images, labels in batches:
        pixels = images.numpy()
        ids = pixels[:, 0, 0, 0].astype(int)
        assert (pixels == pixels[:, :1, :1, :1]).all()
        assert (labels.numpy() == LABELS[ids]).all()
        found.append([int(each) for each in ids])
    return found


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.destroy()


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_listing_of_the_paper_runs(numbered: Path, drop_last: bool) -> None:
    dataloader = run_listing(
        data_dir=str(numbered),
        batch_size=16,
        num_epochs=2,
        drop_last=drop_last,
        data_transforms=to_tensor,
    )
    with hr.Loader(numbered, 16, drop_last=drop_last, transform=FLAT) as loader:
        expected = [epoch_ids(loader) for _ in range(2)]
    assert len(dataloader) == len(expected[0])
    assert [ids_of(dataloader) for _ in range(2)] == expected
    with pytest.raises(errors.FailedPreconditionError, match="made for epochs=2"):
        iter(dataloader)
    dataloader.dataset.get_job().destroy()


def test_samples_come_one_by_one_with_their_class(numbered: Path, jobs: list[Job]) -> None:
    jobs.append(Job(str(numbered), 16, 2, "uniform", False, seed=4))
    with hr.Loader(numbered, 16, seed=4, transform=FLAT) as loader:
        expected = flat(epoch_ids(loader) + epoch_ids(loader))
    got = list(jobs[0])
    assert len(got) == 2 * COUNT
    for (label, sample), number in zip(got, expected, strict=True):
        assert label == f"class{LABELS[number]}"
        assert sample == sample_file(numbered, number).read_bytes()
    with pytest.raises(StopIteration):
        jobs[0].get()


def test_several_samples_come_at_once(numbered: Path, jobs: list[Job]) -> None:
    jobs.append(Job(numbered, 16, 1, "uniform", False))
    jobs.append(Job(numbered, 16, 1, "uniform", False))
    labels, samples = jobs[0].get(20)
    assert list(zip(labels, samples, strict=True)) == [jobs[1].get() for _ in range(20)]


def test_the_buffer_is_the_memory_of_the_newest_sample(numbered: Path, jobs: list[Job]) -> None:
    jobs.append(Job(numbered, 16, 1, "uniform", False))
    job = jobs[0]
    assert (job.buffer_p, job.buffer_size) == (None, 0)
    for _ in range(20):  # Into the second batch.
        _, sample = job.get()
        assert isinstance(job.buffer_p, ctypes.POINTER(ctypes.c_char))
        assert job.buffer_p[: job.buffer_size] == sample


def test_a_job_of_decoded_images_gives_arrays(numbered: Path, jobs: list[Job]) -> None:
    jobs.append(Job(numbered, 16, 1, "uniform", False, transforms=FLAT))
    label, image = jobs[0].get()
    number = int(image[0, 0, 0])
    assert image.shape == (3, 8, 8)
    assert label == f"class{LABELS[number]}"
    assert jobs[0].buffer_p[0 : jobs[0].buffer_size] == bytes([number]) * (3 * 8 * 8)
    dataloader = NoPFSDataLoader(
        NoPFSImageFolder(numbered, Job(numbered, 16, 1, "uniform", False, transforms=FLAT))
    )
    with hr.Loader(numbered, 16, transform=FLAT) as loader:
        assert ids_of(dataloader) == epoch_ids(loader)
    dataloader.loader.close()


def test_training_and_validation_run_side_by_side(numbered: Path, jobs: list[Job]) -> None:
    jobs += [Job(numbered, 8, 1, "uniform", True, seed=seed) for seed in (1, 2)]
    both = [NoPFSDataLoader(NoPFSImageFolder(numbered, job, transform=to_tensor)) for job in jobs]
    train, valid = (iter(each) for each in both)
    mixed = [[next(train), next(valid)] for _ in range(COUNT // 8)]
    for at, seed in enumerate((1, 2)):
        with hr.Loader(numbered, 8, drop_last=True, seed=seed, transform=FLAT) as loader:
            assert ids_of(each[at] for each in mixed) == epoch_ids(loader)


def test_ranks_share_the_batches_of_the_job(numbered: Path, jobs: list[Job]) -> None:
    with hr.Loader(numbered, 16, drop_last=True, transform=FLAT) as loader:
        whole = epoch_ids(loader)
    shares = []
    for rank in range(4):
        share = hr.Job(rank=rank, world_size=4)
        job = Job(numbered, 16, 1, "uniform", True, job=share)
        assert (job.get_node_id(), job.get_no_nodes(), job.get_batch_size()) == (rank, 4, 16)
        dataloader = NoPFSDataLoader(NoPFSImageFolder(numbered, job, transform=to_tensor))
        shares.append(ids_of(dataloader))
        job.destroy()
    assert [
        sorted(functools.reduce(operator.iadd, step, [])) for step in zip(*shares, strict=True)
    ] == [sorted(step) for step in whole]
    with pytest.raises(errors.InvalidArgumentError, match="batch_size: got 10, of all 4 ranks"):
        Job(numbered, 10, 1, "uniform", True, job=hr.Job(rank=0, world_size=4))


def test_tiers_are_filled_as_in_nopfs(numbered: Path, jobs: list[Job]) -> None:
    jobs.append(Job(numbered, 16, 2, "uniform", False, tiers=[hr.tiers.Ram("30KB")]))
    dataloader = NoPFSDataLoader(NoPFSImageFolder(numbered, jobs[0], to_tensor))
    list(dataloader), list(dataloader)
    assert dataloader.loader.stats()["tiers"][0]["uses"] > 0
    assert "by the placement frequency" in dataloader.loader.explain().sentences["tiers"]


def test_a_state_continues_the_job(numbered: Path, jobs: list[Job]) -> None:
    jobs += [Job(numbered, 16, 2, "uniform", False) for _ in range(2)]
    first, second = (NoPFSDataLoader(NoPFSImageFolder(numbered, each, to_tensor)) for each in jobs)
    taken = iter(first)
    next(taken), next(taken)
    second.load_state_dict(first.state_dict())
    assert ids_of(second) == ids_of(taken)
    second.set_epoch(0)
    assert len(ids_of(second)) == 7


def test_collate_labels_and_targets_are_the_user_s(numbered: Path, jobs: list[Job]) -> None:
    with hr.Loader(numbered, 16, output=hr.Output(fields=["label"])) as loader:
        labels = [batch.label.tolist() for batch in loader]

    def loader_of(**arguments: Any) -> NoPFSDataLoader:
        jobs.append(Job(numbered, 16, 1, "uniform", False))
        target = arguments.pop("target_transform", None)
        folder = NoPFSImageFolder(numbered, jobs[-1], to_tensor, target)
        return NoPFSDataLoader(folder, **arguments)

    collated = list(loader_of(collate_fn=count_pairs))
    assert collated == [(len(each), each) for each in labels]
    typed = [each for _, each in loader_of(label_type=torch.float32)]
    assert [each.dtype for each in typed] == [torch.float32] * 7
    assert [each.tolist() for each in typed] == labels
    targets = [each.tolist() for _, each in loader_of(target_transform=doubled)]
    assert targets == [[2 * label for label in each] for each in labels]


def test_transforms_run_in_workers_if_asked(numbered: Path, jobs: list[Job]) -> None:
    jobs.append(Job(numbered, 16, 1, "uniform", False, workers=hr.Workers(2, start="fork")))
    dataloader = NoPFSDataLoader(NoPFSImageFolder(numbered, jobs[0], to_tensor))
    with hr.Loader(numbered, 16, transform=FLAT) as loader:
        assert ids_of(dataloader) == epoch_ids(loader)
    assert dataloader.loader.stats()["workers"]["samples"] >= COUNT


def test_images_without_a_transform_are_arrays_of_their_sizes(
    numbered: Path, jobs: list[Job]
) -> None:
    jobs.append(Job(numbered, 16, 1, "uniform", False))
    images, labels = next(iter(NoPFSDataLoader(NoPFSImageFolder(numbered, jobs[0]))))
    assert len(images) == len(labels) == 16
    for image, label in zip(images, labels, strict=True):
        number = int(image[0, 0, 0])
        assert tuple(image.shape) == (16 + number % 5, 16 + number % 7, 3)
        assert LABELS[number] == label


def test_the_folder_gives_the_next_sample_whatever_is_asked_for(
    numbered: Path, jobs: list[Job]
) -> None:
    jobs.append(Job(numbered, 16, 1, "uniform", False))
    folder = NoPFSImageFolder(numbered, jobs[0], to_tensor, doubled)
    assert folder.classes == ["class0", "class1", "class2"]
    assert folder.class_to_idx == {"class0": 0, "class1": 1, "class2": 2}
    assert len(folder) == COUNT
    with hr.Loader(numbered, 16, transform=FLAT) as loader:
        expected = flat(epoch_ids(loader))
    for number in expected[:20]:
        image, target = folder[0]
        assert (image == number).all()
        assert target == 2 * LABELS[number]


def test_orders_of_ours_may_be_taken(numbered: Path, jobs: list[Job]) -> None:
    for order in ("batch", "epoch", "redox"):
        jobs.append(Job(numbered, 16, 1, "uniform", False, order=order))
        dataloader = NoPFSDataLoader(NoPFSImageFolder(numbered, jobs[-1], to_tensor))
        with hr.Loader(numbered, 16, order=order, transform=FLAT) as loader:
            assert ids_of(dataloader) == epoch_ids(loader)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"distr_scheme": "whole"}, "distr_scheme: got 'whole', must be 'uniform'"),
        ({"config_path": "hdmlp.cfg"}, "config_path: got 'hdmlp.cfg': headrace does not read"),
        ({"batch_size": 0}, r"batch_size: got 0, must be in \[1, "),
        ({"shuffle": False}, "shuffle=False: a job decides this option"),
        ({"output": "torch"}, r"Output\.arrays: got 'torch': a job decides this option"),
        ({"output": hr.Output("jax")}, r"Output\.arrays: got 'jax': a job decides this option"),
        ({"libhdmlp_path": "x"}, "libhdmlp_path='x': unexpected keyword"),
    ],
)
def test_what_a_job_cannot_do_is_told(numbered: Path, arguments: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"batch_size": 16, "epochs": 1, "distr_scheme": "uniform"} | arguments
    with pytest.raises(errors.InvalidArgumentError, match=says):
        Job(numbered, drop_last_batch=False, **given).setup()


def test_samples_are_taken_one_way(numbered: Path, tmp_path: Path, jobs: list[Job]) -> None:
    jobs.append(Job(numbered, 16, 1, "uniform", False))
    job = jobs[0]
    with pytest.raises(errors.InvalidArgumentError, match=re.escape("give both the same")):
        NoPFSImageFolder(tmp_path, job)
    folder = NoPFSImageFolder(numbered, job)
    job.get()
    with pytest.raises(errors.FailedPreconditionError, match="are taken already"):
        NoPFSDataLoader(folder)
    decoding = Job(numbered, 16, 1, "uniform", False, transforms=FLAT)
    with pytest.raises(errors.InvalidArgumentError, match="the job has transforms"):
        NoPFSImageFolder(numbered, decoding, to_tensor)
    assert len(NUMBERED) == len(folder.classes)
    with pytest.raises(errors.InvalidArgumentError, match="target_transform: got 3, must be call"):
        NoPFSImageFolder(numbered, decoding, target_transform=3)  # type: ignore[arg-type]


def test_functions_that_make_the_same_are_given_once(numbered: Path) -> None:
    options = {"workers": hr.Workers(0, collate_fn=count_pairs)}
    job = Job(numbered, 16, 1, "uniform", False, **options)
    folder = NoPFSImageFolder(numbered, job)
    message = "collate_fn: the job's workers= have one, too: leave one of them out"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        NoPFSDataLoader(folder, count_pairs)
    message = "label_type with collate_fn, which makes the labels: leave one of them out"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        NoPFSDataLoader(folder, count_pairs, torch.int32)


def test_a_job_of_other_data_has_samples_but_no_image_folder(
    tmp_path: Path, jobs: list[Job]
) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(30, dtype=np.float32).reshape(10, 3))
    jobs.append(Job(path, 4, 1, "uniform", False))
    rows = [sample for label, sample in jobs[0] if label is None]
    assert sorted(float(row[0]) for row in rows) == [3.0 * at for at in range(10)]
    with pytest.raises(errors.InvalidArgumentError, match="an image folder needs an image and"):
        NoPFSImageFolder(path, jobs[0])
