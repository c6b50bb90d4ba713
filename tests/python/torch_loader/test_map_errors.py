"""No exception is lost: its type, sample and traceback reach the loop at the batch's place."""

from __future__ import annotations

import gc
import multiprocessing
import traceback
import weakref
from typing import Any

import pytest
import torch
from map_data import WAYS, Fails, Numbers, OnlyIds, Ragged

from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch import DataLoader, sample_rng


class TwoArgumentsError(Exception):
    """Cannot be made from a text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fails_with_cause() -> BaseException:
    error = ValueError("outer")
    error.__cause__ = OSError("inner")
    return error


ERRORS: dict[str, Any] = {
    "KeyError": lambda: KeyError("seven"),
    "ValueError": fails_with_cause,
    "StopIteration": lambda: StopIteration("ends"),
    "SystemExit": lambda: SystemExit(3),
    "TwoArgumentsError": lambda: TwoArgumentsError(1, 2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_comes_at_its_batch_with_type_sample_and_traceback(name: str, way: str) -> None:
    data = Fails(12, {7: ERRORS[name]})
    loader = DataLoader(data, 4, **WAYS[way])
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    with pytest.raises(BaseException) as caught:  # noqa: PT011  Of several types.
        next(iterator)
    kind = type(caught.value).__name__
    in_process = "worker_method" not in WAYS[way] and way != "direct"
    changed = name in ("StopIteration", "SystemExit") or (
        in_process and name == "TwoArgumentsError"
    )
    assert kind == ("RuntimeError" if changed else name)
    text = "".join(traceback.format_exception(caught.value))
    assert "reading sample 7 (batch 1 slot 3)" in text
    assert "in __getitem__" in text
    assert "raise self.errors[number]()" in text
    assert str(ERRORS[name]()) in text
    # The iteration goes on with the next batch, as torch's.
    assert next(iterator).tolist() == [8, 9, 10, 11]
    with pytest.raises(StopIteration):
        next(iterator)
    loader.close()


@pytest.mark.parametrize("way", WAYS)
def test_samples_of_other_shapes_give_the_error_of_torch(way: str) -> None:
    order = [0, 3, 1, 2]  # One half would be a batch, the other fails with another text.
    with pytest.raises(RuntimeError) as theirs:
        list(torch.utils.data.DataLoader(Ragged(4), 4, sampler=order))
    loader = DataLoader(Ragged(4), 4, sampler=order, **WAYS[way])
    with pytest.raises(RuntimeError, match=r"collating batch 0|stack expects") as ours:
        list(loader)
    text = "".join(traceback.format_exception(ours.value))
    assert str(theirs.value) in text
    assert "collating batch 0" in text
    loader.close()


class BadSampler:
    def __iter__(self) -> Any:
        yield [0, 1]
        yield [2, 3]
        raise LookupError("the sampler's own")


@pytest.mark.parametrize("way", WAYS)
def test_an_error_of_the_sampler_comes_after_the_batches_before(way: str) -> None:
    loader = DataLoader(OnlyIds(9), batch_sampler=BadSampler(), **WAYS[way])
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(LookupError, match="the sampler's own"):
        next(iterator)
    loader.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_of_a_sampler_that_is_no_list_is_named(way: str) -> None:
    loader = DataLoader(OnlyIds(9), batch_sampler=[[1], 2], **WAYS[way])
    iterator = iter(loader)
    assert next(iterator).tolist() == [1]
    with pytest.raises(TypeError, match="not iterable") as caught:
        next(iterator)
    assert "drawing batch 1 from a list" in "".join(traceback.format_exception(caught.value))
    loader.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_group_of_errors_is_told(way: str) -> None:
    data = Fails(4, {1: lambda: ExceptionGroup("several", [ValueError("inner")])})
    loader = DataLoader(data, 4, **WAYS[way])
    with pytest.raises((ExceptionGroup, RuntimeError)) as caught:
        next(iter(loader))
    text = "".join(traceback.format_exception(caught.value))
    assert "several" in text
    assert "ValueError: inner" in text
    assert "reading sample 1 (batch 0 slot 1)" in text
    loader.close()


@pytest.mark.parametrize("way", WAYS)
def test_every_failing_batch_of_an_epoch_is_reported(way: str) -> None:
    loader = DataLoader(Fails(20, dict.fromkeys((1, 6, 7, 19), IndexError)), 4, **WAYS[way])
    iterator = iter(loader)
    outcome: list[Any] = []
    while True:
        try:
            outcome.append(next(iterator).tolist())
        except IndexError:
            outcome.append("IndexError")
        except StopIteration:
            break
    failed = "IndexError"
    assert outcome == [failed, failed, [8, 9, 10, 11], [12, 13, 14, 15], failed]
    loader.close()


@pytest.mark.parametrize("way", ["threads", "processes"])  # Without them no process is kept.
def test_an_error_that_is_kept_keeps_no_iteration_and_no_process(way: str) -> None:
    gc.disable()
    try:
        before = set(multiprocessing.active_children())
        loader = DataLoader(Fails(20, {1: OSError}), 4, **WAYS[way])
        iterator = iter(loader)
        gone = weakref.ref(iterator)
        kept = None
        try:
            next(iterator)
        except OSError as error:
            kept = error
        del iterator
        assert gone() is None
        assert set(multiprocessing.active_children()) <= before
        assert "reading sample 1 (batch 0 slot 1)" in "".join(traceback.format_exception(kept))
    finally:
        gc.enable()


def test_sample_rng_needs_a_sample() -> None:
    list(DataLoader(Numbers(3)))
    with pytest.raises(FailedPreconditionError, match=r"no headrace\.torch\.DataLoader is reading"):
        sample_rng()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"worker_method": "threads", "num_workers": 1}, "worker_method: got 'threads'"),
        ({"worker_method": "thread"}, "worker_method='thread': without workers"),
        ({"pool_size": 4}, "pool_size=4: without workers"),
        ({"fetch": "arrival"}, "fetch='arrival': without workers"),
        ({"fetch": "any", "num_workers": 1}, "fetch: got 'any'"),
        ({"pool_size": 2, "num_workers": 3}, r"pool_size: got 2, must be in \[3"),
        ({"epoch_size": 0}, "epoch_size: got 0"),
        ({"epoch_size": 4, "batch_sampler": [[1]]}, "epoch_size: counts samples"),
        ({"snapshot_every_n_steps": 0}, "snapshot_every_n_steps: got 0"),
        (
            {"num_workers": 1, "worker_method": "thread", "worker_init_fn": print},
            "worker_init_fn with worker_method='thread': it sets up a process",
        ),
        (
            {"num_workers": 1, "worker_method": "thread", "persistent_workers": True},
            "persistent_workers with worker_method='thread'",
        ),
        (
            {"num_workers": 1, "worker_method": "thread", "multiprocessing_context": "spawn"},
            "multiprocessing_context with worker_method='thread'",
        ),
        ({"timeout": 3}, "timeout=3: without workers"),
        ({"timeout": "x"}, "timeout: got 'x', must be a number of seconds"),
        ({"generator": 5}, r"generator: got 5, must be a torch\.Generator"),
        ({"num_workers": "2", "pool_size": 3}, "num_workers: got '2', must be an integer"),
        ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor: got 0"),
        ({"sampler": 5}, "sampler: got 5, must be iterable"),
        ({"batch_sampler": 5}, "batch_sampler: got 5, must be iterable"),
        (
            {"batchsize": 8},
            "batchsize=8: unexpected keyword 'batchsize'; did you mean 'batch_size'",
        ),
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"prefetch_factor": 3}, "prefetch_factor option could only be specified"),
        ({"shuffle": True, "sampler": [1]}, "sampler option is mutually exclusive with shuffle"),
        (
            {"shuffle": True, "sampler": [1], "epoch_size": 3},
            "sampler option is mutually exclusive with shuffle",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(OnlyIds(9), **arguments)


def test_data_pipes_are_refused() -> None:
    pipe = torch.utils.data.MapDataPipe()  # type: ignore[abstract]
    with pytest.raises(InvalidArgumentError, match="dataset: got MapDataPipe, a DataPipe"):
        DataLoader(pipe)
