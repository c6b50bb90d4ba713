"""What `stats()` and `explain()` return."""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict, cast

from headrace._observe.advice import DataFacts
from headrace._observe.ranks import (
    Imbalance,
    Quantiles,
    Rank,
    Stall,
    make_imbalance,
    make_ranks,
    make_stall,
    make_verdict,
    stall_seconds,
)
from headrace._observe.readable import ReadableStats
from headrace._text import printable
from headrace._units import format_bytes


class Bytes(TypedDict):
    """Bytes by where they were counted."""

    samples: int
    """stored bytes of the samples decoded"""
    copied: int
    """moved in memory as they are, into batches or together for a decoder; from the row of a batch
    to the training loop nothing is copied"""
    messages: int
    """that a node process sent this rank, batches' ids and places among them; rows are mapped"""
    read: int
    """asked of storage, gaps between neighbouring samples included"""
    device: int | None
    """that the process had read from block devices meanwhile; None: the system does not tell"""
    direct: int
    """read past the page cache, whole device blocks"""
    page_cache: int
    """found in the page cache, where that is known"""
    again: int
    """of `read`: what was resident when the state was saved that the run began with"""
    pinned: int
    """found in pinned blocks instead of being asked of storage"""


class Memory(TypedDict):
    """Bytes by use, within their budgets; what had to be taken beyond them is counted apart."""

    staging: int
    staging_peak: int
    staging_budget: int
    batches: int
    batches_peak: int
    batches_budget: int
    resident: int
    """samples that the order keeps until they are drawn, in whole cells"""
    resident_peak: int
    resident_budget: int
    pinned: int
    """blocks that are kept for good"""
    pinned_budget: int
    scratch: int
    """what decodes take beside what was read and their rows: set aside for each thread, and taken
    by large images, which wait for it"""
    scratch_peak: int
    scratch_budget: int
    results: int
    """batches that worker processes made of others"""
    results_peak: int
    results_budget: int
    beyond: int
    beyond_peak: int
    index: int


class TierReport(TypedDict):
    """One tier: what it holds, and what it did. Sizes in bytes."""

    name: str
    capacity: int
    used: int
    peak: int
    entries: int
    """samples that it holds"""
    inherited: int
    """of a run before, found at the start"""
    uses: int
    """samples taken from it"""
    reuse: int
    """of `uses`: samples that were used before, or inherited"""
    ready: int
    """of `uses`: samples used for the first time, fetched ahead and ready on time"""
    use_bytes: int
    planned: int
    """uses that the plan took from it, counted as far as it is read ahead; of blocks, where the
    order reads blocks"""
    inserts: int
    refused: int
    """inserts for which there was no room at the moment"""
    failed: int
    """inserts and reads that failed"""
    corrupt: int
    """entries whose checksum was wrong: read from storage again"""
    degraded: str | None
    """why it is used no more, or only read"""


class Sources(TypedDict):
    """Where samples came from, with tiers."""

    storage: int
    tiers: int
    waited: int
    """samples waited for that were on their way into a tier"""
    fetched_ahead: int
    moved: int
    """from tier to tier"""
    not_kept: int
    """that a tier was to have, and did not get"""
    fallbacks: int
    """that a tier had and could not give: read from storage"""


class ScheduleReport(TypedDict):
    """How the ranks of one node process shared it: `headrace docs schedule`."""

    name: str
    """of the policy, or the file that is followed"""
    stragglers: int
    """steps for which a rank was predicted to be late"""
    corrections: int
    """times that threads were moved from rank to rank"""
    planned_steps: int
    """whose shares were those of a file"""
    decode_threads: int
    """that the policy gives out now; 0: all there are"""


class Io(TypedDict):
    """The store that reads, and why it was chosen."""

    store: str
    note: str
    reads: int
    blocks: int
    """that the order had read, each in one or more of `reads`, or found pinned"""
    retries: int
    failures: int


class WorkerReport(TypedDict):
    """What worker processes did. Sizes in bytes."""

    samples: int
    """transformed, ahead of what the training loop took"""
    tasks: int
    busy_seconds: float
    """summed over workers"""
    memory: int
    """that results lie in: `results` of the loader's memory"""
    memory_peak: int
    memory_budget: int
    beyond: int


class Substitution(TypedDict):
    """A sample that could not be delivered, and what was in its place."""

    epoch: int
    step: int
    slot: int
    wanted: int
    given: int
    reason: str


class Stats(TypedDict):
    """What a loader did so far. Times in seconds, sizes in bytes."""

    epoch: int
    step: int
    batches: int
    """that the training loop took; what is ready for it does not count yet"""
    samples: int
    seconds: float
    """since its runs began"""
    samples_per_second: float
    verdict: str
    """one line: who waits, for what, and what may be done about it"""
    stall: Stall
    stall_share: float
    """of `seconds`"""
    step_times: Quantiles
    """from one batch taken to the next, of this rank"""
    ranks: list[Rank]
    """that the loader's engine serves; one, unless the ranks of a node share an engine"""
    awaited: list[int]
    """ranks of the node that others wait for, to begin where they are to begin together"""
    imbalance: Imbalance | None
    """of these ranks; None of a single one"""
    decode_seconds: float
    """summed over threads"""
    threads: int
    bytes: Bytes
    memory: Memory
    io: Io
    sources: Sources | None
    """None without tiers"""
    tiers: list[TierReport]
    """fastest first"""
    workers: WorkerReport | None
    """None without a Python transform, or with workers=0"""
    schedule: ScheduleReport
    substituted: int
    substitutions: list[Substitution]
    """the first 10,000"""


def _worker_report(counts: dict[str, int] | None) -> WorkerReport | None:
    if counts is None:
        return None
    return WorkerReport(
        samples=counts["rows"],
        tasks=counts["tasks"],
        busy_seconds=counts["busy_ns"] / 1e9,
        memory=counts["used"],
        memory_peak=counts["peak"],
        memory_budget=counts["capacity"],
        beyond=counts["beyond"],
    )


def make_stats(core: dict[str, Any], epoch: int, step: int, rank: int, data: DataFacts) -> Stats:
    """From the core's counters; `rank` is the loader's, `data` what it delivers."""
    core = core | {"rank": rank}
    seconds = core["running_ns"] / 1e9
    ranks = make_ranks(core)
    own = core["lanes"][core["lane"]]
    stall = make_stall(own["stall_ns"])
    waited = stall_seconds(stall)
    staging, batches = core["staging"], core["batch_memory"]
    results = core.get("workers") or {"used": 0, "peak": 0, "beyond": 0, "beyond_peak": 0}
    stats = Stats(
        epoch=epoch,
        step=step,
        batches=core["batches"],
        samples=core["samples"],
        seconds=seconds,
        samples_per_second=core["samples"] / seconds if seconds else 0.0,
        verdict=make_verdict(core, ranks, data),
        stall=stall,
        stall_share=waited / seconds if seconds else 0.0,
        step_times=ranks[core["lane"]]["step"],
        ranks=ranks,
        awaited=[ranks[lane]["rank"] for lane in core["awaited"]],
        imbalance=make_imbalance(core),
        decode_seconds=sum(lane["decode_ns"] for lane in core["lanes"]) / 1e9,
        threads=core["threads"],
        bytes=Bytes(
            samples=sum(lane["sample_bytes"] for lane in core["lanes"]),
            copied=core["copied_bytes"],
            messages=core["message_bytes"],
            read=core["read_bytes"],
            device=core["device_bytes"] if core["device_bytes"] >= 0 else None,
            direct=core["store_bytes_direct"],
            page_cache=core["store_bytes_page_cache"],
            again=core["reread_bytes"],
            pinned=core["pinned_bytes"],
        ),
        memory=Memory(
            staging=staging["used"],
            staging_peak=staging["peak"],
            staging_budget=staging["capacity"],
            batches=batches["used"],
            batches_peak=batches["peak"],
            batches_budget=batches["capacity"],
            resident=core["resident"],
            resident_peak=core["resident_peak"],
            resident_budget=core["resident_budget"],
            pinned=core["pinned"]["used"],
            pinned_budget=core["pinned"]["capacity"],
            scratch=core["scratch"],
            scratch_peak=core["scratch_peak"],
            scratch_budget=core["scratch_budget"],
            results=results["used"],
            results_peak=results["peak"],
            results_budget=core["results_budget"],
            beyond=staging["beyond"] + batches["beyond"] + results["beyond"],
            beyond_peak=staging["beyond_peak"] + batches["beyond_peak"] + results["beyond_peak"],
            index=core["index_bytes"],
        ),
        io=Io(
            store=core["store"],
            note=core["store_note"],
            reads=core["reads"],
            blocks=core["block_reads"],
            retries=core["store_retries"],
            failures=core["store_failures"],
        ),
        sources=core["sources"] if core["tiers"] else None,
        tiers=core["tiers"],
        workers=_worker_report(core.get("workers")),
        schedule=core["schedule"],
        substituted=core["substituted"],
        substitutions=[
            Substitution(
                epoch=epoch, step=step, slot=slot, wanted=wanted, given=given, reason=reason
            )
            for epoch, step, slot, wanted, given, reason in core["substitutions"]
        ],
    )
    return cast(Stats, ReadableStats(stats))


class ExplainedRow(TypedDict):
    """Where one field of one row comes from."""

    slot: int
    sample: int
    field: str
    source: str
    """as planned: "index", "block", "storage", or the name of a tier"""
    actual: str | None
    """where it came from; None: it was not delivered yet, or long ago"""
    object: str
    """the file's name, as os.fsdecode() makes it"""
    offset: int
    size: int


class ExplainedParameter(NamedTuple):
    """A parameter of the order, and where its value comes from."""

    value: int | str
    origin: str  # "given", "default", "default, limited by memory" or "from the state"


class Explanation:
    """Where each row of a step comes from, and each parameter of the order: `rows`, `parameters`;
    or `print()` it."""

    def __init__(
        self,
        epoch: int,
        step: int,
        rows: list[tuple[int, int, str, str, str, int, int, str]],
        order: str,
        parameters: dict[str, ExplainedParameter],
    ) -> None:
        self.epoch = epoch
        self.step = step
        self.order = order
        self.parameters = parameters
        self.rows = [
            ExplainedRow(
                slot=slot,
                sample=sample,
                field=field,
                source=source,
                actual=actual or None,
                object=where,
                offset=offset,
                size=size,
            )
            for slot, sample, field, source, where, offset, size, actual in rows
        ]

    def __str__(self) -> str:
        lines = [f"epoch {self.epoch} step {self.step}"]
        if self.parameters:
            each = (
                f"{name} {value} ({origin})" for name, (value, origin) in self.parameters.items()
            )
            lines.append(f"  order {self.order}: {', '.join(each)}")
        for row in self.rows:
            where = "index"
            if row["source"] != "index":
                end = row["offset"] + row["size"]
                source = row["source"]
                if row["actual"] not in (None, source):
                    source = f"{source} (was {row['actual']})"
                where = (
                    f"{source}: {row['object']} [{row['offset']}, {end}) "
                    f"{format_bytes(row['size'])}"
                )
            lines.append(
                f"  slot {row['slot']:>4}  sample {row['sample']:>9}  {row['field']}: {where}"
            )
        return printable("\n".join(lines))

    def __repr__(self) -> str:
        return f"<headrace explanation of epoch {self.epoch} step {self.step}; print it>"
