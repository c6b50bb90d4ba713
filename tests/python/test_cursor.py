"""The position of a loader, without a loader."""

from __future__ import annotations

import random
from collections.abc import Sequence

from headrace._loading.cursor import Cursor, Place

STEPS = 3
PLAN = ("a", "b")


def begun(cursor: Cursor[Sequence[str]], epoch: int = 0, step: int = 0) -> int:
    """Begins an iteration where the cursor says, which has to be this place; its number."""
    start = cursor.start()
    assert (start.epoch, start.step) == (epoch, step)
    cursor.begin(epoch, step)
    return cursor.iteration


def give(cursor: Cursor[Sequence[str]], count: int) -> None:
    """The core gives the next batches, as it would."""
    for _ in range(count):
        epoch, step, plan = cursor.at
        assert cursor.continues(epoch, step)
        cursor.gave(epoch, step, ends_epoch=step + 1 == cursor.length(plan))


def new() -> Cursor[Sequence[str]]:
    return Cursor(STEPS)


def test_a_new_cursor_starts_before_the_first_step_and_the_core_has_to_be_started() -> None:
    cursor = new()
    assert cursor.at == cursor.start() == cursor.saved() == Place(0, 0)
    assert not cursor.continues(0, 0)
    assert cursor.decided is None


def test_an_epoch_that_was_given_whole_is_followed_by_the_next_which_the_core_gives_by_itself() -> (
    None
):
    cursor = new()
    for epoch in range(3):
        begun(cursor, epoch)
        assert not cursor.is_over()
        give(cursor, STEPS)
        assert cursor.is_over()
        assert cursor.at == Place(epoch, STEPS)
        cursor.end_epoch()
        assert cursor.at == cursor.saved() == Place(epoch + 1, 0)
        assert cursor.continues(epoch + 1, 0)
        assert not cursor.continues(epoch, 0)


def test_an_epoch_that_was_left_early_is_over_and_the_core_has_to_be_started_anew() -> None:
    cursor = new()
    number = begun(cursor)
    give(cursor, 1)
    assert cursor.leave(number)
    assert cursor.saved() == Place(0, 1)
    assert cursor.start() == Place(1, 0)
    assert not cursor.continues(0, 1)
    assert cursor.decided is None


def test_an_iteration_that_gave_nothing_is_repeated_with_its_plan() -> None:
    cursor = new()
    cursor.drew(PLAN)
    number = begun(cursor)
    assert cursor.leave(number)
    assert cursor.start() == cursor.saved() == Place(0, 0, PLAN)
    assert cursor.decided is None  # Nobody said so.
    assert not cursor.continues(0, 0)
    begun(cursor)
    give(cursor, 1)
    assert cursor.at == Place(0, 1, PLAN)


def test_an_older_iteration_has_no_say_once_a_newer_one_began_or_all_were_stopped() -> None:
    cursor = new()
    older = begun(cursor)
    newer = begun(cursor)
    assert newer != older
    give(cursor, 2)
    assert not cursor.leave(older)
    assert cursor.continues(0, 2)
    cursor.stop()
    assert not cursor.leave(newer)
    assert cursor.at == Place(0, 2)


def test_the_length_of_an_epoch_is_that_of_its_plan_and_a_finished_plan_is_dropped() -> None:
    cursor = new()
    assert cursor.length(None) == STEPS
    assert cursor.length(PLAN) == len(PLAN)
    cursor.drew(PLAN)
    begun(cursor)
    give(cursor, len(PLAN))
    assert cursor.is_over()
    cursor.end_epoch()
    assert cursor.at == cursor.start() == Place(1, 0, None)


def test_a_plan_without_batches_is_over_before_its_first_step() -> None:
    cursor = new()
    cursor.drew(())
    number = begun(cursor)
    assert cursor.is_over()
    cursor.end_epoch()
    assert cursor.leave(number)
    assert cursor.start() == Place(1, 0)


def test_a_restored_place_is_where_the_next_iteration_starts_with_no_plan_yet() -> None:
    cursor = new()
    cursor.drew(PLAN)
    number = begun(cursor)
    give(cursor, 1)
    cursor.restore(7, 2)
    assert not cursor.leave(number)
    assert cursor.start() == cursor.saved() == Place(7, 2)
    assert cursor.at == Place(7, 0)
    assert cursor.decided == (7, 2)
    begun(cursor, 7, 2)
    assert cursor.decided is None
    give(cursor, 1)
    assert cursor.is_over()


def test_a_restored_place_that_was_left_before_its_first_batch_is_still_told() -> None:
    cursor = new()
    cursor.restore(7, 2)
    cursor.leave(begun(cursor, 7, 2))
    assert cursor.decided == (7, 2)
    assert cursor.start() == Place(7, 2)


def test_going_to_an_epoch_counts_from_the_next_iteration_on() -> None:
    cursor = new()
    begun(cursor)
    give(cursor, 2)
    assert not cursor.go_to(5)
    assert cursor.saved() == Place(0, 2)  # The iteration in progress goes on.
    give(cursor, 1)
    cursor.end_epoch()
    assert cursor.saved() == cursor.start() == Place(5, 0)
    assert cursor.decided == (5, 0)


def test_leaving_an_iteration_keeps_the_epoch_that_was_gone_to_meanwhile() -> None:
    cursor = new()
    number = begun(cursor)
    cursor.go_to(5)
    assert cursor.leave(number)
    assert cursor.start() == Place(5, 0)


def test_going_to_the_epoch_of_a_restored_place_keeps_the_place_and_another_does_not() -> None:
    cursor = new()
    cursor.restore(7, 2)
    assert cursor.go_to(7)
    assert cursor.start() == Place(7, 2)
    assert not cursor.go_to(8)
    assert cursor.start() == Place(8, 0)


def test_going_to_another_epoch_drops_the_plan_that_would_have_been_repeated() -> None:
    cursor = new()
    cursor.drew(PLAN)
    cursor.leave(begun(cursor))
    assert not cursor.go_to(1)
    assert cursor.start() == cursor.saved() == Place(1, 0, None)


def test_a_core_that_lost_its_place_is_started_wherever_the_next_iteration_is() -> None:
    cursor = new()
    begun(cursor)
    give(cursor, 1)
    cursor.lose_supply()
    assert not cursor.continues(0, 1)
    assert cursor.at == Place(0, 1)


def test_any_history_resumes_where_its_state_says() -> None:
    """A cursor restored from `saved` gives what the first would have given had it gone on."""
    for seed in range(300):
        rng = random.Random(seed)
        cursor = new()
        number = None
        for _ in range(rng.randrange(12)):
            what = rng.choice(["begin", "give", "leave", "go", "restore"])
            if what == "begin":
                start = cursor.start()
                number = begun(cursor, start.epoch, start.step)
            elif what == "give" and number == cursor.iteration and not cursor.is_over():
                give(cursor, 1)
                if cursor.is_over():
                    cursor.end_epoch()
                    number = None
            elif what == "leave" and number is not None:
                cursor.leave(number)
                number = None
            elif what == "go":
                cursor.go_to(rng.randrange(4))
            elif what == "restore":
                cursor.restore(rng.randrange(4), rng.randrange(STEPS))
                number = None
        saved = cursor.saved()
        again = new()
        again.restore(saved.epoch, saved.step)
        assert again.start()[:2] == again.saved()[:2] == saved[:2], seed
        assert saved.step < STEPS, seed
