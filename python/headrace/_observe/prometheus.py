"""What `stats()` says, in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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


_FAMILIES = (
    ("info", "gauge", "Always 1; what is loaded, and what reads it."),
    ("epoch", "gauge", "Epoch that is loaded."),
    ("batches_total", "counter", "Batches that the training loop took."),
    ("samples_total", "counter", "Samples in these."),
    ("running_seconds_total", "counter", "Time that plans were in progress."),
    ("decode_seconds_total", "counter", "Time in decoding, summed over threads."),
    ("threads", "gauge", "Threads that decode."),
    ("rank_batches_total", "counter", "Batches that were made for a rank, taken or not."),
    ("rank_samples_total", "counter", "Samples in these."),
    ("wait_seconds_total", "counter", "Time that a rank waited for batches, by cause."),
    ("held_up_seconds_total", "counter", "Time that others waited as a rank took no batches."),
    ("wait_share", "gauge", "Share of the newest steps that a rank waited."),
    ("step_seconds", "gauge", "Time from batch to batch, quantiles of the newest steps."),
    ("step_wait_seconds", "gauge", "Time waited for a batch, quantiles of the newest steps."),
    ("ready_batches", "gauge", "Batches that wait for a rank."),
    ("working_batches", "gauge", "Batches that are read and decoded for a rank."),
    ("queued_reads", "gauge", "Reads for a rank that are not issued yet."),
    ("imbalance_share", "gauge", "Share of iterations in which ranks differ by theta of a step."),
    ("bytes_total", "counter", "Bytes by where they were counted."),
    ("memory_bytes", "gauge", "Memory in use."),
    ("memory_budget_bytes", "gauge", "Budgets of it."),
    ("tier_uses_total", "counter", "Samples taken from a tier, or from storage beside tiers."),
    ("tier_used_bytes", "gauge", "Bytes that a tier holds."),
    ("tier_capacity_bytes", "gauge", "Bytes that a tier may hold."),
    ("tier_degraded", "gauge", "1: a tier is not used any more, or only read."),
    ("substituted_total", "counter", "Samples that were replaced by others."),
    ("read_retries_total", "counter", "Reads that were tried again."),
    ("read_failures_total", "counter", "Reads that failed."),
)


def expose(snapshots: Iterable[tuple[Labels, Mapping[str, Any]]]) -> str:
    """The metrics of loaders: labels that tell them apart, and a snapshot of each.

    Ranks that share an engine are snapshots of their own: each tells what is its own, and the first
    of them what they share, so that sums over ranks count it once.
    """
    families = {name: _Family(name, kind, text) for name, kind, text in _FAMILIES}
    for labels, snapshot in snapshots:
        own = {**labels, "rank": snapshot["rank"]}
        ranks = snapshot["stats"]["ranks"]
        _add_loader(families, own, snapshot)
        for rank in ranks:
            if rank["rank"] == snapshot["rank"]:
                _add_rank(families, own, rank)
        if ranks[0]["rank"] == snapshot["rank"]:
            _add_shared(families, own, snapshot["stats"])
    return "".join(f"{line}\n" for family in families.values() for line in family.lines())


def _add_loader(families: dict[str, _Family], own: Labels, snapshot: Mapping[str, Any]) -> None:
    stats = snapshot["stats"]
    families["info"].add(1, {**own, "dataset": snapshot["dataset"], "store": stats["io"]["store"]})
    families["epoch"].add(stats["epoch"], own)
    families["batches_total"].add(stats["batches"], own)
    families["samples_total"].add(stats["samples"], own)
    families["running_seconds_total"].add(stats["seconds"], own)
    families["substituted_total"].add(stats["substituted"], own)
    families["bytes_total"].add(stats["bytes"]["messages"], {**own, "kind": "messages"})


def _add_shared(families: dict[str, _Family], own: Labels, stats: Mapping[str, Any]) -> None:
    families["decode_seconds_total"].add(stats["decode_seconds"], own)
    families["threads"].add(stats["threads"], own)
    families["read_retries_total"].add(stats["io"]["retries"], own)
    families["read_failures_total"].add(stats["io"]["failures"], own)
    for kind, count in stats["bytes"].items():
        if kind != "messages" and count is not None:
            families["bytes_total"].add(count, {**own, "kind": kind})
    for use in ("staging", "batches", "resident", "pinned", "scratch", "results"):
        families["memory_bytes"].add(stats["memory"][use], {**own, "use": use})
        families["memory_budget_bytes"].add(stats["memory"][f"{use}_budget"], {**own, "use": use})
    if stats["sources"] is not None:
        families["tier_uses_total"].add(stats["sources"]["storage"], {**own, "tier": "storage"})
    for tier in stats["tiers"]:
        of_tier = {**own, "tier": tier["name"]}
        families["tier_uses_total"].add(tier["uses"], of_tier)
        families["tier_used_bytes"].add(tier["used"], of_tier)
        families["tier_capacity_bytes"].add(tier["capacity"], of_tier)
        families["tier_degraded"].add(int(tier["degraded"] is not None), of_tier)
    if (imbalance := stats["imbalance"]) is not None:
        for measure in ("late", "busy"):
            for theta, share in zip(imbalance["thetas"], imbalance[measure], strict=True):
                at = {**own, "measure": measure, "theta": theta}
                families["imbalance_share"].add(share, at)


def _add_rank(families: dict[str, _Family], of: Labels, rank: Mapping[str, Any]) -> None:
    families["rank_batches_total"].add(rank["batches"], of)
    families["rank_samples_total"].add(rank["samples"], of)
    for cause, seconds in rank["stall"].items():
        families["wait_seconds_total"].add(seconds, {**of, "cause": cause})
    families["held_up_seconds_total"].add(rank["held_up"], of)
    families["wait_share"].add(rank["stall_share"], of)
    for name in ("step", "wait"):
        family = families["step_seconds" if name == "step" else "step_wait_seconds"]
        for quantile, key in (("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99")):
            family.add(rank[name][key], {**of, "quantile": quantile})
    families["ready_batches"].add(rank["ready"], of)
    families["working_batches"].add(rank["in_work"], of)
    families["queued_reads"].add(rank["queued_reads"], of)
