"""Workers of torch's DataLoader, as clients of a Loader: its batches, whatever their number."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stream_functions as functions
from loader_data import (
    COUNT,
    FLAT,
    as_bytes,
    epoch_ids,
    flat,
    payload_ids,
    python_command,
    sample_file,
)
from node_ranks import wait_for_end

import headrace as hr
from headrace import errors

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from headrace.torch import SampleStream, _server  # noqa: E402

BATCH = 7

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def make(root: Path, **arguments: Any) -> hr.Loader:
    given: dict[str, Any] = {"transform": FLAT, "ids": True, "seed": 3} | arguments
    return hr.Loader(root, BATCH, **given)


def workers(stream: SampleStream, count: int, start: str = "fork", **arguments: Any) -> Any:
    if count:
        arguments |= {"multiprocessing_context": start}
    return DataLoader(stream, BATCH, num_workers=count, **arguments)


def every_bit(batches: Any) -> list[list[bytes]]:
    return [as_bytes(batch) for batch in batches]


@pytest.mark.parametrize("order", ["exact", "batch", "epoch", "redox"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_any_number_of_workers_gives_the_batches_of_the_loader(
    numbered: Path, order: str, count: int
) -> None:
    with make(numbered, order=order) as plain:
        expected = [every_bit(plain) for _ in range(2)]
    with make(numbered, order=order) as loader, SampleStream(loader) as stream:
        batches = workers(stream, count)
        assert len(batches) == len(loader)
        assert [every_bit(batches) for _ in range(2)] == expected
        batch = next(iter(batches))
        assert batch._fields == ("image", "label", "sample_id")
        assert len(set(flat(epoch_ids(batches)))) == COUNT


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_that_stay_go_on_from_epoch_to_epoch(numbered: Path, start: str) -> None:
    with make(numbered, drop_last=True) as plain:
        expected = []
        for epoch in (0, 1, 5):
            plain.set_epoch(epoch)
            expected.append(epoch_ids(plain))
    with make(numbered, drop_last=True) as loader, SampleStream(loader) as stream:
        batches = workers(stream, 2, start, persistent_workers=True)
        got = [epoch_ids(batches), epoch_ids(batches)]
        stream.set_epoch(5)
        got.append(epoch_ids(batches))
        assert got == expected
        del batches


@pytest.mark.parametrize("count", [0, 2])
def test_encoded_images_come_as_they_are_stored(numbered: Path, count: int) -> None:
    with make(numbered, transform=None, shuffle=False) as loader, SampleStream(loader) as stream:
        got = flat(workers(stream, count, collate_fn=functions.encoded))
    assert [image for image, _ in got] == [
        sample_file(numbered, number).read_bytes() for number in range(COUNT)
    ]


def test_a_transform_draws_the_same_in_any_worker(numbered: Path) -> None:
    got = []
    for count in (0, 1, 3):
        with make(numbered) as loader, SampleStream(loader, functions.drawn) as stream:
            got.append(flat(workers(stream, count, collate_fn=functions.as_list)))
    assert got[0] == got[1] == got[2]
    assert all(number == pixel for number, pixel, _ in got[0])
    assert len({draw for _, _, draw in got[0]}) == COUNT


def test_each_rank_gets_what_its_loader_gives(numbered: Path) -> None:
    seen = []
    for rank in range(2):
        place: dict[str, Any] = {"sharding": hr.Sharding(rank=rank, world_size=2)}
        with make(numbered, **place) as plain:
            expected = epoch_ids(plain)
        with make(numbered, **place) as loader, SampleStream(loader) as stream:
            batches = workers(stream, 2)
            assert epoch_ids(batches) == expected
            assert len(batches) == len(expected)
        seen += flat(expected)
    assert set(seen) == set(range(COUNT))


def test_the_loader_s_engine_may_be_a_node_process(numbered: Path) -> None:
    with make(numbered) as plain:
        expected = [epoch_ids(plain) for _ in range(2)]
    with make(numbered, node_process=hr.NodeProcess()) as loader, SampleStream(loader) as stream:
        assert [epoch_ids(workers(stream, 2)) for _ in range(2)] == expected


def with_sampler() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(9)
    return {"sampler": torch.utils.data.RandomSampler(range(COUNT), generator=generator)}


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("given", [dict, with_sampler])
def test_a_state_counts_what_the_loop_had_not_what_was_read_ahead(
    numbered: Path, count: int, given: Any
) -> None:
    with make(numbered, **given()) as plain:
        expected = [epoch_ids(plain) for _ in range(3)]

    def rest(state: dict[str, Any]) -> Iterator[list[list[int]]]:
        with make(numbered, **given()) as loader:  # A state of either goes on in either.
            loader.load_state_dict(state)
            yield epoch_ids(loader)
        with make(numbered, **given()) as loader, SampleStream(loader) as stream:
            stream.load_state_dict(state)
            assert stream.state_dict(0) == state
            batches = workers(stream, 3)
            got = []
            for number, batch in enumerate(batches, 1):
                got.append(payload_ids(batch))
                if number == 2:
                    again = stream.state_dict(number)
            yield got
        with make(numbered, **given()) as loader, SampleStream(loader) as stream:
            stream.load_state_dict(again)
            yield got[:2] + epoch_ids(workers(stream, 2))

    with make(numbered, **given()) as loader, SampleStream(loader) as stream:
        batches = workers(stream, count)
        states = [stream.state_dict(0)]
        for number, _ in enumerate(batches, 1):
            states.append(stream.state_dict(number))
        assert [state["epoch"] for state in states] == [0] * len(expected[0]) + [1]
        for _ in batches:
            states.append(stream.state_dict(1))
            break
    for step in (0, 1, 5):
        assert list(rest(states[step])) == [expected[0][step:]] * 3
    assert list(rest(states[len(expected[0])])) == [expected[1]] * 3
    assert list(rest(states[-1])) == [expected[1][1:]] * 3


def test_a_state_of_what_was_not_given_is_refused(numbered: Path) -> None:
    with make(numbered) as loader, SampleStream(loader) as stream:
        with pytest.raises(errors.InvalidArgumentError, match="no iteration has begun"):
            stream.state_dict(1)
        list(workers(stream, 2))
        with pytest.raises(errors.InvalidArgumentError, match=r"batches: got 15.*\[0, 14\]"):
            stream.state_dict(15)


@pytest.mark.parametrize("stay", [False, True])
def test_after_a_loop_left_early_comes_the_next_epoch(numbered: Path, stay: bool) -> None:
    with make(numbered) as plain:
        expected = [epoch_ids(plain) for _ in range(4)]
    with make(numbered) as loader, SampleStream(loader) as stream:
        batches = workers(stream, 2, persistent_workers=stay)
        got = []
        for taken in (1, 3, 14, 2):
            torch.manual_seed(0)  # The iterations look alike.
            got.append([])
            for batch in batches:
                got[-1].append(payload_ids(batch))
                if len(got[-1]) == taken:
                    break
        assert got == [expected[0][:1], expected[1][:3], expected[2], expected[3][:2]]
        del batches


def test_what_a_transform_raises_comes_in_its_batch_s_place(numbered: Path) -> None:
    with make(numbered) as plain:
        expected = [epoch_ids(plain) for _ in range(2)]
    failing = expected[0][4][2]
    with (
        make(numbered) as loader,
        SampleStream(loader, functions.FailsAt(failing)) as stream,
    ):
        batches = workers(stream, 3, collate_fn=functions.as_list)
        iteration = iter(batches)
        assert [next(iteration) for _ in range(4)] == expected[0][:4]
        with pytest.raises(KeyError, match="no such thing") as raised:
            next(iteration)
        assert f"transforming epoch 0 step 4 slot 2 sample {failing}" in str(raised.value)
        iteration = iter(batches)  # Epoch 1 begins.
        position = flat(expected[1]).index(failing) // BATCH
        assert [next(iteration) for _ in range(position)] == expected[1][:position]
        with pytest.raises(KeyError):
            next(iteration)
        with pytest.raises(errors.UnavailableError, match="left this iteration"):
            list(iteration)  # Never a batch after the one that is missing.


@pytest.mark.parametrize("count", [0, 2])
def test_a_transform_that_calls_exit_ends_no_process(numbered: Path, count: int) -> None:
    with make(numbered) as loader, SampleStream(loader, functions.leave) as stream:
        batches = workers(stream, count, collate_fn=functions.as_list)
        with pytest.raises(
            errors.TransformError, match=r"epoch 0 step 0 slot 0 sample \d+: SystemExit: 3"
        ):
            next(iter(batches))


def test_a_killed_worker_is_named_and_the_next_iteration_goes_on(numbered: Path) -> None:
    with make(numbered) as plain:
        expected = [epoch_ids(plain) for _ in range(2)]
    kills = functions.FailsAt(expected[0][4][2], kill=True)
    with make(numbered) as loader, SampleStream(loader, kills) as stream:
        batches = workers(stream, 2, collate_fn=functions.as_list)
        with pytest.raises(RuntimeError, match=r"worker \(pid.*(killed by signal|exited)"):
            list(batches)
        kills.sample = -1
        assert list(batches) == expected[1]


def test_what_the_loader_raises_comes_in_its_batch_s_place(numbered_copy: Path) -> None:
    with make(numbered_copy) as plain:
        expected = epoch_ids(plain)
    with make(numbered_copy) as loader, SampleStream(loader) as stream:
        number = expected[5][1]
        sample_file(numbered_copy, number).unlink()
        iteration = iter(workers(stream, 2))
        assert [payload_ids(next(iteration)) for _ in range(5)] == expected[:5]
        with pytest.raises(errors.HeadraceError, match=f"{number:03}.jpg"):
            next(iteration)


def test_two_iterations_at_a_time_are_an_error(numbered: Path) -> None:
    with make(numbered) as loader, SampleStream(loader) as stream:
        first = iter(workers(stream, 1, prefetch_factor=1))
        next(first)
        second = iter(workers(stream, 1, prefetch_factor=1))
        next(second)
        with pytest.raises(errors.FailedPreconditionError, match="a newer one was begun"):
            list(first)
        assert len(list(second)) == 13


def test_who_says_nothing_sensible_is_hung_up_on(numbered: Path) -> None:
    with make(numbered) as loader, SampleStream(loader) as stream:
        hello = '{"iteration": 1, "started": 1, "worker": %s, "workers": %s}'
        for message in (
            b"\xff",
            b"[]",
            b'{"worker": 0}',
            (hello % (2, 2)).encode(),
            (hello % (-1, 2)).encode(),
            (hello % ('"0"', 2)).encode(),
            (hello % (0, 10**9)).encode(),
        ):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(stream._reader.address)
                connection.send(message)
                assert connection.recv(100) == b"", message
        assert len(flat(epoch_ids(workers(stream, 2)))) == COUNT


def test_who_was_not_heard_before_the_end_is_hung_up_on(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_server.Server, "_accept", lambda *_: None)
    with make(numbered) as loader, SampleStream(loader) as stream:
        forked = os.dup(stream._owned()._listener.fileno())
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(stream._reader.address)
            stream.close()
            assert connection.recv(100) == b""
        with pytest.raises(errors.UnavailableError, match="the stream is closed"):
            list(workers(stream, 1))
        os.close(forked)


class Batch:
    """Of no fields."""

    epoch = 0
    step = 0

    def samples(self) -> Any:
        return np.arange(3, dtype=np.uint64)


def test_who_was_told_that_another_left_takes_no_batch_from_the_others() -> None:
    deal = _server._Deal("an iteration", (), 3)
    deal.batches = iter(Batch, None)  # type: ignore[assignment]
    ends = []
    for lane in deal.lanes:
        lane.connection, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lane.begun = True
        ends.append((lane.connection, end))

    def ask(number: int) -> dict[str, Any]:
        deal.lanes[number].asks = True
        while deal.wants_one():
            deal.pull(())
        deal.answer()
        message, memory, _, _ = socket.recv_fds(ends[number][1], 16384, 1)
        for each in memory:
            os.close(each)
        return dict(json.loads(message))

    assert ["rows" in ask(number) for number in (0, 1, 2, 1)] == [True] * 4
    deal.leave(deal.lanes[1])  # At batch 4.
    assert "at its batch 4" in ask(2)["text"]
    deal.leave(deal.lanes[2])
    assert "rows" in ask(0)  # Batch 3.
    assert "at its batch 4" in ask(0)["text"]
    deal.leave(deal.lanes[0])
    for pair in ends:
        for each in pair:
            each.close()


def test_no_more_than_two_batches_wait_for_a_worker() -> None:
    deal = _server._Deal("an iteration", (), 3)
    deal.batches = iter(Batch, None)  # type: ignore[assignment]
    while deal.wants_one():
        deal.pull(())
    assert [len(lane.ready) for lane in deal.lanes] == [2, 2, 2]
    for lane in deal.lanes:
        lane.drop_ready()


def test_arguments_that_can_not_be(numbered: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"loader: got .* headrace.Loader"):
        SampleStream(numbered)  # type: ignore[arg-type]
    with (
        make(numbered, transform=functions.drawn, ids=False, workers=0) as loader,
        pytest.raises(errors.InvalidArgumentError, match="give the transform here"),
    ):
        SampleStream(loader)
    with make(numbered) as loader:
        with pytest.raises(errors.InvalidArgumentError, match="transform: got 5"):
            SampleStream(loader, 5)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match=r"the class Dropout, .*call it"):
            SampleStream(loader, torch.nn.Dropout)
        stream = SampleStream(loader)
        copy = pickle.loads(pickle.dumps(stream))
        with pytest.raises(errors.FailedPreconditionError, match="another process"):
            iter(copy)
        stream.close()
        stream.close()
        for use in (iter, pickle.dumps):
            with pytest.raises(errors.FailedPreconditionError, match="the stream is closed"):
                use(stream)
        with pytest.raises(errors.UnavailableError, match="the stream is closed"):
            list(workers(stream, 1))
        assert len(epoch_ids(loader)) == 14  # It stays open.
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        SampleStream(loader)


def test_a_loader_closed_meanwhile_is_an_error_in_the_loop(numbered: Path) -> None:
    loader = make(numbered)
    with SampleStream(loader) as stream:
        iteration = iter(workers(stream, 2))
        next(iteration)
        loader.close()
        with pytest.raises(errors.HeadraceError, match=r"closed|stopped"):
            list(iteration)


LEAKS = """
import gc, os, sys
from pathlib import Path
import headrace as hr
from headrace.torch import SampleStream
from torch.utils.data import DataLoader
from loader_data import FLAT
import stream_functions

# A spawned worker that ends while torch copies a tensor into shared memory is aborted by torch: the
# interpreter ends the thread inside a C++ destructor. Integers are sent without torch.
COLLATE = stream_functions.labels if sys.argv[2] == "spawn" else None

def left():
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [children, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))]

def run(how):
    loader = hr.Loader(sys.argv[1], 10, transform=FLAT, threads=1)
    stream = SampleStream(loader)
    batches = DataLoader(stream, 10, num_workers=2, multiprocessing_context=sys.argv[2],
                         collate_fn=COLLATE, persistent_workers=how == "stay")
    for number, batch in enumerate(batches):
        if how != "all" and number == 2:
            break
    del batches
    if how != "drop":
        stream.close()
        loader.close()

if __name__ == "__main__":
    run("all")  # What multiprocessing starts once stays.
    before = left()
    for how in sys.argv[3:]:
        run(how)
        assert left() == before, (how, left(), before)
    loader = hr.Loader(sys.argv[1], 10, transform=FLAT)
    kept = iter(DataLoader(SampleStream(loader), 10, num_workers=1, collate_fn=COLLATE,
                           multiprocessing_context=sys.argv[2]))
    next(kept)  # The interpreter ends with all of it open.
    print("clean", [name for name in os.listdir("/dev/shm") if "headrace" in name])
"""


@pytest.mark.parametrize(
    ("start", "ways"), [("fork", ["all", "break", "stay", "drop"]), ("spawn", ["break"])]
)
def test_nothing_is_left_of_a_stream(
    numbered: Path, tmp_path: Path, start: str, ways: list[str]
) -> None:
    script = tmp_path / "leaks.py"
    script.write_text(LEAKS)
    paths = [*sys.path, str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(numbered), start, *ways],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert (done.stdout, done.stderr) == ("clean []\n", "")


ENDLESS = """
import sys
import headrace as hr
from headrace.torch import SampleStream
from torch.utils.data import DataLoader
from loader_data import FLAT
import stream_functions as functions

loader = hr.Loader(sys.argv[1], 10, transform=FLAT)
stream = SampleStream(loader, functions.pid_and_id)
while True:
    for pids, _ in DataLoader(stream, 10, num_workers=2, multiprocessing_context="fork",
                              persistent_workers=True):
        print(*sorted(set(pids.tolist())), flush=True)
"""


def test_workers_end_with_the_process_that_has_the_loader(numbered: Path) -> None:
    paths = [*sys.path, str(Path(__file__).parent)]
    process = subprocess.Popen(
        python_command(ENDLESS, numbered),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert process.stdout is not None
    pids = {int(process.stdout.readline()) for _ in range(4)}
    assert len(pids) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    for pid in pids:
        wait_for_end(pid)
