"""What a loader says of its ranks: the verdict, figures, traces, metrics, charts."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import COUNT
from observe_data import CAUSES, core, lane, training

import headrace as hr
from headrace import _core
from headrace._observe import prometheus
from headrace._observe._steps import plot
from headrace._observe._steps.trace import make_trace
from headrace._observe.advice import DataFacts
from headrace._observe.computed import make_ranks, make_verdict
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

PACKED_IMAGES = DataFacts(fields=2, stored=1, images=1, layout="blocks", sampler=False)


def verdict(lanes: list[dict[str, Any]], *, data: DataFacts = PACKED_IMAGES, **more: Any) -> str:
    told = core(lanes, **more)
    return make_verdict(told, make_ranks(told), data)


def test_the_verdict_names_the_rank_that_waits_most_and_for_what() -> None:
    lanes = [lane(), lane({"decode": 1}), lane(), lane({"storage": 15, "decode": 2, "ranks": 1})]
    assert verdict(lanes) == (
        "rank 3 waited 18 % of the time: 15 % storage, 2 % decode, 1 % other ranks; "
        "use tiers=, or an order that reads large blocks: order='epoch'"
    )
    assert verdict(lanes, rank=13, number=1).startswith("rank 15 waited 18 %")


@pytest.mark.parametrize(
    ("stall", "more", "words"),
    [
        ({"storage": 20}, {}, "20 % storage; use tiers=, or an order that reads large blocks"),
        ({"storage": 20}, {"resident_budget": 1}, "use tiers=, or raise memory="),
        ({"storage": 20}, {"tiers": [{}]}, "give tiers= more room"),
        ({"decode": 20}, {"threads": 3}, "20 % decode; raise threads= (3 of 8 cores decode)"),
        ({"decode": 20}, {"threads": 8}, "all 8 cores decode already: store smaller images"),
        ({"consumer": 20}, {}, "20 % its own training loop; it holds batches"),
        ({"decode": 5, "storage": 6}, {}, "6 % storage, 5 % decode; use tiers="),
    ],
)
def test_the_verdict_s_advice_is_that_of_the_cause(
    stall: dict[str, float], more: dict[str, Any], words: str
) -> None:
    assert words in verdict([lane(stall)], **more)


def test_the_verdict_names_the_rank_that_held_others_up() -> None:
    lanes = [lane({"ranks": 30}), lane(held_up_ns=12_340_000_000), lane(held_up_ns=1)]
    assert verdict(lanes) == (
        "rank 0 waited 30 % of the time: 30 % other ranks; rank 1 held the others up for 12.3 s: "
        "look at what its training loop does, or raise EngineOptions.prefetch"
    )


def test_the_verdict_names_the_ranks_that_others_wait_for_to_begin() -> None:
    assert verdict([lane(), lane({"storage": 20}), lane()], rank=4, awaited=[5, 6]) == (
        "the node waits for rank 5, 6 to begin: look at what it does before its loop"
    )


def test_the_verdict_says_so_where_nobody_waits_or_nothing_is_known() -> None:
    assert verdict([lane({"storage": 0.4})], rank=2) == (
        "rank 2 is not waiting: 0.4 % of the time, over the last 200 steps"
    )
    assert verdict([lane(), lane({"decode": 0.99}, steps=4000)]) == (
        "2 ranks are not waiting: rank 1 most, 1.0 % of the time, over the last 4,000 steps"
    )
    assert "waited 1 %" in verdict([lane({"decode": 1})])
    assert verdict([lane(steps=0, seconds=0)]) == "no step was timed yet: take two batches"


def test_stats_tell_of_each_rank(numbered: Path) -> None:
    with hr.Loader(numbered, batch_size=8, seed=2, job=hr.Job(rank=1, world_size=2)) as loader:
        assert loader.stats()["verdict"].startswith("no step was timed")
        taken = sum(1 for _ in range(2) for _ in loader)
        stats = loader.stats()
        (rank,) = stats["ranks"]
        assert rank["rank"] == 1
        assert rank["batches"] >= taken
        assert rank["step"] == stats["step_times"]
        assert rank["step"]["count"] == taken - 1
        assert 0 < rank["step"]["p50"] <= rank["step"]["p95"] <= rank["step"]["p99"]
        assert 0 <= rank["stall_share"] <= 1
        assert rank["stall_share"] == pytest.approx(sum(rank["stall_shares"].values()))
        assert rank["stall"] == stats["stall"]
        assert rank["train_share"] == pytest.approx(1 - rank["stall_share"])
        assert rank["stages"].keys() == {"tiers", "nodes", "storage", "preprocessing"}
        assert rank["stages"]["nodes"] == rank["stages"]["tiers"] == 0
        assert stats["imbalance"] is None
        assert stats["verdict"].startswith("rank 1 ")


def check_step_times(numbered: Path) -> int:
    """Those of the batches that were taken; how long the first one was waited for."""
    loader = hr.Loader(numbered, batch_size=10)
    places = []
    for _ in range(2):
        for number, _ in enumerate(loader):
            places.append((loader.epoch, number))
            if number == 5:
                break
    steps = loader._core.step_times()
    assert list(zip(steps["epoch"].tolist(), steps["step"].tolist(), strict=True)) == places
    assert (np.diff(steps["run"]) >= 0).all()
    assert len(set(steps["run"].tolist())) == 2
    assert steps["samples"].tolist() == [10] * 12
    for before, after in (
        ("admitted_ns", "read_ns"),
        ("read_ns", "done_ns"),
        ("done_ns", "handed_ns"),
        ("handed_ns", "taken_ns"),
    ):
        assert (steps[before] <= steps[after]).all(), (before, after)
    waited = sum(steps[f"{cause}_ns"] for cause in CAUSES)
    assert (waited >= 0).all()
    assert waited.sum() / 1e9 == pytest.approx(sum(loader.stats()["stall"].values()), rel=0.2)
    loader.close()
    return int(waited[0])


def test_step_times_are_of_the_batches_that_were_taken(numbered: Path) -> None:
    # Nothing is there when the first is asked for, unless the machine is busy elsewhere meanwhile.
    assert any(check_step_times(numbered) > 0 for _ in range(20))


def check_trace(trace: dict[str, Any]) -> dict[tuple[int, str], int]:
    """That it is as viewers want it; how many slices of each name each rank has."""
    open_slices: dict[Any, list[float]] = defaultdict(list)
    ends: dict[int, float] = {}
    counted: dict[tuple[int, str], int] = defaultdict(int)
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            continue
        assert event["ts"] >= 0
        track = event["tid"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["ts"] >= ends.get(track, 0) - 0.01, "slices of a training loop overlap"
            ends[track] = event["ts"] + event["dur"]
            counted[track, event["name"].split(":")[0]] += 1
        elif event["ph"] == "b":
            open_slices[event["cat"], event["id"], event["name"]].append(event["ts"])
        elif event["ph"] == "e":
            begin = open_slices[event["cat"], event["id"], event["name"]].pop()
            assert event["ts"] >= begin
            counted[track, event["name"]] += 1
        else:
            assert event["ph"] == "C"
            assert min(event["args"].values()) >= 0
            key = -1 - track
            assert event["ts"] >= ends.get(key, 0), "a counter goes back in time"
            ends[key] = event["ts"]
    assert not any(open_slices.values())
    return counted


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_trace_has_tracks_of_each_rank_that_viewers_can_draw(lanes: int) -> None:
    steps = training(lanes, 40)
    counted = check_trace(json.loads(json.dumps(make_trace(steps, 8, 1))))
    for rank in range(8, 8 + lanes):
        assert counted[rank, "read"] == counted[rank, "decode"] == counted[rank, "ready"] == 40
        assert counted[rank, "training"] == 38  # not across runs
        of_rank = steps["lane"] == rank - 8
        waited = sum(steps[f"{cause}_ns"] for cause in CAUSES)[of_rank]
        assert counted[rank, "waiting"] == (waited > 0).sum() > 5


def test_a_loader_writes_its_trace(numbered: Path, tmp_path: Path) -> None:
    with hr.Loader(numbered, batch_size=10, job=hr.Job(rank=3, world_size=4)) as loader:
        assert len(list(loader)) == len(loader)
        loader.trace(tmp_path / "trace.json")
        counted = check_trace(json.loads((tmp_path / "trace.json").read_text()))
        assert counted[3, "decode"] == len(loader)
        with pytest.raises(OSError, match=r"writing the trace .*: No such file"):
            loader.trace(tmp_path / "none" / "trace.json")
    with pytest.raises(FailedPreconditionError, match="closed"):
        loader.trace(tmp_path / "more.json")


SAMPLE = re.compile(r'(headrace_\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\[\\"n])*)"')

UNDO = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parse(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The text format, strictly: HELP, TYPE, then samples of that name, each once."""
    assert text.endswith("\n")
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    helped, typed = "", ""
    seen = set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split()[2]
            assert helped not in seen
            seen.add(helped)
        elif line.startswith("# TYPE "):
            _, _, typed, kind = line.split()
            assert typed == helped
            assert kind == ("counter" if typed.endswith("_total") else "gauge")
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert match[1] == typed
            labels = frozenset(
                (name, re.sub(r"\\.", lambda escape: UNDO[escape[0]], value))
                for name, value in LABEL.findall(match[2])
            )
            assert (match[1], labels) not in samples, line
            samples[match[1], labels] = float(match[3])
    return samples


def test_metrics_are_in_the_text_format_and_those_of_stats(numbered: Path, tmp_path: Path) -> None:
    tiers = [hr.tiers.Ram("1MiB")]
    with hr.Loader(
        numbered, batch_size=10, job=hr.Job(rank=1, world_size=2), tiers=tiers
    ) as loader:
        assert len(list(loader)) == len(loader)
        samples = parse(loader.prometheus())
        stats = loader.stats()
    rank = ("rank", "1")
    assert samples["headrace_batches_total", frozenset({rank})] == stats["batches"]
    assert samples["headrace_samples_total", frozenset({rank})] == stats["samples"]
    for cause in CAUSES:
        at = frozenset({rank, ("cause", cause)})
        assert samples["headrace_wait_seconds_total", at] >= 0
    at = frozenset({rank, ("quantile", "0.95")})
    assert samples["headrace_step_seconds", at] == stats["step_times"]["p95"]
    assert samples["headrace_tier_uses_total", frozenset({rank, ("tier", "storage")})] > 0


def test_labels_are_escaped(numbered: Path) -> None:
    odd = 'a "b"\\c\nd'
    assert prometheus.escaped(odd) == 'a \\"b\\"\\\\c\\nd'
    with hr.Loader(numbered, batch_size=10) as loader:
        text = prometheus.expose([({"job": odd}, loader._snapshot())])
    labels = {labels for _, labels in parse(text)}
    assert all(("job", odd) in each for each in labels)


def test_reuse_distances_are_those_of_a_permutation(numbered: Path) -> None:
    with hr.Loader(numbered, batch_size=1, drop_last=True, shuffle=False) as loader:
        reuse = _core.reuse_distances(loader.dataset.index, loader._feed.options, 3)
    assert (reuse["of"], reuse["steps"], reuse["first"]) == ("samples", 3 * COUNT, COUNT)
    assert reuse["same_step"] == 0
    # In order, each is used again a whole epoch later.
    assert reuse["bins"] == [0] * (COUNT.bit_length() - 1) + [2 * COUNT]


def test_wait_shares_over_time_are_those_of_the_steps_in_each_bin() -> None:
    steps = training(2, 60)
    taken = steps["taken_ns"] / 1e9
    edges = np.linspace(taken.min(), taken.max() + 1e-9, 8)
    for number in range(2):
        rows = [at for at in range(len(taken)) if steps["lane"][at] == number]
        spent, lost = np.zeros(7), np.zeros(7)
        for before, at in itertools.pairwise(rows):
            if steps["run"][before] == steps["run"][at]:
                place = int(np.searchsorted(edges, taken[at], side="right")) - 1
                spent[place] += taken[at] - taken[before]
                lost[place] += sum(steps[f"{cause}_ns"][at] for cause in CAUSES) / 1e9
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(plot.wait_shares(steps, number, edges), lost / spent)


def test_shares_of_sources_are_those_of_each_epoch() -> None:
    epochs = [
        {"storage": 3, "nodes": 1, "tiers": []},
        {"storage": 0, "nodes": 2, "tiers": [2, 4]},
        {"storage": 0, "nodes": 0, "tiers": []},
    ]
    stats = {"tiers": [{"name": "RAM"}, {"name": "SSD"}], "epochs": epochs}
    shares = {name: list(share) for name, share in plot.sources_by_epoch(stats).items()}
    assert shares == {
        "storage": [0.75, 0, 0],
        "other nodes": [0.25, 0.25, 0],
        "RAM": [0, 0.25, 0],
        "SSD": [0, 0.5, 0],
    }


def test_a_report_is_drawn_of_one_rank_and_of_several(numbered: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with hr.Loader(numbered, batch_size=10) as loader:
        loader.report(tmp_path / "empty.png")
        assert len(list(loader)) == len(loader)
        loader.report(tmp_path / "one.png")
        observation = loader._observation()
        (tmp_path / "folder.png").mkdir()
        with pytest.raises(InvalidArgumentError, match="it is a folder; name a file"):
            loader.report(tmp_path / "folder.png")
        with pytest.raises(InvalidArgumentError, match=r"no format '\.zzz'"):
            loader.report(tmp_path / "one.zzz")
        with pytest.raises(NotFoundError, match="no such folder"):
            loader.report(tmp_path / "none" / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    told = core([lane({"storage": 4}), lane({"ranks": 50}), lane()], rank=4)
    observation["stats"]["ranks"] = make_ranks(told)
    observation["stats"]["imbalance"] = {
        "iterations": 9,
        "thetas": [0.05, 0.1, 0.2],
        "late": [0.5, 0.3, 0.1],
        "busy": [0.2, 0.1, 0.0],
    }
    observation["steps"] = {name: each.tolist() for name, each in training(3, 60).items()}
    plot.draw(tmp_path / "several.png", observation)
    assert (tmp_path / "several.png").stat().st_size > 20_000


def test_without_matplotlib_a_report_says_what_to_install(
    numbered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == "matplotlib":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with (
        hr.Loader(numbered, batch_size=10) as loader,
        pytest.raises(ImportError, match=r"pip install 'headrace\[plot\]'"),
    ):
        loader.report(tmp_path / "a.png")
    assert os.listdir(tmp_path) in ([], ["cache"])
