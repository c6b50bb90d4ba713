"""Every sample once an epoch, told from the payload; and what iterating means."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import order_model as model
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_data import COUNT, FLAT, LABELS, epoch_ids, flat, sample_file, write_tiny

import headrace as hr
from headrace import errors

ALL = list(range(COUNT))


@pytest.fixture
def dataset(numbered: Path) -> hr.Dataset:
    return hr.open(numbered)


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_sample_comes_once_an_epoch_with_its_own_label(
    dataset: hr.Dataset, shuffle: bool
) -> None:
    with hr.Loader(
        dataset, batch_size=8, transform=FLAT, shuffle=shuffle, seed=1, output=hr.Output(ids=True)
    ) as loader:
        epochs = [epoch_ids(loader) for _ in range(3)]
    for batches in epochs:
        assert [len(batch) for batch in batches] == [8] * 12 + [1]
        assert sorted(flat(batches)) == ALL
    if shuffle:
        assert len({tuple(flat(batches)) for batches in epochs}) == 3
    else:
        assert [flat(batches) for batches in epochs] == [ALL] * 3


def test_without_a_transform_images_are_the_bytes_of_their_files(
    dataset: hr.Dataset, numbered: Path
) -> None:
    seen = []
    with hr.Loader(dataset, batch_size=10, seed=2, output=hr.Output(ids=True)) as loader:
        for batch in loader:
            for row, label, number in zip(batch.image, batch.label, batch.sample_id, strict=True):
                stored = sample_file(numbered, int(number)).read_bytes()
                assert np.asarray(row).tobytes() == stored
                assert int(label) == LABELS[int(number)]
                seen.append(int(number))
    assert sorted(seen) == ALL


@pytest.mark.parametrize("world_size", [2, 3, 8])
def test_ranks_together_deliver_each_sample_once_and_the_declared_pad_set(
    dataset: hr.Dataset, world_size: int
) -> None:
    permutation = model.permutation(COUNT, 4, 0)
    delivered = []
    for rank in range(world_size):
        with hr.Loader(
            dataset,
            batch_size=5,
            transform=FLAT,
            seed=4,
            job=hr.Job(rank=rank, world_size=world_size),
        ) as loader:
            batches = epoch_ids(loader)
            assert len(batches) == len(loader)
            delivered += flat(batches)
    pads = -COUNT % world_size
    assert Counter(delivered) == Counter(ALL) + Counter(permutation[:pads])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_drop_last_drops_the_declared_samples_and_no_other(
    dataset: hr.Dataset, world_size: int
) -> None:
    permutation = model.permutation(COUNT, 4, 0)
    delivered = []
    for rank in range(world_size):
        with hr.Loader(
            dataset,
            batch_size=10,
            transform=FLAT,
            seed=4,
            job=hr.Job(rank=rank, world_size=world_size),
            drop_last=True,
        ) as loader:
            delivered += flat(epoch_ids(loader))
    kept = COUNT // (10 * world_size) * 10 * world_size
    assert sorted(delivered) == sorted(permutation[:kept])


def test_fields_come_in_the_order_asked_for(dataset: hr.Dataset) -> None:
    with hr.Loader(
        dataset, batch_size=4, output=hr.Output(fields=["label", "image"]), transform=FLAT
    ) as loader:
        batch = next(iter(loader))
        assert batch._fields == ("label", "image")
        assert np.asarray(batch[1]).shape == (4, 3, 8, 8)


# What `for` over a loader means.


def test_a_new_iteration_is_the_next_epoch(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=7, transform=FLAT, seed=3) as loader:
        for epoch in range(3):
            assert loader.epoch == epoch
            assert epoch_ids(loader) == model.exact_epoch(COUNT, 7, seed=3, epoch=epoch)
        assert loader.epoch == 3


def test_leaving_a_loop_early_ends_its_epoch(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=7, transform=FLAT, seed=3) as loader:
        for _ in loader:
            break
        assert loader.epoch == 0
        assert epoch_ids(loader) == model.exact_epoch(COUNT, 7, seed=3, epoch=1)


def test_an_iteration_that_gave_nothing_began_no_epoch(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=7, transform=FLAT, seed=3) as loader:
        iter(loader)
        assert epoch_ids(loader) == model.exact_epoch(COUNT, 7, seed=3, epoch=0)


def test_set_epoch_says_which_epoch_comes_next(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=7, transform=FLAT, seed=3) as loader:
        loader.set_epoch(5)
        assert epoch_ids(loader) == model.exact_epoch(COUNT, 7, seed=3, epoch=5)
        assert epoch_ids(loader) == model.exact_epoch(COUNT, 7, seed=3, epoch=6)
        for _ in loader:
            break
        loader.set_epoch(5)  # back, and from its beginning
        assert epoch_ids(loader) == model.exact_epoch(COUNT, 7, seed=3, epoch=5)
        loader.set_epoch(6)  # what came next anyway
        assert epoch_ids(loader) == model.exact_epoch(COUNT, 7, seed=3, epoch=6)


def test_ctrl_c_while_an_epoch_is_started_does_not_keep_the_run_before_it(
    dataset: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedCore:
        """A core whose start ends the run before it, and is then interrupted."""

        def start(self, epoch: int, step: int) -> None:
            core.stop()
            raise KeyboardInterrupt

    with hr.Loader(dataset, batch_size=7, transform=FLAT, seed=3) as loader:
        session, core = loader._feed._session, loader._feed.core
        epoch_ids(loader)
        loader.set_epoch(5)
        with monkeypatch.context() as during:
            during.setattr(session, "core", InterruptedCore())
            with pytest.raises(KeyboardInterrupt):
                iter(loader)
        loader.set_epoch(1)  # what the run before would have given next
        assert epoch_ids(loader) == model.exact_epoch(COUNT, 7, seed=3, epoch=1)


def test_after_the_epochs_of_the_run_iterating_is_an_error_that_says_so(
    dataset: hr.Dataset,
) -> None:
    with hr.Loader(dataset, batch_size=7, transform=FLAT, epochs=2) as loader:
        assert sorted(flat(epoch_ids(loader))) == ALL
        assert sorted(flat(epoch_ids(loader))) == ALL
        with pytest.raises(errors.FailedPreconditionError, match="epochs=2"):
            iter(loader)
        loader.set_epoch(1)
        assert sorted(flat(epoch_ids(loader))) == ALL


def test_the_older_of_two_iterations_raises_and_the_newer_goes_on(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=7, transform=FLAT, seed=3) as loader:
        older = iter(loader)
        next(older)
        newer = iter(loader)
        with pytest.raises(errors.FailedPreconditionError, match="a newer one was begun"):
            next(older)
        del older
        assert epoch_ids(newer) == model.exact_epoch(COUNT, 7, seed=3, epoch=1)
        with pytest.raises(StopIteration):
            next(newer)


def test_an_iteration_that_ended_stays_ended(dataset: hr.Dataset) -> None:
    with hr.Loader(dataset, batch_size=50, transform=FLAT) as loader:
        iteration = iter(loader)
        assert len(iteration) == len(loader) == 2
        assert len(list(iteration)) == 2
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(iteration)
        assert loader.epoch == 1


def test_explain_says_where_each_row_of_a_step_comes_from(
    dataset: hr.Dataset, numbered: Path
) -> None:
    with hr.Loader(
        dataset, batch_size=7, transform=FLAT, seed=3, job=hr.Job(world_size=2, rank=1)
    ) as loader:
        expected = model.exact_epoch(COUNT, 7, seed=3, epoch=4, rank=1, world_size=2)
        explanation = loader.explain(2, epoch=4)
        images = [row for row in explanation.rows if row["field"] == "image"]
        assert [row["sample"] for row in images] == expected[2]
        assert [row["slot"] for row in images] == list(range(7))
        for row in images:
            path = sample_file(numbered, row["sample"])
            assert row["object"] == str(path)
            assert (row["offset"], row["size"]) == (0, path.stat().st_size)
            assert str(path) in str(explanation)
        assert {row["source"] for row in explanation.rows} == {"storage", "index"}
        with pytest.raises(errors.InvalidArgumentError, match="step"):
            loader.explain(len(loader))


def test_stats_count_what_was_delivered(dataset: hr.Dataset, numbered: Path) -> None:
    with hr.Loader(dataset, batch_size=7, transform=FLAT, epochs=2) as loader:
        for _ in range(2):
            epoch_ids(loader)
        stats = loader.stats()
        stored = sum(path.stat().st_size for path in numbered.glob("*/*.jpg"))
        assert (stats["batches"], stats["samples"]) == (2 * len(loader), 2 * COUNT)
        assert stats["bytes"]["samples"] == 2 * stored
        assert stats["substituted"] == 0
        assert stats["memory"]["beyond_peak"] == 0
        assert 0 < stats["memory"]["batches_peak"] <= stats["memory"]["batches_budget"]
        assert 0 < stats["memory"]["staging_peak"] <= stats["memory"]["staging_budget"]
        assert stats["io"]["store"] in ("threads", "io_uring")


@settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    world_size=st.integers(1, 5),
    drop_last=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**24 - 1),
)
def test_whatever_the_sizes_ranks_deliver_each_sample_once(
    tmp_path: Path,
    count: int,
    batch_size: int,
    world_size: int,
    drop_last: bool,
    seed: int,
    epoch: int,
) -> None:
    index = write_tiny(tmp_path / f"{count}.hri", count)
    delivered: list[int] = []
    steps = set()
    for rank in range(world_size):
        options = {"seed": seed, "drop_last": drop_last}
        share = hr.Job(rank=rank, world_size=world_size)
        if drop_last and count < batch_size * world_size:
            with pytest.raises(errors.InvalidArgumentError, match=f"dataset has {count} sample"):
                hr.Loader(index, batch_size, job=share, **options)
            return
        with hr.Loader(
            index, batch_size, threads=1, output=hr.Output(ids=True), job=share, **options
        ) as loader:
            loader.set_epoch(epoch)
            batches = []
            for label, sample_id in loader:
                assert (label == sample_id * 3 + 1).all()
                batches.append(sample_id.tolist())
            steps.add(len(batches))
            assert len(batches) == len(loader)
            options |= {"rank": rank, "world_size": world_size}
            assert batches == model.exact_epoch(count, batch_size, epoch=epoch, **options)
            delivered += flat(batches)
    assert len(steps) == 1
    counts = Counter(delivered)
    if drop_last:
        global_batch = batch_size * world_size
        assert set(counts.values()) == {1}
        assert len(delivered) == count // global_batch * global_batch
    else:
        assert sorted(counts) == list(range(count))
        assert len(delivered) == -(-count // world_size) * world_size
