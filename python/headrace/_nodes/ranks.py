"""The rank that a loader reads for, and the number of ranks."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from typing import Any

from headrace._arguments import integer, shown
from headrace._nodes.launch import NODES, Launch, find_addresses, find_launch
from headrace._nodes.positions import Layout, layout_among
from headrace._options.groups import Job
from headrace.errors import FailedPreconditionError, InvalidArgumentError

_WORLD_MAX = 2**20
# Words of names of dimensions of meshes, as of torchtitan, Accelerate and Megatron; also of several
# made one, as "dp_shard_cp".
_SAME_BATCHES = frozenset(
    ("tp", "cp", "sp", "pp", "tensor", "context", "sequence", "pipeline", "model")
)
_WAY_OUT = (
    "make the loader after init_process_group() (with Lightning: in train_dataloader()), or give "
    "job=hr.Job(rank=..., world_size=...)"
)


class Ranks:
    """The rank that a loader was made for.

    Without `rank` and `world_size` they are torch.distributed's, if it runs; else those of the
    launch; else rank 0 of 1. With a sampler they only name the rank, in ``stats()`` and the
    like: which samples are read is the sampler's to say, so nothing that is found is refused.

    Raises:
        InvalidArgumentError: the arguments are no rank of a world; or without a sampler: the
            environment is none.
    """

    def __init__(self, job: Job | None = None, *, with_sampler: bool = False) -> None:
        job = job or Job()
        if job.mesh is not None:
            job = _of_mesh(job)
        rank, world_size = job.rank, job.world_size
        if (rank is None) != (world_size is None):
            raise InvalidArgumentError(
                f"Job(rank={rank}, world_size={world_size}): give both, or neither to use "
                "those of torch or torchrun"
            )
        self._checked = rank is None and not with_sampler
        current = None
        try:
            current = _current()
        except InvalidArgumentError:
            if not with_sampler and rank is None:
                raise
        self._taken = current if rank is None else None
        if rank is None or world_size is None:
            rank, world_size = (current.rank, current.world_size) if current is not None else (0, 1)
        world_size = integer("Job.world_size", world_size, 1, _WORLD_MAX)
        self.process = integer("Job.rank", rank, 0, world_size - 1)
        """The number of this process in the job."""
        self.here = current
        """This process as torch or its launcher counts it, whatever rank was given."""
        same = current is not None and (current.rank, current.world_size) == (
            self.process,
            world_size,
        )
        self.launch = current if same else None
        """What is known of the job's nodes; None: nothing, or the rank was given, and is another
        one than the launch's."""
        self.layout = Layout(
            world_size,
            integer("Job.tensor", job.tensor, 1, _WORLD_MAX),
            integer("Job.pipeline", job.pipeline, 1, _WORLD_MAX),
        )

    @property
    def rank(self) -> int:
        """The data-parallel position: ranks that share it get the same batches."""
        return self.layout.position(self.process)

    @property
    def world_size(self) -> int:
        """The number of data-parallel positions."""
        return self.layout.positions

    def check(self) -> None:
        """Raises if the process has a different rank now.

        A process group that has ended has no ranks: its loaders continue as they are.

        Raises:
            FailedPreconditionError: names both ranks and the remedy.
        """
        if not self._checked:
            return
        try:
            now = _current()
        except InvalidArgumentError:
            return  # Only half of torchrun's names, as in a process that launches others: unknown.
        world_size = self.layout.world_size
        if now is None or (now.rank, now.world_size) == (self.process, world_size):
            return
        then = f"found by {self._taken.by}" if self._taken else "because no other ranks were known"
        raise FailedPreconditionError(
            f"iterating: the loader was made for rank {self.process} of {world_size}, {then}; "
            f"{now.by} now says rank {now.rank} of {now.world_size}: samples would be lost or "
            f"repeated; {_WAY_OUT}; load_state_dict() takes a place over to another loader"
        )


def _of_mesh(job: Job) -> Job:
    """The ranks of a mesh, without it."""
    if replace(job, mesh=None, node=None) != Job():
        raise InvalidArgumentError(
            f"{replace(job, node=None)}: mesh has all of it; leave the others out"
        )
    mesh: Any = job.mesh
    names = getattr(mesh, "mesh_dim_names", None) or ()
    ranks: Any = getattr(mesh, "mesh", None)
    if not hasattr(ranks, "flatten"):
        raise InvalidArgumentError(
            f"Job.mesh: got {shown(mesh)}, must be a torch.distributed DeviceMesh"
        )
    same = [name for name in names if not _SAME_BATCHES.isdisjoint(name.lower().split("_"))]
    if same:
        raise InvalidArgumentError(
            f"Job.mesh: its dimensions are {', '.join(names)}, but ranks along {same[0]!r} "
            "get the same batches: give the dimensions over which samples are divided, as "
            "mesh['dp'] or mesh['dp_replicate', 'dp_shard']"
        )
    numbers = [int(rank) for rank in ranks.flatten().tolist()]
    current = _current()
    layout = layout_among(numbers, current.world_size) if current is not None else None
    if current is None or layout is None or current.rank not in numbers:
        where = f"rank {current.rank} of {current.world_size}" if current is not None else "no rank"
        raise InvalidArgumentError(
            f"Job.mesh: this is {where}, and the mesh has the ranks {shown(numbers)}: they "
            "must have one distance, with this rank among them; otherwise give the place in the "
            "mesh and its size as rank= and world_size="
        )
    return Job(tensor=layout.tensor, pipeline=layout.pipeline)


def _current() -> Launch | None:
    """torch.distributed's rank, if it runs; else the launch's."""
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return _launched()
    rank, world_size = int(distributed.get_rank()), int(distributed.get_world_size())
    with contextlib.suppress(InvalidArgumentError):
        launch = find_launch()
        if launch is not None and (launch.rank, launch.world_size) == (rank, world_size):
            return replace(launch, by="torch.distributed")
    return Launch("torch.distributed", rank, world_size)


def _launched() -> Launch | None:
    world_size, local = os.environ.get("WORLD_SIZE"), os.environ.get("LOCAL_RANK")
    if world_size and local and not os.environ.get("RANK"):  # Lightning starts its own like this.
        raise InvalidArgumentError(
            f"environment WORLD_SIZE={world_size!r}, LOCAL_RANK={local!r}, but "
            f"no RANK: cannot determine which of several processes this is; {_WAY_OUT}"
        )
    launch = find_launch()
    addresses = find_addresses() if launch is None else None
    if addresses is not None and len(addresses) > 1:
        raise InvalidArgumentError(
            f"environment {NODES} names {len(addresses)} nodes, but nothing says which of them "
            "this is: each would read all samples; start the ranks with a launcher, or "
            f"{_WAY_OUT}; for a process that is not of the job, unset {NODES}"
        )
    return launch
