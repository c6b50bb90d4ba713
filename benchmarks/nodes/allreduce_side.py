"""One node of allreduce.py, as tools/cluster starts it: allreduces, alone and beside loading.

    python allreduce_side.py JSON

Has two loaders whose tiers hold the data together: one without a rate, one with. Both have read it
once before anything is measured, so that storage is idle, and half of what a node of two needs
comes from the other. In each round every condition once, in an order that the seed draws: the
loader of the condition gives batches as fast as it can, while the nodes sum tensors. Node 0 prints
one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import headrace as hr

CONDITIONS = ("alone", "beside", "with rate")
_PORT = 4100
_SETTLE_S = (
    1.5  # until a loader's requests in flight have been answered, or the next one's are many
)


def make_loader(spec: dict[str, Any], number: int, rate: int | None) -> hr.Loader[Any]:
    """The numbers of loaders keep their ports apart."""
    rank, world = dist.get_rank(), dist.get_world_size()
    hosts = [each.partition(":")[0] for each in os.environ["HEADRACE_CLUSTER_ADDRESSES"].split(",")]
    addresses = [f"{host}:{_PORT + number}" for host in hosts]
    node = hr.Node(
        local_rank=0,
        local_world_size=1,
        addresses=addresses,
        open_network=True,
        rate=rate,
        answer_timeout=600,  # samples that a full link delays come late, and not from storage
    )
    return hr.Loader(
        spec["pack"],
        spec["batch"],
        order="exact",
        output=hr.Output("numpy", fields=["image"]),
        drop_last=True,
        engine=hr.EngineOptions(prefetch=spec["ahead"]),
        # One plan for all epochs: the next one moves samples between nodes, which storage gives.
        tiers=hr.Cache(hr.tiers.Ram(spec["tier_bytes"]), horizon=1000),
        job=hr.Job(rank=rank, world_size=world, node=node),
    )


def forever(loader: hr.Loader[Any]) -> Iterator[Any]:
    """Its epochs, in one loop: a loop that is left begins another epoch next time."""
    while True:
        yield from loader


@contextlib.contextmanager
def taking(batches: Iterator[Any] | None) -> Iterator[None]:
    """Takes batches in a thread."""
    if batches is None:
        yield
        return
    ends = threading.Event()

    def take() -> None:
        while not ends.is_set():
            next(batches)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def received(loader: hr.Loader[Any] | None) -> int:
    if loader is None:
        return 0
    nodes = loader.stats()["nodes"]
    assert nodes is not None
    return int(nodes["received_bytes"])


def storage_reads(loaders: dict[str, hr.Loader[Any] | None]) -> int:
    return sum(loader.stats()["io"]["reads"] for loader in loaders.values() if loader is not None)


def received_samples(loaders: dict[str, hr.Loader[Any] | None]) -> int:
    of_loaders = [loader.stats()["nodes"] for loader in loaders.values() if loader is not None]
    return sum(nodes["received"] for nodes in of_loaders if nodes is not None)


def measured(
    tensor: torch.Tensor, count: int, loader: hr.Loader[Any] | None, batches: Iterator[Any] | None
) -> dict[str, float]:
    """Seconds of an allreduce, and bytes a second that this node received beside."""
    with taking(batches):
        dist.barrier()
        time.sleep(_SETTLE_S)
        dist.barrier()
        before, begin = received(loader), time.perf_counter()
        for _ in range(count):
            dist.all_reduce(tensor)
        seconds = time.perf_counter() - begin
        bytes_per_s = (received(loader) - before) / seconds
        dist.barrier()
    time.sleep(_SETTLE_S)
    return {"allreduce_s": seconds / count, "received_bytes_per_s": bytes_per_s}


def main(text: str) -> None:
    spec = json.loads(text)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    tensor = torch.zeros(spec["tensor_bytes"] // 4)
    with (
        make_loader(spec, 0, None) as unlimited,
        make_loader(spec, 1, spec["rate"]) as limited,
    ):
        loaders = {"alone": None, "beside": unlimited, "with rate": limited}
        for loader in (unlimited, limited):
            for _ in loader:
                pass
            dist.barrier()
        endless = {name: each and forever(each) for name, each in loaders.items()}
        read = storage_reads(loaders)
        dist.all_reduce(tensor)
        order = random.Random(0)
        rounds = []
        for _ in range(spec["rounds"]):
            conditions = order.sample(CONDITIONS, len(CONDITIONS))
            rounds.append(
                {
                    each: measured(tensor, spec["count"], loaders[each], endless[each])
                    for each in conditions
                }
            )
        counts = [storage_reads(loaders) - read, received_samples(loaders)]
        later = torch.tensor(counts)
        dist.all_reduce(later)
        if dist.get_rank() == 0:
            reads, samples = later.tolist()
            found = {"rounds": rounds, "storage_reads": reads, "received_samples": samples}
            print("result", json.dumps(found), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
