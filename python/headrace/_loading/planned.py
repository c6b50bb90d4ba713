"""The planned reads of a loader's job by source, and the work to predict their time from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace import _core
from headrace.profile import EpochWork, TierWork

Reads = list[tuple[int, int]]
"""(bytes of a read, number of such reads)"""


def total_bytes(reads: Reads) -> int:
    return sum(size * count for size, count in reads)


def total_reads(reads: Reads) -> int:
    return sum(count for _, count in reads)


@dataclass(frozen=True)
class PlannedEpoch:
    """The planned epoch of one rank. Bytes are those of stored samples."""

    epoch: int
    samples: int
    sample_bytes: int
    storage: Reads
    tiers: Sequence[tuple[Reads, Reads]]
    """Reads and writes, fastest tier first."""
    peers: Reads
    """From other nodes; none if the options have no profile with a link to them."""
    at_peers: int
    """The reads from storage that a tier of another node could serve."""
    reads_blocks: bool
    reads_in_flight: int
    threads: int
    request_bytes_max: int
    """A longer read from storage is several requests; 0: none is."""

    @property
    def requests(self) -> int:
        """Of the reads from storage."""
        whole = self.request_bytes_max
        return sum(count * (-(-size // whole) if whole else 1) for size, count in self.storage)

    def work(self, demand: float | None = None, sharers: int = 1) -> EpochWork:
        """The work from which to predict the epoch's time."""
        in_memory = self.sample_bytes if self.reads_blocks else 0  # Through the order's pool.
        return EpochWork(
            samples=self.samples,
            decode_bytes=self.sample_bytes,
            copy_bytes=in_memory,
            storage_reads=self.storage,
            peer_reads=self.peers,
            tiers=[TierWork(reads=reads, writes=writes) for reads, writes in self.tiers],
            demand=demand,
            threads=self.threads,
            reads_in_flight=self.reads_in_flight,
            storage_sharers=sharers,
        )


def planned_epochs(planner: _core.EpochPlanner) -> Iterator[PlannedEpoch]:
    """Yields the epochs from the first on. Reads nothing; tiers begin empty."""
    while (epoch := planner.next()) is not None:
        yield PlannedEpoch(
            **epoch,
            reads_blocks=planner.reads_blocks,
            reads_in_flight=planner.reads_in_flight,
            threads=planner.threads,
            request_bytes_max=planner.request_bytes_max,
        )
