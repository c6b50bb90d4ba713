"""Policies and schedules, as far as a loader of one rank shows them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, FLAT, epoch_ids, rates
from test_profile import machine
from typer.testing import CliRunner

import headrace as hr
from headrace import _core, errors
from headrace.cli.main import app
from headrace.profile import Preprocess

POLICIES = ("shared_deadline", "fixed", "lobster", "lobster_search", "proportional")
BATCH = 8
EPOCHS = 3


def make(dataset: Path, **options: Any) -> hr.Loader:
    defaults: dict[str, Any] = {"batch_size": BATCH, "transform": FLAT, "seed": 3}
    return hr.Loader(dataset, **defaults | {"epochs": EPOCHS} | options)


def count(loader: hr.Loader) -> int:
    """Samples of an epoch."""
    return sum(len(batch) for batch in epoch_ids(loader))


def plan(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def write_schedule(dataset: Path, path: Path, *more: object) -> str:
    return plan(
        dataset, "--batch", BATCH, "--seed", 3, "--epochs", EPOCHS, "--job-epochs", EPOCHS,
        "--schedule", path, *more,
    )  # fmt: skip


def test_one_rank_gets_the_same_by_every_policy(numbered: Path) -> None:
    assert tuple(_core.lane_policies()) == POLICIES
    epochs = []
    for name in POLICIES:
        with make(numbered, engine=hr.EngineOptions(schedule=name)) as loader:
            epochs.append(epoch_ids(loader))
            assert loader.stats()["schedule"]["name"] == name
    assert epochs == [epochs[0]] * len(POLICIES)


def test_a_policy_that_is_none_is_named(numbered: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="schedule: got 'dali', must be one of"):
        make(numbered, engine=hr.EngineOptions(schedule="dali"))
    with pytest.raises(errors.InvalidArgumentError, match="schedule: got 3, must be"):
        make(numbered, engine=hr.EngineOptions(schedule=3))


def test_a_schedule_goes_through_a_file_and_is_followed(numbered: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.schedule"
    told = write_schedule(numbered, path, "--ram", 20 * 4096)
    tiers = {"tiers": [hr.tiers.Ram(20 * 4096)]}
    with make(numbered, engine=hr.EngineOptions(schedule=path), **tiers) as loader:
        steps = EPOCHS * len(loader)
        assert told.startswith(f"{path}: {steps} steps of 1 rank, ")
        for _ in range(EPOCHS):
            assert count(loader) == COUNT
        stats = loader.stats()
    assert stats["schedule"]["name"] == str(path)
    assert stats["schedule"]["planned_steps"] == steps
    assert stats["tiers"][0]["uses"] > 0


def test_a_run_has_the_decode_threads_that_its_schedule_decided(
    numbered: Path, tmp_path: Path
) -> None:
    profile, path = tmp_path / "machine.toml", tmp_path / "plan.schedule"

    def decode_threads(*points: tuple[int, float]) -> tuple[int, int]:
        """Of the run, and all that there are, where threads decode at these rates."""
        decode = dataclasses.replace(machine().decode, rates=rates(points))
        dataclasses.replace(machine(), decode=decode).save(profile)
        write_schedule(numbered, path, "--profile", profile)
        with make(numbered, engine=hr.EngineOptions(schedule=path)) as loader:
            assert count(loader) == COUNT
            stats = loader.stats()
        return stats["schedule"]["decode_threads"], stats["threads"]

    alone, _ = decode_threads((1, 1e6))
    assert alone == 1  # Others would only take bandwidth from it.
    decided, there_are = decode_threads((1, 1e6), (1024, 1024e6))
    assert 0.95 * there_are <= decided <= there_are  # As few as reach nearly the highest rate.


def test_a_schedule_for_another_job_is_refused(numbered: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.schedule"
    write_schedule(numbered, path)
    with make(numbered, engine=hr.EngineOptions(schedule=path)) as loader:
        assert count(loader) == COUNT
    for options, differs in [
        ({"seed": 4}, "seed 3, the run has 4"),
        ({"batch_size": 4}, "another order"),
        (
            {"job": hr.Job(rank=1, world_size=2)},
            "world size 1, the run has 2; first rank 0, the run has 1",
        ),
        ({"tiers": [hr.tiers.Ram(20 * 4096)]}, "other tiers"),
    ]:
        with pytest.raises(errors.FailedPreconditionError, match=differs):
            make(numbered, engine=hr.EngineOptions(schedule=path), **options)
    with pytest.raises(errors.HeadraceError, match="sampler"):
        list(make(numbered, engine=hr.EngineOptions(schedule=path), sampler=range(COUNT)))


def test_damage_anywhere_in_a_schedule_is_told_when_the_loader_is_made(
    numbered: Path, tmp_path: Path
) -> None:
    path = tmp_path / "plan.schedule"
    write_schedule(numbered, path)
    right = path.read_bytes()
    flipped = bytearray(right)
    flipped[-30] ^= 1
    for bytes_, told in [
        (flipped, r"\d+: checksum of the record after \d+ steps is wrong; copy the file again"),
        (right[:-1], f"{len(right) - 1}: cut off after "),
        (right + b"more", f"{len(right)}: 4 bytes after the end; copy the file again"),
    ]:
        path.write_bytes(bytes_)
        with pytest.raises(
            errors.DataLossError, match=f"^reading schedule {re.escape(str(path))}, byte {told}"
        ):
            make(numbered, engine=hr.EngineOptions(schedule=path))


def test_what_the_command_can_not_do_is_named(numbered: Path, tmp_path: Path) -> None:
    assert "--local-ranks" in plan(numbered, "--local-ranks", 2, code=2)
    assert "--local-ranks" in write_refused(numbered, tmp_path, "--local-ranks", 2)
    assert "--step-seconds" in write_refused(numbered, tmp_path, "--step-seconds", -1)
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    said = plan(numbered, "--schedule", other, code=2)
    assert "is no schedule" in said
    assert other.read_text() == "mine"


def write_refused(dataset: Path, folder: Path, *more: object) -> str:
    return plan(dataset, "--schedule", folder / "plan.schedule", *more, code=2)


def test_a_schedule_of_several_ranks_is_written(numbered: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.schedule"
    told = write_schedule(numbered, path, "--ranks", 4, "--local-ranks", 4)
    assert " steps of 4 ranks, " in told


def test_what_preprocessing_takes_is_learned_and_kept(numbered: Path, tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    machine().save(path)
    with make(numbered, engine=hr.EngineOptions(profile=path)) as loader:
        epoch_ids(loader)
        loader.save_profile(path)
    kept = hr.profile.load(path)
    assert dataclasses.replace(kept, preprocess=()) == machine()
    assert kept.preprocess
    assert all(row.seconds > 0 and row.threads >= 1 for row in kept.preprocess)
    assert "[[preprocess]]" in path.read_text()
    with make(numbered, engine=hr.EngineOptions(profile=path)) as loader:  # And goes on from there.
        before = [Preprocess(*row) for row in loader._core.decode_times()]
        assert before == list(kept.preprocess)


def test_a_profile_that_was_not_given_can_not_be_saved(numbered: Path, tmp_path: Path) -> None:
    with (
        make(numbered) as loader,
        pytest.raises(errors.FailedPreconditionError, match=r"without EngineOptions\.profile"),
    ):
        loader.save_profile(tmp_path / "machine.toml")
    assert not (tmp_path / "machine.toml").exists()


def test_a_learned_row_that_can_not_be_is_named(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    row = Preprocess(transform=2**63 + 5, bytes=1000.0, threads=2, count=9, seconds=0.001)
    dataclasses.replace(machine(), preprocess=(row,)).save(path)
    assert hr.profile.load(path).preprocess == (row,)
    path.write_text(path.read_text().replace("8000000000000005", "what"))
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"preprocess\[0\]\.transform: got 'what', must be 16 hexadecimal digits",
    ):
        hr.profile.load(path)
