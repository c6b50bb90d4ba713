"""What the requests of a planned job cost, for prices that the user gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headrace._loading.planned import PlannedEpoch, total_bytes
from headrace.errors import InvalidArgumentError

_GB = 1e9


@dataclass(frozen=True)
class Prices:
    """Of any currency."""

    per_million_reads: float
    per_gb: float

    def of(self, requests: int, read_bytes: int) -> float:
        return self.per_million_reads * requests / 1e6 + self.per_gb * read_bytes / _GB


@dataclass(frozen=True)
class Bill:
    """Of all ranks, each taken to read as much as the planned one."""

    requests: int
    bytes: int
    cost: float


def prices(per_million_reads: float | None, per_gb: float | None) -> Prices | None:
    """None: there is nothing to count.

    Raises:
        InvalidArgumentError: names the price that is none.
    """
    given = {"--price-per-million-reads": per_million_reads, "--price-per-gb": per_gb}
    for option, price in given.items():
        if price is not None and not 0 <= price < math.inf:
            raise InvalidArgumentError(f"{option}: got {price}, must be at least 0")
    if per_million_reads is None and per_gb is None:
        return None
    return Prices(per_million_reads or 0.0, per_gb or 0.0)


def of_epoch(epoch: PlannedEpoch, at: Prices, ranks: int) -> Bill:
    requests, count = epoch.requests * ranks, total_bytes(epoch.storage) * ranks
    return Bill(requests, count, at.of(requests, count))


def of_job(epochs: Sequence[Bill], at: Prices, job_epochs: int) -> Bill:
    """Epochs that were not planned are taken to be as the last one that was."""
    rest = max(0, job_epochs - len(epochs))
    requests = sum(epoch.requests for epoch in epochs) + rest * epochs[-1].requests
    count = sum(epoch.bytes for epoch in epochs) + rest * epochs[-1].bytes
    return Bill(requests, count, at.of(requests, count))


def sentences(epochs: Sequence[Bill], job: Bill, job_epochs: int, ranks: int) -> list[str]:
    """For people: of each epoch, and of the job."""
    of_all = f" of all {ranks} ranks" if ranks > 1 else ""
    lines = [
        f"bill of epoch {number}: {_shown(epoch)}{of_all}" for number, epoch in enumerate(epochs)
    ]
    return [*lines, f"bill of the job, {job_epochs} epochs: {_shown(job)}{of_all}"]


def _shown(bill: Bill) -> str:
    return f"{bill.cost:,.4g} for {bill.requests:,} requests and {bill.bytes / _GB:,.4g} GB"
