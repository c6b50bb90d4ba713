"""Whether each sample of an epoch came once: what ranks took, against the plan of all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace import _core as native
from headrace._arguments import shown
from headrace._dataset import Mixture, epoch_samples
from headrace._loading.feed import EpochFeed
from headrace._observe.stats import EpochReport, Stats
from headrace._units import counted
from headrace.errors import DataLossError, FailedPreconditionError, InvalidArgumentError

Ids = np.ndarray[tuple[int], np.dtype[np.uint64]]

_MODULUS = 2**64


def audited(feed: EpochFeed, own: Stats, reports: Sequence[Stats] | None) -> list[int]:
    """The epochs that were checked; see `Loader.audit`."""
    if feed.source is not None:
        raise FailedPreconditionError(
            "auditing epochs: a sampler decides which samples come; compare them with the "
            "sampler's, as output=hr.Output(ids=True) gives them"
        )
    world, options = feed.options.world_size, feed.options
    if reports is None:
        reports, ranks = [own], range(options.rank, options.rank + 1)
    else:
        reports, ranks = _of_all(reports, world), range(world)
    for report in reports:
        if report["substituted"] > len(report["substitutions"]):
            raise FailedPreconditionError(
                f"auditing epochs: of {report['substituted']:,} samples that were substituted the "
                f"first {len(report['substitutions']):,} are known; use "
                "on_error='raise', or mend the data"
            )
    complete = [
        number
        for number in sorted({epoch["epoch"] for report in reports for epoch in report["epochs"]})
        if all(_is_whole(report, number, feed.order.steps) for report in reports)
    ]
    for number in complete:
        _check(feed, number, reports, ranks)
    return complete


def _of_all(given: object, world: int) -> list[Stats]:
    """What the ranks gave."""
    way = (
        f"must be those of all {counted(world, 'rank')}, as torch.distributed.all_gather_object "
        "collects them; or leave it out"
    )
    if not isinstance(given, (list, tuple)):
        raise InvalidArgumentError(f"stats: got {shown(given)}, {way}")
    if len(given) != world:
        raise InvalidArgumentError(f"stats: got those of {counted(len(given), 'rank')}, {way}")
    for rank, report in enumerate(given):
        if not isinstance(report, dict) or "epochs" not in report:
            raise InvalidArgumentError(
                f"stats: got {shown(report)} as those of rank {rank}, must be what loader.stats() "
                "gives there"
            )
    return list(given)


def sample_sum(samples: Ids) -> int:
    """As the core sums what ranks take: SplitMix64's finalizer of each, modulo 2^64."""
    mixed = samples + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


def _of(reports: Sequence[Stats], number: int) -> list[EpochReport]:
    return [epoch for report in reports for epoch in report["epochs"] if epoch["epoch"] == number]


def _is_whole(report: Stats, number: int, steps: int) -> bool:
    """Whether a rank took each batch of an epoch, and none again."""
    return any(
        epoch["epoch"] == number and epoch["batches"] == steps and epoch["in_sequence"]
        for epoch in report["epochs"]
    )


def _check(feed: EpochFeed, number: int, reports: Sequence[Stats], ranks: range) -> None:
    planned = np.concatenate([_planned(feed, number, rank) for rank in ranks])
    where = f"epoch {number}" if len(ranks) > 1 else f"epoch {number}, rank {ranks.start}"
    taken = sum(entry["samples"] for entry in _of(reports, number))
    if taken != len(planned):
        raise DataLossError(
            f"auditing {where}: {counted(taken, 'sample')} came, and the plan has "
            f"{len(planned):,}; go on from a state before this epoch, and report a defect"
        )
    total = sum(entry["sample_sum"] for entry in _of(reports, number))
    for replaced in (entry for report in reports for entry in report["substitutions"]):
        if replaced["epoch"] == number:
            exchanged = np.array([replaced["wanted"], replaced["given"]], np.uint64)
            total += sample_sum(exchanged[:1]) - sample_sum(exchanged[1:])
    if total % _MODULUS != sample_sum(planned):
        raise DataLossError(
            f"auditing {where}: as many samples came as were planned, but not the same ones; go "
            "on from a state before this epoch, and report a defect"
        )
    if len(ranks) == feed.options.world_size:
        _check_all(feed, number, where, planned)


def _check_all(feed: EpochFeed, number: int, where: str, planned: Ids) -> None:
    """That the plan of all ranks has each sample once, but what it drops, or repeats to pad."""
    if isinstance(feed.dataset, Mixture):
        _check_mixture(feed.dataset, number, where, planned)
        return
    times = np.bincount(planned.astype(np.int64), minlength=len(feed.dataset))
    distinct, samples = int(np.count_nonzero(times)), epoch_samples(feed.dataset)
    wanted = len(planned) if feed.options.drop_last else samples
    if distinct != wanted or (not feed.options.drop_last and len(planned) < samples):
        raise DataLossError(
            f"auditing {where}: the plan has {distinct:,} of {samples:,} samples; report a defect"
        )


def _check_mixture(mixture: Mixture, number: int, where: str, planned: Ids) -> None:
    """That each source has its part of the plan, but for what is dropped, or repeated to pad."""
    begin = 0
    padding = abs(len(planned) - mixture.epoch_samples)
    for (name, wanted), samples in zip(
        mixture.epoch_counts(number).items(), mixture.source_samples, strict=True
    ):
        own = planned[(planned >= begin) & (planned < begin + samples)].astype(np.int64) - begin
        times = np.bincount(own, minlength=samples)
        begin += samples
        # An epoch may begin within a pass of the source, and end within one.
        if abs(len(own) - wanted) > padding or times.max() - times.min() > 2 + padding:
            raise DataLossError(
                f"auditing {where}: the plan has {counted(len(own), 'sample')} of {name!r}, must "
                f"have {wanted:,}, each of its samples as often; report a defect"
            )


def _planned(feed: EpochFeed, number: int, rank: int) -> Ids:
    """The samples of one rank in one epoch."""
    place, order = feed.order.place, feed.order
    lane = (0, 1)
    if place is not None and feed.options.order.exchanging_nodes > 1:
        lane = (rank % place.seats.positions, place.seats.positions)
    batches = native.RankBatches(
        feed.dataset.index,
        feed.options.replace(job={"rank": rank}),
        order.parameters,
        lane,
        (number, 0),
    )
    samples: list[Ids] = [np.empty(0, np.uint64)]
    while (batch := batches.next()) is not None:
        samples.append(np.array(batch[3], np.uint64))
        if batch[2]:
            break
    return np.concatenate(samples)
