"""Every trainer, on 1, 2 and 4 ranks, with and without drop_last: no sample lost or repeated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat
from rank_scripts import environment, real_packages, run_script

import headrace as hr

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(900)  # The first waits for the packages, and for all cells.

SCRIPT = Path(__file__).parent / "trainers" / "table.py"
RANKS = (1, 2, 4)
TRAINERS = (
    *("ddp", "fsdp", "fsdp, wrapped", "fsdp, accelerate"),
    *("accelerate", "accelerate, copies", "transformers", "lightning"),
)
EPOCHS = 2


class Cell(NamedTuple):
    """One trainer on some ranks."""

    ranks: int
    rank: int
    trainer: str
    drop_last: bool


@pytest.fixture(scope="module")
def table(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, Any]:
    """What each rank of each cell was given; or the error."""
    packages = real_packages("trainers")
    folder = tmp_path_factory.mktemp("table")
    env = environment(packages)
    ended = run_script(SCRIPT, numbered, folder, *RANKS, env=env, folder=folder, timeout_s=800)
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines() if line.startswith("[")]
    return {Cell(*line[:4]): line[4] for line in lines}


def own(data: Path, cell: Cell) -> list[int]:
    """The samples of a loader of its own, which no trainer iterates."""
    job = hr.Job(rank=cell.rank, world_size=cell.ranks)
    with hr.Loader(data, 10, seed=1, drop_last=cell.drop_last, transform=FLAT, job=job) as loader:
        return [sample for _ in range(EPOCHS) for sample in flat(epoch_ids(loader))]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_rank_trains_on_the_samples_of_its_loader(
    table: dict[Cell, Any], numbered: Path, trainer: str, ranks: int, drop_last: bool
) -> None:
    for rank in range(ranks):
        cell = Cell(ranks, rank, trainer, drop_last)
        assert table[cell] == own(numbered, cell), cell


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", RANKS)
def test_an_epoch_s_ranks_have_every_sample_but_those_that_are_dropped(
    numbered: Path, ranks: int, drop_last: bool
) -> None:
    """Of the loaders, and by the test above of every trainer."""
    shares = [own(numbered, Cell(ranks, rank, "", drop_last)) for rank in range(ranks)]
    kept = COUNT // (10 * ranks) * 10 if drop_last else -(-COUNT // ranks)  # of a rank
    for epoch in range(EPOCHS):
        seen = Counter(flat(share[epoch * kept : (epoch + 1) * kept] for share in shares))
        assert [len(share) for share in shares] == [EPOCHS * kept] * ranks
        if drop_last:
            assert set(seen.values()) == {1}
        else:
            assert set(seen) == set(range(COUNT))
            assert seen.total() - COUNT == -COUNT % ranks  # padded
