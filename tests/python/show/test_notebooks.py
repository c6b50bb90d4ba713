"""What notebooks show of datasets, loaders, statistics: HTML without scripts, text escaped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from html_page import Page
from loader_data import COUNT, FLAT, write_numbered
from rank_scripts import real_packages

import headrace as hr
from headrace import _html as html
from headrace._observe.readable import stats_html, waits_html

HOSTILE = "<img src=x onerror=alert(1)>&\"'"


def page(shown: Any) -> Page:
    made = shown._repr_html_()
    assert made is not None
    return Page(made)


def test_a_dataset_tells_its_fields_and_classes(numbered: Path) -> None:
    shown = page(hr.open(numbered))
    assert str(numbered) in shown.texts
    assert f"{COUNT}" in shown.texts
    assert "3: class0, class1, class2" in shown.texts
    assert [*zip(shown.texts, shown.texts[1:], shown.texts[2:], strict=False)].count(
        ("image", "image", "on storage")
    ) == 1
    assert ("label", "int64", "in the index") in [
        *zip(shown.texts, shown.texts[1:], shown.texts[2:], strict=False)
    ]


@pytest.mark.parametrize("name", [HOSTILE, "line\nfeed", os.fsdecode(b"byte\xff")])
def test_names_are_text_whatever_they_are(tmp_path: Path, name: str) -> None:
    root = write_numbered(tmp_path / name)
    (root / "class0").rename(root / name)
    dataset = hr.open(root)
    with hr.Loader(dataset, 16, transform=FLAT, output=hr.Output(ids=True)) as loader:
        batch = next(iter(loader))
        for shown in (dataset, loader, loader.stats(), loader.explain(), hr.show(dataset)):
            made = page(shown)
            assert not any("onerror" in style for style in made.styles)
            made.text.encode()
        captions = page(hr.show(batch, classes=dataset.classes))
        label = int(batch.label[0])
        shown_name = html.text(dataset.classes[label])
        assert any(shown_name in html.text(each["alt"]) for each in captions.images)


def test_no_colour_of_text_or_background_is_ours(numbered: Path) -> None:
    """A page's own are, so that it can be read in a dark theme as in a light one."""
    with hr.Loader(numbered, 16, transform=FLAT) as loader:
        list(loader)
        for shown in (loader.dataset, loader, loader.stats(), loader.explain(), loader.explain(0)):
            for style in page(shown).styles:
                rules = dict(rule.split(":", 1) for rule in style.split(";") if rule)
                assert "color" not in rules
                if "background" in rules and rules["background"] != "none":
                    assert "width" in rules  # A bar's or a legend's.


def test_a_loader_tells_where_it_is_and_closed_one_is_text(numbered: Path) -> None:
    loader = hr.Loader(numbered, 16, transform=FLAT, order="epoch", seed=5)
    taken = iter(loader)
    next(taken), next(taken)
    shown = page(loader)
    assert "epoch 0, step 2 of 7" in shown.texts
    assert "epoch, seed 5" in shown.texts
    assert "16 samples: image, label" in shown.texts
    assert any(bar.startswith("epoch 0, step 2 of 7: taken 28.6%") for bar in shown.bars)
    loader.close()
    assert loader._repr_html_() is None
    assert repr(loader).startswith("<headrace.Loader")


def test_a_rank_and_a_sampler_are_told(numbered: Path) -> None:
    with hr.Loader(numbered, 8, job=hr.Job(rank=1, world_size=4)) as loader:
        shown = page(loader)
        assert shown.texts[shown.texts.index("rank") + 1] == "1 of 4"
    with hr.Loader(numbered, 8, sampler=[3, 1, 4]) as loader:
        assert "of a sampler" in page(loader).texts
        assert "epoch 0, step 0" in page(loader).texts  # Of how many it does not know yet.


def rank_stats(rank: int, **shares: float) -> dict[str, Any]:
    all_shares = dict.fromkeys(("storage", "decode", "consumer", "ranks"), 0.0) | shares
    return {
        "rank": rank,
        "step": {"count": 9},
        "stall_share": sum(all_shares.values()),
        "stall_shares": all_shares,
    }


def test_the_bar_shows_who_waited_for_what(numbered: Path) -> None:
    ranks = [rank_stats(0), rank_stats(1, storage=0.25, decode=0.125), rank_stats(2, ranks=0.5)]
    shown = Page(waits_html({"ranks": ranks}))
    assert shown.bars == [
        "time of rank 2: waiting for other ranks 50.0%, training 50.0%",
        "time of rank 1: waiting for storage 25.0%, waiting for decoding 12.5%, training 62.5%",
        "time of rank 0: training 100.0%",
    ]
    assert shown.widths == [50, 50, 25, 12.5, 62.5, 100]
    assert shown.texts[:4] == ["rank 2", "50.0% waiting", "rank 1", "37.5% waiting"]
    # All causes are in the legend, which says what colours are without them.
    assert "waiting for memory that the loop holds" in shown.texts


def test_of_many_ranks_those_that_wait_most_are_shown() -> None:
    ranks = [rank_stats(rank, storage=rank / 100) for rank in range(40)]
    shown = Page(waits_html({"ranks": ranks}))
    assert len(shown.bars) == 16
    assert shown.bars[0].startswith("time of rank 39")
    assert "and 24 ranks that wait less" in shown.texts


def test_before_a_step_was_timed_there_is_no_bar(numbered: Path) -> None:
    with hr.Loader(numbered, 16, transform=FLAT) as loader:
        shown = page(loader.stats())
        assert not shown.bars
        assert "no step was timed yet: take two batches" in shown.texts


def test_statistics_have_the_report_s_lines_and_stay_a_dict(numbered: Path) -> None:
    with hr.Loader(numbered, 16, transform=FLAT, tiers=[hr.tiers.Ram("1MB")]) as loader:
        list(loader), list(loader)
        stats: Any = loader.stats()
    shown = page(stats)
    lines = dict(re.split(r" +", line, maxsplit=1) for line in repr(stats).splitlines())
    for name in ("position", "delivered", "waited", "read", "memory", "tier"):
        assert shown.texts[shown.texts.index(name) + 1] == lines[name]
    assert stats["verdict"] in shown.texts
    (bar,) = shown.bars
    assert sum(shown.widths) == pytest.approx(100, abs=0.1)
    assert "training" in bar
    assert stats_html(dict(stats), [])
    del stats["ranks"]  # Somebody changes it.
    assert stats._repr_html_() is None


def test_what_tqdm_asks_for_is_there(numbered: Path) -> None:
    """The length of a loader is an epoch's, that of an iteration what is left of it."""
    with hr.Loader(numbered, 16, transform=FLAT) as loader:
        assert len(loader) == 7
        taken = iter(loader)
        left = [len(taken) for _ in zip(range(7), taken, strict=False)]
        assert left == [6, 5, 4, 3, 2, 1, 0]
        state = loader.state_dict()
        again = iter(loader)
        next(again), next(again)
        state = loader.state_dict()
        loader.load_state_dict(state)
        assert len(iter(loader)) == 5


def test_of_a_sampler_without_a_length_the_iteration_knows_it(numbered: Path) -> None:
    class Endless:
        def __iter__(self) -> Any:
            return iter(range(10))

    with hr.Loader(numbered, 4, sampler=Endless(), output=hr.Output(fields=["label"])) as loader:
        with pytest.raises(TypeError, match="has no len"):
            len(loader)
        taken = iter(loader)
        assert len(taken) == 3
        assert len(list(taken)) == 3
        assert len(taken) == 0
        old, new = taken, iter(loader)
        assert (len(old), len(new)) == (0, 3)


@pytest.fixture(scope="module")
def packages() -> Path:
    """Where tqdm is."""
    return real_packages("trainers")


TQDM = """
import sys
import headrace as hr
from tqdm import tqdm

class Endless:
    def __iter__(self):
        return iter(range(10))

def shown(batches):
    with tqdm(batches) as progress:
        for _ in progress:
            pass
        return progress.n, progress.total

sys.stderr = open("/dev/null", "w")
with hr.Loader(sys.argv[1], 16, output=hr.Output(fields=["label"])) as loader:
    print(*shown(loader))
    for taken, _ in enumerate(loader, 1):
        if taken == 3:
            break
    state = loader.state_dict()
    loader.load_state_dict(state)
    print(*shown(iter(loader)))
    loader.load_state_dict(state)
    with tqdm(loader, initial=3) as progress:
        for _ in progress:
            pass
        print(progress.n, progress.total)
sys.stderr = sys.__stderr__
"""


def test_tqdm_shows_the_whole(numbered: Path, packages: Path) -> None:
    places = [*sys.path, str(packages)]
    done = subprocess.run(
        [sys.executable, "-c", TQDM, str(numbered)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))},
    )
    assert (done.stdout.splitlines(), done.stderr) == (["7 7", "4 4", "7 7"], "")


def test_nothing_of_notebooks_is_imported_by_headrace(numbered: Path) -> None:
    code = (
        "import sys, headrace as hr; "
        "hr.open(sys.argv[1])._repr_html_(); hr.show(hr.open(sys.argv[1])); "
        "print([name for name in ('torch', 'IPython', 'matplotlib', 'tqdm', 'PIL') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(numbered)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout == "[]\n"


def test_statistics_of_a_loader_of_two_ranks_has_two_bars() -> None:
    ranks = [rank_stats(0, consumer=1.0), rank_stats(1, consumer=2.0)]  # Rounding: above the whole.
    shown = Page(waits_html({"ranks": ranks}))
    assert len(shown.bars) == 2
    assert max(shown.widths) == 100
