"""The job of a cell of the matrix test: its order, what its ranks must get, and their processes.

What ranks must get is from the models of docs/orders.md; of orders that read blocks from the core's
plan, which test_order_epoch.py, test_redox_core.py and src/plan hold against the models.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import batch_model
import numpy as np
import order_model
from loader_data import COUNT, flat
from matrix_cells import NODES, Cell, exchanges, is_of_nodes, leaves_out, world_of
from matrix_data import MIXED
from mixtures.mixture_model import MixtureModel
from node_ranks import PATIENCE_S, addresses

import headrace as hr
from headrace import _core, orders
from headrace._loader import feed_of

SEED = 6
GLOBAL_BATCH = 8
CUT = 3  # batches before a run is left, or saved
LIST_SIZES = (9, 4, 7)  # of a batch sampler's batches, in turn

LEFT_OUT = (0, 1, 2, 3, 4, 9, 17, 18, 30, 31, 44, 57, COUNT - 1)
"""Samples that a cell of `LISTED` leaves out, the first block among them."""

Ids = list[list[list[int]]]
"""Of each epoch, of each batch: the numbers of its samples."""

_TABLE = [[sample % 3, sample // 7 % 4] for sample in range(COUNT)]
"""Two homes of each sample for the order `batch`; some are no node."""

_ORDERS: dict[str, orders.Order | str] = {
    "exact": "exact",
    "batch": "batch",
    "epoch": "epoch",
    "small-pool": orders.Epoch(pool="50%", pools=3, block_samples=5),
    "redox": orders.Redox(chunks_per_virtual=4, block_samples=5),
    "redox-nodes": orders.Redox(
        chunks_per_virtual=4, block_samples=5, nodes=NODES, prefetch=8, remap=True
    ),
    "redox-chunks": orders.Redox(
        chunks_per_virtual=4,
        block_samples=5,
        nodes=NODES,
        prefetch=8,
        read="chunk",
        framing="split",
        arrival=True,
    ),
    "epoch-homes": orders.Epoch(pool="60%", pools=4, block_samples=5, homes=NODES),
}


def order_of(cell: Cell) -> orders.Order | str:
    if cell["order"] == "batch-homes":
        return orders.Batch(homes=np.array(_TABLE), ranks_per_node=int(cell["ranks"]))
    if "sized" in cell:
        return orders.Redox(slots="30%", block_samples=5)
    return _ORDERS[cell["order"]]


def epochs_of(cell: Cell) -> int:
    """With tiers one more: the second may be read ahead of what they got in the first."""
    return 2 if cell["tiers"] == "none" else 3


def samples_of(cell: Cell) -> list[int]:
    """The samples of an epoch, by number."""
    left_out = LEFT_OUT if leaves_out(cell) else ()
    return [sample for sample in range(COUNT) if sample not in left_out]


def sampled(cell: Cell, rank: int, epoch: int) -> list[list[int]]:
    """The batches that a sampler of the test's own asks for."""
    ranks = world_of(cell)
    kept = samples_of(cell)
    samples = [kept[place] for place in order_model.permutation(len(kept), SEED + 100, epoch)]
    samples += samples[: -len(kept) % ranks]
    share = samples[rank::ranks]
    batches = []
    size = GLOBAL_BATCH // ranks
    for number in itertools.count():
        if not share:
            return batches
        if cell["draw"] == "batch-sampler":
            size = LIST_SIZES[number % len(LIST_SIZES)]
        batches.append(share[:size])
        share = share[size:]
    raise AssertionError


class Sampler:
    """Samples, or batches of them; another order each time that it is asked."""

    def __init__(self, cell: Cell, rank: int) -> None:
        self._cell, self._rank, self._asked = cell, rank, 0

    def __iter__(self) -> Iterator[Any]:
        batches = sampled(self._cell, self._rank, self._asked)
        self._asked += 1
        return iter(batches if self._cell["draw"] == "batch-sampler" else flat(batches))


def planned(cell: Cell, rank: int, loader: hr.Loader) -> Ids:
    """Every batch of the rank."""
    ranks, drop_last = world_of(cell), cell["drop_last"] == "yes"
    size = GLOBAL_BATCH // ranks
    epochs = range(epochs_of(cell))
    shuffle = cell["draw"] == "shuffle"
    job = {"world_size": ranks, "seed": SEED, "shuffle": shuffle, "drop_last": drop_last}
    if "sampler" in cell["draw"]:
        batches = [sampled(cell, rank, epoch) for epoch in epochs]
        return [[b for b in epoch if not drop_last or len(b) == size] for epoch in batches]
    if is_mixed(cell):
        sizes = dict.fromkeys(MIXED, COUNT)
        of_job = MixtureModel(sizes, [(0, MIXED)]).epochs(size, len(epochs), **job)
        return [[step[rank] for step in epoch] for epoch in of_job]
    kept = samples_of(cell)

    def numbered(places: list[list[int]]) -> list[list[int]]:
        return [[kept[place] for place in batch] for batch in places]

    if cell["order"] == "exact":
        return [
            numbered(order_model.exact_epoch(len(kept), size, rank=rank, epoch=epoch, **job))
            for epoch in epochs
        ]
    if cell["order"] in ("batch", "batch-homes"):
        homes: dict[str, Any] = {}
        if cell["order"] == "batch-homes":
            table = [_TABLE[sample] for sample in kept]
            homes = {"homes": table, "ranks_per_node": int(cell["ranks"])}
        costs = _core.stored_bytes(loader.dataset.index)[kept].tolist()
        return [
            numbered(
                batch_model.batch_epoch(len(kept), size, costs=costs, epoch=epoch, **homes, **job)[
                    rank
                ]
            )
            for epoch in epochs
        ]
    if leaves_out(cell):
        return _planned_without(cell, rank, loader)
    return _planned_by_core(cell, rank, loader, job)


def _planned_by_core(cell: Cell, rank: int, loader: hr.Loader, job: dict[str, Any]) -> Ids:
    state = loader.state_dict()
    parameters = dict(state["order_parameters"])
    here = int(cell["ranks"]) if exchanges(cell) else 1  # of one stream
    dataset = loader.dataset
    homes = None
    if dataset.homes > 1:
        homes = np.array([dataset.home_of(sample) for sample in range(COUNT)], np.uint32)
    stream = _core.OrderStream(
        state["order"],
        index=dataset.index,
        block_samples=parameters.pop("block_samples"),
        parameters=parameters,
        batch_size=GLOBAL_BATCH // job["world_size"],
        rank=rank // here * here,
        ranks=here,
        exchange=exchanges(cell),
        homes=homes,
        epochs=epochs_of(cell),
        **job,
    )
    steps = range(stream.steps_per_epoch)

    def own() -> list[int]:
        rows = [int(sample) for sample in stream.ids(1)]
        size = len(rows) // here
        return rows[rank % here * size :][:size]

    return [[own() for _ in steps] for _ in range(epochs_of(cell))]


def _planned_without(cell: Cell, rank: int, loader: hr.Loader) -> Ids:
    """As `_planned_by_core`, of what is left. src/plan/left_out_test.cc tests such plans."""
    feed = feed_of(loader)
    here = int(cell["ranks"]) if exchanges(cell) else 1
    stream = _core.RankBatches(
        loader.dataset.index, feed.options, feed.order.parameters, (rank % here, here), (0, 0)
    )
    epochs: Ids = []
    while len(epochs) < epochs_of(cell):
        epochs.append([])
        ends = False
        while not ends:
            step = stream.next()
            assert step is not None
            _, _, ends, samples = step
            epochs[-1].append(samples)
    return epochs


def taken(cell: Cell, plan: Ids) -> Ids:
    """What the loop gets of the plan."""
    return [plan[0][:CUT], *plan[1:]] if cell["run"] == "left" else plan


def is_mixed(cell: Cell) -> bool:
    return cell.get("opened") == "mixed"


def check_each_once(cell: Cell, of_ranks: list[Ids]) -> None:
    """Of each whole epoch, over the ranks: every sample once, less the drop set, plus pads."""
    if is_mixed(cell):
        return  # `planned` says what comes.
    ranks, kept = world_of(cell), samples_of(cell)
    count = len(kept)
    for epoch in range(1 if cell["run"] == "left" else 0, epochs_of(cell)):
        counts = Counter(itertools.chain(*(flat(share[epoch]) for share in of_ranks)))
        if cell["drop_last"] == "yes":
            assert sum(counts.values()) == len(counts) == count // GLOBAL_BATCH * GLOBAL_BATCH
            assert set(counts) <= set(kept)
        else:
            assert set(counts) == set(kept), f"epoch {epoch} lacks samples, or has others"
            assert sum(counts.values()) == count + -count % ranks, f"epoch {epoch} repeats samples"


# The ranks' processes: forks of this one.


class NoBarrier:
    """Of ranks in one process."""

    def wait(self) -> None:
        pass


@dataclass(frozen=True)
class Job:
    """What the ranks of a cell have in common."""

    name: str
    addresses: tuple[list[str], list[str]]
    """Of the nodes: before and after they make their loaders again."""
    barrier: Any
    """Of all processes: what one node has for another goes with its loader."""

    def environment(self, cell: Cell, rank: int) -> dict[str, str]:
        """As of a launcher that says which ranks are on a node."""
        node = rank // int(cell["ranks"])
        return {"MASTER_PORT": f"{self.name}{node}", "HEADRACE_TOKEN": "the secret of a test"}


_numbers = itertools.count()


def run_ranks(
    cell: Cell, run: Callable[[list[int], Job], tuple[list[Any], int]]
) -> tuple[list[Any], int]:
    """Runs all ranks: what each gave, and the sum of what they counted.

    Where ranks wait for each other they have processes of their own, else they are in step in this
    one. `run` takes the ranks of a process.
    """
    ranks = list(range(world_of(cell)))
    alone = len(ranks) == 1 or not _wait_for_each_other(cell)
    number = f"{os.getpid()}{next(_numbers):06}"  # No port: a name of its own.
    barrier: Any = NoBarrier()
    if not alone:
        barrier = multiprocessing.get_context("fork").Barrier(len(ranks), timeout=PATIENCE_S)
    nodes = NODES if is_of_nodes(cell) else 0
    job = Job(number, (addresses(nodes), addresses(nodes)), barrier)
    if alone:
        os.environ.update(job.environment(cell, 0))
        return run(ranks, job)
    children = [_Child(cell, rank, run, job) for rank in ranks[1:]]
    try:
        got, count = _here(cell, 0, run, job)
    finally:
        answers = [child.answer() for child in children]
    for rank, answer in enumerate(answers, 1):
        assert "error" not in answer, f"of rank {rank}: {answer.get('error')}"
        got = [*got, *answer["value"][0]]
        count += answer["value"][1]
    return got, count


def _wait_for_each_other(cell: Cell) -> bool:
    return cell["isolation"] == "shared" or exchanges(cell)


def _here(cell: Cell, rank: int, run: Callable[..., Any], job: Job) -> Any:
    os.environ.update(job.environment(cell, rank))
    try:
        return run([rank], job)
    except BaseException:
        job.barrier.abort()
        raise


class _Child:
    """A forked process with one rank."""

    def __init__(self, cell: Cell, rank: int, run: Callable[..., Any], job: Job) -> None:
        self._rank = rank
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid != 0:
            os.close(writer)
            return
        try:
            result = {"value": _here(cell, rank, run, job)}
        except threading.BrokenBarrierError:
            result = {"value": ([], 0)}  # Another rank says why.
        except BaseException:
            result = {"error": traceback.format_exc()}
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(result).encode())
        os._exit(0)

    def answer(self) -> dict[str, Any]:
        with os.fdopen(self._reader, "rb") as pipe:
            answer = json.loads(pipe.read() or b'{"error": "died"}')
        os.waitpid(self._pid, 0)
        return dict(answer)
