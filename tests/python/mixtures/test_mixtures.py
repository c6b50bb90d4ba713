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
from mixture_data import PROGRAM, SIZES, WEIGHTS, row_of, rows_of, same, samples_of, steps_of
from rank_scripts import environment, rank_variables, run_script

import headrace as hr
from headrace import errors


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


def test_a_small_tier_keeps_what_comes_again(sources: dict[str, str], tmp_path: Path) -> None:
    mixture = hr.mix(sources, {"web": 1, "books": 3}, stop="never", epoch_samples=400)
    with hr.Loader(
        mixture, batch_size=4, order="exact", epochs=1, tiers=hr.tiers.Ram("8KiB")
    ) as loader:
        found = [row for batch in loader for row in rows_of(batch)]
        stats = loader.stats()
    assert Counter(row[0] for row in found) == {0: 100, 2: 300}
    assert stats["sources"]["storage"] < 400


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
