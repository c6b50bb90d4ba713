"""Every figure of `stats()` and of the metrics is as it was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from observe_data import full_core

from headrace._observe.advice import DataFacts
from headrace._observe.computed import make_stats
from headrace._observe.figures import declared
from headrace._observe.prometheus import expose
from headrace._observe.stats import METRICS

DATA = DataFacts(fields=2, stored=1, images=1, layout="blocks", sampler=False)
RECORDED = Path(__file__).parent / "recorded_stats"


def alone() -> dict[str, Any]:
    """Of one rank without tiers and workers."""
    core = full_core()
    del core["workers"]
    core["nodes"]["nodes"] = 1
    core["engine"]["lanes"] = core["engine"]["lanes"][:1]
    core["delivered"]["substitutions"] = core["tiers"] = []
    return (
        core
        | {"lane": 0, "imbalance": core["imbalance"] | {"iterations": 0}}
        | {"device_read_bytes": -1}
    )


def snapshot(core: dict[str, Any], rank: int) -> dict[str, Any]:
    return {"rank": rank, "dataset": "/data", "stats": make_stats(core, 7, 8, rank, DATA)}


def check(name: str, core: dict[str, Any], metrics: str, rank: int) -> None:
    stats = json.dumps(make_stats(core, 7, 8, rank, DATA), indent=1)
    assert stats == (RECORDED / f"{name}_stats.json").read_text()
    assert metrics == (RECORDED / f"{name}_metrics.txt").read_text()


def test_every_figure_of_ranks_with_tiers_and_workers_is_as_recorded() -> None:
    ranks = [snapshot(full_core() | {"lane": rank}, rank) for rank in (0, 1)]
    check("full", full_core(), expose([({"pid": 5}, rank) for rank in ranks]), 1)


def test_every_figure_of_one_rank_is_as_recorded() -> None:
    check("alone", alone(), expose([({}, snapshot(alone(), 3))]), 3)


def test_figures_are_exported_under_metrics_that_there_are() -> None:
    def names(kind: type) -> set[str]:
        inner = (names(each.inner) for each in declared(kind) if each.inner is not None)
        return {each.figure.metric for each in declared(kind)}.union(*inner)

    from headrace._observe.stats import Stats

    assert names(Stats) - {""} == set(METRICS) - {"info", "imbalance_share"}
