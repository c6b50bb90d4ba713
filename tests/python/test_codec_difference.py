"""`exact=False` keeps the bounds of docs/codec.md, and is exact where nothing is scaled."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "codec"


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cases of the benchmark that wrote the page."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import codec_difference

    return codec_difference


def difference(sweep: Any, **fields: Any) -> int:
    """The largest of one case."""
    case = sweep.Case(**{"seed": 3, "sort": "photographic", "quality": 92} | fields)
    return int(case.difference(case.encoded()).max())


def test_a_sample_of_sizes_ratios_and_halvings_keeps_the_bounds(sweep: Any) -> None:
    scaled = 0
    for case in sweep.cases(first=7200, count=288, side_max=1000):
        found = case.difference(case.encoded())
        assert found.max() <= sweep.BOUNDS[case.sort], case
        scaled += bool(found.any())
    assert scaled > 80  # else the sample says nothing


def test_exact_rows_of_the_sample_are_those_of_pillow(sweep: Any) -> None:
    cases = list(sweep.cases(first=0, count=60, side_max=600))
    resized = [case for case in cases if case.geometry == "resize"]
    assert resized
    for case in resized:
        encoded = case.encoded()
        image = Image.open(io.BytesIO(encoded)).convert("RGB")
        lost_columns, lost_rows = (image.size[i] - case.row[i] for i in (0, 1))
        if lost_rows > 2 * lost_columns:  # as Pillow 13 does; before, columns always came first
            image = image.resize((image.width, case.row[1]), Image.Resampling.BILINEAR)
        theirs = np.asarray(image.resize(case.row, Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(case.decoded(encoded, exact=True), theirs, err_msg=str(case))


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0", "grey"])
@pytest.mark.parametrize(
    ("size", "row"),
    [
        ((4000, 16), (125, 1)),  # a strip
        ((16, 4000), (1, 125)),
        ((4000, 33), (3, 2)),
        ((641, 643), (1, 1)),
        ((64, 64), (8, 8)),  # exactly the least that is scaled
        ((65, 127), (8, 8)),
    ],
)
def test_extreme_shapes_keep_the_bound(
    sweep: Any, size: tuple[int, int], row: tuple[int, int], subsampling: str
) -> None:
    for geometry in sweep.GEOMETRIES:
        found = difference(
            sweep, image="photograph", size=size, row=row, subsampling=subsampling,
            geometry=geometry,
        )  # fmt: skip
        assert found <= sweep.BOUNDS["photographic"], geometry


def test_what_lies_outside_a_crop_does_not_reach_into_the_row(sweep: Any) -> None:
    """A box that begins within a scaled pixel takes only its own part of it."""
    for seed in range(40):
        found = difference(
            sweep, seed=seed, sort="artificial", image="chessboard", size=(331, 347),
            row=(7, 7), subsampling="4:4:4", geometry="crop",
        )  # fmt: skip
        assert found <= 8, seed


@pytest.mark.parametrize(
    ("size", "row"),
    [((1, 1), (64, 64)), ((1, 900), (3, 7)), ((900, 1), (7, 3)), ((63, 63), (8, 8))],
)
def test_nothing_is_scaled_where_too_little_would_be_left(
    sweep: Any, size: tuple[int, int], row: tuple[int, int]
) -> None:
    for subsampling in sweep.SUBSAMPLINGS:
        found = difference(
            sweep, image="waves", size=size, row=row, subsampling=subsampling, geometry="resize"
        )
        assert found == 0, subsampling


@pytest.mark.parametrize("geometry", ["resize", "crop", "shorter"])
def test_a_png_is_exact_whatever_was_asked(sweep: Any, geometry: str) -> None:
    case = sweep.Case(
        seed=5, sort="artificial", image="patchwork", subsampling="4:4:4", geometry=geometry,
        quality=90, size=(900, 700), row=(20, 20),
    )  # fmt: skip
    assert not case.difference(case.encoded("PNG")).any()
