"""Ray: a node process on each node of a cluster, to which the loaders of its workers attach.
`headrace docs ray`.

>>> import headrace.ray
>>> nodes = headrace.ray.start_nodes()  # in the driver
>>> loader = hr.Loader(path, 32, job=hr.Job(node=headrace.ray.node_process()))  # in a worker

`headrace pack --on ray` and `headrace index --on ray` work on all nodes of a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._arguments import integer
from headrace.ray._nodes import NodeActors, node_process, start_nodes

if TYPE_CHECKING:
    from headrace.pack._work import WriteShards

__all__ = ["NodeActors", "node_process", "pack_tasks", "start_nodes"]

_TASKS_MAX = 2**16


def pack_tasks(workers: int | None = None) -> WriteShards:
    """Ray tasks that write the shards of a pack. Connects to the cluster.

    >>> headrace.pack.write_pack(dataset, "/shared/pack", on=headrace.ray.pack_tasks())

    Args:
        workers: number of tasks at a time; default: what the cluster has room for.

    Raises:
        ImportError: ray, or pyarrow, is not installed.
        UnavailableError: there is no cluster.
    """
    if workers is not None:
        workers = integer("pack_tasks workers", workers, 1, _TASKS_MAX)
    from headrace.ray._packing import writing_tasks  # It imports pyarrow.

    return writing_tasks("packing on Ray", workers)
