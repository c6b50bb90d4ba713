"""Python transforms in worker processes: the same batches as in one process, whatever happens."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import worker_functions as functions
from worker_functions import RECORDS, records, write_records

import headrace as hr
from headrace import _core, errors

BATCH = 10


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_records(tmp_path_factory.mktemp("records"))


def parts(value: Any) -> Iterator[Any]:
    """What a batch holds, to the bit, with its structure."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from parts(each)
    elif isinstance(value, (tuple, list)):
        yield type(value).__name__, len(value)
        for each in value:
            yield from parts(each)
    elif isinstance(value, torch.Tensor):
        yield "tensor", str(value.dtype), tuple(value.shape)
        yield value.contiguous().view(torch.uint8 if value.ndim else value.dtype).numpy().tobytes()
    elif isinstance(value, np.ndarray):
        yield "array", str(value.dtype), value.shape, value.tobytes()
    else:
        yield value


def epochs_of(path: Path, count: int = 2, **options: Any) -> list[Any]:
    with hr.Loader(path, BATCH, seed=3, **options) as loader:
        return [list(parts(batch)) for _ in range(count) for batch in loader]


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("workers", [1, 3])
def test_workers_give_what_one_process_gives(path: Path, start: str, workers: int) -> None:
    alone = epochs_of(path, transform=functions.everything, workers=0, output=hr.Output(ids=True))
    assert len(alone) == 2 * -(-RECORDS // BATCH)
    options = {"transform": functions.everything, "workers": hr.Workers(workers, start=start)}
    assert epochs_of(path, output=hr.Output(ids=True), **options) == alone


def test_a_dtype_that_lies_in_memory_as_another_is_not_taken_for_it(path: Path) -> None:
    def batches(workers: int) -> list[Any]:
        options: dict[str, Any] = {"workers": hr.Workers(workers, start="fork"), "shuffle": False}
        transform = functions.bfloat16_then_integers
        with hr.Loader(path, 4, transform=transform, **options) as loader:
            return [list(parts(batch)) for batch in loader]

    assert batches(1) == batches(0)


@pytest.mark.parametrize("ragged", ["pad", "list"])
def test_ragged_results_are_those_of_one_process(path: Path, ragged: str) -> None:
    alone = epochs_of(path, transform=functions.growing, workers=0, output=hr.Output(ragged=ragged))
    options = {"transform": functions.growing, "workers": hr.Workers(2, start="fork")}
    assert epochs_of(path, output=hr.Output(ragged=ragged), **options) == alone


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_is_what_the_transform_returned_of_each_sample(path: Path, workers: int) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(workers, start="fork"), "shuffle": False}
    with hr.Loader(path, BATCH, transform=functions.everything, **options) as loader:
        batch = next(iter(loader))
    expected = records()[:BATCH]
    assert torch.equal(batch["view"], torch.from_numpy(expected))
    assert torch.equal(batch["both"][1], torch.from_numpy(expected + 1))
    assert isinstance(batch["pair"], functions.Pair)
    assert [str(each.dtype) for each in batch["pair"].second] == [
        "torch.float64",
        "torch.int64",
        "torch.bool",
    ]
    assert batch["text"] == [f"sample {i} of 0" for i in range(BATCH)]
    assert batch["raw"] == [bytes([i]) for i in range(BATCH)]
    assert batch["bf16"].dtype == torch.bfloat16
    assert torch.equal(batch["bf16"], torch.from_numpy(expected).to(torch.bfloat16))
    assert len({tuple(row) for row in batch["random"].tolist()}) == BATCH


@pytest.mark.parametrize("workers", [0, 2])
def test_padding_is_zero_and_says_where_samples_end(path: Path, workers: int) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(workers, start="fork"), "shuffle": False}
    for ragged in ("pad", "list"):
        with hr.Loader(
            path,
            BATCH,
            transform=functions.growing,
            output=hr.Output("numpy", ragged=ragged),
            **options,
        ) as loader:
            rows, labels = next(iter(loader))
        assert labels.tolist() == [3 * i for i in range(BATCH)]
        if ragged == "list":
            assert [row.shape for row in rows] == [(i % 5 + 1, 2) for i in range(BATCH)]
            assert all((row == i).all() for i, row in enumerate(rows))
            continue
        assert isinstance(rows, hr.Padded)
        assert rows.shape.tolist() == [[i % 5 + 1, 2] for i in range(BATCH)]
        assert rows.data.shape == (BATCH, 5, 2)
        for i, row in enumerate(rows.data):
            assert (row[: i % 5 + 1] == i).all()
            assert not row[i % 5 + 1 :].any()


def test_results_too_large_to_be_sent_are_an_error_that_says_so(path: Path) -> None:
    with (
        hr.Loader(
            path, BATCH, transform=functions.much_text, workers=hr.Workers(start="fork")
        ) as loader,
        pytest.raises(errors.TransformError, match="at most 67,108,864 can be sent: return arrays"),
    ):
        list(loader)


def test_as_many_values_as_are_allowed_come_through_a_worker(path: Path) -> None:
    options: dict[str, Any] = {
        "transform": functions.most_numbers,
        "workers": hr.Workers(start="fork"),
    }
    with hr.Loader(path, BATCH, shuffle=False, **options) as loader:
        values = next(iter(loader))
    assert len(values) == _core.WorkerChannel.LEAVES_MAX
    assert all(value.tolist() == list(range(BATCH)) for value in values)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (functions.growing, ['ragged="pad"', 'ragged="list"', "collate_fn", "(2, 2)"]),
        (functions.changing_dtype, ["float64", "float32"]),
        (functions.changing_structure, ["structure"]),
        (functions.unknown_type, ["object", "collate_fn"]),
        (functions.nothing, ["no values"]),
        (functions.many_numbers, ["5,000", "4,096", "array"]),
    ],
)
def test_results_that_make_no_batch_say_what_to_do(
    path: Path, workers: int, transform: Callable[[Any], Any], words: list[str]
) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(workers, start="fork"), "shuffle": False}
    with (
        hr.Loader(path, BATCH, transform=transform, **options) as loader,
        pytest.raises(errors.TransformError) as caught,
    ):
        list(loader)
    for word in words:
        assert word in str(caught.value)


def test_shapes_may_change_between_batches(path: Path) -> None:
    one, two = (
        epochs_of(path, transform=functions.by_epoch, workers=hr.Workers(count, start="fork"))
        for count in (0, 2)
    )
    assert two == one


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_collate_fn_makes_any_batch(path: Path, workers: int) -> None:
    options: dict[str, Any] = {
        "workers": hr.Workers(workers, start="fork", collate_fn=functions.collate),
        "shuffle": False,
    }
    with hr.Loader(path, BATCH, **options) as loader:
        batches = list(loader)
    assert [batch["count"] for batch in batches] == [BATCH] * 10 + [3]
    assert torch.equal(torch.cat([batch["stack"] for batch in batches]), torch.tensor(records()))
    assert torch.cat([batch["tensor"] for batch in batches]).tolist() == [
        3 * i for i in range(RECORDS)
    ]
    assert batches[0]["other"] == {1, 2}


def test_a_collate_fn_gets_what_the_transform_returned(path: Path) -> None:
    options: dict[str, Any] = {
        "workers": hr.Workers(start="fork", collate_fn=functions.collate_lists)
    }
    with hr.Loader(path, BATCH, transform=functions.growing, **options) as loader:
        assert next(iter(loader)) == [2] * BATCH


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pair_decodes_natively_first(numbered: Path, workers: int) -> None:
    native = hr.image.resize(8, dtype="uint8")
    options: dict[str, Any] = {
        "workers": hr.Workers(workers, start="fork"),
        "output": hr.Output(ids=True),
    }
    for first in (native, {"image": native}):
        with hr.Loader(numbered, BATCH, transform=(first, functions.pixels), **options) as loader:
            for image, _label, ids in loader:
                assert image.dtype == torch.int32
                assert image.shape[1:] == (3, 8, 8)
                assert torch.equal(image, (ids + 1)[:, None, None, None].expand(image.shape))


@pytest.mark.parametrize("workers", [0, 2])
def test_encoded_images_are_arrays_of_their_bytes(numbered: Path, workers: int) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(workers, start="fork"), "shuffle": False}
    dataset = hr.open(numbered)
    with hr.Loader(
        dataset, BATCH, transform=functions.encoded_bytes, output=hr.Output(decode=False), **options
    ) as loader:
        sizes, starts = next(iter(loader))
    assert sizes.tolist() == [len(dataset.read(i)["image"]) for i in range(BATCH)]
    assert starts == [b"\xff\xd8"] * BATCH


def test_what_a_transform_writes_into_its_input_reaches_nobody_else(path: Path) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(2, start="fork"), "shuffle": False}
    with hr.Loader(path, BATCH, transform=functions.scribble, **options) as loader:
        for _ in range(3):
            assert torch.equal(torch.cat(list(loader)), torch.from_numpy(records() + 1))


def test_batches_that_are_kept_stay_as_they_were(path: Path) -> None:
    options: dict[str, Any] = {"transform": functions.record, "workers": hr.Workers(start="fork")}
    with hr.Loader(path, BATCH, shuffle=False, **options) as loader:
        kept = [batch for _ in range(5) for batch in loader]
    assert torch.equal(torch.cat(kept), torch.from_numpy(np.tile(records(), (5, 1))))


# Order, state, epochs


def test_ids_state_and_leaving_early_are_those_of_a_plain_loader(path: Path) -> None:
    options: dict[str, Any] = {"batch_size": BATCH, "seed": 5, "output": hr.Output(ids=True)}
    with hr.Loader(path, **options) as plain:
        expected = [[batch.sample_id.tolist() for batch in plain] for _ in range(3)]
    options |= {"transform": functions.record, "workers": hr.Workers(2, start="fork")}
    with hr.Loader(path, **options) as loader:
        for number, (rows, ids) in enumerate(loader):
            assert ids.tolist() == expected[0][number]
            assert torch.equal(rows, torch.from_numpy(records()[ids]))
            if number == 4:
                break
        state = loader.state_dict()
        assert state["samples"] == 5 * BATCH  # Not what workers have, or had.
        assert [ids.tolist() for _, ids in loader] == expected[1]
        loader.load_state_dict(state)
        assert [ids.tolist() for _, ids in loader] == expected[0][5:]
        loader.set_epoch(2)
        assert [ids.tolist() for _, ids in loader] == expected[2]
        stats = loader.stats()
    assert stats["samples"] == 50 + RECORDS + RECORDS - 50 + RECORDS
    workers = stats["workers"]
    assert workers is not None
    assert workers["samples"] >= stats["samples"]
    assert workers["busy_seconds"] > 0


def test_a_sampler_and_growing_batches_work(path: Path) -> None:
    batches = [[1, 2, 3], list(range(40)), [5]]
    options: dict[str, Any] = {"transform": functions.record, "workers": hr.Workers(start="fork")}
    with hr.Loader(path, batch_sampler=batches, **options) as loader:
        for _ in range(2):
            for batch, ids in zip(loader, batches, strict=True):
                assert torch.equal(batch, torch.from_numpy(records()[ids]))


def test_workers_stay_between_epochs(path: Path) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(2, start="fork")}
    with hr.Loader(path, BATCH, transform=functions.process_of, **options) as loader:
        found = {int(pid) for _ in range(5) for batch in loader for pid in batch}
    assert len(found) <= 2
    assert os.getpid() not in found


def test_worker_init_fn_is_called_in_each_worker(path: Path) -> None:
    workers = hr.Workers(2, start="fork", init_fn=functions.init_environment)
    with hr.Loader(path, BATCH, transform=functions.worker_number, workers=workers) as loader:
        found = {int(number) for _ in range(5) for batch in loader for number in batch}
    assert found <= {0, 1}


def test_forked_workers_do_not_share_global_random_numbers(path: Path) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(2, start="fork")}
    with hr.Loader(path, BATCH, transform=functions.global_random, **options) as loader:
        found = [float(number) for _ in range(5) for batch in loader for number in batch]
    assert len(set(found)) == len(found)


# What goes wrong


@pytest.mark.parametrize(("workers", "start"), [(0, "fork"), (2, "fork"), (1, "spawn")])
def test_an_exception_arrives_with_its_traceback_and_sample(
    path: Path, workers: int, start: str
) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(workers, start=start), "shuffle": False}
    with hr.Loader(path, BATCH, transform=functions.fail_at_50, **options) as loader:
        iteration = iter(loader)
        for number in range(5):
            rows = next(iteration)
            assert torch.equal(rows, torch.tensor(records()[number * BATCH :][:BATCH]))
        with pytest.raises(errors.TransformError) as caught:
            next(iteration)
        error = caught.value
        assert (error.epoch, error.step, error.slot, error.sample) == (0, 5, 0, 50)
        assert error.path is not None
        assert error.path.endswith("records.bin")
        for part in ("epoch 0 step 5 slot 0 sample 50", "records.bin", "in fail_at_50", "no fifty"):
            assert part in str(error)
        assert "_workers" not in str(error)  # The user's frames only.
        assert isinstance(error.__cause__, ValueError)
        with pytest.raises(StopIteration):
            next(iteration)
        # The next iteration goes on, with the same workers.
        with pytest.raises(errors.TransformError):
            list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_that_calls_exit_fails_for_its_sample(path: Path, workers: int) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(workers, start="fork"), "shuffle": False}
    with hr.Loader(path, BATCH, transform=functions.leave_at_50, **options) as loader:
        with pytest.raises(errors.TransformError, match="SystemExit: no fifty") as caught:
            list(loader)
        error = caught.value
        assert (error.epoch, error.step, error.slot, error.sample) == (0, 5, 0, 50)
        assert isinstance(error.__cause__, SystemExit)
    collating = hr.Workers(workers, start="fork", collate_fn=functions.collate_leaves)
    with (
        hr.Loader(path, BATCH, workers=collating, shuffle=False) as loader,
        pytest.raises(errors.TransformError, match=r"(?s)epoch 0 step 0.*SystemExit: no batch"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_in_a_transform_interrupts_the_loop(path: Path, workers: int) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(workers, start="fork"), "shuffle": False}
    with hr.Loader(path, BATCH, transform=functions.interrupt_at_50, **options) as loader:
        iteration = iter(loader)
        for _ in range(5):
            next(iteration)
        with pytest.raises(KeyboardInterrupt):
            next(iteration)
        with pytest.raises(StopIteration):
            next(iteration)


def test_an_exception_that_can_not_be_pickled_arrives_as_text(path: Path) -> None:
    options: dict[str, Any] = {
        "transform": functions.fail_unpicklably,
        "workers": hr.Workers(start="fork"),
    }
    with (
        hr.Loader(path, BATCH, **options) as loader,
        pytest.raises(errors.TransformError, match="UnpicklableError: 1 and 2") as caught,
    ):
        next(iter(loader))
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_fn_that_fails_names_its_batch(path: Path, workers: int) -> None:
    options: dict[str, Any] = {
        "workers": hr.Workers(workers, start="fork", collate_fn=functions.collate_fails)
    }
    with (
        hr.Loader(path, BATCH, **options) as loader,
        pytest.raises(errors.TransformError, match=r"(?s)epoch 0 step 0.*no batch"),
    ):
        next(iter(loader))


@pytest.mark.parametrize(
    ("transform", "end", "code"),
    [
        (functions.exit_at_50, "ended with exit code 7", 7),
        (functions.kill_at_50, "was killed by SIGKILL", -signal.SIGKILL),
    ],
)
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_that_dies_is_named_with_its_samples(
    path: Path, transform: Callable[[Any], Any], end: str, code: int, start: str
) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(2, start=start), "shuffle": False}
    with hr.Loader(path, BATCH, transform=transform, **options) as loader:
        with pytest.raises(errors.WorkerLostError, match=end) as caught:
            list(loader)
        assert caught.value.exitcode == code
        assert f"process {caught.value.pid}" in str(caught.value)
        assert "step 5 slots [" in str(caught.value)
        assert "50" in str(caught.value)
        # New ones are started.
        with pytest.raises(errors.WorkerLostError):
            list(loader)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_that_can_not_begin_says_why(path: Path, start: str) -> None:
    options: dict[str, Any] = {"workers": hr.Workers(init_fn=functions.init_fails, start=start)}
    with (
        hr.Loader(path, BATCH, transform=functions.record, **options) as loader,
        pytest.raises(errors.FailedPreconditionError, match=r"(?s)worker 0.*no start"),
    ):
        list(loader)


def test_a_forked_worker_gets_any_object(path: Path) -> None:
    doubled = functools.partial(np.multiply, 2)
    with hr.Loader(
        path,
        BATCH,
        transform=lambda sample: doubled(sample.record),
        workers=hr.Workers(start="fork"),
        shuffle=False,
    ) as loader:
        assert torch.equal(next(iter(loader)), torch.tensor(2 * records()[:BATCH]))


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 2},
        {"output": hr.Output(ragged="pad")},
        {"workers": hr.Workers(init_fn=print)},
        {"transform": functions.record, "workers": -1},
        {"transform": functions.record, "workers": 1.5},
        {"transform": functions.record, "workers": hr.Workers(start="thread")},
        {"transform": functions.record, "output": hr.Output(ragged="crop")},
        {"transform": functions.record, "workers": hr.Workers(collate_fn=3)},
        {"transform": (functions.record, functions.record, 3)},
        {"transform": (None, 3)},
        {"workers": hr.Workers(collate_fn=functions.collate), "output": hr.Output(ragged="list")},
    ],
)
def test_arguments_that_can_not_be_are_named(path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.Loader(path, **options)
    assert str(caught.value).lower().startswith(tuple(options))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("transform", "says", "cause"),
    [
        (functions.no_array_at_seven, "NoArray <.*RuntimeError: there is no array", RuntimeError),
        (functions.too_large_at_seven, "int 1180591620717411303424, .*too large", OverflowError),
        (functions.sparse_at_seven, r"Tensor tensor.*Use Tensor.to_dense\(\)", TypeError),
    ],
)
def test_a_result_that_cannot_be_converted_is_told_of_its_own_sample(
    path: Path, transform: Callable[..., Any], says: str, cause: type[Exception], workers: int
) -> None:
    with (
        hr.Loader(path, 50, shuffle=False, transform=transform, workers=workers) as loader,
        pytest.raises(errors.TransformError, match=f"(?s)the transform returned {says}") as caught,
    ):
        next(iter(loader))
    assert (caught.value.slot, caught.value.sample) == (7, 7)
    assert type(caught.value.__cause__) is cause


def test_a_result_of_no_type_for_a_batch_is_told_alike_with_and_without_workers(
    path: Path,
) -> None:
    told = []
    for workers in (0, 2):
        options = {"transform": functions.none_at_seven, "workers": workers, "shuffle": False}
        with hr.Loader(path, 50, **options) as loader, pytest.raises(errors.TransformError) as at:
            next(iter(loader))
        told.append((str(at.value), at.value.slot, repr(at.value.__cause__)))
    assert told[0] == told[1]
    assert told[0][0].startswith("transforming epoch 0 step 0 slot 7 sample 7")
    assert ": the transform returned NoneType None: a batch is made of arrays" in told[0][0]
