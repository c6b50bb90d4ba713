"""A Ray cluster of three raylets at 127.0.0.1, 127.0.0.2 and so on, and its driver, which do what a
test tells them.

Run by `OnRay` of ray_process.py, with Ray on the path. A line of input: a function, its arguments.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import headrace as hr
import headrace.ray
from headrace import _dataset
from headrace.formats._indexing import unfinished
from headrace.pack import PackParameters, write_pack
from headrace.ray import pack_tasks
from headrace.ray._indexing import IndexingTasks

RAYLETS = 3
STARTING_S = 120  # of node processes, on a machine that others use
cluster = Cluster()
hosts = itertools.count(1)
raylets: dict[str, Any] = {}  # processes, by Ray's node id
nodes: Any = None
workers: list[Any] = []


def add() -> str:
    # An address of its own: workers at one address are for Ray Train those of one node.
    node = cluster.add_node(
        num_cpus=2, node_ip_address=f"127.0.0.{next(hosts)}", object_store_memory=80 * 2**20,
        include_dashboard=False, include_log_monitor=False,
    )  # fmt: skip
    raylets[node.node_id] = node.all_processes["raylet"][0].process
    return str(node.node_id)


def start() -> str:
    for _ in range(RAYLETS):
        add()
    ray.init(
        address=cluster.address, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    return str(cluster.address)


def others() -> list[str]:
    """The nodes without the driver."""
    own = ray.get_runtime_context().get_node_id()
    return [node for node in raylets if node != own]


def kill(node: str) -> None:
    raylets[node].kill()
    raylets[node].wait()  # Its workers take a zombie for a raylet.


def replace(node: str) -> str:
    """Another node in place of one whose raylet was killed."""
    (dead,) = (each for each in cluster.worker_nodes if each.node_id == node)
    cluster.remove_node(dead, allow_graceful=False)
    del raylets[node]
    added = add()
    cluster.wait_for_nodes()  # Until all know that the other one is dead.
    return added


def at_progress(share: float, act: Callable[[], object]) -> Callable[[int, int], None]:
    """Acts once, when so much is done."""
    left = [act]

    def progress(done: int, total: int) -> None:
        if left and done >= share * total:
            left.pop()()

    return progress


def stop() -> None:
    raise KeyboardInterrupt


def pack(
    source: str, target: str, *, kill_at: float = 2, node: str = "", stop_at: float = 2
) -> list[int]:
    act = stop if stop_at < 2 else lambda: kill(node)
    try:
        result = write_pack(
            hr.open(source), target, PackParameters(block_bytes=1_000, shard_bytes=2_000),
            progress=at_progress(min(kill_at, stop_at), act), on=pack_tasks(),
        )  # fmt: skip
    except KeyboardInterrupt:
        return []
    return [result.shards, result.shards_continued]


def index(
    root: str, output: str, files: int, *, kill_at: float = 2, node: str = "", stop_at: float = 2
) -> int:
    """How many files tasks described, of so many with a sample each; 0: it was stopped."""
    unfinished.KEEP_AFTER_S = 0.0
    act = stop if stop_at < 2 else lambda: kill(node)
    progress = at_progress(min(kill_at, stop_at), act)
    tasks = IndexingTasks("a test")
    described: list[str] = []

    def elsewhere(work: Any, paths: Any, *rest: Any) -> Any:
        described.extend(paths)
        return tasks(work, paths, *rest)

    try:
        _dataset.index_folder(root, output, lambda done: progress(done, files), elsewhere=elsewhere)
    except KeyboardInterrupt:
        return 0
    return len(described)


def index_formats(folder: str) -> list[str]:
    """Formats whose index differs from that which one process makes."""
    from indexing_data import WRITERS

    different = []
    for name, write in WRITERS.items():
        (Path(folder) / name).mkdir()
        path, row = write(Path(folder) / name)
        made = []
        for elsewhere in (None, IndexingTasks(f"indexing {name}")):
            _, target = _dataset.index_folder(
                path, Path(folder) / f"{name}.hri", format=row, elsewhere=elsewhere
            )
            made.append(Path(target).read_bytes())
            assert elsewhere is None or elsewhere.was_used
        if made[0] != made[1]:
            different.append(name)
    return different


def command(*arguments: str) -> list[str]:
    """A command in this process, which is connected: what it printed, and its errors."""
    from commands import run

    done = run(*arguments)
    return [done.stdout, done.stderr]


def failing(source: str, target: str) -> list[str]:
    """The error of packing, and its notes."""
    try:
        write_pack(hr.open(source), target, on=pack_tasks())
    except Exception as error:
        return [type(error).__name__, str(error), *getattr(error, "__notes__", [])]
    return []


class Worker:
    """One rank, on a node."""

    def open(self, rank: int, ranks: int, source: str, addresses: list[str], state: Any) -> None:
        os.environ["HEADRACE_TOKEN"] = "secret"
        from loader_data import FLAT

        self.loader = hr.Loader(
            source, 4, transform=FLAT, output=hr.Output("numpy", ids=True), order="exact",
            epochs=3, tiers=[hr.tiers.Ram("16MiB")], engine=hr.EngineOptions(prefetch=2),
            job=hr.Job(
                rank=rank, world_size=ranks,
                node=headrace.ray.node_process(addresses=addresses or None),
            ),
        )  # fmt: skip
        if state is not None:
            self.loader.load_state_dict(state)
        self.batches = iter(self.loader)

    def steps(self, count: int) -> list[list[int]]:
        """Ids from payloads; fewer at the end of the epoch."""
        from loader_data import payload_ids

        found = []
        for _ in range(count):
            batch = next(self.batches, None)
            if batch is None:
                self.batches = iter(self.loader)
                break
            found.append(payload_ids(batch))
        return found

    def until_error(self) -> str:
        try:
            while True:
                self.steps(1000)
        except hr.HeadraceError as error:
            return f"{type(error).__name__}: {error}"

    def state(self) -> Any:
        return self.loader.state_dict()

    def reads(self) -> int:
        return int(self.loader.stats()["io"]["reads"])

    def close(self) -> None:
        self.loader.close()


def start_nodes(count: int | None = None) -> int:
    global nodes
    nodes = headrace.ray.start_nodes(count, timeout=STARTING_S)
    return int(nodes.count)


def processes() -> list[int]:
    """Of the nodes."""
    return list(ray.get([actor.pid.remote() for actor in nodes.actors]))


def refused(function: str, /, **arguments: Any) -> str:
    """The error of a function of headrace.ray."""
    try:
        getattr(headrace.ray, function)(**arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def places() -> list[str]:
    """Ray's nodes, by the number of the actor."""
    group = ray.util.get_placement_group("headrace-node/headrace")
    found = ray.util.placement_group_table(group)["bundles_to_node_id"]
    return [found[number] for number in sorted(found)]


def stop_nodes() -> None:
    nodes.stop()


def start_workers() -> None:
    actor = ray.remote(num_cpus=1)(Worker)
    workers[:] = [
        actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        for node in raylets
    ]


def open_(source: str, addresses: list[str], state: Any = None) -> None:
    ranks = len(workers)
    ray.get(
        [w.open.remote(rank, ranks, source, addresses, state) for rank, w in enumerate(workers)]
    )


def each(method: str, *arguments: Any) -> list[Any]:
    """A call of each worker, all at once."""
    return list(ray.get([getattr(w, method).remote(*arguments) for w in workers]))


def kill_workers() -> None:
    for worker in workers:
        ray.kill(worker)
    workers.clear()


def train_alone(told: dict[str, Any]) -> None:
    """What each worker of Ray Train runs: it is given no rank and no address."""
    import torch
    from loader_data import FLAT, payload_ids

    own = told["process"] == "own"  # A process that ends with the workers.
    with hr.Loader(
        told["source"], 4, transform=FLAT, output=hr.Output(ids=True), epochs=2,
        tiers=[hr.tiers.Ram("16MiB")], engine=hr.EngineOptions(prefetch=2),
        job=hr.Job(node=(hr.Node if own else headrace.ray.node_process)(open_network=True)),
    ) as loader:  # fmt: skip
        epochs = [[payload_ids(batch) for batch in loader] for _ in range(2)]
        torch.distributed.barrier()  # Both have read.
        stats = loader.stats()
    found = {"epochs": epochs, "nodes": stats["nodes"], "reads": stats["io"]["reads"]}
    path = Path(told["folder"]) / f"rank-{torch.distributed.get_rank()}.json"
    path.write_text(json.dumps(found))


def train(source: str, folder: str, process: str) -> None:
    """Runs `train_alone` with Ray Train, on two nodes."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    told = {"source": source, "folder": folder, "process": process}
    TorchTrainer(
        train_alone, train_loop_config=told,
        scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
        run_config=RunConfig(storage_path=folder),
    ).fit()  # fmt: skip


if __name__ == "__main__":
    told = os.dup(1)
    os.dup2(2, 1)  # What others print is no answer.
    for line in sys.stdin:
        name, positional, named = json.loads(line)
        try:
            answer = [globals()[name](*positional, **named), None]
        except Exception as error:
            answer = [None, f"{type(error).__name__}: {error}"]
        os.write(told, json.dumps(answer).encode() + b"\n")
    ray.shutdown()
    cluster.shutdown()
    shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)
