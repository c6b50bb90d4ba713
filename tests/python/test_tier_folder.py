"""Where a tier may keep its files, and what may lie there."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from loader_data import FLAT

import headrace as hr
from headrace import errors
from headrace.tiers import Ram, Ssd


def make(path: Path, **options: Any) -> hr.Loader:
    return hr.Loader(path, batch_size=8, transform=FLAT, **options)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_link_or_a_folder_in_place_of_a_tiers_file_is_named_with_the_way_out(
    numbered: Path, tmp_path: Path, isolation: Any
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("years of work")
    place = tmp_path / "tier" / "rank-0"
    data = place / "headrace-tier.data"
    place.mkdir(parents=True)
    data.symlink_to(victim)
    tiers = [Ssd(tmp_path / "tier", "1MB")]
    node = hr.Node() if isolation == "process" else None
    message = rf"{data}': it is a symbolic link to '{victim}', .*; move it elsewhere, or give the"
    with pytest.raises(errors.FailedPreconditionError, match=message):
        make(numbered, tiers=tiers, job=hr.Job(node=node))
    data.unlink()
    data.mkdir()
    with pytest.raises(errors.FailedPreconditionError, match=rf"{data}': it is a folder, "):
        make(numbered, tiers=tiers, job=hr.Job(node=node))
    assert victim.read_text() == "years of work"
    data.rmdir()
    make(numbered, tiers=tiers, job=hr.Job(node=node)).close()


@pytest.mark.parametrize("below", ["no disk/tier", "no/such/tier"])
def test_a_folder_whose_disk_is_not_there_is_not_made(
    numbered: Path, tmp_path: Path, below: str
) -> None:
    path = tmp_path / below
    with pytest.raises(errors.InvalidArgumentError, match=r"is not there.*mkdir -p") as refusal:
        make(numbered, tiers=[Ssd(path, "1MB")])
    assert not path.parent.exists()
    # What the message says is typed as it stands.
    command = str(refusal.value).rpartition("make it first: ")[2]
    subprocess.run(command, shell=True, check=True)
    make(numbered, tiers=Ssd(path, "1MB")).close()  # One tier needs no list.
    assert (path / "rank-0").is_dir()


@pytest.mark.parametrize("order", ["exact", "batch"])
def test_a_folder_of_an_earlier_run_keeps_its_samples_beside_memory_that_begins_empty(
    numbered: Path, tmp_path: Path, order: Any
) -> None:
    tiers = [Ram(20 * 4096), Ssd(tmp_path / "tier", 40 * 4096)]
    hits = []
    for run in range(2):
        with make(numbered, seed=run, epochs=3, tiers=tiers, order=order) as loader:
            for _ in range(3):
                for _ in loader:
                    pass
            stats = loader.stats()
        assert stats["tiers"][1]["inherited"] == 40 * run
        assert (stats["sources"]["moved"], stats["sources"]["not_kept"]) == (0, 0)
        hits.append(sum(tier["uses"] for tier in stats["tiers"]))
    assert hits[1] >= hits[0] + 40
