"""Ray: a node process on each node of a cluster, to which the loaders of its workers attach.
`headrace docs ray`.

>>> import headrace.ray
>>> nodes = headrace.ray.start_nodes()  # in the driver
>>> loader = hr.Loader(path, 32, node_process=headrace.ray.node_process())  # in a worker

`headrace pack --on ray` and `headrace index --on ray` work on all nodes of a cluster.
"""

from headrace.ray._nodes import NodeActors, node_process, start_nodes

__all__ = ["NodeActors", "node_process", "start_nodes"]
