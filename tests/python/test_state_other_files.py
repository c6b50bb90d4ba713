"""A state in a loader of other files, with `strict=False`: no sample is lost, or it is refused."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import write_numbered

import headrace as hr
from headrace import errors
from headrace.formats import Builder

pytestmark = pytest.mark.filterwarnings("ignore:headrace. (a batch of|order=.* mix of labels)")


def write_sizes(path: Path, sizes: Sequence[int], blocks: int | None = None) -> Path:
    """An index of samples of so many bytes; `blocks`: of so many samples each, its own."""
    with Builder(path, root=path.parent) as builder:
        data = path.with_suffix(".bin")
        data.write_bytes(bytes(sum(sizes)))
        file = builder.add_file(data)
        builder.add_field("data", "bytes")
        builder.add_extents("data", file, np.cumsum(sizes) - sizes, sizes)
        if blocks is not None:
            counts = [min(blocks, len(sizes) - first) for first in range(0, len(sizes), blocks)]
            builder.add_blocks(counts, file, [0] * len(counts), [sum(sizes)] * len(counts))
        builder.set_attribute("format", "test")
    return path


SIZES = [100 + 37 * number % 900 for number in range(200)]
OTHER_SIZES = SIZES[::-1]


def numbers(loader: hr.Loader[Any], steps: int | None = None) -> list[int]:
    return [int(each) for batch in itertools.islice(loader, steps) for each in batch.sample_id]


def begun(path: Path, order: hr.orders.Order, steps: int) -> tuple[dict[str, Any], list[int]]:
    with hr.Loader(path, 8, order=order, output=hr.Output("numpy", ids=True)) as loader:
        seen = numbers(loader, steps)
        return loader.state_dict(), seen


BY_SIZES = "which depends on the sizes of samples: these may be others in "


@pytest.mark.parametrize(
    ("order", "sizes", "blocks", "why"),
    [
        (hr.orders.Exact(), OTHER_SIZES, None, None),
        (hr.orders.Redox(block_samples=5), OTHER_SIZES, None, None),
        (hr.orders.Epoch(block_samples=5), OTHER_SIZES, None, BY_SIZES),
        (hr.orders.Redox(), SIZES, 10, "which depends on the blocks of samples: these may be"),
        (hr.orders.Batch(), OTHER_SIZES, None, "costs of order batch: differs from the given"),
    ],
)
def test_within_an_epoch_no_sample_is_lost_to_other_files(
    tmp_path: Path,
    order: hr.orders.Order,
    sizes: Sequence[int],
    blocks: int | None,
    why: str | None,
) -> None:
    path = write_sizes(tmp_path / "a.hri", SIZES, None if blocks is None else 4)
    other = write_sizes(tmp_path / "b.hri", sizes, blocks)
    state, seen = begun(path, order, 3)
    with hr.Loader(other, 8, order=order, output=hr.Output("numpy", ids=True)) as loader:
        if why is None:
            loader.load_state_dict(state, strict=False)
            assert sorted(seen + numbers(loader)) == list(range(len(SIZES)))
            return
        with pytest.raises(errors.FailedPreconditionError, match=why):
            loader.load_state_dict(state, strict=False)
    if isinstance(order, hr.orders.Batch):
        return
    with hr.Loader(other, 8, order=order, output=hr.Output("numpy", ids=True)) as loader:
        loader.set_epoch(1)  # As the message says.
        assert sorted(numbers(loader)) == list(range(len(SIZES)))
    state, _ = begun(path, order, len(SIZES) // 8)
    with hr.Loader(other, 8, order=order, output=hr.Output("numpy", ids=True)) as loader:
        loader.load_state_dict(state, strict=False)  # So is a state from the end of an epoch.
        assert sorted(numbers(loader)) == list(range(len(SIZES)))


def test_files_of_the_same_sizes_go_on_within_an_epoch(tmp_path: Path) -> None:
    """The cache has the index of the state, which tells the sizes."""
    path = write_numbered(tmp_path / "a", [30, 20])
    shutil.copytree(path / "class0", tmp_path / "b" / "kind0")
    shutil.copytree(path / "class1", tmp_path / "b" / "kind1")
    order = hr.orders.Epoch(block_samples=5)
    state, seen = begun(path, order, 3)
    with hr.Loader(tmp_path / "b", 8, order=order, output=hr.Output("numpy", ids=True)) as loader:
        loader.load_state_dict(state, strict=False)
        assert sorted(seen + numbers(loader)) == list(range(50))
