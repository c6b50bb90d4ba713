"""Trainers that resume at every step, twice in a row, and on another number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat, payload_ids
from rank_scripts import environment, real_packages, run_script

import headrace as hr
from headrace.errors import FailedPreconditionError

torch = pytest.importorskip("torch")
from torch.utils.data import DistributedSampler  # noqa: E402

from headrace.torch import TrainerLoader  # noqa: E402

pytestmark = pytest.mark.timeout(900)  # The first waits for the packages, and for all cases.

SCRIPT = Path(__file__).with_name("resumes.py")
EPOCH_STEPS = 4  # of 32 samples of all ranks
STEPS = 2 * EPOCH_STEPS
CASES = [
    *((trainer, "Loader") for trainer in ("accelerate", "transformers", "lightning")),
    *((trainer, "DataLoader") for trainer in ("accelerate", "transformers", "lightning")),
    ("lightning", "DataLoader, shuffle"),
    ("accelerate", "DataLoader, prepared"),
]
MOVES = [(before, after) for before in (1, 2) for after in (1, 2)]
RANKS_CHANGE = [each for each in CASES if each[1] != "DataLoader, shuffle"]


class Case(NamedTuple):
    """One rank's samples: without a checkpoint if `before` is 0, else after its first step."""

    before: int
    ranks: int
    rank: int
    trainer: str
    source: str
    steps: tuple[int | str, ...]
    """After which the trainer resumed, one after the other."""


Told = dict[Case, Any]


@pytest.fixture(scope="module")
def told(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Of each case the samples of each step, or the error."""
    packages = real_packages("trainers")
    folder = tmp_path_factory.mktemp("resumes")
    env = environment(packages)
    ended = run_script(SCRIPT, numbered, folder, env=env, folder=folder, timeout_s=800)
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines() if line.startswith("[")]
    return {Case(*line[:5], tuple(line[5])): line[6] for line in lines}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("trainer", "source"), CASES)
def test_each_epoch_has_every_sample(told: Told, trainer: str, source: str, ranks: int) -> None:
    shares = [told[Case(0, ranks, rank, trainer, source, ())] for rank in range(ranks)]
    assert [len(share) for share in shares] == [STEPS] * ranks, shares
    epochs = [[flat(share[at : at + EPOCH_STEPS]) for share in shares] for at in (0, EPOCH_STEPS)]
    for epoch in epochs:
        assert set(flat(epoch)) == set(range(COUNT))
        is_padded = source == "DataLoader, prepared" and ranks > 1  # to whole batches
        assert len(flat(epoch)) == (EPOCH_STEPS * 32 if is_padded else COUNT + COUNT % ranks)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(("before", "after"), MOVES)
@pytest.mark.parametrize(("trainer", "source"), CASES)
def test_a_trainer_goes_on_with_the_next_batch_after_every_step(
    told: Told, trainer: str, source: str, before: int, after: int
) -> None:
    """On the same number of ranks it trains one step, saves, and resumes again, from every other
    step."""
    if before != after and (trainer, source) not in RANKS_CHANGE:
        pytest.skip("torch's RandomSampler and DistributedSampler have different orders")
    for rank in range(after):
        expected = told[Case(0, after, rank, trainer, source, ())]
        cases = [case for case in told if case[:5] == (before, after, rank, trainer, source)]
        resumed = [case for case in cases if case.steps != ("epoch",)]
        for case in resumed:
            assert told[case] == expected[int(case.steps[0]) :], case
        assert [step for case in resumed for step in case.steps] == list(range(1, STEPS))
        assert (before == after) == any(len(case.steps) == 2 for case in resumed)


@pytest.mark.parametrize(("before", "after"), MOVES)
@pytest.mark.parametrize("source", ["Loader", "DataLoader"])
def test_lightning_goes_on_with_the_next_epoch_after_the_end_of_one(
    told: Told, source: str, before: int, after: int
) -> None:
    """Saved when the epoch had ended: Lightning loads no state of a loader then."""
    for rank in range(after):
        expected = told[Case(0, after, rank, "lightning", source, ())]
        rest = told[Case(before, after, rank, "lightning", source, ("epoch",))]
        assert rest == expected[EPOCH_STEPS:]


@pytest.mark.parametrize(("trainer", "source"), RANKS_CHANGE)
def test_a_step_of_all_ranks_has_the_same_samples_on_one_and_on_two(
    told: Told, trainer: str, source: str
) -> None:
    """So that a checkpoint's rest is the same on another number of them."""
    one = told[Case(0, 1, 0, trainer, source, ())]
    two = [told[Case(0, 2, rank, trainer, source, ())] for rank in range(2)]
    for step, (alone, *parts) in enumerate(zip(one, *two, strict=True), 1):
        if step % EPOCH_STEPS:
            assert sorted(alone) == sorted(flat(parts)), step
        else:  # The last of an epoch, in which one sample comes twice.
            assert set(alone) <= set(flat(parts)), step


def _set_sampler_epoch(loader: Any, epoch: int) -> None:
    """As Lightning's function of this name."""
    sampler = getattr(TrainerLoader(loader), "sampler", None)
    assert isinstance(sampler, DistributedSampler)
    sampler.set_epoch(epoch)


def made(numbered: Path, **more: Any) -> hr.Loader:
    return hr.Loader(numbered, 16, seed=1, transform=FLAT, **more)


def test_a_new_loader_begins_with_the_epoch_that_lightning_counts(numbered: Path) -> None:
    with made(numbered) as loader:
        expected = [epoch_ids(loader) for _ in range(3)]
    with made(numbered) as loader:
        _set_sampler_epoch(loader, 1)
        assert [epoch_ids(loader), epoch_ids(loader)] == expected[1:]
    with made(numbered) as loader:
        iterator = iter(loader)
        _set_sampler_epoch(loader, 1)  # After the iteration began, as Lightning does.
        assert loader.state_dict()["epoch"] == 1
        assert [payload_ids(batch) for batch in iterator] == expected[1]
        _set_sampler_epoch(loader, 0)
        assert epoch_ids(loader) == expected[2]


def test_a_loader_that_has_a_place_counts_its_epochs_itself(numbered: Path) -> None:
    with made(numbered) as loader:
        expected = [epoch_ids(loader) for _ in range(2)]
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict() | {"epoch": 1}
        del iterator
    for tells_first in (True, False):
        with made(numbered) as loader:
            loader.load_state_dict(state)
            if tells_first:
                _set_sampler_epoch(loader, 5)
            iterator = iter(loader)
            _set_sampler_epoch(loader, 5)
            assert [payload_ids(batch) for batch in iterator] == expected[1][1:]


def test_a_loader_itself_has_no_sampler(numbered: Path) -> None:
    with made(numbered) as loader:
        assert not hasattr(loader, "sampler")


def test_an_epoch_beyond_those_of_the_loader_is_refused_and_one_left_at_once_is_new(
    numbered: Path,
) -> None:
    with made(numbered, epochs=1) as loader:
        iterator = iter(loader)
        with pytest.raises(FailedPreconditionError, match="iterating epoch 1: the loader was made"):
            _set_sampler_epoch(loader, 1)
        del iterator
    with made(numbered) as loader:
        iter(loader)  # And dropped: the next would repeat it.
        _set_sampler_epoch(loader, 2)
        assert loader.state_dict()["epoch"] == 2
