"""Accelerate's `prepare()` of a headrace.torch.DataLoader: the real one, on one and two ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rank_scripts import environment, real_packages, run_script

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(900)  # The first waits for the packages, and for all cases.

SCRIPT = Path(__file__).with_name("accelerate_dataloader.py")
COUNT, EPOCHS = 29, 2
WAYS = ["direct", "threads", "pool", "processes"]
SOURCES = ["in order", "shuffled", "generator", "drop_last", "batch_sampler"]
CONFIGS = ["plain", "split", "uneven", "seedable"]
DIVIDED_BY_THREE = (
    "InvalidArgumentError: making a TrainerLoader: the sampler of this DataLoader, a torch.utils."
    "data.distributed.DistributedSampler, divides the samples by 3, but Accelerate has 2 "
    "data-parallel processes: samples would be lost or repeated; leave the sampler out, for "
    "Accelerate to divide, or make it for 2 ranks"
)
MAKING = "making a TrainerLoader of a headrace.torch.DataLoader"
UNKNOWN = (
    f"FailedPreconditionError: {MAKING}: Accelerate 1.15.0 is not known: give "
    "accelerator.prepare() the DataLoader itself: the samples are the same, but are not read in "
    "parallel, and no state is saved; `headrace docs dataloader`"
)
NOT_WRAPPED = (
    "accelerator.prepare(): got a headrace.torch.DataLoader: Accelerate makes a loader of torch's "
    "class of it: the samples are the same, but are not read in parallel, and no state is saved: "
    "give it headrace.torch.TrainerLoader(loader, accelerator) (not with dispatch_batches=True or "
    "on XLA: there this is the way); `headrace docs dataloader`"
)
LEFT = (
    "InvalidArgumentError: " + MAKING + " with {}: Accelerate reads in a way of its own then: give "
    "accelerator.prepare() the DataLoader itself; `headrace docs dataloader`"
)


class Told:
    """What each rank told of each case."""

    def __init__(self, text: str) -> None:
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("[")]
        self._of = {(ranks, rank, case): what for ranks, rank, case, what in lines}

    def by_rank(self, ranks: int, case: str) -> list[Any]:
        return [self._of[ranks, rank, case] for rank in range(ranks)]

    def everywhere(self, case: str) -> list[Any]:
        """Of the rank of one, and of those of two."""
        return self.by_rank(1, case) + self.by_rank(2, case)

    def starting(self, begin: str) -> dict[Any, Any]:
        return {key: what for key, what in self._of.items() if key[2].startswith(begin)}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    packages = real_packages("trainers")
    folder = tmp_path_factory.mktemp("accelerate")
    env = environment(packages)
    ended = run_script(SCRIPT, folder, env=env, folder=folder, timeout_s=800)
    assert ended.code == 0, ended.err
    return Told(ended.out)


@pytest.mark.parametrize("ranks", [1, 2])
def test_torch_s_loader_gives_every_sample(told: Told, ranks: int) -> None:
    """Otherwise equal samples would say little."""
    for source in SOURCES:
        for config in CONFIGS:
            shares = told.by_rank(ranks, f"torch, {source}, {config}")
            batches = [each[0] for share in shares for each in share if isinstance(each, list)]
            found = {number for batch in batches if isinstance(batch, list) for number in batch}
            if source != "drop_last":
                assert found == set(range(COUNT)), (source, config)
            assert len(found) >= COUNT - 8, (source, config)


@pytest.mark.parametrize("way", WAYS)
def test_samples_ends_and_what_is_gathered_are_those_of_torch_s_loader(
    told: Told, way: str
) -> None:
    """Also the steps of gradient accumulation, remainders, and torch's generator afterwards."""
    cases = told.starting(f"{way}, ")
    assert len(cases) >= 3 * (len(SOURCES) + len(CONFIGS) - 1)
    assert {key: what for key, what in cases.items() if what is not True} == {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("config", CONFIGS)
def test_a_loader_goes_on_after_every_step_with_the_state_of_process_0(
    told: Told, way: str, config: str
) -> None:
    """Twice in a row, before a batch and after one, to the end of the second epoch."""
    cases = {key: what for key, what in told.starting("resumed, ").items() if way in key[2]}
    cases = {key: what for key, what in cases.items() if key[2].endswith(config)}
    assert cases or config in ("split", "uneven", "seedable")
    assert {key: what for key, what in cases.items() if what is not True} == {}


@pytest.mark.parametrize("case", ["DistributedSampler", "epoch_size", "epochs told"])
def test_so_does_one_with(told: Told, case: str) -> None:
    assert told.everywhere(f"resumed, {case}") == [True] * 3


@pytest.mark.parametrize("config", ["plain", "seedable", "split"])
def test_a_state_of_another_number_of_processes_goes_on_at_every_step(
    told: Told, config: str
) -> None:
    assert told.everywhere(f"moved, {config}, 1") == [True] * 3
    assert told.everywhere(f"moved, {config}, 2") == [True] * 3


def test_accelerate_skips_the_first_batches_as_of_torch_s_loader(told: Told) -> None:
    cases = told.starting("skipped, ")
    assert len(cases) == 3 * 4
    assert {key: what for key, what in cases.items() if what is not True} == {}
    assert told.everywhere("skipped to the end") == [True] * 3


def test_a_state_counts_the_batches_that_were_skipped(told: Told) -> None:
    refused = (
        "FailedPreconditionError: skipping the first 3 batches of a DataLoader: it goes on after "
        "batch 2 of epoch 0 already, by load_state_dict(): samples would be lost or repeated; do "
        "one of both; `headrace docs trainers`"
    )
    ended = [1, 1, False]  # The epoch of the state and of Accelerate, and nothing is iterated.
    assert told.everywhere("places while skipped") == [[True, 2, ended, refused]] * 3


@pytest.mark.parametrize("case", ["saved", "registered"])
def test_accelerate_s_checkpoints_have_the_place(told: Told, case: str) -> None:
    assert told.everywhere(case) == [[["dl_state_dict.bin"], True]] * 3


def test_samples_draw_the_same_after_the_end_of_an_epoch(told: Told) -> None:
    assert told.everywhere("seeds") == [True] * 3


def test_one_process_writes_the_state_that_all_read(told: Told) -> None:
    assert told.everywhere("writes") == [[True] * 3, [True] * 3, [False, False, True]]


@pytest.mark.parametrize("way", WAYS)
def test_a_state_after_an_error_repeats_the_batch_that_was_not_given(told: Told, way: str) -> None:
    """An error that is kept keeps no processes."""
    assert told.everywhere(f"failed, {way}") == [True] * 3


def test_the_engine_reads_for_accelerate(told: Told) -> None:
    assert told.everywhere("engine") == [["engine", True]] * 3


def test_batches_are_on_accelerate_s_device_if_it_is_to_place_them(told: Told) -> None:
    assert told.everywhere("on the device") == [[["meta", "meta"], ["cpu", "None"]]] * 3


def test_an_epoch_that_was_left_is_begun_again_as_with_torch_s_loader(told: Told) -> None:
    assert told.everywhere("left early") == [True] * 3


def test_the_loader_stays_the_object_that_it_was(told: Told) -> None:
    assert told.everywhere("stays") == [[True, True, 4, True, True, True]] * 3


def test_it_is_neither_copied_nor_pickled(told: Told) -> None:
    why = (
        "FailedPreconditionError: copying or pickling a headrace.torch.TrainerLoader: it belongs "
        "to the trainer of this process; make one of another loader"
    )
    assert told.everywhere("copied") == [[why, why]] * 3


def test_samples_that_a_distributed_sampler_divides_are_not_divided_again(told: Told) -> None:
    for ranks, remainder in ((1, 1), (2, -1)):
        shares = told.by_rank(ranks, "DistributedSampler")
        assert [each for _, each in shares] == [[remainder]] * ranks
        size = len(shares[0][0]) // EPOCHS
        for begin in (0, size):
            epoch = [number for taken, _ in shares for number in taken[begin : begin + size]]
            assert set(epoch) == set(range(COUNT))
            assert len(epoch) == COUNT + COUNT % ranks


def test_a_sampler_that_divides_by_another_number_is_refused(told: Told) -> None:
    assert told.by_rank(2, "DistributedSampler of three") == [DIVIDED_BY_THREE] * 2


@pytest.mark.parametrize("case", ["arrival", "not in order"])
def test_nothing_is_cut_off_where_padding_may_be_anywhere(told: Told, case: str) -> None:
    everything = list(range(COUNT))
    assert told.by_rank(1, case) == [[True, everything]]
    assert told.by_rank(2, case) == [[True, sorted([*everything, 0, 1, 2])]] * 2


def test_batches_may_be_a_list(told: Told) -> None:
    assert told.by_rank(1, "lists") == [[None, None, [[1, 3], [2]]]]


def test_processes_have_one_order_of_epochs_of_a_given_size(told: Told) -> None:
    """Though each has another seed."""
    shares = told.by_rank(2, "epoch_size")
    drawn = [number for at in range(0, 24, 4) for share in shares for number in share[at : at + 4]]
    assert len(drawn) == 3 * 16
    assert len(set(drawn[: COUNT - 1])) == COUNT - 1


@pytest.mark.parametrize("case", ["iterable", "dispatched"])
def test_what_process_0_reads_for_all_is_left_to_accelerate(told: Told, case: str) -> None:
    assert told.everywhere(case) == ["torch.utils.data.dataloader.DataLoader"] * 3
    shares = [batch for share in told.by_rank(2, "iterable, ids") for batch in share]
    assert {number for batch in shares for number in batch} == set(range(COUNT))


@pytest.mark.parametrize(
    ("case", "what"),
    [("iterable", "an iterable dataset"), ("dispatched", "dispatch_batches=True or XLA")],
)
def test_it_is_not_wrapped(told: Told, case: str, what: str) -> None:
    assert told.everywhere(f"{case}, wrapped") == [LEFT.format(what)] * 3


def test_an_accelerate_that_is_not_known_is_refused(told: Told) -> None:
    assert told.everywhere("unknown version") == [UNKNOWN] * 3


def test_what_is_not_wrapped_gives_torch_s_samples_and_a_warning(told: Told) -> None:
    kind = "torch.utils.data.dataloader.DataLoader"
    assert told.everywhere("not wrapped") == [[kind, True, [NOT_WRAPPED]]] * 3


def test_a_state_is_loaded_into_the_wrapper(told: Told) -> None:
    assert (
        told.everywhere("restored before")
        == [
            f"FailedPreconditionError: {MAKING}: a state was loaded into it, and Accelerate "
            "changes its batches: make the TrainerLoader first, then load the state into that"
        ]
        * 3
    )
