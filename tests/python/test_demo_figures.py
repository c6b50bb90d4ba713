"""What the demo concludes from its runs: the median, the bound, and when there is no difference."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

DEMO = Path(__file__).parents[2] / "demo"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The demo's modules, which are no package."""
    monkeypatch.syspath_prepend(str(DEMO))
    import records
    import summary

    return SimpleNamespace(records=records, summary=summary)


def make_run(records: Any, kind: str, number: int, rate: float, **different: Any) -> Any:
    epoch = records.Epoch(
        seconds=100 / rate, wait_seconds=40 / rate, loss=1.0, accuracy=0.5, once=True
    )
    values: dict[str, Any] = {
        "kind": kind,
        "round": number,
        "samples": 200,
        "epochs": [epoch, epoch],
        "names_forgotten": True,
        "device_bytes": 1_000_000,
        "others_cpu_share": 0.0,
        "causes": {"storage": 0.1, "decode": 0.2},
        "causes_are": "waited",
        "core_time": records.CoreTime(training=0.001, decoding=0.002),
        "clock_began": 0.0,
        "clock_ended": 1.0,
    }
    return records.Run(**values | different)


def make_figures(modules: Any, **rates: tuple[float, ...]) -> Any:
    runs = [
        make_run(modules.records, kind, number, rate)
        for kind, of_kind in rates.items()
        for number, rate in enumerate(of_kind)
    ]
    return modules.summary.figures(runs, dataset_bytes=1_000_000, cores=2)


def test_a_loader_is_its_median_run_and_keeps_all_rates_by_round(modules: Any) -> None:
    found = make_figures(modules, torch=(9, 5, 7), folder=(8, 6, 10), pack=(20, 30, 40))
    assert found.loaders["torch"].samples_per_second == pytest.approx(7)
    assert found.loaders["torch"].median_round == 2
    assert found.loaders["torch"].samples_per_second_runs == pytest.approx((9, 5, 7))
    assert found.loaders["pack"].samples_per_second == pytest.approx(30)


def test_of_two_runs_the_median_is_the_slower(modules: Any) -> None:
    found = make_figures(modules, torch=(5, 7), folder=(5, 7), pack=(7, 5))
    assert found.loaders["torch"].median_round == 0
    assert found.loaders["pack"].median_round == 1


def test_rates_that_cross_between_rounds_are_no_difference(modules: Any) -> None:
    found = make_figures(modules, torch=(10, 10, 10), folder=(20, 20, 20), pack=(19, 21, 22))
    sentence = modules.summary.compare(found, "pack", "folder")
    assert sentence.endswith("no difference measured (0.95 to 1.10 times, by round).")


def test_a_difference_is_claimed_if_every_round_shows_it(modules: Any) -> None:
    found = make_figures(modules, torch=(10, 12), folder=(9, 11), pack=(25, 24))
    assert modules.summary.compare(found, "pack", "torch") == (
        "Headrace, pack: faster than torch DataLoader in every round, 2.00 to 2.50 times its rate."
    )
    assert "slower than torch DataLoader" in modules.summary.compare(found, "folder", "torch")


def test_one_round_claims_no_difference(modules: Any) -> None:
    found = make_figures(modules, torch=(10,), folder=(20,), pack=(20,))
    assert "one round: no spread known" in modules.summary.compare(found, "folder", "torch")


def test_the_bound_takes_the_least_of_each_part_and_shares_it_among_the_cores(modules: Any) -> None:
    bound, records = modules.summary.bound, modules.records
    measured = [records.CoreTime(0.001, 0.004), records.CoreTime(0.002, 0.003)]
    assert bound(measured, cores=1) == pytest.approx(1 / 0.004)
    assert bound(measured, cores=2) == pytest.approx(1 / 0.002)
    # The thread that trains is one, whatever the number of cores.
    assert bound(measured, cores=64) == pytest.approx(1 / 0.001)


def test_a_sample_that_did_not_come_once_in_one_epoch_of_one_run_is_told(modules: Any) -> None:
    kinds = ("torch", "folder", "pack")
    runs = [make_run(modules.records, kind, number, 10) for number in range(2) for kind in kinds]
    found = modules.summary.figures(runs, dataset_bytes=1_000_000, cores=2)
    assert all(summary.each_sample_once for summary in found.loaders.values())
    good = runs[-1].epochs[0]
    bad = modules.records.Epoch(seconds=good.seconds, wait_seconds=good.wait_seconds, once=False)
    runs[-1].epochs = [good, bad]
    found = modules.summary.figures(runs, dataset_bytes=1_000_000, cores=2)
    once = {kind: summary.each_sample_once for kind, summary in found.loaders.items()}
    assert once == {"torch": True, "folder": True, "pack": False}
