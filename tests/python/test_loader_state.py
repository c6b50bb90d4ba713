"""Saved at any step, restored anywhere: the same remainder; and the same bits however it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import order_model as model
import pytest
from loader_data import COUNT, FLAT, as_bytes, epoch_ids, flat, payload_ids

import headrace as hr
from headrace import _core, errors

EPOCHS = 3
BATCH = 18  # 6 steps, the last of 7
AUGMENT = hr.image.train(24)  # random crops, flips, float32


@pytest.fixture
def dataset(numbered: Path) -> hr.Dataset:
    return hr.open(numbered)


def make(dataset: hr.Dataset, **options: Any) -> hr.Loader:
    return hr.Loader(dataset, **{"batch_size": BATCH, "transform": FLAT, "seed": 6} | options)


def whole_run(dataset: hr.Dataset, **options: Any) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """All batches of EPOCHS epochs, and the state before each, as JSON gives it back."""
    batches, states = [], []
    with make(dataset, **options) as loader:
        for _ in range(EPOCHS):
            states.append(loader.state_dict())
            for batch in loader:
                batches.append(payload_ids(batch))
                states.append(loader.state_dict())
            # The end of an epoch is the start of the next, whether or not the loop knows it ended.
            assert states.pop() == loader.state_dict()
    return batches, json.loads(json.dumps(states))


def remainder(loader: hr.Loader) -> list[list[int]]:
    rest = []
    while loader.epoch < EPOCHS:
        rest += epoch_ids(loader)
    return rest


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"shuffle": False}], ids=str)
def test_a_state_of_every_step_restores_to_the_same_remainder_in_a_new_loader(
    dataset: hr.Dataset, options: dict[str, Any]
) -> None:
    batches, states = whole_run(dataset, **options)
    assert len(batches) == len(states)
    for done, state in enumerate(states):
        with make(dataset, **options) as again:
            again.load_state_dict(state)
            assert again.state_dict() == state
            assert remainder(again) == batches[done:]


def test_a_state_of_every_step_restores_in_the_same_loader_in_the_middle_of_another_epoch(
    dataset: hr.Dataset,
) -> None:
    batches, states = whole_run(dataset)
    with make(dataset) as loader:
        for done in reversed(range(len(states))):
            iteration = iter(loader)
            next(iteration)
            loader.load_state_dict(states[done])
            with pytest.raises(errors.FailedPreconditionError, match="is over"):
                next(iteration)
            assert remainder(loader) == batches[done:]
            loader.set_epoch(0)


def test_set_epoch_of_the_epoch_restored_keeps_the_place_in_it(dataset: hr.Dataset) -> None:
    batches, states = whole_run(dataset)
    steps = len(batches) // EPOCHS
    with make(dataset) as loader:
        loader.load_state_dict(states[steps + 2])
        for epoch in range(loader.epoch, EPOCHS):  # as a training script does
            loader.set_epoch(epoch)
            assert epoch_ids(loader) == batches[max(steps + 2, epoch * steps) : (epoch + 1) * steps]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6])
def test_a_state_continues_on_another_number_of_ranks(dataset: hr.Dataset, world_size: int) -> None:
    permutation = model.permutation(COUNT, 6, 0)
    with make(dataset, batch_size=2, job=hr.Job(rank=0, world_size=6)) as loader:
        for _, _ in zip(range(5), loader, strict=False):
            pass
        state = loader.state_dict()
    shares = []
    for rank in range(world_size):
        with make(
            dataset, batch_size=12 // world_size, job=hr.Job(rank=rank, world_size=world_size)
        ) as loader:
            loader.load_state_dict(state)
            shares.append(flat(epoch_ids(loader)))
            assert epoch_ids(loader)  # and goes on to the next epoch
    positions = [sample for row in zip(*shares, strict=True) for sample in row]
    pads = -COUNT % world_size
    assert positions == permutation[5 * 12 :] + permutation[:pads]


# Refused, and the difference named.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 7}, "seed 6, restored in a loader with 7; make the loader with seed=6$"),
        ({"shuffle": False}, "shuffle True, restored in a loader with False"),
        (
            {"drop_last": True},
            "drop_last False, restored in a loader with True; .* with drop_last=False$",
        ),
        (
            {"batch_size": 5},
            "global_batch 18, restored in a loader with 5; choose batch_size .* ranks is 18$",
        ),
        (
            {"job": hr.Job(rank=0, world_size=2)},
            "global_batch 18, restored in a loader with 36",
        ),
        (
            {"sampler": [1, 2, 3]},
            "saved without a sampler, .*: leave sampler= and batch_sampler= out$",
        ),
    ],
)
def test_a_state_of_other_parameters_is_refused(
    dataset: hr.Dataset, options: dict[str, Any], message: str
) -> None:
    with make(dataset) as loader:
        state = loader.state_dict()
    with make(dataset, **options) as other:
        with pytest.raises(errors.FailedPreconditionError, match=message):
            other.load_state_dict(state)
        assert next(iter(other))  # and changed nothing


def test_a_state_of_another_dataset_is_refused(dataset: hr.Dataset, original: Path) -> None:
    with make(dataset) as loader:
        state = loader.state_dict()
    with (
        make(hr.open(original)) as other,
        pytest.raises(errors.FailedPreconditionError, match=r"fingerprint.*another dataset"),
    ):
        other.load_state_dict(state)


def test_a_state_beyond_the_last_epoch_is_refused(dataset: hr.Dataset) -> None:
    with make(dataset) as loader:
        states = []
        for _ in range(2):
            iterator = iter(loader)
            next(iterator)
            states.append(loader.state_dict())
            list(iterator)
        at_the_end = loader.state_dict()
    with make(dataset, epochs=1) as short:
        short.load_state_dict(states[0])
        message = "state: of epoch {}, but the loader was made for epochs=1; raise it, or leave it"
        with pytest.raises(errors.FailedPreconditionError, match=message.format(1)):
            short.load_state_dict(states[1])
        with pytest.raises(errors.FailedPreconditionError, match=message.format(2)):
            short.load_state_dict(at_the_end)
        assert short.state_dict() == states[0]
    with make(dataset, epochs=2) as whole:
        whole.load_state_dict(at_the_end)  # of a run that has ended
        with pytest.raises(errors.FailedPreconditionError, match="iterating epoch 2"):
            iter(whole)


def test_strict_is_for_the_dataset_alone(dataset: hr.Dataset) -> None:
    with make(dataset) as loader:
        state = loader.state_dict()
        with pytest.raises(errors.InvalidArgumentError, match="strict: got 0, must be True or"):
            loader.load_state_dict(state, strict=0)  # type: ignore[arg-type]
        with pytest.raises(errors.FailedPreconditionError, match="saved with seed 8"):
            loader.load_state_dict(state | {"seed": 8}, strict=False)
        with pytest.raises(errors.InvalidArgumentError, match="content is 3, must be text"):
            loader.load_state_dict(state | {"content": 3}, strict=False)
        loader.load_state_dict(state, strict=False)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"version": 2}, errors.FailedPreconditionError, "version 2.*: a newer headrace saved it"),
        (
            {"version": 0},
            errors.FailedPreconditionError,
            "version 0, this headrace reads version 1$",
        ),
        ({"place": 1}, errors.InvalidArgumentError, "'place' is not a part of .*a newer headrace"),
        ({3: 1}, errors.InvalidArgumentError, "state: 3 is not a part of a state"),
        ({"sampler_hash": None}, errors.InvalidArgumentError, "'sampler_hash' is not a part"),
        (
            {"order_parameters": {"bijection_from": 2**24, "spread": 1}},
            errors.InvalidArgumentError,
            "'spread' is none of them.*a newer headrace",
        ),
        ({"epoch": -1}, errors.InvalidArgumentError, "state epoch: got -1"),
        ({"epoch": "1"}, errors.InvalidArgumentError, "state epoch: got '1'"),
        ({"samples": 3}, errors.InvalidArgumentError, "samples 3 is no multiple"),
        ({"samples": 18 * 6}, errors.InvalidArgumentError, "step 6 of epoch 0.*has 6"),
        ({"samples": None}, errors.InvalidArgumentError, "state samples"),
        ({"order": "epoch"}, errors.FailedPreconditionError, "order 'epoch'"),
    ],
)
def test_a_state_that_was_tampered_with_is_refused(
    dataset: hr.Dataset, change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with make(dataset) as loader:
        with pytest.raises(kind, match=message):
            loader.load_state_dict(loader.state_dict() | change)
        assert next(iter(loader))  # and changed nothing


def test_a_state_with_a_sampler_has_no_other_parts(dataset: hr.Dataset) -> None:
    with make(dataset, batch_size=2, sampler=[1, 2, 3]) as loader:
        next(iter(loader))
        state = loader.state_dict()
        with pytest.raises(errors.InvalidArgumentError, match="'sampler_seed' is not a part"):
            loader.load_state_dict(state | {"sampler_seed": 3})
        loader.load_state_dict(state)


@pytest.mark.parametrize("garbage", [None, 3, "state", [], {}, {"epoch": 1}])
def test_what_is_no_state_is_refused(dataset: hr.Dataset, garbage: Any) -> None:
    with make(dataset) as loader, pytest.raises(errors.InvalidArgumentError, match="state"):
        loader.load_state_dict(garbage)


@pytest.mark.parametrize("sampler", [None, [1, 2, 3]], ids=str)
def test_every_part_of_a_state_is_needed(dataset: hr.Dataset, sampler: Any) -> None:
    with make(dataset, batch_size=2, sampler=sampler) as loader:
        next(iter(loader))
        state = loader.state_dict()
        for key in state:
            part = {k: v for k, v in state.items() if k != key}
            with pytest.raises((errors.InvalidArgumentError, errors.FailedPreconditionError)):
                loader.load_state_dict(part)
        loader.load_state_dict(state)


# The same bits.


def bits(path: Path, resume_at: int | None = None, **options: Any) -> list[list[bytes]]:
    """Two epochs of randomly augmented images, every bit; in two parts if `resume_at` is given."""
    options = {
        "batch_size": 8,
        "transform": AUGMENT,
        "seed": 12,
        "output": hr.Output(ids=True),
    } | options
    batches: list[list[bytes]] = []
    state = None
    with hr.Loader(path, **options) as loader:
        while loader.epoch < 2 and state is None:
            for batch in loader:
                batches.append(as_bytes(batch))
                if len(batches) == resume_at:
                    state = loader.state_dict()
                    break
    if state is not None:
        with hr.Loader(path, **options) as loader:
            loader.load_state_dict(state)
            while loader.epoch < 2:
                batches += map(as_bytes, loader)
    return batches


@pytest.fixture(scope="module")
def reference(original: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[bytes]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        batches = bits(original, threads=1, engine=hr.EngineOptions(io="threads"))
    assert len(batches) == 2 * 8
    assert len({tuple(batch) for batch in batches}) == 16
    return batches


def io_or_skip(io: str, pack: Path) -> str:
    if io == "io_uring":
        try:
            hr.Loader(
                pack, output=hr.Output(fields=["label"]), engine=hr.EngineOptions(io=io)
            ).close()
        except errors.HeadraceError as error:
            pytest.skip(f"io_uring cannot be used here: {error}")
    return io


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("io", ["threads", "io_uring"])
@pytest.mark.parametrize("layout", ["folder", "pack"])
def test_batches_are_the_same_bit_for_bit_however_they_are_read(
    original: Path,
    source_pack: Path,
    reference: list[list[bytes]],
    layout: str,
    io: str,
    threads: int,
) -> None:
    path = original if layout == "folder" else source_pack
    assert (
        bits(path, threads=threads, engine=hr.EngineOptions(io=io_or_skip(io, source_pack)))
        == reference
    )


@pytest.mark.parametrize("resume_at", [1, 8, 13])
@pytest.mark.parametrize("layout", ["folder", "pack"])
def test_batches_are_the_same_bit_for_bit_after_a_resume(
    original: Path,
    source_pack: Path,
    reference: list[list[bytes]],
    layout: str,
    resume_at: int,
) -> None:
    path = original if layout == "folder" else source_pack
    assert bits(path, resume_at=resume_at, threads=2) == reference


@pytest.mark.parametrize(
    "options",
    [
        {"engine": hr.EngineOptions(prefetch=1)},
        {"memory": "1MiB"},
        {"engine": hr.EngineOptions(verify=False)},
    ],
    ids=str,
)
def test_batches_do_not_depend_on_budgets(
    source_pack: Path, reference: list[list[bytes]], options: dict[str, Any]
) -> None:
    assert bits(source_pack, **options) == reference


def test_another_seed_is_other_bits(original: Path, reference: list[list[bytes]]) -> None:
    assert bits(original, seed=13)[0] != reference[0]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 7},
        {"batch_size": 5, "job": hr.Job(rank=1, world_size=2)},
        {"shuffle": False},
    ],
    ids=str,
)
def test_an_image_is_augmented_the_same_in_whatever_batch_it_comes(
    original: Path, options: dict[str, Any]
) -> None:
    dataset = hr.open(original)
    core = AUGMENT.to_core()
    with hr.Loader(
        dataset, transform=AUGMENT, seed=12, output=hr.Output(ids=True), **options
    ) as loader:
        for epoch in range(2):
            for image, _, sample_id in loader:
                for row, number in zip(image.numpy(), sample_id.tolist(), strict=True):
                    stored = dataset.read(number)["image"]
                    alone = _core.decode_image(stored, core, seed=12, epoch=epoch, sample=number)
                    assert (row == alone.reshape(row.shape)).all()
