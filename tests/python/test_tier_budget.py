"""Budgets that several loaders share: memory and tiers, in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, FLAT, epoch_ids, flat

import headrace as hr
from headrace import errors
from headrace.tiers import Budget, Ram, Ssd


def make(dataset: Path | hr.Dataset, **options: Any) -> hr.Loader:
    defaults: dict[str, Any] = {"batch_size": 8, "transform": FLAT, "seed": 3}
    return hr.Loader(dataset, **defaults | options)


def test_training_and_validation_share_a_budget(numbered: Path, tmp_path: Path) -> None:
    budget = Budget("64MiB", [Ram("100KiB"), Ssd(tmp_path / "tier", "1MiB")])
    parts = budget.part("train", 0.75), budget.part("valid", 0.25)
    with pytest.raises(errors.InvalidArgumentError, match="at most 0"):
        budget.part("test", 0.1)
    with (
        make(numbered, memory=parts[0]) as train,
        make(numbered, memory=parts[1], shuffle=False) as valid,
    ):
        for _ in range(2):
            assert sorted(flat(epoch_ids(train))) == list(range(COUNT))
            assert flat(epoch_ids(valid)) == list(range(COUNT))
        stats = [loader.stats() for loader in (train, valid)]
        with pytest.raises(errors.InvalidArgumentError, match="'train' has a loader"):
            make(numbered, memory=parts[0])
    for tier, whole in enumerate((100 * 2**10, 2**20)):
        assert sum(each["tiers"][tier]["capacity"] for each in stats) <= whole
    total = 0
    for each in stats:
        memory = each["memory"]
        total += memory["staging_budget"] + memory["batches_budget"] + each["tiers"][0]["capacity"]
    assert total <= 64 * 2**20
    with make(numbered, memory=parts[0]) as loader:  # Given back.
        assert loader.stats()["tiers"][1]["inherited"] > 0


def test_a_budget_goes_back_when_the_loader_cannot_be_made(numbered: Path) -> None:
    part = Budget("1MiB").part("all", 1.0)
    for _ in range(2):
        with pytest.raises(errors.InvalidArgumentError, match="memory"):
            make(numbered, memory=part, batch_size=COUNT, transform=hr.image.train(224))
    make(numbered, memory=part).close()


def test_bad_parts_are_named_and_take_nothing(tmp_path: Path) -> None:
    budget = Budget("1MiB", [Ssd(tmp_path / "tier", "1MB")])
    (tmp_path / "tier" / "file").write_text("not a folder")
    cases: list[tuple[Any, Any, str]] = [
        (3, 0.5, "name 3 must be"),
        ("a/b", 0.5, "name .* must be one that a folder can have"),
        ("a\0b", 0.5, "name .* has no NUL character"),
        ("half", "50%", "got share '50%', must be above 0"),
        ("file", 0.5, "part 'file': making folder"),
        ("none", 1e-9, "less than a byte of the budget's 1.0 MiB"),
    ]
    for name, share, message in cases:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            budget.part(name, share)
    assert budget.part("all", 1.0).memory == 2**20
