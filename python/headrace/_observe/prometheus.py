"""What `stats()` says, in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace._observe.figures import metrics
from headrace._observe.stats import METRICS, Rank, Stats, TierReport
from headrace._text import printable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, object]


class _Family:
    """A metric with its samples."""

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name, self.kind, self.text = f"headrace_{name}", kind, text
        self.samples: list[tuple[Labels, float]] = []

    def add(self, value: float, labels: Labels) -> None:
        self.samples.append((labels, value))

    def lines(self) -> Iterable[str]:
        if not self.samples:
            return
        yield f"# HELP {self.name} {_escaped_help(self.text)}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            inside = ",".join(f'{name}="{escaped(str(of))}"' for name, of in labels.items())
            yield f"{self.name}{{{inside}}} {_number(value)}"


def escaped(value: str) -> str:
    """A label's value as it stands between quotes."""
    return _escaped_help(printable(value)).replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def expose(snapshots: Iterable[tuple[Labels, Mapping[str, Any]]]) -> str:
    """The metrics of loaders: labels that tell them apart, and a snapshot of each.

    Ranks that share an engine are snapshots of their own: each tells what is its own, and the first
    of them what they share, so that sums over ranks count it once.
    """
    families = {name: _Family(name, *what) for name, what in METRICS.items()}

    def add(kind: type, values: Mapping[str, Any], own: bool, labels: Labels) -> None:
        for name, more, value in metrics(kind, values, own):
            families[name].add(value, {**labels, **more})

    for labels, snapshot in snapshots:
        of = {**labels, "rank": snapshot["rank"]}
        stats = snapshot["stats"]
        info = {"dataset": snapshot["dataset"], "store": stats["io"]["store"]}
        families["info"].add(1, {**of, **info})
        add(Stats, stats, True, of)
        for rank in stats["ranks"]:
            if rank["rank"] == snapshot["rank"]:
                add(Rank, rank, False, of)
        if stats["ranks"][0]["rank"] == snapshot["rank"]:
            add(Stats, stats, False, of)
            for tier in stats["tiers"]:
                add(TierReport, tier, False, {**of, "tier": tier["name"]})
            if (imbalance := stats["imbalance"]) is not None:
                for measure in ("late", "busy"):
                    for theta, share in zip(imbalance["thetas"], imbalance[measure], strict=True):
                        at = {**of, "measure": measure, "theta": theta}
                        families["imbalance_share"].add(share, at)
    return "".join(f"{line}\n" for family in families.values() for line in family.lines())
