"""Images that take much memory to decode, within a loader's budget."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace as hr
from headrace import errors

SIDE = 2000
HUGE = 3
COUNT = 9
SMALL = hr.image.resize(16, dtype="uint8")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine of one colour each, its number times 20; the fourth is huge: 12 MB of coefficients."""
    root = tmp_path_factory.mktemp("huge") / "images"
    (root / "a").mkdir(parents=True)
    for number in range(COUNT):
        side = SIDE if number == HUGE else 40
        image = Image.new("RGB", (side, side), (20 * number,) * 3)
        image.save(root / "a" / f"{number}.jpg", progressive=True, quality=95)
    hr.open(root)
    return root


def colours(loader: Any) -> list[int]:
    return [round(float(np.asarray(row).mean()) / 20) for batch in loader for row in batch[0]]


def make(images: Path, memory: int | None, **options: Any) -> Any:
    options = {"shuffle": False, "threads": 2, "epochs": 1} | options
    return hr.Loader(images, 2, transform=SMALL, memory=memory, **options)


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_an_image_that_can_never_have_enough_says_what_would_do(images: Path, order: str) -> None:
    options: dict[str, Any] = {"order": order, "shuffle": order != "exact"}
    with (
        make(images, 8 * 2**20, **options) as loader,
        pytest.raises(errors.InvalidArgumentError) as caught,
    ):
        colours(loader)
    said = re.search(
        r"sample 3 \(a/3\.jpg\): field image: decoding image of 2000 x 2000 pixels takes "
        r"11\.\d MiB of memory: memory= leaves (\d\.\d MiB|\d+\.0 KiB) for one decode; "
        r"raise memory= to at least (\d+)\.0 MiB",
        str(caught.value),
    )
    assert said, str(caught.value)
    with make(images, int(said[2]) * 2**20, **options) as loader:
        assert sorted(colours(loader)) == list(range(COUNT))
        memory = loader.stats()["memory"]
        assert 11 * 2**20 < memory["scratch_peak"] <= memory["scratch_budget"]
        assert memory["scratch"] <= memory["scratch_peak"] - 11 * 2**20


def test_it_is_replaced_where_bad_samples_are(images: Path) -> None:
    with make(images, 8 * 2**20, on_error="substitute") as loader:
        seen = colours(loader)
        stats = loader.stats()
    assert seen[:HUGE] + seen[HUGE + 1 :] == [each for each in range(COUNT) if each != HUGE]
    assert stats["substituted"] == 1
    assert "takes 11." in stats["substitutions"][0]["reason"]


def test_by_default_there_is_room_for_it(images: Path) -> None:
    with make(images, None) as loader:
        assert colours(loader) == list(range(COUNT))


def test_a_node_process_counts_what_its_decoders_take(images: Path) -> None:
    with make(images, None, job=hr.Job(node=hr.Node())) as loader:
        assert colours(loader) == list(range(COUNT))
        assert loader.stats()["memory"]["scratch_peak"] > 11 * 2**20


def test_without_images_to_decode_nothing_is_set_aside(images: Path) -> None:
    with hr.Loader(images, 2, memory=2**20) as loader:
        for _ in loader:
            pass
        memory = loader.stats()["memory"]
    assert memory["scratch"] == memory["scratch_peak"] == memory["scratch_budget"] == 0
    assert memory["results_budget"] == 0


def test_a_side_longer_than_any_jpegs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("1", (100_000_000, 1)).save(tmp_path / "images" / "a" / "long.png")
    with (
        hr.Loader(tmp_path / "images", 1, transform=SMALL) as loader,
        pytest.raises(
            errors.InvalidArgumentError,
            match=r"image of 100000000 x 1 pixels: a side longer than 65500 pixels is not decoded",
        ),
    ):
        next(iter(loader))
