"""Ranks that share a node process: the same batches, and no one's end is another's."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat, kept, payload_ids
from node_ranks import RankError, Ranks, node_pid, stopped, wait_for_end
from PIL import Image
from typer.testing import CliRunner

import headrace as hr
from headrace import errors
from headrace._nodes import process as node
from headrace._process.hosted import HostedProcesses
from headrace.cli.main import app

ORDERS = ("exact", "batch", "epoch", "redox")
GONE_S = 20.0  # within which a death is known: at once, but on a busy machine; no poll is so slow

JOB = hr.Job(node=hr.Node())
FORK = hr.Workers(start="fork")


@pytest.fixture
def source(numbered: Path) -> str:
    hr.open(numbered)  # Its index is made once.
    return str(numbered)


def alone(source: str, state: dict[str, Any], rank: int, ranks: int, **arguments: Any) -> hr.Loader:
    """What a rank would have without a node process, from `state` on."""
    share = hr.Job(rank=rank, world_size=ranks)
    loader = hr.Loader(
        source, transform=FLAT, job=share, output=hr.Output("numpy", ids=True), **arguments
    )
    loader.load_state_dict(state)
    return loader


def check_epochs(got: list[Any], source: str, state: dict[str, Any], **arguments: Any) -> None:
    """Of each rank, from `state` on: as it would be without a node process."""
    for rank, epoch in enumerate(got):
        with alone(source, state, rank, len(got), **arguments) as expected:
            assert epoch == epoch_ids(expected)


def rows_of(batch: Any) -> list[tuple[int, str]]:
    """Which samples, and every bit of each."""
    return [
        (int(number), hashlib.sha256(row.tobytes()).hexdigest())
        for number, row in zip(batch.sample_id, batch.image, strict=True)
    ]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ranks_get_what_each_would_get_alone(source: str, order: str, count: int) -> None:
    with Ranks(count) as ranks:
        lengths = ranks.ask("open_", source, batch_size=5, order=order, seed=3)
        state = ranks.ask("state")[0]
        got = [ranks.ask("epoch") for _ in range(2)]
        for rank in range(count):
            with alone(source, state, rank, count, batch_size=5, order=order, seed=3) as expected:
                assert lengths[rank] == len(expected)
                assert [epoch[rank] for epoch in got] == [epoch_ids(expected) for _ in range(2)]
        assert len({len(epoch) for epoch in got[0]}) == 1
        assert set(flat(flat(got[0]))) == set(range(COUNT))
        ranks.ask("close")


def test_eight_ranks_get_the_rows_of_one_with_the_same_global_batch(tmp_path: Path) -> None:
    root, count = tmp_path / "noise", 61  # A prime: the last step is filled up.
    random = np.random.default_rng(5)
    for number in range(count):
        (root / str(number % 3)).mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / str(number % 3) / f"{number}.png")
    hr.open(root)
    with Ranks(8) as ranks:
        for order in ("exact", "batch", "epoch"):
            ranks.ask("open_", str(root), batch_size=2, order=order, seed=3)
            state = ranks[0].ask("state")
            epochs = [ranks.ask("rows") for _ in range(2)]
            ranks.ask("close")
            with alone(str(root), state, 0, 1, batch_size=16, order=order, seed=3) as one:
                for of_ranks in epochs:
                    whole = [rows_of(batch) for batch in one]
                    together = [
                        [tuple(row) for rank in of_ranks for row in rank[step]]
                        for step in range(len(whole))
                    ]
                    assert [len(rank) for rank in of_ranks] == [len(whole)] * 8
                    assert len(together[-1]) - len(whole[-1]) == 64 - count
                    for got, expected in zip(together[:-1], whole[:-1], strict=True):
                        assert sorted(got) == sorted(expected)
                    assert set(whole[-1]) <= set(together[-1]) <= set(flat(whole))


@pytest.mark.parametrize("schedule", ["lobster", "lobster_search", "proportional", "fixed"])
def test_how_ranks_share_a_node_changes_nothing(source: str, schedule: str) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=3, seed=6, engine={"schedule": schedule})
        state = ranks.ask("state")[0]
        check_epochs(ranks.ask("epoch"), source, state, batch_size=3, seed=6)
        ranks.ask("close")


def test_ranks_follow_a_schedule(source: str, tmp_path: Path) -> None:
    path = tmp_path / "job.schedule"
    job = ("--batch", "5", "--ranks", "2", "--local-ranks", "2", "--epochs", "1", "--seed", "6")
    written = CliRunner().invoke(app, ["plan", source, "--schedule", str(path), *job])
    assert written.exit_code == 0, written.output
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=5, seed=6, engine={"schedule": str(path)})
        state = ranks.ask("state")[0]
        check_epochs(ranks.ask("epoch"), source, state, batch_size=5, seed=6)
        ranks.ask("close")
        for rank in ranks:
            rank.say("open_", source, batch_size=5, seed=7, engine={"schedule": str(path)})
        for rank in ranks:
            with pytest.raises(RankError, match="seed"):
                rank.answer()


def test_a_state_is_continued_from_by_the_node_and_without_it(source: str) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=4, seed=1)
        ranks.ask("steps", 3)
        states = ranks.ask("state")
        rest = ranks.ask("steps", 100)
        assert rest[0]
        ranks.ask("load", states[0])
        assert ranks.ask("steps", 100) == rest
        ranks.ask("close")
    for rank in range(2):
        with alone(source, states[rank], rank, 2, batch_size=4, seed=1) as loader:
            assert epoch_ids(loader) == rest[rank]


def test_a_rank_that_leaves_holds_up_nobody(source: str) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=4, seed=2)
        state = ranks[0].ask("state")
        ranks.ask("steps", 2)
        ranks[1].ask("close")
        rest = ranks[0].ask("steps", 100)
        again = ranks[0].ask("epoch")
        with alone(source, state, 0, 2, batch_size=4, seed=2) as loader:
            assert [epoch_ids(loader)[2:], epoch_ids(loader)] == [rest, again]


def test_all_may_leave_an_epoch_early(source: str) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=4)
        state = ranks[0].ask("state")
        ranks.ask("steps", 2)
        ranks.ask("leave")
        got = ranks.ask("epoch")
        for rank in range(2):
            with alone(source, state, rank, 2, batch_size=4) as loader:
                epoch_ids(loader)
                assert epoch_ids(loader) == got[rank]


def test_one_that_leaves_an_epoch_early_is_told_that_the_others_did_not(source: str) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=4)
        ranks.ask("steps", 2)
        ranks[0].ask("leave")
        ranks[0].say("epoch")
        ranks[1].say("forever")
        for rank in ranks:
            with pytest.raises(RankError, match="rank 0 left its loop at epoch 0 step 2") as raised:
                rank.answer()
            assert raised.value.kind == "FailedPreconditionError"
        state = ranks[0].ask("state")
        ranks.ask("load", state)
        assert len({len(epoch) for epoch in ranks.ask("epoch")}) == 1  # It goes on from there.


def test_different_positions_are_an_error_that_names_them(source: str) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=4)
        state = ranks[1].ask("state")
        ranks[1].ask("load", state | {"epoch": 1})
        ranks[0].say("steps", 1)
        ranks[1].say("steps", 1)
        for rank in ranks:
            with pytest.raises(
                RankError, match="rank 0 asks for epoch 0 step 0, rank 1 asks for epoch 1 step 0"
            ):
                rank.answer()


def test_different_options_are_an_error_on_every_rank(source: str) -> None:
    with Ranks(2) as ranks:
        ranks[0].ask("open_", source, batch_size=4)
        with pytest.raises(RankError, match="batch_size is 4 on rank 0 and 5 on rank 1"):
            ranks[1].ask("open_", source, batch_size=5)
        with pytest.raises(RankError, match="batch_size is 4 on rank 0 and 5 on rank 1"):
            ranks[0].ask("steps", 1)


def test_what_can_not_be_opened_is_an_error_on_every_rank(source: str) -> None:
    with Ranks(2) as ranks:
        for rank in ranks:  # One after the other: the first has gone when the second comes.
            with pytest.raises(RankError, match="memory") as raised:
                rank.ask("open_", source, batch_size=4, memory=1)
            assert raised.value.kind == "InvalidArgumentError"


@pytest.mark.parametrize(("step", "forked"), [(0, False), (1, False), (5, False), (1, True)])
def test_a_rank_that_is_killed_holds_up_nobody(source: str, step: int, forked: bool) -> None:
    with Ranks(3) as ranks:
        ranks.ask("open_", source, batch_size=2, seed=4)
        state = ranks[0].ask("state")
        process = ranks[0].ask("node_pid")
        taken = ranks.ask("steps", step)
        if forked:  # A child that lives on, with a copy of the connection.
            ranks[1].ask("fork")
        ranks[1].signal(signal.SIGKILL)
        for rank in (0, 2):
            ranks[rank].say("steps", 1000)
        for rank in (0, 2):
            got = taken[rank] + ranks[rank].answer()
            with alone(source, state, rank, 3, batch_size=2, seed=4) as loader:
                assert got == epoch_ids(loader)
        ranks[0].ask("close")
        ranks[2].ask("close")
        wait_for_end(process)


@pytest.mark.parametrize("step", [0, 3])
def test_all_ranks_learn_at_once_that_the_node_process_died(source: str, step: int) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=2, epochs=1000)
        ranks.ask("steps", step)
        process = ranks[0].ask("node_pid")
        os.kill(process, signal.SIGKILL)
        died = time.monotonic()
        for rank in ranks:
            rank.say("forever")
        for rank in ranks:
            how = "killed by signal 9" if rank is ranks[0] else "the process that started it"
            told = f"node process \\(pid {process}\\) of job '\\w+/0' ended: {how}.*; make a new"
            with pytest.raises(RankError, match=told) as raised:
                rank.answer()
            assert raised.value.kind == "UnavailableError"
        assert time.monotonic() - died < GONE_S
        ranks.ask("close")  # And a new node process serves a new loader.
        ranks.ask("open_", source, batch_size=2)
        assert [len(steps) for steps in ranks.ask("steps", 1)] == [1, 1]
        assert ranks[0].ask("node_pid") != process


def test_one_that_stops_reading_holds_up_the_others_only_when_its_share_is_full(
    source: str,
) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=1, engine={"prefetch": 4}, epochs=2)
        state = ranks[0].ask("state")
        taken = flat(ranks.ask("steps", 1)[0])
        with stopped(ranks[1]):
            taken += flat(ranks[0].ask("steps", 2))  # These come, however long they take.
            ranks[0].say("steps", 1)
            while ranks[0].has_answered(within_s=0.5):
                taken += flat(ranks[0].answer())
                ranks[0].say("steps", 1)
        assert 3 <= len(taken) <= 10
        ranks[1].say("steps", 1000)
        taken += flat(ranks[0].answer())
        taken += flat(ranks[0].ask("steps", 1000))
        ranks[1].answer()
        with alone(source, state, 0, 2, batch_size=1, epochs=2) as loader:
            assert taken == flat(epoch_ids(loader))


def test_batches_that_are_held_stay_as_they_are(source: str) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=4, engine={"prefetch": 2})
        held = [ranks.ask("hold")[0], ranks.ask("hold")[0]]
        ranks.ask("steps", 100)
        ranks.ask("epoch")
        assert ranks[0].ask("look") == held
        process = ranks[0].ask("node_pid")
        ranks.ask("close")
        wait_for_end(process)
        assert ranks[0].ask("look") == held
        ranks.ask("drop")


def test_ranks_make_a_loader_anew_one_after_the_other_with_the_folder_of_the_last(
    source: str, tmp_path: Path
) -> None:
    arguments = {"batch_size": 4, "ssd": str(tmp_path / "tier")}
    with Ranks(2) as ranks:
        ranks.ask("open_", source, **arguments)
        first = ranks.ask("epoch")
        ranks[0].ask("close")
        ranks[0].say("open_", source, **arguments)
        assert not ranks[0].has_answered(within_s=0.2)  # Rank 1 has the folder.
        ranks[1].ask("close")
        ranks[1].say("open_", source, **arguments)
        assert ranks[0].answer() == ranks[1].answer()
        assert ranks.ask("epoch") == first


def test_a_rank_asks_for_statistics_and_rows_while_it_iterates(source: str) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", source, batch_size=4)
        rows = ranks.ask("explain", 2)
        taken = ranks.ask("steps", 3)
        assert [steps[2] for steps in taken] == rows
        assert ranks.ask("stats") == [3, 3]


def tree(source: str, **arguments: Any) -> hr.Loader:
    return hr.Loader(
        source, 4, transform=FLAT, output=hr.Output("numpy", ids=True), job=JOB, **arguments
    )


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    before = kept()
    yield
    assert kept() == before
    for process in node._started.values():
        wait_for_end(process.pid)


@pytest.mark.usefixtures("leaves_nothing")
def test_a_loader_leaves_no_process_descriptor_or_memory(source: str) -> None:
    for _ in range(3):
        with tree(source) as loader:
            iteration = iter(loader)
            next(iteration)
            assert len(epoch_ids(loader)) == len(loader)
    with tree(source) as one, tree(source, seed=1) as other:
        assert sorted(flat(epoch_ids(one))) != flat(epoch_ids(other))


@pytest.mark.usefixtures("leaves_nothing")
def test_a_sampler_s_batches_come_from_the_node_process(source: str) -> None:
    wanted = [[5, 3], [96, 0], [7]]
    with hr.Loader(
        source, batch_sampler=wanted, transform=FLAT, output=hr.Output("numpy", ids=True), job=JOB
    ) as loader:
        assert epoch_ids(loader) == wanted


@pytest.mark.usefixtures("leaves_nothing")
def test_ragged_fields_and_corrupt_samples_come_as_they_would_without(source: str) -> None:
    with (
        hr.Loader(source, 7, output="numpy") as here,
        hr.Loader(source, 7, output="numpy", job=JOB) as there,
    ):
        for expected, got in zip(here, there, strict=True):
            assert [bytes(row) for row in expected.image] == [bytes(row) for row in got.image]
            assert np.array_equal(expected.label, got.label)


def payload_bytes(loader: hr.Loader) -> int:
    return sum(np.asarray(field).nbytes for batch in loader for field in batch[:2])


@pytest.mark.usefixtures("leaves_nothing")
def test_between_processes_nothing_is_copied_but_messages(source: str) -> None:
    messages = []
    for side in (8, 64):
        arguments: dict[str, Any] = {
            "transform": hr.image.train(side, dtype="uint8"),
            "epochs": 1,
            "output": "numpy",
        }
        with (
            hr.Loader(source, 8, **arguments) as here,
            hr.Loader(source, 8, job=JOB, **arguments) as there,
        ):
            assert payload_bytes(here) == payload_bytes(there) == COUNT * (side * side * 3 + 8)
            expected, got = here.stats()["bytes"], there.stats()["bytes"]
        # Images are made by the decoder; labels lie in the index, and are copied from there.
        assert expected["copied"] == got["copied"] == COUNT * 8
        assert expected["messages"] == 0
        messages.append(got["messages"])
    # 1.2 MB of pixels more, and the same messages but for a memory or two.
    assert min(messages) > COUNT * 8
    assert abs(messages[1] - messages[0]) < 500


def memory_at(address: int, process: int | str) -> str:
    """What is mapped there: its device and inode, if it is one of headrace's memories."""
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        span, _, _, device, inode, *name = line.split(maxsplit=5)
        begin, end = (int(part, 16) for part in span.split("-"))
        if begin <= address < end:
            assert name, "memory of this process alone"
            assert name[0].startswith("/memfd:headrace"), name
            return f"{device} {inode}"
    raise AssertionError(f"nothing is mapped at {address:#x}")


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("output", ["numpy", "torch", "dlpack"])
@pytest.mark.parametrize("transform", [FLAT, None])
def test_what_the_training_loop_gets_lies_in_memory_of_the_node_process(
    source: str, output: str, transform: Any
) -> None:
    if output == "torch":
        pytest.importorskip("torch")
    with hr.Loader(source, 8, transform=transform, output=output, job=JOB) as loader:
        batches = iter(loader)
        held = [next(batches), next(batches)]
        node_process = node_pid(loader)
        shared = {
            f"{fields[3]} {fields[4]}"
            for fields in map(str.split, Path(f"/proc/{node_process}/maps").read_text().split("\n"))
            if len(fields) > 5 and fields[5].startswith("/memfd:headrace")
        }
        for field in (field for batch in held for field in batch):
            for row in field if isinstance(field, list) else [field]:
                torch = output == "torch"
                address = row.data_ptr() if torch else np.asarray(row).ctypes.data
                assert memory_at(address, "self") in shared
        del held, field, row


def test_a_fork_can_not_use_it_and_does_not_end_it(source: str) -> None:
    with tree(source) as loader:
        iteration = iter(loader)
        batch = next(iteration)
        child = os.fork()
        if child == 0:
            try:
                next(iteration)
            except errors.FailedPreconditionError as error:
                os._exit(0 if "forked child" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert payload_ids(batch)
        assert sum(1 for _ in iteration) == len(loader) - 1


def label_of(sample: Any) -> Any:
    return sample.label


def test_with_python_workers_too_the_node_process_ends_with_its_loader(source: str) -> None:
    with hr.Loader(source, 8, transform=label_of, job=JOB, workers=FORK) as loader:
        next(iter(loader))
    assert all(process.poll() is not None for process in node._started.values())


def test_with_python_workers_a_loader_that_opens_anew_lets_go_of_its_process(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outlived: list[object] = []
    wait = node._Process.wait

    def waited(process: Any, timeout: float | None = None) -> int:
        try:
            return wait(process, timeout)
        except subprocess.TimeoutExpired:
            outlived.append(process)
            raise

    monkeypatch.setattr(node._Process, "wait", waited)
    batches = [[0], list(range(1, 9))]  # The second is larger than was known: memory anew.
    with hr.Loader(
        source, transform=label_of, batch_sampler=batches, job=JOB, workers=FORK
    ) as loader:
        assert [len(batch) for batch in loader] == [1, 8]
    assert outlived == []
    assert not any(node._open.values())


def test_a_loader_that_can_not_be_made_leaves_no_node_process(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(HostedProcesses, "start", fail)
    with pytest.raises(OSError, match="no more processes"):
        hr.Loader(source, 8, transform=label_of, job=JOB, workers=FORK)
    assert all(process.poll() is not None for process in node._started.values())
    assert not any(node._open.values())
