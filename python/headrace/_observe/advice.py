"""What a verdict advises: of the data that is there, by arguments that the loader takes."""

from __future__ import annotations

from dataclasses import dataclass

from headrace._observe.figures import Core
from headrace._units import format_bytes


@dataclass(frozen=True)
class DataFacts:
    """What a loader's samples are, as far as advice depends on it."""

    fields: int
    """that are delivered"""
    stored: int
    """of them those that are read from storage; the rest lies in the index"""
    images: int
    """of them those that threads decode as images: natively, or to substitute what cannot be"""
    layout: str
    """"files": each sample has its own; "blocks": of several samples; "ranges": within files"""
    sampler: bool
    """says the order, so that order= is fixed"""
    workers: int | None = None
    """that run Python code on them; 0: the training loop does; None: there is none"""


def storage_advice(core: Core, data: DataFacts) -> str:
    """Where batches wait for bytes that are not read yet."""
    if data.stored == 0:
        return "all fields lie in the index: put the index file on faster storage"
    if core["tiers"]:
        return "give tiers= more room, or look at what they miss: stats()['tiers']"
    if core["engine"]["resident"]["capacity_units"]:
        return "use tiers=, or raise memory= to read further ahead"
    if data.layout == "files":
        size = _mean_size(core)
        reason = f"each sample is a file{f' of {size}' if size else ''}"
        # With a sampler the reads of a pack are as small, so that packing is not advised.
        return f"{reason}: use tiers=" + ("" if data.sampler else ", or `headrace pack`")
    if data.layout == "blocks" and not data.sampler:
        return "use tiers=, or an order that reads large blocks: order='epoch'"
    return "use tiers=, or raise memory= to read further ahead"


def decode_advice(core: Core, data: DataFacts) -> str:
    """Where batches wait for bytes that are read and not yet rows."""
    cores, threads = core["cores"], core["threads"]
    if data.images:
        if threads < cores:
            return f"raise threads= ({threads} of {cores} cores decode)"
        size = _mean_size(core)
        smaller = f"store smaller images ({size} on average)" if size else "store smaller images"
        return f"all {cores} cores decode already: {smaller}, or use more cores"
    if threads < cores:
        return f"raise threads= ({threads} of {cores} cores copy rows)"
    fewer = ", or leave out what is not needed: hr.Output(fields=...)" if data.fields > 1 else ""
    size = _mean_size(core) if data.stored else None
    what = f"samples ({size} each)" if size else "rows"
    return f"all {cores} cores already copy {what}; nothing is decoded: use more cores{fewer}"


def transform_advice(core: Core, workers: int) -> str:
    """Where batches wait for a Python transform, or for a `collate_fn`."""
    cores = core["cores"]
    if workers == 0:
        return "it runs in the training loop: give workers="
    if workers < cores:
        return f"raise workers= ({workers} for {cores} cores)"
    return (
        f"{workers} workers have all {cores} cores already: make it faster, or leave to the loop "
        "what can be done with whole batches"
    )


def _mean_size(core: Core) -> str | None:
    """Stored bytes of a sample; None before there is one."""
    samples = sum(lane["samples"] for lane in core["engine"]["lanes"])
    stored = sum(lane["sample_bytes"] for lane in core["engine"]["lanes"])
    return format_bytes(stored / samples) if samples and stored else None
