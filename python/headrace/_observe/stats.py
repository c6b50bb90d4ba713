"""The figures of `stats()`: each is declared here, and only here.

The result of `stats()`, the metrics for Prometheus and the table of `headrace docs observe` are
made from these declarations; `python tools/reference.py` rewrites the table."""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from headrace._observe.figures import Figure

F = Figure

METRICS = {
    "info": ("gauge", "Always 1; what is loaded, and what reads it."),
    "epoch": ("gauge", "Epoch that is loaded."),
    "batches_total": ("counter", "Batches that the training loop took."),
    "samples_total": ("counter", "Samples that the training loop took."),
    "running_seconds_total": ("counter", "Time that plans were in progress."),
    "decode_seconds_total": ("counter", "Time in decoding, summed over threads."),
    "threads": ("gauge", "Threads that decode."),
    "rank_batches_total": ("counter", "Batches that were made for a rank, taken or not."),
    "rank_samples_total": ("counter", "Samples in batches that were made for a rank."),
    "wait_seconds_total": ("counter", "Time that a rank waited for batches, by cause."),
    "held_up_seconds_total": ("counter", "Time that others waited because a rank took no batches."),
    "wait_share": ("gauge", "Share of the newest steps that a rank waited."),
    "step_seconds": ("gauge", "Time from batch to batch, quantiles of the newest steps."),
    "step_wait_seconds": ("gauge", "Time waited for a batch, quantiles of the newest steps."),
    "ready_batches": ("gauge", "Batches that wait for a rank."),
    "working_batches": ("gauge", "Batches that are being read and decoded for a rank."),
    "queued_reads": ("gauge", "Reads for a rank that are not issued yet."),
    "imbalance_share": ("gauge", "Share of iterations in which ranks differ by theta of a step."),
    "bytes_total": ("counter", "Bytes by where they were counted."),
    "memory_bytes": ("gauge", "Memory in use."),
    "memory_budget_bytes": ("gauge", "Budget of memory, by use."),
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
    """Seconds that the training loop waited for a batch, by cause."""

    storage: Annotated[float, F("s", "0", "cause=storage")]
    """for bytes that were not read yet"""
    decode: Annotated[float, F("s", "1", "cause=decode")]
    """for bytes that were read and not decoded yet"""
    consumer: Annotated[float, F("s", "2", "cause=consumer")]
    """for memory that the training loop holds"""
    ranks: Annotated[float, F("s", "3", "cause=ranks")]
    """for another rank of the node that took no batches"""


class Quantiles(TypedDict):
    """Quantiles over the newest batches of a rank, at most 4,096. Times in seconds."""

    count: Annotated[int, F()]
    """batches included"""
    p50: Annotated[float, F("s", "p50_ns", "quantile=0.5")]
    p95: Annotated[float, F("s", "p95_ns", "quantile=0.95")]
    p99: Annotated[float, F("s", "p99_ns", "quantile=0.99")]


class Stages(TypedDict):
    """Seconds that a rank's samples took by stage. Reads count from when they were issued, summed
    over those in flight; those of blocks, and what memory had, are not in them."""

    tiers: Annotated[float, F("s", "tier_read_ns")]
    """reads from tiers of this node"""
    nodes: Annotated[float, F("s", "node_read_ns")]
    """reads from other nodes"""
    storage: Annotated[float, F("s", "storage_read_ns")]
    """reads from storage"""
    preprocessing: Annotated[float, F("s", "decode_ns")]
    """decoding, summed over threads"""


class Rank(TypedDict):
    """One of the ranks that the loader's engine serves. Times in seconds."""

    rank: Annotated[int, F()]
    batches: Annotated[int, F(metric="rank_batches_total")]
    """finished batches, whether the training loop has taken them or not"""
    samples: Annotated[int, F(metric="rank_samples_total")]
    """Samples in the batches that were made for a rank."""
    stall: Annotated[Stall, F("s", "stall_ns", metric="wait_seconds_total")]
    stall_share: Annotated[float, F("share", metric="wait_share")]
    """share of time spent waiting, over the newest batches without the first of each run"""
    stall_shares: Annotated[Stall, F("share")]
    """`stall_share` by cause"""
    train_share: Annotated[float, F("share")]
    """the rest of that time: the share that the training loop has for itself"""
    stages: Annotated[Stages, F("s", "")]
    held_up: Annotated[float, F("s", "held_up_ns", metric="held_up_seconds_total")]
    """time that other ranks waited because this one took no batches"""
    step: Annotated[Quantiles, F("s", "figures.step", metric="step_seconds")]
    """time from taking one batch to taking the next"""
    wait: Annotated[Quantiles, F("s", "figures.wait", metric="step_wait_seconds")]
    """time that the training loop waited for a batch"""
    ready: Annotated[int, F(metric="ready_batches")]
    """batches that are ready and not taken yet"""
    in_work: Annotated[int, F("", "steps_in_work", metric="working_batches")]
    """batches being read and decoded"""
    queued_reads: Annotated[int, F(metric="queued_reads")]
    gone: Annotated[bool, F()]
    """True: the rank closed its loader, or its process ended"""


class EpochReport(TypedDict):
    """What this rank took of one epoch, over all runs. The first epoch, and the newest 63."""

    epoch: Annotated[int, F()]
    batches: Annotated[int, F()]
    samples: Annotated[int, F()]
    storage: Annotated[int, F("", "from_storage")]
    """samples that came from storage; all of them without tiers; with an order that reads blocks
    also those that came with a block, of which tiers and other nodes may have given a part"""
    nodes: Annotated[int, F("", "from_nodes")]
    """samples that came from tiers of other nodes"""
    tiers: Annotated[list[int], F("", "from_tiers")]
    """samples that came from each tier of this node, fastest first"""
    stall: Annotated[Stall, F("s", "stall_ns")]
    sample_sum: Annotated[int, F()]
    """a sum over the samples, whatever their order: `loader.audit()` compares it with the plan's"""
    in_sequence: Annotated[bool, F()]
    """whether none of its batches was left out, or taken again after a state was loaded"""


class FirstEpoch(TypedDict):
    """The first epoch that this rank took, in which tiers are empty: its first 4,096 batches."""

    step: Annotated[Quantiles, F("s")]
    """time from taking one batch to taking the next"""
    wait: Annotated[Quantiles, F("s")]
    """time that the training loop waited for a batch"""


class Imbalance(TypedDict):
    """How unequal the ranks are: the share of iterations in which the slowest and the fastest rank
    differ by more than theta times the training time."""

    iterations: Annotated[int, F()]
    """the newest iterations, as far as the batches of all ranks are known"""
    thetas: Annotated[list[float], F("share")]
    """the values of theta"""
    late: Annotated[list[float], F("share")]
    """for each theta; compares when batches were done, since the previous step began"""
    busy: Annotated[list[float], F("share")]
    """for each theta; compares the time of reading and decoding, whether a rank waited or not"""


def _device(core: Any) -> int | None:
    count: int = core["device_read_bytes"]
    return count if count >= 0 else None


class Bytes(TypedDict):
    """Bytes, by the place where they were counted."""

    samples: Annotated[int, F("bytes", "engine.lanes.*.sample_bytes", "kind=samples")]
    """stored bytes of the decoded samples"""
    copied: Annotated[int, F("bytes", "engine.lanes.*.copied_bytes", "kind=copied")]
    """copied unchanged in memory: into batches, or into one buffer for a decoder; a batch itself is
    not copied on its way to the training loop"""
    messages: Annotated[int, F("bytes", "message_bytes", "kind=messages", own=True)]
    """messages from a node process to this rank: ids and positions of rows, without the rows"""
    read: Annotated[int, F("bytes", "engine.read_bytes", "kind=read")]
    """requested from storage, including gaps between neighbouring samples"""
    device: Annotated[int | None, F("bytes", _device, "kind=device")]
    """read from block devices by the whole process meanwhile; None: not reported"""
    direct: Annotated[int, F("bytes", "store.bytes_direct", "kind=direct")]
    """read with O_DIRECT, in whole device blocks"""
    page_cache: Annotated[int, F("bytes", "store.bytes_page_cache", "kind=page_cache")]
    """found in the page cache, as far as it is known"""
    again: Annotated[int, F("bytes", "engine.blocks.reread_bytes", "kind=again")]
    """part of `read`: samples that were resident when the loaded state was saved, read again"""
    pinned: Annotated[int, F("bytes", "engine.blocks.pinned_bytes", "kind=pinned")]
    """taken from pinned blocks instead of storage"""


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
    """Bytes by use, each within its budget. `beyond` counts memory in excess of the budgets."""

    staging: Annotated[int, F("bytes", "engine.staging.used_bytes", "use=staging")]
    staging_peak: Annotated[int, F("bytes", "engine.staging.used_bytes_peak")]
    staging_budget: Annotated[int, _budget("staging", "engine.staging.capacity_bytes")]
    batches: Annotated[int, F("bytes", "engine.batch.used_bytes", "use=batches")]
    batches_peak: Annotated[int, F("bytes", "engine.batch.used_bytes_peak")]
    batches_budget: Annotated[int, _budget("batches", "engine.batch.capacity_bytes")]
    resident: Annotated[int, F("bytes", _cells("used_units"), "use=resident")]
    """samples that the order keeps until they are drawn; counted in whole cells"""
    resident_peak: Annotated[int, F("bytes", _cells("used_units_peak"))]
    resident_budget: Annotated[int, _budget("resident", _cells("capacity_units"))]
    pinned: Annotated[int, F("bytes", "engine.pinned.used_bytes", "use=pinned")]
    """blocks that are kept in spare memory until the end"""
    pinned_budget: Annotated[int, _budget("pinned", "engine.pinned.capacity_bytes")]
    scratch: Annotated[int, F("bytes", "engine.scratch.used_bytes", "use=scratch")]
    """memory of decoders beside encoded bytes and rows: for each thread, and for large images"""
    scratch_peak: Annotated[int, F("bytes", "engine.scratch.used_bytes_peak")]
    scratch_budget: Annotated[int, _budget("scratch", "engine.scratch.capacity_bytes")]
    results: Annotated[int, F("bytes", "results.used_bytes", "use=results")]
    """batches made by worker processes"""
    results_peak: Annotated[int, F("bytes", "results.used_bytes_peak")]
    results_budget: Annotated[int, _budget("results", results_budget)]
    decoded: Annotated[int, F("bytes", "store.held_bytes", "use=decoded")]
    """files and row groups decoded as a whole: those kept, and those in progress"""
    decoded_peak: Annotated[int, F("bytes", "store.held_bytes_peak")]
    decoded_budget: Annotated[int, _budget("decoded", "budget.decoded_bytes")]
    requests: Annotated[int, F("bytes", "store.request_bytes", "use=requests")]
    """requests to an object store: their bytes arrive here first"""
    requests_peak: Annotated[int, F("bytes", "store.request_bytes_peak")]
    requests_budget: Annotated[int, _budget("requests", "budget.request_bytes")]
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
    """The contents and the counters of one tier. Sizes in bytes."""

    name: Annotated[str, F()]
    capacity: Annotated[int, F("bytes", "capacity_bytes", metric="tier_capacity_bytes")]
    used: Annotated[int, F("bytes", "used_bytes", metric="tier_used_bytes")]
    peak: Annotated[int, F("bytes", "used_bytes_peak")]
    entries: Annotated[int, F()]
    """samples in the tier"""
    inherited: Annotated[int, F("", "entries_inherited")]
    """samples that were in the tier's folder at the start, from an earlier run"""
    uses: Annotated[int, F("", "uses.samples", metric="tier_uses_total")]
    """samples taken from the tier"""
    reuse: Annotated[int, F("", lambda tier: tier["uses"]["samples"] - tier["uses"]["ahead"])]
    """part of `uses`: samples that were used before, or inherited"""
    ready: Annotated[int, F("", "uses.ahead")]
    """part of `uses`: first uses of samples that were fetched ahead and ready in time"""
    use_bytes: Annotated[int, F("bytes", "uses.bytes")]
    planned: Annotated[int, F()]
    """uses that the plan assigned to the tier, with reads ahead; of blocks if the order has them"""
    inserts: Annotated[int, F()]
    refused: Annotated[int, F("", "inserts_refused")]
    """inserts for which the tier had no room at that time"""
    failed: Annotated[int, F("", lambda tier: tier["inserts_failed"] + tier["reads_failed"])]
    """inserts and reads that failed"""
    corrupt: Annotated[int, F()]
    """entries with a wrong checksum; the samples were read from storage"""
    degraded: Annotated[
        str | None,
        F(
            source=lambda tier: tier["degraded_reason"] if tier["degraded"] else None,
            metric="tier_degraded",
            exported=lambda why: int(why is not None),
        ),
    ]
    """the reason why the tier is no longer used, or only read; None if it works"""


class Sources(TypedDict):
    """The sources of samples, if there are tiers."""

    storage: Annotated[int, F("", "storage_uses", "tier=storage", "tier_uses_total")]
    """samples that no tier had: read from storage"""
    tiers: Annotated[int, F("", "uses.*.samples")]
    waited: Annotated[int, F("", "waits")]
    """samples that a row waited for while they were on their way into a tier"""
    fetched_ahead: Annotated[int, F()]
    moved: Annotated[int, F()]
    """samples moved from one tier to another"""
    not_kept: Annotated[int, F()]
    """samples that the plan wanted in a tier and that were not inserted"""
    fallbacks: Annotated[int, F()]
    """samples that a tier had but could not return: read from storage"""
    nodes: Annotated[int, F("", "node_uses", "tier=nodes", "tier_uses_total")]
    """samples requested from other nodes, whose tiers hold them by the plan"""
    node_fallbacks: Annotated[int, F()]
    """part of `nodes`: samples that the other node did not give: read from storage"""
    brought: Annotated[int, F()]
    """samples read into a tier because another node asked for them"""
    tiers_passed: Annotated[int, F()]
    """samples in a tier that were read from a source faster by `EngineOptions.profile`"""
    nodes_passed: Annotated[int, F()]
    """planned from another node, read from storage: faster by `EngineOptions.profile`"""


class NodesReport(TypedDict):
    """What this node and the other nodes of the job gave each other: `headrace docs nodes`."""

    node: Annotated[int, F()]
    """number of this node"""
    nodes: Annotated[int, F()]
    """nodes of the job that ask each other, this one included"""
    received: Annotated[int, F("", "received_samples")]
    """samples that other nodes gave"""
    received_bytes: Annotated[int, F("bytes")]
    asked: Annotated[int, F("", "asked_samples")]
    """samples that other nodes were asked for"""
    requests: Annotated[int, F()]
    """messages that asked for these samples, one or several at a time"""
    answers: Annotated[int, F()]
    """messages received in answer, with one or several samples, or a part of one"""
    not_held: Annotated[int, F()]
    """samples that another node did not have"""
    failed: Annotated[int, F()]
    """samples that another node did not give in time, or whole"""
    asked_second: Annotated[int, F()]
    """samples that a second node was asked for, because the first failed or was slow"""
    second_gave: Annotated[int, F()]
    """part of `received`: samples that the second node gave"""
    given: Annotated[int, F("", "given_samples")]
    """samples that this node gave"""
    given_bytes: Annotated[int, F("bytes")]
    not_given: Annotated[int, F()]
    """samples that others asked for and this node did not have"""
    bad_messages: Annotated[int, F()]
    """messages that were refused: without the job's token, or not what was asked for"""
    compared_steps: Annotated[int, F()]
    """steps of other nodes' plans that were compared with this node's plan"""
    down: Annotated[list[int], F()]
    """nodes that are not asked now, because they did not answer"""


class ParcelsReport(TypedDict):
    """Samples that nodes sent each other as the order plans (`headrace docs orders`), in bytes."""

    received: Annotated[int, F("", "parcels")]
    """parcels requested from other nodes: what a node sends for a step, or with an answer"""
    received_samples: Annotated[int, F("", "parcel_samples")]
    received_bytes: Annotated[int, F("bytes", "parcel_bytes")]
    sent: Annotated[int, F("", "sent_parcels")]
    sent_samples: Annotated[int, F("", "sent_samples")]
    sent_bytes: Annotated[int, F("bytes", "sent_bytes")]


class ScheduleReport(TypedDict):
    """How the ranks of a node process shared its reads and threads: `headrace docs schedule`."""

    name: Annotated[str, F()]
    """name of the policy, or path of the schedule file"""
    stragglers: Annotated[int, F()]
    """steps for which a rank was predicted to be late"""
    corrections: Annotated[int, F()]
    """number of times that threads were moved from one rank to another"""
    planned_steps: Annotated[int, F()]
    """steps whose shares came from a schedule file"""
    decode_threads: Annotated[int, F()]
    """threads that the policy distributes now; 0: all"""


class Io(TypedDict):
    """The store that reads, and the reason for its choice."""

    store: Annotated[str, F("", "store.name")]
    note: Annotated[str, F("", "store.note")]
    """why this store was chosen"""
    reads: Annotated[int, F("", "engine.reads")]
    blocks: Annotated[int, F("", "engine.blocks.reads")]
    """blocks that the order requested: each took one or more of `reads`, or was pinned"""
    blocks_left: Annotated[int, F("", "engine.blocks.left_in_storage")]
    """part of `blocks`: the page cache held them, and rows copy their samples from there"""
    retries: Annotated[int, F("", "store.retries", metric="read_retries_total")]
    failures: Annotated[int, F("", "store.failures", metric="read_failures_total")]
    hedges: Annotated[int, F("", "store.hedges")]
    """second requests to an object store, beside late ones"""
    slow_downs: Annotated[int, F("", "store.slow_downs")]
    """answers of an object store that ask for fewer requests (503, 429)"""
    shared: Annotated[int, F("", "store.share_reads")]  # part of `reads`
    shared_bytes: Annotated[int, F("bytes", "store.share_bytes")]
    """bytes that other jobs of the service had read: they did not come from storage"""


class WorkerReport(TypedDict):
    """The counters of worker processes. Sizes in bytes."""

    samples: Annotated[int, F("", "rows")]
    """samples transformed; may be ahead of those that the training loop took"""
    tasks: Annotated[int, F()]
    busy_seconds: Annotated[float, F("s", "busy_ns")]
    """summed over workers"""
    memory: Annotated[int, F("bytes", "memory.used_bytes")]
    """memory of results: `results` in the loader's memory"""
    memory_peak: Annotated[int, F("bytes", "memory.used_bytes_peak")]
    memory_budget: Annotated[int, F("bytes", "memory.capacity_bytes")]
    beyond: Annotated[int, F("bytes", "memory.beyond_bytes")]


class Substitution(TypedDict):
    """A sample that could not be delivered, and the sample that replaced it."""

    epoch: Annotated[int, F()]
    step: Annotated[int, F()]
    slot: Annotated[int, F()]
    wanted: Annotated[int, F()]
    given: Annotated[int, F()]
    reason: Annotated[str, F()]


def _sources(core: Any) -> Any:
    return core["engine"]["tiers"] if core["tiers"] else None


def _parcels(core: Any) -> Any:
    blocks = core["engine"]["blocks"]
    return blocks if blocks["parcels"] > 0 or blocks["sent_samples"] > 0 else None


def _nodes(core: Any) -> Any:
    return core["nodes"] if core["nodes"]["nodes"] > 1 else None


class Stats(TypedDict):
    """The counters of a loader. Times in seconds, sizes in bytes."""

    epoch: Annotated[int, F(metric="epoch", own=True)]
    """Number of the current epoch."""
    step: Annotated[int, F()]
    batches: Annotated[int, F("", "delivered.batches", metric="batches_total", own=True)]
    """batches that the training loop took; ready batches do not count yet"""
    samples: Annotated[int, F("", "delivered.samples", metric="samples_total", own=True)]
    """Samples in the batches that the training loop took."""
    seconds: Annotated[float, F("s", "running_ns", metric="running_seconds_total", own=True)]
    """duration of all runs so far"""
    samples_per_second: Annotated[float, F("1/s")]
    verdict: Annotated[str, F()]
    """one line: who waits, for what, and what you can do"""
    stall: Annotated[Stall, F("s")]
    stall_share: Annotated[float, F("share")]
    """total of `stall` as a share of `seconds`"""
    step_times: Annotated[Quantiles, F("s")]
    """time from taking one batch to taking the next, on this rank"""
    first_epoch: Annotated[FirstEpoch, F()]
    epochs: Annotated[list[EpochReport], F("", "delivered.epochs")]
    """of this rank, ascending"""
    ranks: Annotated[list[Rank], F()]
    """the ranks that the loader's engine serves: one, or all that share a node process"""
    awaited: Annotated[list[int], F()]
    """ranks that the others wait for, to start a run together"""
    imbalance: Annotated[Imbalance | None, F()]
    """compares these ranks; None if there is only one"""
    decode_seconds: Annotated[
        float, F("s", "engine.lanes.*.decode_ns", metric="decode_seconds_total")
    ]
    """summed over threads"""
    threads: Annotated[int, F(metric="threads")]
    """Number of decode threads."""
    bytes: Annotated[Bytes, F("bytes", "", metric="bytes_total")]
    """Bytes, by the place where they were counted."""
    memory: Annotated[Memory, F("bytes", "", metric="memory_bytes")]
    io: Annotated[Io, F("", "")]
    sources: Annotated[Sources | None, F("", _sources)]
    """None without tiers"""
    nodes: Annotated[NodesReport | None, F("", _nodes)]
    """None if no other node is asked"""
    parcels: Annotated[ParcelsReport | None, F("", _parcels)]
    """None if nodes do not send each other samples by the order"""
    tiers: Annotated[list[TierReport], F("", _tiers)]
    """fastest first"""
    workers: Annotated[WorkerReport | None, F()]
    """None without a Python transform, or with workers=0"""
    schedule: Annotated[ScheduleReport, F()]
    substituted: Annotated[
        int, F("", "delivered.substituted", metric="substituted_total", own=True)
    ]
    substitutions: Annotated[list[Substitution], F("", "delivered.substitutions")]
    """the first 10,000 replaced samples"""
