"""`headrace.mix` against a slow model: payloads, not counts."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rank_scripts import environment, rank_variables, run_script

import headrace as hr
from headrace import errors
from headrace._dataset import Mixture

SIZES = {"web": 37, "code": 11, "books": 5}
WEIGHTS = {"web": 5, "code": 2, "books": 1}


def row_of(source: str, number: int) -> list[int]:
    return [list(SIZES).index(source), number, 1000 * number]


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, str]:
    """Three arrays, whose rows say which they are."""
    paths = {}
    for name, samples in SIZES.items():
        path = tmp_path / name / "rows.npy"
        path.parent.mkdir()
        np.save(path, np.array([row_of(name, number) for number in range(samples)]))
        paths[name] = str(path)
    return paths


def rows_of(batch: Any) -> list[list[int]]:
    rows: list[list[int]] = np.asarray(batch[0]).tolist()
    return rows


def steps_of(
    mixture: Mixture, ranks: int = 1, global_batch: int = 8, epochs: int = 2, **more: Any
) -> list[list[list[list[int]]]]:
    """Of each step, of each rank, the rows of its batch."""
    loaders = [
        hr.Loader(
            mixture,
            batch_size=global_batch // ranks,
            order="exact",
            epochs=epochs,
            job=hr.Job(rank=rank, world_size=ranks),
            **more,
        )
        for rank in range(ranks)
    ]
    steps: list[list[list[list[int]]]] = []
    try:
        for _ in range(epochs):
            steps += [
                [rows_of(batch) for batch in of_ranks] for of_ranks in zip(*loaders, strict=True)
            ]
    finally:
        for loader in loaders:
            loader.close()
    return steps


def samples_of(step: list[list[list[int]]]) -> list[list[int]]:
    return sorted(row for rank in step for row in rank)


def test_every_source_has_its_share_and_each_sample_once_a_pass(sources: dict[str, str]) -> None:
    mixture = hr.mix(sources, WEIGHTS, stop="never", epoch_samples=64)
    assert len(mixture) == 53
    steps = steps_of(mixture)
    assert len(steps) == 16
    drawn: dict[str, list[int]] = {name: [] for name in SIZES}
    seen = 0
    for step in steps:
        for source, number, thousand in samples_of(step):
            assert thousand == 1000 * number
            drawn[list(SIZES)[source]].append(number)
        seen += 8
        assert {name: len(numbers) for name, numbers in drawn.items()} == mixture.counts(seen)
        for name, numbers in drawn.items():
            assert abs(len(numbers) - seen * WEIGHTS[name] / 8) < 2
            times = Counter(numbers)
            passed = len(numbers) // SIZES[name]
            assert all(passed <= times[number] <= passed + 1 for number in range(SIZES[name]))


def test_steps_have_the_same_samples_on_any_number_of_ranks(sources: dict[str, str]) -> None:
    mixture = hr.mix(sources, WEIGHTS, stop="never", epoch_samples=64)
    alone = steps_of(mixture)
    for ranks in (2, 4, 8):
        of_ranks = steps_of(mixture, ranks)
        assert list(map(samples_of, of_ranks)) == list(map(samples_of, alone))
        for step in of_ranks:
            of_step = Counter(row[0] for rank in step for row in rank)
            for rank in step:
                assert len(rank) == 8 // ranks
                for source, count in of_step.items():
                    own = sum(row[0] == source for row in rank)
                    assert count // ranks <= own <= -(-count // ranks)


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


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("tier", [None, "ram", "folder"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_tiers_and_workers_change_nothing(
    sources: dict[str, str], tmp_path: Path, workers: int, tier: str | None, shuffle: bool
) -> None:
    mixture = hr.mix(sources, WEIGHTS, stop="all")
    tiers = {
        None: (),
        "ram": hr.tiers.Ram("1MiB"),
        "folder": hr.tiers.Ssd(str(tmp_path / "tier"), "1MiB"),
    }[tier]
    more: dict[str, Any] = {"tiers": tiers} if tier else {}
    if workers:
        more |= {"workers": workers, "transform": same}
    assert steps_of(mixture, shuffle=shuffle, epochs=3, **more) == steps_of(
        mixture, shuffle=shuffle, epochs=3
    )


def same(sample: Any) -> Any:
    return (sample.value,)


def test_a_small_tier_keeps_what_comes_again(sources: dict[str, str], tmp_path: Path) -> None:
    mixture = hr.mix(sources, {"web": 1, "books": 3}, stop="never", epoch_samples=400)
    with hr.Loader(
        mixture, batch_size=4, order="exact", epochs=1, tiers=hr.tiers.Ram("8KiB")
    ) as loader:
        found = [row for batch in loader for row in rows_of(batch)]
        stats = loader.stats()
    assert Counter(row[0] for row in found) == {0: 100, 2: 300}
    assert stats["sources"]["storage"] < 400


PROGRAM = """
import json, sys
import numpy as np
import headrace as hr

mixture = hr.mix(json.loads(sys.argv[1]), json.loads(sys.argv[2]), stop="never", epoch_samples=64)
with hr.Loader(
    mixture, batch_size=4, order="exact", epochs=2, job=hr.Job(node=hr.Node()),
    tiers=hr.tiers.Ram("1KiB"),
) as loader:
    print(json.dumps([np.asarray(batch[0]).tolist() for _ in range(2) for batch in loader]))
"""


def test_a_node_process_delivers_the_same(sources: dict[str, str], tmp_path: Path) -> None:
    mixture = hr.mix(sources, WEIGHTS, stop="never", epoch_samples=64)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = (json.dumps(sources), json.dumps(WEIGHTS))
    with ThreadPoolExecutor(2) as pool:
        ended = list(
            pool.map(
                lambda variables: run_script(program, *arguments, env=environment(**variables)),
                rank_variables(2),
            )
        )
    assert [each.code for each in ended] == [0, 0], ended
    found = [json.loads(each.out) for each in ended]
    assert [list(step) for step in zip(*found, strict=True)] == steps_of(mixture, 2)


def test_stages_change_the_weights_where_they_begin(sources: dict[str, str]) -> None:
    stages = [(0, {"web": 1, "code": 1}), (48, {"books": 1}), (64, {"web": 3, "books": 1})]
    mixture = hr.mix(sources, stages, stop="never", epoch_samples=96)
    constant = hr.mix(sources, {"web": 1, "code": 1}, stop="never", epoch_samples=96)
    steps = list(map(samples_of, steps_of(mixture, epochs=1)))
    assert steps[:6] == list(map(samples_of, steps_of(constant, epochs=1)))[:6]
    assert all(row[0] == 2 for step in steps[6:8] for row in step)
    assert Counter(row[0] for step in steps[8:] for row in step) == {0: 24, 2: 8}
    assert mixture.counts(96) == {"web": 48, "code": 24, "books": 24}


def test_a_source_that_has_been_passed_leaves_its_weight(sources: dict[str, str]) -> None:
    mixture = hr.mix(
        sources, WEIGHTS, stop="never", passes={"books": 1, "code": 2}, epoch_samples=200
    )
    assert mixture.counts(400)["books"] == 5
    assert mixture.counts(400)["code"] == 22
    rows = [row for step in steps_of(mixture, epochs=2) for row in samples_of(step)]
    assert Counter(map(tuple, rows)).most_common()[-1][1] == 1
    assert Counter(row[0] for row in rows) == {0: 373, 1: 22, 2: 5}


def test_a_field_says_the_source(sources: dict[str, str]) -> None:
    mixture = hr.mix(sources, WEIGHTS, stop="first", source_field="source")
    assert mixture.fields[-1] == "source"
    with hr.Loader(mixture, batch_size=8, order="exact", epochs=1) as loader:
        for batch in loader:
            assert np.asarray(batch.source).tolist() == [row[0] for row in rows_of(batch)]
    assert mixture.source_of(40) == "code"
    assert mixture[40]["source"] == 1


def test_samples_are_those_of_the_sources_one_after_the_other(sources: dict[str, str]) -> None:
    mixture = hr.mix(sources, WEIGHTS)
    field = mixture.fields[0]
    listed = [sample[field].tolist() for sample in mixture]
    assert listed == [row_of(name, number) for name in SIZES for number in range(SIZES[name])]
    assert mixture[-1][field].tolist() == row_of("books", 4)
    again = pickle.loads(pickle.dumps(mixture))
    assert again.fingerprint == mixture.fingerprint
    assert steps_of(again) == steps_of(mixture)


def test_an_audit_passes(sources: dict[str, str]) -> None:
    for stop, epoch in (("never", 50), ("first", None), ("all", None)):
        mixture = hr.mix(sources, WEIGHTS, stop=stop, epoch_samples=epoch)  # type: ignore[arg-type]
        with hr.Loader(mixture, batch_size=8, order="exact", epochs=2) as loader:
            for _epoch in range(2):
                for _ in loader:
                    pass
                loader.audit()


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


def test_fields_are_renamed_and_those_of_some_sources_left_out(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(
        pyarrow.table({"text": ["a", "bb"], "stars": [1, 2]}), tmp_path / "code.parquet"
    )
    parquet.write_table(pyarrow.table({"content": ["ccc"]}), tmp_path / "web.parquet")
    mixture = hr.mix(
        {"code": tmp_path / "code.parquet", "web": tmp_path / "web.parquet"},
        {"code": 1, "web": 1},
        stop="all",
        rename={"web": {"content": "text"}},
    )
    assert mixture.fields == ("text",)
    with hr.Loader(mixture, batch_size=2, order="exact", epochs=1) as loader:
        texts = [text for batch in loader for text in batch.text]
    assert Counter(texts)["ccc"] == 2
    assert set(texts) == {"a", "bb", "ccc"}


REFUSED: list[tuple[Any, Any, Mapping[str, Any], str]] = [
    ({}, {}, {}, "sources: got"),
    (None, {"web": 1, "cod": 1}, {}, "weights: got 'cod'; the sources are 'web'"),
    (None, {"web": -1}, {}, "got -1 for 'web'"),
    (None, {"web": float("nan")}, {}, "got nan for 'web'"),
    (None, {"web": "much"}, {}, "got 'much' for 'web'"),
    (None, {}, {}, "all weights from position 0 on are 0"),
    (None, [], {}, "weights: got"),
    (None, [(0, WEIGHTS), (0, WEIGHTS)], {}, "stage 1 begins at position 0"),
    (None, [(0, 1)], {}, "got the stage"),
    (None, WEIGHTS, {"stop": "soon"}, "stop"),
    (None, WEIGHTS, {"stop": "never"}, "goes on for ever"),
    (None, WEIGHTS, {"epoch_samples": 5}, "but it ends after"),
    (None, WEIGHTS, {"passes": {"web": 0}}, "passes of 'web'"),
    (None, WEIGHTS, {"passes": {"x": 1}}, "passes: got 'x'"),
    (None, WEIGHTS, {"rename": {"web": {"x": "y"}}}, "no field 'x' to rename"),
    (None, WEIGHTS, {"source_field": 5}, "source_field"),
    (None, {"web": 1}, {"stop": "all"}, "never ends"),
    (None, WEIGHTS, {"wieghts": 1}, "wieghts"),
]


@pytest.mark.parametrize(("given", "weights", "more", "text"), REFUSED)
def test_what_does_not_fit_is_refused(
    sources: dict[str, str], given: Any, weights: Any, more: Mapping[str, Any], text: str
) -> None:
    with pytest.raises((errors.InvalidArgumentError, TypeError), match=text):
        hr.mix(sources if given is None else given, weights, **more)


def test_what_mixtures_cannot_do_is_refused(sources: dict[str, str], tmp_path: Path) -> None:
    mixture = hr.mix(sources, WEIGHTS)
    for order in ("epoch", "batch"):
        with pytest.raises(errors.InvalidArgumentError, match="order 'exact'"):
            hr.Loader(mixture, batch_size=4, order=order)
    with pytest.raises(errors.InvalidArgumentError, match="sampler= of a mixture"):
        hr.Loader(mixture, batch_size=4, sampler=[1, 2, 3])
    with pytest.raises(errors.InvalidArgumentError, match="it is a mixture itself"):
        hr.mix({"inner": mixture}, {"inner": 1})
    with pytest.raises(errors.InvalidArgumentError, match="the same data as 'a'"):
        hr.mix({"a": sources["web"], "b": sources["web"]}, {"a": 1, "b": 1})
    other = tmp_path / "other.npy"
    np.save(other, np.zeros((4, 3), np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="differ in dtype"):
        hr.mix({**sources, "other": str(other)}, WEIGHTS)


def test_a_source_that_changed_is_noticed(sources: dict[str, str]) -> None:
    mixture = hr.mix(sources, WEIGHTS)
    text = pickle.dumps(mixture)
    np.save(sources["web"], np.zeros((40, 3), np.int64))
    with pytest.raises(errors.FailedPreconditionError, match="web"):
        pickle.loads(text)
