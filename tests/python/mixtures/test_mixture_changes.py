"""Mixtures whose weights and sources change, and states of mixtures."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mixture_data import PROGRAM, WEIGHTS, rows_of, same, samples_of, steps_of
from rank_scripts import environment, rank_variables, run_script

import headrace as hr
from headrace import errors
from headrace._dataset import Mixture


@pytest.mark.parametrize("stop", ["never", "first", "all"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_restored_run_goes_on_at_every_step_on_other_ranks(
    sources: dict[str, str], stop: Any, ranks: int
) -> None:
    mixture = hr.mix(sources, WEIGHTS, stop=stop, epoch_samples=40 if stop == "never" else None)
    whole = list(map(samples_of, steps_of(mixture, epochs=2)))
    first = hr.Loader(mixture, batch_size=8, order="exact", epochs=2)
    states = [first.state_dict()]
    for _ in range(2):
        for _batch in first:
            states.append(first.state_dict())
    first.close()
    for at, state in enumerate(states[:-1]):
        rest: list[Any] = []
        loaders = [
            hr.Loader(
                mixture,
                batch_size=8 // ranks,
                order="exact",
                epochs=2,
                job=hr.Job(rank=rank, world_size=ranks),
            )
            for rank in range(ranks)
        ]
        for loader in loaders:
            loader.load_state_dict(state)
        while len(rest) < len(whole) - at:
            rest += [
                samples_of([rows_of(batch) for batch in batches])
                for batches in zip(*loaders, strict=True)
            ]
        for loader in loaders:
            loader.close()
        if stop == "never" or ranks == 1:  # else the epoch's last batch is padded to equal ranks
            assert rest == whole[at:]
        else:
            assert len(rest) == len(whole) - at


def test_stages_change_the_weights_where_they_begin(sources: dict[str, str]) -> None:
    stages = [(0, {"web": 1, "code": 1}), (48, {"books": 1}), (64, {"web": 3, "books": 1})]
    mixture = hr.mix(sources, stages, stop="never", epoch_samples=96)
    constant = hr.mix(sources, {"web": 1, "code": 1}, stop="never", epoch_samples=96)
    steps = list(map(samples_of, steps_of(mixture, epochs=1)))
    assert steps[:6] == list(map(samples_of, steps_of(constant, epochs=1)))[:6]
    assert all(row[0] == 2 for step in steps[6:8] for row in step)
    assert Counter(row[0] for step in steps[8:] for row in step) == {0: 24, 2: 8}
    assert mixture.counts(96) == {"web": 48, "code": 24, "books": 24}


def continued(before: Mixture, after: Mixture, at: int, steps: int) -> list[list[list[int]]]:
    """Steps of `before`, and from step `at` on those of `after`, with its state."""
    more: dict[str, Any] = {"batch_size": 8, "order": "exact", "epochs": 4}
    found: list[list[list[int]]] = []
    with hr.Loader(before, **more) as loader:
        while len(found) < at:
            for batch in loader:
                found.append(samples_of([rows_of(batch)]))
                if len(found) == at:
                    break
        state = json.loads(json.dumps(loader.state_dict()))
    with hr.Loader(after, **more) as loader:
        loader.load_state_dict(state)
        while len(found) < steps:
            for batch in loader:
                found.append(samples_of([rows_of(batch)]))
                if len(found) == steps:
                    break
    return found


@pytest.mark.parametrize("at", [0, 1, 5, 7, 8, 9, 20])
def test_weights_change_in_a_run_by_a_stage_from_its_state_on(
    sources: dict[str, str], at: int
) -> None:
    more: dict[str, Any] = {"stop": "never", "epoch_samples": 64}
    before = hr.mix(sources, WEIGHTS, **more)
    stages = [(0, WEIGHTS), (8 * max(at, 1), {"web": 1, "books": 3})]
    after = hr.mix(sources, stages, **more)
    whole = list(map(samples_of, steps_of(after, epochs=4)))
    assert continued(before, after, at, 28) == whole[:28]
    if at > 1:  # A stage before the state would have given other samples.
        earlier = hr.mix(sources, [(0, WEIGHTS), (8 * (at - 1), {"web": 1})], **more)
        with pytest.raises(errors.FailedPreconditionError, match="begins there or later"):
            continued(before, earlier, at, 28)


@pytest.mark.parametrize("workers", [0, 2])
def test_set_weights_changes_a_running_loader(sources: dict[str, str], workers: int) -> None:
    more: dict[str, Any] = {"batch_size": 8, "order": "exact", "epochs": 3}
    if workers:
        more |= {"workers": workers, "transform": same}
    begun = {"stop": "never", "epoch_samples": 64}
    changes = {0: {"code": 1}, 3: {"web": 1, "books": 1}, 8: {"web": 1}, 13: WEIGHTS}
    stages = [(8 * at, weights) for at, weights in changes.items()]
    whole = steps_of(hr.mix(sources, stages, **begun), epochs=3)  # type: ignore[arg-type]
    found: list[Any] = []
    states: list[Any] = []
    with hr.Loader(hr.mix(sources, WEIGHTS, **begun), **more) as loader:  # type: ignore[arg-type]
        for _ in range(3):
            iteration = iter(loader)
            while True:
                if len(found) in changes:
                    loader.set_weights(changes.pop(len(found)))
                batch = next(iteration, None)
                if batch is None:
                    break
                found.append([rows_of(batch)])
                states.append(json.loads(json.dumps(loader.state_dict())))
        assert loader.dataset.counts(8 * 24)["code"] == sum(  # type: ignore[attr-defined]
            row[0] == 1 for step in whole for row in step[0]
        )
    assert found == whole
    for at in (5, 7, 15):
        with hr.Loader(hr.mix(sources, stages, **begun), **more) as loader:  # type: ignore[arg-type]
            loader.load_state_dict(states[at])
            assert [rows_of(next(iter(loader)))] == whole[at + 1]


def test_set_weights_of_a_mixture_that_ends(sources: dict[str, str]) -> None:
    mixture = hr.mix(sources, WEIGHTS, stop="all")
    with hr.Loader(mixture, batch_size=8, order="exact", epochs=3) as loader:
        steps = len(loader)
        iteration = iter(loader)
        found = [rows_of(next(iteration)) for _ in range(2)]
        loader.set_weights({"web": 1, "code": 1, "books": 6})
        assert len(loader) != steps
        found += [rows_of(batch) for batch in iteration]
        stages = [(0, WEIGHTS), (16, {"web": 1, "code": 1, "books": 6})]
        whole = steps_of(hr.mix(sources, stages, stop="all"), epochs=1)
        assert found == [step[0] for step in whole]
        with pytest.raises(errors.FailedPreconditionError, match='stop="never"'):
            loader.set_weights(WEIGHTS)
        with pytest.raises(errors.InvalidArgumentError, match="the sources are"):
            loader.set_weights({"other": 1})
    with (
        hr.Loader(sources["web"], batch_size=8, order="exact") as plain,
        pytest.raises(errors.InvalidArgumentError, match="is no mixture"),
    ):
        plain.set_weights({"web": 1})


def test_a_source_is_added_and_another_retired_in_a_run(sources: dict[str, str]) -> None:
    more: dict[str, Any] = {"stop": "never", "epoch_samples": 64}
    some = {name: sources[name] for name in ("web", "books")}
    before = hr.mix(some, {"web": 3, "books": 1}, **more)
    stages = [(0, {"web": 3, "books": 1}), (80, {"web": 1, "code": 1})]
    after = hr.mix(sources, stages, **more)
    whole = list(map(samples_of, steps_of(after, epochs=4)))
    found = continued(before, after, 10, 30)
    # `before` has no "code", and so another number for "books" in its rows' names only.
    assert found == whole[:30]
    drawn = [(0, {"web": 3, "books": 1, "code": 1})]
    with pytest.raises(errors.FailedPreconditionError, match="another mixture"):
        continued(before, hr.mix(sources, drawn, **more), 10, 30)
    moved = {name: sources[name] for name in ("books", "code", "web")}
    with pytest.raises(errors.FailedPreconditionError, match="another mixture"):
        continued(before, hr.mix(moved, stages, **more), 10, 30)
    with pytest.raises(errors.FailedPreconditionError, match="the source 'books'"):
        continued(before, hr.mix({"web": sources["web"]}, {"web": 1}, **more), 10, 30)


def test_another_mixture_does_not_go_on_from_a_state(sources: dict[str, str]) -> None:
    with hr.Loader(hr.mix(sources, WEIGHTS), batch_size=4, order="exact") as loader:
        next(iter(loader))
        state = loader.state_dict()
    others: list[Any] = [
        hr.mix(sources, {**WEIGHTS, "web": 6}),
        hr.mix(sources, WEIGHTS, passes={"web": 2}),
        hr.mix(sources, WEIGHTS, stop="all"),
    ]
    for mixture in others:
        with (
            hr.Loader(mixture, batch_size=4, order="exact") as other,
            pytest.raises(errors.FailedPreconditionError, match="another mixture"),
        ):
            other.load_state_dict(state)
    with (
        hr.Loader(sources["web"], batch_size=4, order="exact") as plain,
        pytest.raises(errors.FailedPreconditionError, match="saved in a loader of a mixture"),
    ):
        plain.load_state_dict(state)
    with hr.Loader(sources["web"], batch_size=4, order="exact") as plain:
        state = plain.state_dict()
    with (
        hr.Loader(hr.mix(sources, WEIGHTS), batch_size=4, order="exact") as other,
        pytest.raises(errors.FailedPreconditionError, match="restored in one of a mixture"),
    ):
        other.load_state_dict(state)


def test_weights_that_differ_between_ranks_are_refused(
    sources: dict[str, str], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    weights = [json.dumps(WEIGHTS), json.dumps({**WEIGHTS, "web": 9})]
    with ThreadPoolExecutor(2) as pool:
        ended = list(
            pool.map(
                lambda place: run_script(
                    program, json.dumps(sources), weights[place[0]], env=environment(**place[1])
                ),
                enumerate(rank_variables(2)),
            )
        )
    assert [each.code for each in ended] != [0, 0]
    assert any("mixture" in each.err for each in ended), ended


def test_a_source_that_changed_is_noticed(sources: dict[str, str]) -> None:
    mixture = hr.mix(sources, WEIGHTS)
    text = pickle.dumps(mixture)
    np.save(sources["web"], np.zeros((40, 3), np.int64))
    with pytest.raises(errors.FailedPreconditionError, match="web"):
        pickle.loads(text)
