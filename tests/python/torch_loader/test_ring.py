"""The ring of batches alone: order, slots, errors, end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.torch._dataloader.iterations.ring import Batch, Ring, Task


def add(ring: Ring, number: int, rows: int = 2) -> Batch:
    batch = Batch(number, list(range(rows)), number * rows, rows)
    ring.add(batch, [Task(batch, slot, 1) for slot in range(rows)])
    return batch


def take(ring: Ring) -> Task:
    task = ring.take(wait=False)
    assert task is not None
    return task


def finish(ring: Ring, task: Task, result: Any) -> bool:
    if not ring.give(task, result):
        return False
    ring.finish(task.batch, task.batch.results())
    return True


def test_tasks_leave_in_order_and_results_take_their_slots() -> None:
    ring = Ring(in_order=True, arrival=False)
    add(ring, 0), add(ring, 1)
    tasks = [take(ring) for _ in range(4)]
    assert [(task.batch.number, task.first) for task in tasks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert ring.take(wait=False) is None
    assert [finish(ring, tasks[n], f"result {n}") for n in (3, 1, 2)] == [False, False, True]
    assert ring.next(timeout=0) is None  # Batch 1 waits for batch 0.
    assert finish(ring, tasks[0], "result 0")
    assert [ring.next(timeout=0).value for _ in range(2)] == [  # type: ignore[union-attr]
        ["result 0", "result 1"],
        ["result 2", "result 3"],
    ]
    assert len(ring) == 0


def test_out_of_order_a_batch_leaves_when_it_is_ready() -> None:
    ring = Ring(in_order=False, arrival=False)
    add(ring, 0, 1), add(ring, 1, 1)
    first, second = take(ring), take(ring)
    finish(ring, second, "b")
    assert ring.next(timeout=0).number == 1  # type: ignore[union-attr]
    finish(ring, first, "a")
    assert ring.next(timeout=0).number == 0  # type: ignore[union-attr]


def test_by_arrival_results_take_the_next_slot() -> None:
    ring = Ring(in_order=True, arrival=True)
    add(ring, 0, 3)
    tasks = [take(ring) for _ in range(3)]
    for slot in (2, 0, 1):
        finish(ring, tasks[slot], slot)
    assert ring.next(timeout=0).value == [2, 0, 1]  # type: ignore[union-attr]


def test_the_first_error_of_a_batch_counts_and_its_other_tasks_are_dropped() -> None:
    ring = Ring(in_order=True, arrival=False)
    batch = add(ring, 0, 3)
    add(ring, 1, 1)
    first, second = take(ring), take(ring)
    ring.fail(batch, KeyError("first"))
    ring.fail(batch, KeyError("second"))
    assert not ring.give(first, "late")
    assert take(ring).batch.number == 1
    found = ring.next(timeout=0)
    assert found is batch
    assert repr(found.error) == "KeyError('first')"
    assert not ring.give(second, "later")


def test_a_batch_that_is_read_again_comes_first_and_as_one_task() -> None:
    ring = Ring(in_order=True, arrival=False)
    batch = add(ring, 0)
    tasks = [take(ring), take(ring)]
    add(ring, 1)
    assert not ring.give(tasks[0], "a")
    assert ring.give(tasks[1], "b")
    assert batch.results() == ["a", "b"]
    ring.again(batch)
    again = take(ring)
    assert again.batch is batch
    assert again.is_whole
    assert finish(ring, again, "whole")
    assert ring.next(timeout=0).value == ["whole"]  # type: ignore[union-attr]


def test_a_broken_ring_gives_what_is_ready_and_then_the_error() -> None:
    ring = Ring(in_order=True, arrival=False)
    add(ring, 0, 1), add(ring, 1, 1)
    finish(ring, take(ring), "a")
    ring.break_off(RuntimeError("lost"))
    ring.break_off(RuntimeError("later"))
    assert ring.next(timeout=None).value == ["a"]  # type: ignore[union-attr]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="lost"):
            ring.next(timeout=None)
    assert ring.take(wait=True) is None


def test_a_lane_that_waits_ends_when_the_ring_is_closed() -> None:
    ring = Ring(in_order=True, arrival=False)
    found: list[Any] = []
    lanes = [threading.Thread(target=lambda: found.append(ring.take(wait=True))) for _ in range(3)]
    for lane in lanes:
        lane.start()
    ring.close()
    for lane in lanes:
        lane.join(30)
        assert not lane.is_alive()
    assert found == [None] * 3
    assert ring.is_closed


def test_closing_ends_the_wait_of_a_consumer() -> None:
    ring = Ring(in_order=True, arrival=False)
    add(ring, 0)
    begins = threading.Event()
    found: list[Batch | None] = []

    def consume() -> None:
        begins.set()
        found.append(ring.next(timeout=None))

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    begins.wait()
    ring.close()
    consumer.join(timeout=60)
    assert found == [None]


def test_a_thread_that_has_the_lock_can_close() -> None:
    """As the garbage collector does, if it ends an iteration there."""
    ring = Ring(in_order=True, arrival=False)
    closer = threading.Thread(target=_close_inside, args=(ring,), daemon=True)
    closer.start()
    closer.join(timeout=60)
    assert not closer.is_alive()
    assert ring.take(wait=True) is None


def _close_inside(ring: Ring) -> None:
    with ring._has_tasks:
        ring.close()
