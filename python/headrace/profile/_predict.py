"""Predicts an epoch on a machine: the time of its busiest resource (`headrace docs model`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace import _core
from headrace._arguments import shown
from headrace._signature import named_arguments, named_fields
from headrace.errors import InvalidArgumentError
from headrace.profile._machine import MachineProfile

READS_IN_FLIGHT: int = _core.reads_in_flight
"""Reads of single samples, if they are large, that the loader has in flight."""
BLOCK_READS_IN_FLIGHT: int = _core.block_reads_in_flight
"""Reads of blocks that its memory is divided for."""


def sample_reads_in_flight(read_bytes: float) -> int:
    """Reads of single samples that a loader has in flight."""
    return _core.sample_reads_in_flight(int(read_bytes))


Reads = Sequence[tuple[float, float]]
"""(bytes of a read, how many reads)"""


@named_fields
@dataclass(frozen=True, kw_only=True)
class TierWork:
    """The work of one epoch for one tier."""

    reads: Reads = ()
    writes: Reads = ()


@named_fields
@dataclass(frozen=True, kw_only=True)
class EpochWork:
    """The work of one epoch for one node."""

    samples: float
    decode_bytes: float = 0
    """Stored bytes that are decoded."""
    copy_bytes: float = 0
    """Bytes moved from memory to memory in addition: blocks into a pool."""
    storage_reads: Reads = ()
    tiers: Sequence[TierWork] = ()
    """By position in the profile's tiers; may be shorter."""
    peer_bytes: float = 0
    """Received from other nodes, in large samples."""
    peer_reads: Reads = ()
    """Samples received from other nodes, by size."""
    demand: float | None = None
    """Samples a second that the trainer takes; None: no limit."""
    threads: int | None = None
    """Threads that decode and copy; None: the profile's cpus."""
    reads_in_flight: int = READS_IN_FLIGHT
    """Of this node at storage. The loader has 16 if it reads blocks; else 64 to 256, the more the
    smaller they are."""
    storage_sharers: int = 1
    """Nodes that read the storage concurrently, as much as this one."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """How long an epoch takes, and why."""

    seconds: float
    bound: str
    """"storage", "tier 0", "peers", "decode", "copy" or "consumer"."""
    needs: Mapping[str, float]
    """Seconds that each resource needs alone."""
    samples: float

    @property
    def samples_per_second(self) -> float:
        """Infinite if no resource takes any time."""
        return self.samples / self.seconds if self.seconds else math.inf


@named_arguments
def predict_epoch(profile: MachineProfile, work: EpochWork) -> Prediction:
    """Predicts the time of an epoch: everything overlaps, so the busiest resource decides.

    Raises:
        InvalidArgumentError: an invalid count, or a tier or peers that the profile lacks.
    """
    for name, value, kind in (("profile", profile, MachineProfile), ("work", work, EpochWork)):
        if not isinstance(value, kind):
            what = f"headrace.profile.{kind.__name__}"
            raise InvalidArgumentError(f"{name}: got {shown(value)}, must be a {what}")
    predicted = profile.to_model().predict_epoch(
        samples=work.samples,
        storage=list(work.storage_reads),
        tiers=[(list(tier.reads), list(tier.writes)) for tier in work.tiers],
        peers=[*work.peer_reads, *([(work.peer_bytes, 1)] if work.peer_bytes else [])],
        decode_bytes=work.decode_bytes,
        copy_bytes=work.copy_bytes,
        demand=math.inf if work.demand is None else work.demand,
        threads=profile.host.cpus if work.threads is None else work.threads,
        reads_in_flight=work.reads_in_flight,
        storage_sharers=work.storage_sharers,
    )
    return Prediction(
        seconds=predicted["seconds"],
        bound=predicted["bound"],
        needs=predicted["needs"],
        samples=work.samples,
    )
