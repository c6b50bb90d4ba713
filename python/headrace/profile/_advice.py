"""Recommends an order for a machine: the strictest that is fast enough."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace import _core
from headrace._units import format_bytes, parse_rate
from headrace.errors import InvalidArgumentError
from headrace.profile._machine import MachineProfile
from headrace.profile._predict import (
    BLOCK_READS_IN_FLIGHT,
    EpochWork,
    Prediction,
    predict_epoch,
    sample_reads_in_flight,
)

ENOUGH = 0.95
"""Share of the demand that suffices; smaller differences are measurement noise."""


@dataclass(frozen=True)
class Candidate:
    """An order, with its predicted rate."""

    order: str
    block_bytes: int | None  # of one read; None: samples are read one by one
    block_samples: int | None  # None: the dataset's own blocks, or no blocks at all
    samples_per_second: float
    bound: str  # the limiting resource
    storage_rate: float  # bytes a second of storage for such reads
    feeds: bool
    label_inflation: float | None
    """Of a batch, expected: a Loader warns above `_core.good_label_inflation`. None: not known."""

    @property
    def mixes(self) -> bool:
        """Whether a Loader with it would not warn about the mix of labels."""
        return self.label_inflation is None or self.label_inflation <= _core.good_label_inflation


LabelInflation = Callable[[str, int | None], float | None]
"""Of the labels of a batch: of an order by name, with so many samples a block, or its default."""


@dataclass(frozen=True)
class Advice:
    """The recommendation, and its reason."""

    chosen: Candidate
    demand: float  # samples a second: as given, or the rate of decoding
    decode: float  # samples a second that all threads decode
    why: str
    candidates: Sequence[Candidate]


def parse_demand(text: str, sample_bytes: float) -> float:
    """Samples a second of "1200", "1200 samples/s" or "500 MB/s"."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(samples/s)?\s*", text)
    if match is not None:
        rate = float(match[1])
    elif text.strip().lower().endswith("/s"):
        rate = parse_rate(text, "--demand") / sample_bytes
    else:
        raise InvalidArgumentError(
            f'--demand: got "{text}", must be samples a second, as 1200, or bytes, as 500MB/s'
        )
    if rate <= 0:
        raise InvalidArgumentError(f'--demand: got "{text}", must be above 0')
    return rate


def advise(
    profile: MachineProfile,
    demand: float | None = None,
    label_inflation: LabelInflation = lambda order, block_samples: None,
) -> Advice:
    """The strictest order that feeds `demand` samples a second.

    None: the rate of decoding on all threads. Of blocks the smallest that is fast enough: smaller
    ones shuffle better. An order that mixes labels too little is recommended only if no other is
    fast enough, with the remedy. If none is, the fastest one.
    """
    samples = profile.dataset.samples
    size = profile.dataset.sample_bytes
    total = samples * size
    decode = predict_epoch(profile, EpochWork(samples=samples, decode_bytes=total))
    target = decode.samples_per_second if demand is None else demand

    own_block = None if (own := profile.dataset.block_bytes) is None else round(own)

    def predicted(order: str, block: int | None) -> Candidate:
        read_bytes = size if block is None else float(block)
        work = EpochWork(
            samples=samples,
            decode_bytes=total,
            copy_bytes=0 if block is None else total,
            storage_reads=[(read_bytes, total / read_bytes)],
            reads_in_flight=BLOCK_READS_IN_FLIGHT if block else sample_reads_in_flight(size),
        )
        prediction: Prediction = predict_epoch(profile, work)
        block_samples = None if block in (None, own_block) else max(1, round(block / size))
        return Candidate(
            order=order,
            block_bytes=block,
            block_samples=block_samples,
            samples_per_second=prediction.samples_per_second,
            bound=prediction.bound,
            storage_rate=total / prediction.needs["storage"],
            feeds=prediction.samples_per_second >= ENOUGH * target,
            label_inflation=label_inflation(order, block_samples),
        )

    ours = [
        order
        for order in map(_core.find_order, _core.order_names())
        if order.reproduces_requests_of is None
    ]
    candidates = [
        predicted(order.name, block)
        for order in ours
        for block in (_block_sizes(profile) if order.reads_blocks else [None])
    ]
    feeding = [candidate for candidate in candidates if candidate.feeds]
    # The first that mixes labels well; if none does, the first.
    chosen = min(feeding, key=lambda candidate: not candidate.mixes, default=None)
    if chosen is None:
        best = max(candidate.samples_per_second for candidate in candidates)
        chosen = next(
            candidate for candidate in candidates if candidate.samples_per_second >= ENOUGH * best
        )
    return Advice(
        chosen=chosen,
        demand=target,
        decode=decode.samples_per_second,
        why=_why(profile, chosen, candidates, decode.samples_per_second, demand),
        candidates=candidates,
    )


def _block_sizes(profile: MachineProfile) -> list[int]:
    """Sizes of reads that hold several samples: the measured ones, and the dataset's blocks."""
    if profile.storage.reads != "ranges":
        return []
    sizes = [rate.read_bytes for rate in profile.storage.rates]
    if profile.dataset.block_bytes is not None:
        sizes.append(round(profile.dataset.block_bytes))
    total = profile.dataset.samples * profile.dataset.sample_bytes
    return sorted({size for size in sizes if 2 * profile.dataset.sample_bytes <= size <= total})


def _why(
    profile: MachineProfile,
    chosen: Candidate,
    candidates: Sequence[Candidate],
    decode: float,
    demand: float | None,
) -> str:
    exact = candidates[0]
    parts = [
        f"single samples ({format_bytes(profile.dataset.sample_bytes)}) come at "
        f"{_rate(exact.storage_rate)}, enough for "
        f"{exact.storage_rate / profile.dataset.sample_bytes:,.0f} samples/s"
    ]
    if chosen.block_bytes is not None:
        parts.append(
            f"blocks of {format_bytes(chosen.block_bytes)} at {_rate(chosen.storage_rate)}"
        )
    threads = f"{profile.host.cpus} thread" + ("s" if profile.host.cpus > 1 else "")
    copied = profile.decode.what == "copy"  # no images, or images as encoded bytes
    what = "copy" if copied else f"decode ({profile.decode.what})"
    parts.append(f"{threads} {what} {decode:,.0f} samples/s")
    if demand is not None:
        parts.append(f"the demand is {demand:,.0f}")
    if not chosen.mixes:
        parts.append(
            "labels inside its blocks are alike: their mix varies "
            f"{chosen.label_inflation:.2f} times as much from batch to batch as a perfect "
            "shuffle's: shuffle the dataset once: `headrace pack`"
        )
    if not chosen.feeds:
        if demand is not None and decode < ENOUGH * demand:
            making = "copying" if copied else "decoding"
            parts.append(f"{making} is too slow for that, whatever the order")
        elif profile.storage.reads == "files":
            parts.append(
                "each sample is a file of its own: `headrace pack` makes large reads possible"
            )
        else:
            parts.append("no order is fast enough; this one is the fastest")
    return "; ".join(parts)


def _rate(rate: float) -> str:
    return f"{format_bytes(rate)}/s"
