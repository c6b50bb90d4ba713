"""The rank that a loader reads for, and the number of ranks."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from headrace._arguments import integer
from headrace.errors import FailedPreconditionError, InvalidArgumentError

_WORLD_MAX = 2**20
# Launchers that tell each process its place without torchrun's names: (rank, world size). Slurm's
# size is that of the step: a batch script that srun did not start has only the job's.
_LAUNCHERS = (
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)
_WAY_OUT = (
    "make the loader after init_process_group() (with Lightning: in train_dataloader()), or give "
    "sharding=hr.Sharding(rank=..., world_size=...)"
)


class Found(NamedTuple):
    """The rank of the process, and its source."""

    rank: int
    world_size: int
    by: str


class Ranks:
    """The rank that a loader was made for.

    Without `rank` and `world_size` they are torch.distributed's, if it runs; else torchrun's
    environment; else rank 0 of 1. With a sampler they only name the rank, in ``stats()`` and the
    like: which samples are read is the sampler's to say, so nothing that is found is refused.

    Raises:
        InvalidArgumentError: the arguments are no rank of a world; or without a sampler: the
            environment is none, or a launcher started several processes and nothing tells how
            samples are divided.
    """

    def __init__(
        self, rank: int | None, world_size: int | None, *, with_sampler: bool = False
    ) -> None:
        if (rank is None) != (world_size is None):
            raise InvalidArgumentError(
                f"Sharding(rank={rank}, world_size={world_size}): give both, or neither to use "
                "those of torch or torchrun"
            )
        self._found = None
        self._checked = rank is None and not with_sampler
        if rank is None or world_size is None:
            try:
                self._found = _distributed() or _environment()
                if self._found is None:
                    _refuse_launchers()
            except InvalidArgumentError:
                if not with_sampler:
                    raise
            rank, world_size, _ = self._found or Found(0, 1, "")
        self.world_size = integer("Sharding.world_size", world_size, 1, _WORLD_MAX)
        self.rank = integer("Sharding.rank", rank, 0, self.world_size - 1)

    def check(self) -> None:
        """Raises if the process has a different rank now.

        A process group that has ended has no ranks: its loaders continue as they are.

        Raises:
            FailedPreconditionError: names both ranks and the remedy.
        """
        if not self._checked:
            return
        try:
            now = _distributed() or _environment()
        except InvalidArgumentError:
            return  # Only half of torchrun's names, as in a process that launches others: unknown.
        if now is None or (now.rank, now.world_size) == (self.rank, self.world_size):
            return
        then = f"found by {self._found.by}" if self._found else "because no other ranks were known"
        raise FailedPreconditionError(
            f"iterating: the loader was made for rank {self.rank} of {self.world_size}, {then}; "
            f"{now.by} now says rank {now.rank} of {now.world_size}: samples would be lost or "
            f"repeated; {_WAY_OUT}; load_state_dict() takes a place over to another loader"
        )


def _distributed() -> Found | None:
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, world_size = int(distributed.get_rank()), int(distributed.get_world_size())
    return Found(rank, world_size, "torch.distributed")


def _environment() -> Found | None:
    rank, world_size = os.environ.get("RANK") or None, os.environ.get("WORLD_SIZE") or None
    if rank is None and world_size is None:
        return None
    if rank is None and os.environ.get("LOCAL_RANK"):  # Lightning starts its processes like this.
        raise InvalidArgumentError(
            f"environment WORLD_SIZE={world_size!r}, LOCAL_RANK={os.environ['LOCAL_RANK']!r}, but "
            f"no RANK: cannot determine which of several processes this is; {_WAY_OUT}"
        )
    try:
        return Found(int(rank or ""), int(world_size or ""), "the environment (RANK, WORLD_SIZE)")
    except ValueError:
        raise InvalidArgumentError(
            f"environment RANK={rank!r}, WORLD_SIZE={world_size!r}: must both be integers; "
            "or give sharding=hr.Sharding(rank=..., world_size=...)"
        ) from None


def _refuse_launchers() -> None:
    """Refuses several processes without a process group: each would get all samples."""
    for rank_name, size_name in _LAUNCHERS:
        rank, size = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
        if rank.isdecimal() and size.isdecimal() and int(size) > 1:
            raise InvalidArgumentError(
                f"environment {rank_name}={rank}, {size_name}={size}, but no RANK and no process "
                f"group: this is one of {size} processes, and whether each is to have its share of "
                f"the samples (hr.Sharding(rank={rank}, world_size={size})) or all "
                f"(hr.Sharding(rank=0, world_size=1)) is unknown; {_WAY_OUT}"
            )
