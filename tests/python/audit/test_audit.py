"""Figures by epoch, and the audit: each sample came once, whatever order, ranks and tiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import COUNT, FLAT, payload_ids, sample_file
from node_ranks import Ranks

import headrace as hr
from headrace import _core, errors
from headrace._loading.audit import sample_sum

pytestmark = pytest.mark.filterwarnings("ignore:headrace. order=.* mix of labels")

EPOCHS = 2


def run(loader: hr.Loader[Any], epochs: int = EPOCHS) -> list[list[int]]:
    """The samples of each epoch."""
    return [[number for batch in loader for number in payload_ids(batch)] for _ in range(epochs)]


def summed(samples: list[int]) -> int:
    return sample_sum(np.array(samples, np.uint64))


def test_the_sum_is_that_of_splitmix64() -> None:
    """Frozen: the first two outputs of seeds 0 and 1, as the algorithm's authors give them."""
    assert sample_sum(np.array([0], np.uint64)) == 0xE220A8397B1DCDAF
    assert sample_sum(np.array([1], np.uint64)) == 0x910A2DEC89025CC1
    assert summed([]) == 0
    assert summed([1, 2]) != summed([3, 0])


def test_an_epoch_that_was_not_taken_once_from_its_begin_to_its_end_is_not_checked(
    numbered: Path,
) -> None:
    with hr.Loader(numbered, 8, seed=3, transform=FLAT) as loader:
        steps = len(loader)
        begin = loader.state_dict()
        for _, _ in zip(range(steps // 2), loader, strict=False):
            pass
        loader.load_state_dict(begin)
        for _, _ in zip(range(steps - steps // 2), loader, strict=False):
            pass
        assert loader.stats()["epochs"][0]["batches"] == steps
        assert loader.audit() == []
        list(loader)  # The next epoch.
        assert loader.audit() == [1]
        for wrong in (3, [None], [{}], {"epochs": []}):
            with pytest.raises(errors.InvalidArgumentError, match="stats: got "):
                loader.audit(wrong)  # type: ignore[arg-type]


def test_what_one_rank_lacks_another_does_not_make_up_for(numbered: Path) -> None:
    reports = []
    for rank in range(2):
        job = hr.Job(rank=rank, world_size=2)
        with hr.Loader(numbered, 8, job=job, seed=3, transform=FLAT) as loader:
            list(loader)
            steps = len(loader)
            taken = steps - 1 if rank else steps + 1
            report = loader.stats()
            report["epochs"][0] = {**report["epochs"][0], "batches": taken}
            reports.append(report)
    with hr.Loader(numbered, 8, job=hr.Job(rank=0, world_size=2), seed=3, transform=FLAT) as loader:
        assert loader.audit(reports) == []


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("order", _core.order_names())
def test_all_ranks_together_have_each_sample_once(
    numbered: Path, order: str, ranks: int, drop_last: bool
) -> None:
    options: dict[str, Any] = {"order": order, "drop_last": drop_last, "transform": FLAT}
    reports, whole = [], [set[int]() for _ in range(EPOCHS)]
    for rank in range(ranks):
        job = hr.Job(rank=rank, world_size=ranks)
        with hr.Loader(numbered, 8, job=job, seed=3, **options) as loader:
            taken = run(loader)
            found = loader.stats()
            assert [epoch["epoch"] for epoch in found["epochs"]] == [0, 1]
            for epoch, samples in zip(found["epochs"], taken, strict=True):
                assert epoch["batches"] == len(loader)
                assert epoch["samples"] == epoch["storage"] == len(samples)
                assert (epoch["nodes"], epoch["tiers"]) == (0, [])
                assert epoch["sample_sum"] == summed(samples)
            assert found["first_epoch"]["step"]["count"] == len(loader) - 1
            assert loader.audit() == [0, 1]
            reports.append(found)
            for seen, samples in zip(whole, taken, strict=True):
                seen.update(samples)
    assert [len(seen) for seen in whole] == 2 * [
        COUNT // (8 * ranks) * 8 * ranks if drop_last else COUNT
    ]
    with hr.Loader(numbered, 8, job=hr.Job(rank=0, world_size=ranks), seed=3, **options) as loader:
        assert loader.audit(reports) == [0, 1]
        if ranks > 1:
            with pytest.raises(errors.DataLossError, match="epoch 0: as many samples came as"):
                loader.audit([reports[0], *reports[:-1]])
            with pytest.raises(errors.InvalidArgumentError, match="got those of 1 rank, must be"):
                loader.audit(reports[:1])
        lost = {**reports[0], "epochs": [{**each} for each in reports[0]["epochs"]]}
        lost["epochs"][1]["samples"] -= 1
        with pytest.raises(
            errors.DataLossError, match=r"auditing epoch 1.*: .* came, and the plan"
        ):
            loader.audit([lost, *reports[1:]])  # type: ignore[list-item]


def test_ranks_of_a_node_process_are_audited_together(numbered: Path) -> None:
    with Ranks(2) as ranks:
        ranks.ask("open_", str(numbered), batch_size=8, seed=1)
        epochs = ranks.ask("epoch")
        reports = ranks.ask("counted")
    for report, batches in zip(reports, epochs, strict=True):
        (epoch,) = report["epochs"]
        assert epoch["sample_sum"] == summed([number for batch in batches for number in batch])
    with hr.Loader(numbered, 8, seed=1, job=hr.Job(rank=0, world_size=2)) as loader:
        assert loader.audit(reports) == [0]  # type: ignore[arg-type]


def test_sources_are_counted_by_epoch(numbered: Path) -> None:
    tiers = [hr.tiers.Ram("10KB"), hr.tiers.Ram("1MiB")]
    with hr.Loader(numbered, 8, transform=FLAT, tiers=tiers, epochs=3) as loader:
        run(loader, 3)
        found = loader.stats()
        assert loader.audit() == [0, 1, 2]
    assert [epoch["samples"] for epoch in found["epochs"]] == [COUNT] * 3
    for epoch in found["epochs"]:
        assert epoch["storage"] + sum(epoch["tiers"]) == COUNT
    assert [epoch["storage"] for epoch in found["epochs"]][1:] == [0, 0]
    uses = [sum(epoch["tiers"][at] for epoch in found["epochs"][1:]) for at in range(2)]
    assert min(uses) > 0
    by_tier = [tier["uses"] for tier in found["tiers"]]
    first = [*found["epochs"][0]["tiers"], 0, 0][:2]
    assert [one + other for one, other in zip(first, uses, strict=True)] == by_tier


def test_only_epochs_that_were_taken_to_their_end_count(numbered: Path) -> None:
    with hr.Loader(numbered, 8, transform=FLAT) as loader:
        assert loader.audit() == []
        next(iter(loader))
        assert loader.audit() == []
        run(loader, 1)
        assert loader.audit() == [1]
        state = loader.state_dict()
    with hr.Loader(numbered, 8, transform=FLAT) as loader:
        loader.load_state_dict(state)
        run(loader, 1)
        assert loader.audit() == [2]


def test_a_stand_in_counts_as_the_sample_that_it_replaces(numbered_copy: Path) -> None:
    sample_file(numbered_copy, 7).write_bytes(b"no image")
    with hr.Loader(numbered_copy, 8, transform=FLAT, on_error="substitute") as loader:
        run(loader, 2)
        assert loader.stats()["substituted"] == 2
        assert loader.audit() == [0, 1]


@pytest.mark.parametrize("drop_last", [False, True])
def test_samples_that_are_left_out_are_none_of_the_epoch(tmp_path: Path, drop_last: bool) -> None:
    np.save(tmp_path / "rows.npy", np.arange(50))
    (tmp_path / "broken.txt").write_text("0\n7\n8\n49\n")
    rows = hr.open(tmp_path / "rows.npy", skip=f"@{tmp_path / 'broken.txt'}")
    reports, seen = [], set()
    for rank in range(2):
        job = hr.Job(rank=rank, world_size=2)
        with hr.Loader(rows, 8, job=job, drop_last=drop_last) as loader:
            seen.update(number for batch in loader for number in batch[0].tolist())
            reports.append(loader.stats())
            last = loader.audit(reports) if rank == 1 else []
    assert last == [0]
    assert len(seen) == (32 if drop_last else 46)
    assert not seen & {0, 7, 8, 49}


def test_what_python_workers_took_is_audited(numbered: Path) -> None:
    workers = hr.Workers(1, start="fork")
    with hr.Loader(numbered, 8, transform=(FLAT, len), workers=workers, epochs=1) as loader:
        list(loader)
        assert loader.audit() == [0]


def test_a_plan_that_lacks_samples_is_found(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Planned:
        """All ranks get the samples of the first."""

        def __init__(self, index: Any, options: Any, *rest: Any) -> None:
            self._of = _RANK_BATCHES(index, options.replace(job={"rank": 0}), *rest)

        def next(self) -> Any:
            return self._of.next()

    with hr.Loader(numbered, 8, transform=FLAT, job=hr.Job(rank=0, world_size=2)) as loader:
        run(loader, 1)
        report = loader.stats()
        monkeypatch.setattr("headrace._core.RankBatches", Planned)
        with pytest.raises(errors.DataLossError, match="the plan has 49 of 97 samples"):
            loader.audit([report, report])


_RANK_BATCHES = _core.RankBatches


def test_what_cannot_be_audited_is_refused(numbered: Path) -> None:
    with (
        hr.Loader(numbered, 8, sampler=range(9), transform=FLAT) as loader,
        pytest.raises(errors.FailedPreconditionError, match="a sampler decides which samples"),
    ):
        loader.audit()
    loader = hr.Loader(numbered, 8, transform=FLAT)
    many = {**loader.stats(), "substituted": 1}
    with pytest.raises(errors.FailedPreconditionError, match="of 1 samples that were substituted"):
        loader.audit([many])  # type: ignore[list-item]
    loader.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        loader.audit()
