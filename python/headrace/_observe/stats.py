"""What `stats()` tells: each figure is declared here, and only here.

From these declarations follow what `stats()` returns, the metrics for Prometheus, and the table in
docs/observe.md, which `python tools/reference.py` rewrites.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from headrace._observe.figures import Figure

F = Figure

METRICS = {
    "info": ("gauge", "Always 1; what is loaded, and what reads it."),
    "epoch": ("gauge", "Epoch that is loaded."),
    "batches_total": ("counter", "Batches that the training loop took."),
    "samples_total": ("counter", "Samples in these."),
    "running_seconds_total": ("counter", "Time that plans were in progress."),
    "decode_seconds_total": ("counter", "Time in decoding, summed over threads."),
    "threads": ("gauge", "Threads that decode."),
    "rank_batches_total": ("counter", "Batches that were made for a rank, taken or not."),
    "rank_samples_total": ("counter", "Samples in these."),
    "wait_seconds_total": ("counter", "Time that a rank waited for batches, by cause."),
    "held_up_seconds_total": ("counter", "Time that others waited as a rank took no batches."),
    "wait_share": ("gauge", "Share of the newest steps that a rank waited."),
    "step_seconds": ("gauge", "Time from batch to batch, quantiles of the newest steps."),
    "step_wait_seconds": ("gauge", "Time waited for a batch, quantiles of the newest steps."),
    "ready_batches": ("gauge", "Batches that wait for a rank."),
    "working_batches": ("gauge", "Batches that are read and decoded for a rank."),
    "queued_reads": ("gauge", "Reads for a rank that are not issued yet."),
    "imbalance_share": ("gauge", "Share of iterations in which ranks differ by theta of a step."),
    "bytes_total": ("counter", "Bytes by where they were counted."),
    "memory_bytes": ("gauge", "Memory in use."),
    "memory_budget_bytes": ("gauge", "Budgets of it."),
    "tier_uses_total": ("counter", "Samples taken from a tier, or from storage beside tiers."),
    "tier_used_bytes": ("gauge", "Bytes that a tier holds."),
    "tier_capacity_bytes": ("gauge", "Bytes that a tier may hold."),
    "tier_degraded": ("gauge", "1: a tier is not used any more, or only read."),
    "substituted_total": ("counter", "Samples that were replaced by others."),
    "read_retries_total": ("counter", "Reads that were tried again."),
    "read_failures_total": ("counter", "Reads that failed."),
}
"""Kind and help of each metric, in the order in which they are exported."""


class Stall(TypedDict):
    """Seconds that the training loop waited for a batch, by what it waited for."""

    storage: Annotated[float, F("s", "0", "cause=storage")]
    decode: Annotated[float, F("s", "1", "cause=decode")]
    consumer: Annotated[float, F("s", "2", "cause=consumer")]
    ranks: Annotated[float, F("s", "3", "cause=ranks")]
    """another rank of the node took no batches, so that the plan could not go on"""


class Quantiles(TypedDict):
    """Seconds, of the newest batches, at most 4,096 a rank."""

    count: Annotated[int, F()]
    p50: Annotated[float, F("s", "p50_ns", "quantile=0.5")]
    p95: Annotated[float, F("s", "p95_ns", "quantile=0.95")]
    p99: Annotated[float, F("s", "p99_ns", "quantile=0.99")]


class Rank(TypedDict):
    """One rank of those that the loader's engine serves. Times in seconds."""

    rank: Annotated[int, F()]
    batches: Annotated[int, F(metric="rank_batches_total")]
    """decoded and handed over, taken or not"""
    samples: Annotated[int, F(metric="rank_samples_total")]
    stall: Annotated[Stall, F("s", "stall_ns", metric="wait_seconds_total")]
    stall_share: Annotated[float, F("share", metric="wait_share")]
    """of the time of the newest batches, the first of each run left out"""
    stall_shares: Annotated[Stall, F("share")]
    """the same by cause"""
    held_up: Annotated[float, F("s", "held_up_ns", metric="held_up_seconds_total")]
    """that other ranks waited because this one took no batches"""
    step: Annotated[Quantiles, F("s", "figures.step", metric="step_seconds")]
    """from one batch taken to the next"""
    wait: Annotated[Quantiles, F("s", "figures.wait", metric="step_wait_seconds")]
    """for a batch"""
    ready: Annotated[int, F(metric="ready_batches")]
    """batches that wait for it"""
    in_work: Annotated[int, F("", "steps_in_work", metric="working_batches")]
    """batches being read and decoded"""
    queued_reads: Annotated[int, F(metric="queued_reads")]
    gone: Annotated[bool, F()]
    """its process left"""


class Imbalance(TypedDict):
    """How unevenly ranks get on: shares of iterations in which the slowest differs from the fastest
    by more than theta times what training takes."""

    iterations: Annotated[int, F()]
    """the newest, of which every rank's batch is known"""
    thetas: Annotated[list[float], F("share")]
    late: Annotated[list[float], F("share")]
    """by theta; in how long after the step before began their batches were done"""
    busy: Annotated[list[float], F("share")]
    """by theta; in what reading and decoding took them, whoever waits for it"""


def _device(core: Any) -> int | None:
    count: int = core["device_read_bytes"]
    return count if count >= 0 else None


class Bytes(TypedDict):
    """Bytes by where they were counted."""

    samples: Annotated[int, F("bytes", "engine.lanes.*.sample_bytes", "kind=samples")]
    """stored bytes of the samples decoded"""
    copied: Annotated[int, F("bytes", "engine.lanes.*.copied_bytes", "kind=copied")]
    """moved in memory as they are, into batches or together for a decoder; from the row of a batch
    to the training loop nothing is copied"""
    messages: Annotated[int, F("bytes", "message_bytes", "kind=messages", own=True)]
    """that a node process sent this rank, batches' ids and places among them; rows are mapped"""
    read: Annotated[int, F("bytes", "engine.read_bytes", "kind=read")]
    """asked of storage, gaps between neighbouring samples included"""
    device: Annotated[int | None, F("bytes", _device, "kind=device")]
    """that the process had read from block devices meanwhile; None: the system does not tell"""
    direct: Annotated[int, F("bytes", "store.bytes_direct", "kind=direct")]
    """read past the page cache, whole device blocks"""
    page_cache: Annotated[int, F("bytes", "store.bytes_page_cache", "kind=page_cache")]
    """found in the page cache, where that is known"""
    again: Annotated[int, F("bytes", "engine.blocks.reread_bytes", "kind=again")]
    """of `read`: what was resident when the state was saved that the run began with"""
    pinned: Annotated[int, F("bytes", "engine.blocks.pinned_bytes", "kind=pinned")]
    """found in pinned blocks instead of being asked of storage"""


def results_budget(core: Any) -> int:
    """Bytes for results of one rank's workers: each rank has workers of its own."""
    return int(core["budget"]["results_bytes"] // max(1, len(core["engine"]["lanes"])))


def _cells(units: str) -> Any:
    return lambda core: core["engine"]["resident"][units] * core["engine"]["resident"]["unit_bytes"]


def _beyond(name: str) -> Any:
    return lambda core: (
        core["engine"]["staging"][name] + core["engine"]["batch"][name] + core["results"][name]
    )


def _budget(use: str, source: str | Callable[[Any], Any]) -> Figure:
    return Figure("bytes", source, f"use={use}", "memory_budget_bytes")


class Memory(TypedDict):
    """Bytes by use, within their budgets; what had to be taken beyond them is counted apart."""

    staging: Annotated[int, F("bytes", "engine.staging.used_bytes", "use=staging")]
    staging_peak: Annotated[int, F("bytes", "engine.staging.used_bytes_peak")]
    staging_budget: Annotated[int, _budget("staging", "engine.staging.capacity_bytes")]
    batches: Annotated[int, F("bytes", "engine.batch.used_bytes", "use=batches")]
    batches_peak: Annotated[int, F("bytes", "engine.batch.used_bytes_peak")]
    batches_budget: Annotated[int, _budget("batches", "engine.batch.capacity_bytes")]
    resident: Annotated[int, F("bytes", _cells("used_units"), "use=resident")]
    """samples that the order keeps until they are drawn, in whole cells"""
    resident_peak: Annotated[int, F("bytes", _cells("used_units_peak"))]
    resident_budget: Annotated[int, _budget("resident", _cells("capacity_units"))]
    pinned: Annotated[int, F("bytes", "engine.pinned.used_bytes", "use=pinned")]
    """blocks that are kept for good"""
    pinned_budget: Annotated[int, _budget("pinned", "engine.pinned.capacity_bytes")]
    scratch: Annotated[int, F("bytes", "engine.scratch.used_bytes", "use=scratch")]
    """what decodes take beside what was read and their rows: set aside for each thread, and taken
    by large images, which wait for it"""
    scratch_peak: Annotated[int, F("bytes", "engine.scratch.used_bytes_peak")]
    scratch_budget: Annotated[int, _budget("scratch", "engine.scratch.capacity_bytes")]
    results: Annotated[int, F("bytes", "results.used_bytes", "use=results")]
    """batches that worker processes made of others"""
    results_peak: Annotated[int, F("bytes", "results.used_bytes_peak")]
    results_budget: Annotated[int, _budget("results", results_budget)]
    beyond: Annotated[int, F("bytes", _beyond("beyond_bytes"))]
    beyond_peak: Annotated[int, F("bytes", _beyond("beyond_bytes_peak"))]
    index: Annotated[int, F("bytes", "index_bytes")]


def _tiers(core: Any) -> list[Any]:
    """The structs of each tier together; the engine knows of none before its first step."""
    counts = core["engine"]["tiers"]
    uses = counts["uses"] + len(core["tiers"]) * [{"samples": 0, "bytes": 0, "ahead": 0}]
    planned = counts["planned"] + len(core["tiers"]) * [0]
    return [
        {"name": tier["name"], **tier["stats"], "uses": of_tier, "planned": number}
        for tier, of_tier, number in zip(core["tiers"], uses, planned, strict=False)
    ]


class TierReport(TypedDict):
    """One tier: what it holds, and what it did. Sizes in bytes."""

    name: Annotated[str, F()]
    capacity: Annotated[int, F("bytes", "capacity_bytes", metric="tier_capacity_bytes")]
    used: Annotated[int, F("bytes", "used_bytes", metric="tier_used_bytes")]
    peak: Annotated[int, F("bytes", "used_bytes_peak")]
    entries: Annotated[int, F()]
    """samples that it holds"""
    inherited: Annotated[int, F("", "entries_inherited")]
    """of a run before, found at the start"""
    uses: Annotated[int, F("", "uses.samples", metric="tier_uses_total")]
    """samples taken from it"""
    reuse: Annotated[int, F("", lambda tier: tier["uses"]["samples"] - tier["uses"]["ahead"])]
    """of `uses`: samples that were used before, or inherited"""
    ready: Annotated[int, F("", "uses.ahead")]
    """of `uses`: samples used for the first time, fetched ahead and ready on time"""
    use_bytes: Annotated[int, F("bytes", "uses.bytes")]
    planned: Annotated[int, F()]
    """uses that the plan took from it, counted as far as it is read ahead; of blocks, where the
    order reads blocks"""
    inserts: Annotated[int, F()]
    refused: Annotated[int, F("", "inserts_refused")]
    """inserts for which there was no room at the moment"""
    failed: Annotated[int, F("", lambda tier: tier["inserts_failed"] + tier["reads_failed"])]
    """inserts and reads that failed"""
    corrupt: Annotated[int, F()]
    """entries whose checksum was wrong: read from storage again"""
    degraded: Annotated[
        str | None,
        F(
            source=lambda tier: tier["degraded_reason"] if tier["degraded"] else None,
            metric="tier_degraded",
            exported=lambda why: int(why is not None),
        ),
    ]
    """why it is used no more, or only read"""


class Sources(TypedDict):
    """Where samples came from, with tiers."""

    storage: Annotated[int, F("", "storage_uses", "tier=storage", "tier_uses_total")]
    tiers: Annotated[int, F("", "uses.*.samples")]
    waited: Annotated[int, F("", "waits")]
    """samples waited for that were on their way into a tier"""
    fetched_ahead: Annotated[int, F()]
    moved: Annotated[int, F()]
    """from tier to tier"""
    not_kept: Annotated[int, F()]
    """that a tier was to have, and did not get"""
    fallbacks: Annotated[int, F()]
    """that a tier had and could not give: read from storage"""


class ScheduleReport(TypedDict):
    """How the ranks of one node process shared it: `headrace docs schedule`."""

    name: Annotated[str, F()]
    """of the policy, or the file that is followed"""
    stragglers: Annotated[int, F()]
    """steps for which a rank was predicted to be late"""
    corrections: Annotated[int, F()]
    """times that threads were moved from rank to rank"""
    planned_steps: Annotated[int, F()]
    """whose shares were those of a file"""
    decode_threads: Annotated[int, F()]
    """that the policy gives out now; 0: all there are"""


class Io(TypedDict):
    """The store that reads, and why it was chosen."""

    store: Annotated[str, F("", "store.name")]
    note: Annotated[str, F("", "store.note")]
    reads: Annotated[int, F("", "engine.reads")]
    blocks: Annotated[int, F("", "engine.blocks.reads")]
    """that the order had read, each in one or more of `reads`, or found pinned"""
    retries: Annotated[int, F("", "store.retries", metric="read_retries_total")]
    failures: Annotated[int, F("", "store.failures", metric="read_failures_total")]


class WorkerReport(TypedDict):
    """What worker processes did. Sizes in bytes."""

    samples: Annotated[int, F("", "rows")]
    """transformed, ahead of what the training loop took"""
    tasks: Annotated[int, F()]
    busy_seconds: Annotated[float, F("s", "busy_ns")]
    """summed over workers"""
    memory: Annotated[int, F("bytes", "memory.used_bytes")]
    """that results lie in: `results` of the loader's memory"""
    memory_peak: Annotated[int, F("bytes", "memory.used_bytes_peak")]
    memory_budget: Annotated[int, F("bytes", "memory.capacity_bytes")]
    beyond: Annotated[int, F("bytes", "memory.beyond_bytes")]


class Substitution(TypedDict):
    """A sample that could not be delivered, and what was in its place."""

    epoch: Annotated[int, F()]
    step: Annotated[int, F()]
    slot: Annotated[int, F()]
    wanted: Annotated[int, F()]
    given: Annotated[int, F()]
    reason: Annotated[str, F()]


def _sources(core: Any) -> Any:
    return core["engine"]["tiers"] if core["tiers"] else None


class Stats(TypedDict):
    """What a loader did so far. Times in seconds, sizes in bytes."""

    epoch: Annotated[int, F(metric="epoch", own=True)]
    step: Annotated[int, F()]
    batches: Annotated[int, F("", "delivered.batches", metric="batches_total", own=True)]
    """that the training loop took; what is ready for it does not count yet"""
    samples: Annotated[int, F("", "delivered.samples", metric="samples_total", own=True)]
    seconds: Annotated[float, F("s", "running_ns", metric="running_seconds_total", own=True)]
    """since its runs began"""
    samples_per_second: Annotated[float, F("1/s")]
    verdict: Annotated[str, F()]
    """one line: who waits, for what, and what may be done about it"""
    stall: Annotated[Stall, F("s")]
    stall_share: Annotated[float, F("share")]
    """of `seconds`"""
    step_times: Annotated[Quantiles, F("s")]
    """from one batch taken to the next, of this rank"""
    ranks: Annotated[list[Rank], F()]
    """that the loader's engine serves; one, unless the ranks of a node share an engine"""
    awaited: Annotated[list[int], F()]
    """ranks of the node that others wait for, to begin where they are to begin together"""
    imbalance: Annotated[Imbalance | None, F()]
    """of these ranks; None of a single one"""
    decode_seconds: Annotated[
        float, F("s", "engine.lanes.*.decode_ns", metric="decode_seconds_total")
    ]
    """summed over threads"""
    threads: Annotated[int, F(metric="threads")]
    bytes: Annotated[Bytes, F("bytes", "", metric="bytes_total")]
    memory: Annotated[Memory, F("bytes", "", metric="memory_bytes")]
    io: Annotated[Io, F("", "")]
    sources: Annotated[Sources | None, F("", _sources)]
    """None without tiers"""
    tiers: Annotated[list[TierReport], F("", _tiers)]
    """fastest first"""
    workers: Annotated[WorkerReport | None, F()]
    """None without a Python transform, or with workers=0"""
    schedule: Annotated[ScheduleReport, F()]
    substituted: Annotated[
        int, F("", "delivered.substituted", metric="substituted_total", own=True)
    ]
    substitutions: Annotated[list[Substitution], F("", "delivered.substitutions")]
    """the first 10,000"""
