"""Advice speaks of the data that is there: each sort of data by each cause of waiting."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from observe_data import core, lane
from PIL import Image
from worker_functions import write_records

import headrace as hr
from headrace._observe import waits as loop_waits
from headrace._observe.advice import DataFacts
from headrace._observe.computed import make_ranks, make_verdict
from headrace._observe.waits import LoopWaits
from headrace.pack import write_pack

CAUSES = ("storage", "decode", "consumer", "ranks")
SORTS = ("files_of_images", "files_of_bytes", "packed_images", "packed_bytes", "records", "inline")

FORBIDDEN: dict[str, tuple[str, ...]] = {
    "files_of_images": ("order='epoch'", "copy rows"),
    "files_of_bytes": ("image", "order='epoch'", "cores decode"),
    "packed_images": ("headrace pack", "a file", "copy rows"),
    "packed_bytes": ("image", "headrace pack", "a file", "cores decode"),
    "records": ("image", "headrace pack", "a file", "cores decode", "order='epoch'"),
    "inline": ("image", "headrace pack", "a file", "cores decode", "tiers=", "order='epoch'"),
}
"""Words of what such data does not have."""


@pytest.fixture(scope="module")
def loaders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes a loader of the sort of data named."""
    root = tmp_path_factory.mktemp("sorts")
    for number in range(64):
        folder = root / "images" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (number, 7, 9)).save(folder / f"{number:02}.png")
    write_pack(hr.open(root / "images"), root / "pack")
    index = write_records(root / "records", count=64, width=1024)  # of 4 KiB, and no blocks
    scaled = hr.image.resize(16)

    def make(sort: str, **more: Any) -> hr.Loader:
        where, given = {
            "files_of_images": (root / "images", {"transform": scaled}),
            "files_of_bytes": (root / "images", {}),
            "packed_images": (root / "pack", {"transform": {"image": scaled}}),
            "packed_bytes": (root / "pack", {}),
            "records": (index, {}),
            "inline": (root / "pack", {"output": hr.Output(fields=iter(["label"]))}),
        }[sort]
        return hr.Loader(where, batch_size=8, **given, **more)

    return make


def verdicts(data: DataFacts, samples: int, stored: int) -> dict[tuple[str, str], str]:
    """By cause and by what the loader has: every advice there is."""
    found = {}
    states: dict[str, dict[str, Any]] = {
        "plain": {},
        "all threads": {"threads": 8},
        "tiers": {"tiers": [{}]},
        "resident": {"resident_budget": 1},
    }
    for cause, (name, state) in itertools.product(CAUSES, states.items()):
        lanes = [lane({cause: 20}, samples=samples, sample_bytes=stored), lane(samples=0)]
        told = core(lanes, **state)
        found[cause, name] = make_verdict(told, make_ranks(told), data)
    return found


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_no_advice_speaks_of_data_that_is_not_there(loaders: Any, sort: str, sampled: bool) -> None:
    with loaders(sort, **({"sampler": range(64)} if sampled else {})) as loader:
        for batch in loader:  # What is advised of is what is delivered.
            assert len(batch) == (1 if sort == "inline" else 2)
        stats = loader.stats()
        stored = stats["bytes"]["samples"]
        assert (stored == 0) == (sort == "inline")
        found = verdicts(loader._data, stats["samples"], stored)
    for (cause, state), text in found.items():
        advice = text.partition("; ")[2]
        assert advice, (cause, state)
        if state == "tiers" and sort == "inline":
            continue  # tiers= was given, so that it is there
        for word in FORBIDDEN[sort]:
            assert word not in advice, (cause, state)
        assert not re.search(r"\b(delete|remove|rm|erase)\b", advice), (cause, state)
        if sampled:  # a sampler is refused beside any order but exact
            assert "order=" not in advice
            assert "headrace pack" not in advice


@pytest.mark.parametrize(
    ("sort", "cause", "state", "words"),
    [
        ("files_of_images", "storage", "plain", "each sample is a file of "),
        ("files_of_images", "storage", "plain", "use tiers=, or `headrace pack`"),
        ("files_of_images", "decode", "all threads", "store smaller images ("),
        ("files_of_bytes", "decode", "plain", "raise threads= (1 of 8 cores copy rows)"),
        ("packed_images", "storage", "plain", "order='epoch'"),
        ("packed_images", "decode", "plain", "raise threads= (1 of 8 cores decode)"),
        ("packed_bytes", "storage", "plain", "order='epoch'"),
        ("records", "storage", "plain", "use tiers=, or raise memory="),
        (
            "records",
            "decode",
            "all threads",
            "all 8 cores already copy samples (4.0 KiB each); nothing is decoded: use more cores, "
            "or leave out what is not needed: hr.Output(fields=...)",
        ),
        ("inline", "decode", "all threads", "already copy rows; nothing is decoded: use more"),
        ("inline", "storage", "plain", "all fields lie in the index"),
    ],
)
def test_the_advice_is_of_the_sort_of_data(
    loaders: Any, sort: str, cause: str, state: str, words: str
) -> None:
    with loaders(sort) as loader:
        found = verdicts(loader._data, 64, 0 if sort == "inline" else 64 * 4096)
    assert words in found[cause, state]


@pytest.mark.parametrize(("on_error", "images"), [("raise", 0), ("substitute", 1)])
def test_images_that_are_decoded_to_be_substituted_are_decoded(
    loaders: Any, on_error: str, images: int
) -> None:
    given: dict[str, Any] = {"transform": lambda sample: sample.label, "workers": 0}
    with loaders("files_of_bytes", **given, on_error=on_error) as loader:
        assert loader._data.images == images
        told = verdicts(loader._data, 64, 64 * 4096)["decode", "all threads"]
    assert ("nothing is decoded" in told) == (images == 0)


def test_before_a_sample_is_known_no_size_is_said() -> None:
    for data in (
        DataFacts(fields=2, stored=1, images=1, layout="files", sampler=False),
        DataFacts(fields=1, stored=1, images=0, layout="ranges", sampler=False),
    ):
        for text in verdicts(data, 0, 0).values():
            assert not re.search(r"\d ?[KMG]?i?B\b|on average", text)


@pytest.mark.parametrize(
    ("workers", "advice"),
    [
        (0, "it runs in the training loop: give workers="),
        (3, "raise workers= (3 for 8 cores)"),
        (
            8,
            "8 workers have all 8 cores already: make it faster, or leave to the loop what can be "
            "done with whole batches",
        ),
    ],
)
def test_a_wait_for_python_code_is_no_wait_of_the_engine(workers: int, advice: str) -> None:
    data = DataFacts(2, 1, 0, "ranges", sampler=False, workers=workers)
    lanes = [lane({"storage": 6, "decode": 0.4})]
    told = core(lanes, loop_share=0.9)
    ranks = make_ranks(told)
    waited = "rank 0 waited 90 % of the time: 84 % its Python transform, 6 % storage"
    assert make_verdict(told, ranks, data) == f"{waited}; {advice}"
    less = core(lanes, loop_share=0.12)
    assert make_verdict(less, ranks, data).startswith("rank 0 waited 6 % of the time: 6 % storage;")
    native = DataFacts(2, 1, 0, "ranges", sampler=False)
    assert "Python" not in make_verdict(told, ranks, native)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(("share", "advises"), [(1.0, False), (4.9, False), (5.1, True)])
def test_advice_needs_a_cause_that_matters(cause: str, share: float, advises: bool) -> None:
    """Below 5 % even smaller images would gain little."""
    data = DataFacts(fields=2, stored=1, images=1, layout="files", sampler=False)
    told = core([lane({cause: share})], threads=8)
    found = make_verdict(told, make_ranks(told), data)
    assert found.startswith(f"rank 0 waited {share:.0f} % of the time: ")
    assert found.endswith("; that is too little to change anything for") != advises
    told = core([lane(dict.fromkeys(CAUSES, 2.0))], threads=8)
    found = make_verdict(told, make_ranks(told), data)
    assert found.startswith("rank 0 waited 8 % of the time")
    assert found.endswith("; that is too little to change anything for")


def test_a_transform_that_is_hardly_waited_for_is_left_alone() -> None:
    data = DataFacts(2, 1, 0, "ranges", sampler=False, workers=1)
    told = core([lane({})], loop_share=0.03)
    assert make_verdict(told, make_ranks(told), data) == (
        "rank 0 waited 3 % of the time: 3 % its Python transform; "
        "that is too little to change anything for"
    )


def test_a_transform_faster_than_the_loop_is_not_waited_for() -> None:
    data = DataFacts(2, 1, 0, "ranges", sampler=False, workers=1)
    told = core([lane()], loop_share=0.009)
    assert "is not waiting" in make_verdict(told, make_ranks(told), data)


def test_the_wait_of_the_loop_includes_its_transform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that stands, except in the transform and in the loop."""
    now = 0
    monkeypatch.setattr(loop_waits, "time", SimpleNamespace(monotonic_ns=lambda: now))

    def prepare(sample: hr.Sample) -> Any:
        nonlocal now
        now += 2
        return sample.label

    with hr.Loader(write_records(tmp_path, 24), 8, transform=prepare, workers=0) as loader:
        assert loader._core.stats()["loop_share"] == 0
        for epoch in range(2):
            for _ in loader:
                now += 4
            # A run's first batch is left out; the next epoch goes on with the run.
            assert loader._core.stats()["loop_share"] == 16 / 20, epoch
        loader.set_epoch(7)
        now += 1000
        next(iter(loader))
        assert loader._core.stats()["loop_share"] == 16 / 20


def test_only_the_newest_steps_of_a_loop_count() -> None:
    waits = LoopWaits()
    for step in range(5000):
        waits.took(10 * step, 10 * step + 9)
    assert waits.share() == 0.9
    for step in range(5000, 5000 + 4096):
        waits.took(10 * step + 9, 10 * step + 9)
    assert waits.share() == 0
