"""`headrace plan`: what it says is what the loader then reads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, FLAT, epoch_ids
from typer.testing import CliRunner

import headrace as hr
from headrace import _core
from headrace._loading.options import LoaderArguments, core_options
from headrace._loading.planned import PlannedEpoch, planned_epochs, total_bytes, total_reads
from headrace.cli.main import app
from headrace.tiers import PLACEMENTS, Ram, Ssd

ROOM = 4096  # of a sample where a tier is on disk


def planned_by(dataset: hr.Dataset, options: _core.LoaderOptions) -> list[PlannedEpoch]:
    return list(planned_epochs(_core.EpochPlanner(dataset.index, options)))


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("prefetch", [1, 8])
@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name != "none"])
def test_the_loader_reads_what_was_planned(
    numbered: Path, tmp_path: Path, placement: str, prefetch: int
) -> None:
    tiers = [Ram(20 * ROOM), Ssd(tmp_path / "tier", 20 * ROOM)]
    options: dict[str, Any] = {"batch_size": 8, "seed": 3, "epochs": 3, "transform": FLAT}
    options |= {
        "tiers": hr.Cache(tiers, placement=placement),
        "engine": hr.EngineOptions(prefetch=prefetch),
    }
    dataset = hr.open(numbered)
    planned = planned_by(dataset, core_options(dataset, LoaderArguments(**options), native=FLAT))
    with hr.Loader(dataset, **options) as loader:
        for _ in range(3):
            epoch_ids(loader)
        stats = loader.stats()
    assert [each.samples for each in planned] == [COUNT] * 3
    assert stats["sources"] is not None
    lost = stats["sources"]["not_kept"]  # There was no room at the moment.
    if placement not in ("lru", "belady", "reuse"):
        assert lost == 0
    reads = sum(total_reads(each.storage) for each in planned)
    # A row may take what is still on its way into the tier of an earlier step.
    waited = stats["sources"]["waited"]
    assert reads - waited <= stats["io"]["reads"] <= reads + lost
    for number, tier in enumerate(stats["tiers"]):
        wanted = sum(total_reads(each.tiers[number][0]) for each in planned)
        assert tier["uses"] <= wanted + waited  # Moves read a tier, too.


@pytest.mark.parametrize("placement", ["lru", "belady"])
def test_without_moves_nothing_is_lost(numbered: Path, placement: str) -> None:
    options: dict[str, Any] = {"batch_size": 8, "seed": 3, "epochs": 3, "transform": FLAT}
    options |= {
        "tiers": hr.Cache([Ram(10 * ROOM)], placement=placement),
        "engine": hr.EngineOptions(prefetch=1),
    }
    dataset = hr.open(numbered)
    planned = planned_by(dataset, core_options(dataset, LoaderArguments(**options), native=FLAT))
    with hr.Loader(dataset, **options) as loader:
        for _ in range(3):
            epoch_ids(loader)
        stats = loader.stats()
    assert sum(total_reads(each.storage) for each in planned) == stats["io"]["reads"]
    assert sum(total_bytes(each.storage) for each in planned) == stats["bytes"]["read"]


def test_each_epoch_is_the_whole_dataset_once(numbered: Path) -> None:
    dataset = hr.open(numbered)
    whole = sum(path.stat().st_size for path in numbered.rglob("*.jpg"))
    options = core_options(
        dataset,
        LoaderArguments(
            batch_size=8, epochs=4, tiers=hr.Cache([Ram(whole // 2)], placement="pinned")
        ),
    )
    for epoch in planned_by(dataset, options):
        assert epoch.sample_bytes == whole
        from_tiers = sum(total_bytes(reads) for reads, _ in epoch.tiers)
        assert total_bytes(epoch.storage) + from_tiers == whole


def test_json_and_table_agree(numbered: Path) -> None:
    arguments = (numbered, "--batch", 8, "--ram", "20KB", "--epochs", 2)
    plain = json.loads(run(*arguments, "--json"))
    assert [epoch["epoch"] for epoch in plain["epochs"]] == [0, 1]
    assert plain["epochs"][0]["tiers"][0]["name"] == "RAM"
    assert plain["epochs"][0]["predicted"] is None
    table = run(*arguments)
    assert "from RAM" in table
    assert "headrace profile" in table


def test_a_folder_that_makes_small_samples_take_more_memory_is_noted(
    numbered: Path, tmp_path: Path
) -> None:
    ssd = ("--tier", f"{tmp_path / 'tier'}=1MB")
    note = "note: beside a tier in a folder a sample takes at least 4,096 bytes of memory, too, and"
    assert note in run(numbered, "--batch", 8, "--ram", "20KB", *ssd)
    for alone in (("--ram", "20KB"), ssd):
        assert "note: beside" not in run(numbered, "--batch", 8, *alone)


def test_a_tier_of_the_name_ram_is_memory_as_for_advise(numbered: Path) -> None:
    by_option = run(numbered, "--batch", 8, "--ram", "20KB", "--json")
    for name in ("ram", "RAM"):
        assert run(numbered, "--batch", 8, "--tier", f"{name}=20KB", "--json") == by_option


def test_a_papers_words_are_those_of_headrace_order(numbered: Path) -> None:
    def planned(*settings: str) -> Any:
        given = [part for setting in settings for part in ("--set", setting)]
        return json.loads(run(numbered, "--batch", 8, "--order", "redox", *given, "--json"))

    words = planned("K=4", "PCS=3", "P=40")
    assert words == planned("block_samples=4", "chunks_per_virtual=3", "prefetch=40")
    for samples in ("K=4", "block_samples=4"):
        chunks = planned(samples, "M=5")["parameters"]["chunks_per_virtual"]
        assert chunks == math.ceil(math.ceil(COUNT / 4) / 5), samples


def test_planning_makes_no_folder(numbered: Path, tmp_path: Path) -> None:
    run(numbered, "--tier", f"{tmp_path / 'tier'}=1MB")
    assert not (tmp_path / "tier").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tier", "nowhere"], "must be NAME=CAPACITY"),
        (["--ram", "1MB", "--placement", "magic"], "placement: got 'magic'"),
        (["--placement", "belady"], "nothing to place"),
        (["--demand", "100"], "without --profile"),
        (["--profile", "/nowhere.toml"], "nowhere.toml"),
        (["--order", "sorted"], "order: got 'sorted'"),
        (["--rank", "3"], "rank"),
        (["--epochs", "0"], "--epochs"),
        (["--epochs", "3", "--job-epochs", "2"], "--job-epochs 2"),
        (["--tier", "/dev/null=1MB"], "/dev/null is a file, not a folder"),
        (["--tier", "tier=1"], "capacity: got 1, must be in [4096"),
        (["--set", "pool_bytes=1"], "pool_bytes"),
        (["--pools", "96"], "is given as --set pools=96"),
    ],
)
def test_bad_arguments_are_named(numbered: Path, arguments: list[str], message: str) -> None:
    assert message in run(numbered, *arguments, code=2).replace("\n", " ")
