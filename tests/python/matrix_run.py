"""Runs one cell of the matrix test: each batch of each rank against what the cell must give.

`python tests/python/matrix_run.py order=epoch fields=inline ...` runs it alone, factors that are
left out at their defaults. `--serve ROOT` runs cells of standard input, one a line, on data below
ROOT.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batch_model
import matrix_data
import numpy as np
import order_model
from loader_data import COUNT, FLAT, flat
from matrix_cells import Cell, parse, refusal
from matrix_data import ARRAYS, FIELDS, RAGGED, SIDE, Data

import headrace as hr
from headrace import _core, errors, orders
from headrace.tiers import Ram, Ssd

SEED = 6
GLOBAL_BATCH = 8
CUT = 3  # batches before a run is left, or saved
TIER_BYTES = COUNT // 2 * 4096  # Holds half of the samples.
LIST_SIZES = (9, 4, 7)  # of a batch sampler's batches, in turn

Ids = list[list[list[int]]]
"""Of each epoch, of each batch: the numbers of its samples."""

_ORDERS: dict[str, orders.Order | str] = {
    "exact": "exact",
    "batch": "batch",
    "epoch": "epoch",
    "small-pool": orders.Epoch(pool="50%", pools=3, block_samples=5),
    "redox": orders.Redox(chunks_per_virtual=4, block_samples=5),
}


def epochs_of(cell: Cell) -> int:
    """With tiers one more: the second may be read ahead of what they got in the first."""
    return 2 if cell["tiers"] == "none" else 3


def ranks_of(cell: Cell) -> int:
    return int(cell["ranks"])


# What the cell must give.


def sampled(cell: Cell, rank: int, epoch: int) -> list[list[int]]:
    """The batches that a sampler of the test's own asks for."""
    ranks = ranks_of(cell)
    samples = order_model.permutation(COUNT, SEED + 100, epoch)
    samples += samples[: -COUNT % ranks]
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
    """Every batch of the rank, as docs/orders.md says.

    From its models; of orders that read blocks from the core's plan, which test_order_epoch.py and
    src/plan hold against the models.
    """
    ranks, drop_last = ranks_of(cell), cell["drop_last"] == "yes"
    size = GLOBAL_BATCH // ranks
    epochs = range(epochs_of(cell))
    shuffle = cell["draw"] == "shuffle"
    job = {"world_size": ranks, "seed": SEED, "shuffle": shuffle, "drop_last": drop_last}
    if "sampler" in cell["draw"]:
        batches = [sampled(cell, rank, epoch) for epoch in epochs]
        return [[b for b in epoch if not drop_last or len(b) == size] for epoch in batches]
    if cell["order"] == "exact":
        return [
            order_model.exact_epoch(COUNT, size, rank=rank, epoch=epoch, **job) for epoch in epochs
        ]
    index = loader.dataset.index
    if cell["order"] == "batch":
        costs = _core.stored_bytes(index).tolist()
        return [
            batch_model.batch_epoch(COUNT, size, costs=costs, epoch=epoch, **job)[rank]
            for epoch in epochs
        ]
    state = loader.state_dict()
    parameters = dict(state["order_parameters"])
    stream = _core.OrderStream(
        state["order"],
        index=index,
        block_samples=parameters.pop("block_samples"),
        parameters=parameters,
        batch_size=size,
        rank=rank,
        epochs=len(epochs),
        **job,
    )
    steps = range(stream.steps_per_epoch)
    return [[[int(i) for i in stream.ids(1)] for _ in steps] for _ in epochs]


def taken(cell: Cell, plan: Ids) -> Ids:
    """What the loop gets of the plan."""
    return [plan[0][:CUT], *plan[1:]] if cell["run"] == "left" else plan


def check_each_once(cell: Cell, of_ranks: list[Ids]) -> None:
    """Of each whole epoch, over the ranks: every sample once, less the drop set, plus pads."""
    ranks = ranks_of(cell)
    for epoch in range(1 if cell["run"] == "left" else 0, epochs_of(cell)):
        counts = Counter(itertools.chain(*(flat(share[epoch]) for share in of_ranks)))
        if cell["drop_last"] == "yes":
            assert sum(counts.values()) == len(counts) == COUNT // GLOBAL_BATCH * GLOBAL_BATCH
        else:
            assert set(counts) == set(range(COUNT)), f"epoch {epoch} lacks samples"
            assert sum(counts.values()) == COUNT + -COUNT % ranks, f"epoch {epoch} repeats samples"


# What a loader of the cell is given.


def fields_of(cell: Cell) -> list[str]:
    return FIELDS[cell["fields"]] or ["image", "label"]


def changed(sample: hr.Sample) -> Any:
    """Every field, changed so that it shows, with what the sample says of itself."""
    values = []
    for name in (n for n in _CHANGED if hasattr(sample, n)):
        value = getattr(sample, name)
        if isinstance(value, str):
            values.append(value + "!")
        else:
            encoded = name == "image" and value.ndim == 1
            values.append(bytes(value) if encoded else value + 1)
    return (*values, sample.id, sample.epoch)


_CHANGED = ("weight", "image", "record", "label", *RAGGED)


def stacked(results: list[Any]) -> Any:
    """A batch of what `changed` returns."""
    batch: list[Any] = []
    for column in zip(*results, strict=True):
        alike = all(np.shape(each) == np.shape(column[0]) for each in column)
        batch.append(
            np.stack(column) if alike and not isinstance(column[0], bytes | str) else list(column)
        )
    return tuple(batch)


def tiers_of(cell: Cell, folder: Path) -> list[Any] | None:
    ram, ssd = Ram(TIER_BYTES), Ssd(folder / "tier", TIER_BYTES)
    return {"none": None, "ram": [ram], "ssd": [ssd], "both": [ram, ssd]}[cell["tiers"]]


_kept_readers: list[Any] = []
"""So that the process that decodes row groups is not started for each cell."""


def make(cell: Cell, rank: int, data: Data, folder: Path) -> hr.Loader:
    ranks = ranks_of(cell)
    if cell["format"] == "row-groups" and not _kept_readers:
        _kept_readers.append(hr.open(data.path("both", "row-groups")).stored_reader())
    if cell["fields"] == "mapped":
        (data.root / "mapped.bin").read_bytes()  # Into the page cache.
    given: dict[str, Any] = {
        "order": _ORDERS[cell["order"]],
        "seed": SEED,
        "fields": FIELDS[cell["fields"]],
        "sharding": hr.Sharding(rank=rank, world_size=ranks),
        "tiers": tiers_of(cell, folder),
        "cache": hr.Cache(placement=cell["placement"]),
        "drop_last": cell["drop_last"] == "yes",
        "ids": cell["ids"] == "yes",
        "output": cell["output"],
        "epochs": epochs_of(cell) if cell["epochs"] == "known" else None,
        "on_error": cell["on_error"],
        "engine": hr.Engine(
            prefetch=1 if cell["prefetch"] == "1" else None,
            io=cell["io"],
            verify=cell["verify"] == "yes",
        ),
    }
    if cell["draw"] == "batch-sampler":
        given["batch_sampler"] = Sampler(cell, rank)
    else:
        given["batch_size"] = GLOBAL_BATCH // ranks
        given["shuffle"] = cell["draw"] == "shuffle"
        if cell["draw"] == "sampler":
            given["sampler"] = Sampler(cell, rank)
    given["transform"] = {
        "none": None,
        "image": FLAT,
        "python": changed,
        "image+python": (FLAT, changed),
        "collate": (FLAT, changed),
    }[cell["transform"]]
    if cell["transform"] == "python":
        given["decode"] = False
    if cell["fields"] == "ragged" and cell["transform"] in ("python", "image+python"):
        given["ragged"] = "list"
    given["workers"] = hr.Workers(
        None if cell["workers"] == "default" else int(cell["workers"]),
        start="fork",
        collate_fn=stacked if cell["transform"] == "collate" else None,
    )
    if cell["isolation"] == "process":
        given["node_process"] = hr.NodeProcess()
    if cell["isolation"] == "shared":
        given["node_process"] = hr.NodeProcess(local_rank=rank, local_world_size=ranks)
    return hr.Loader(data.path(cell["fields"], cell["format"]), **given)


# One rank's loop.


def as_array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    return np.asarray(value.numpy() if hasattr(value, "numpy") else np.from_dlpack(value))


def check_type(cell: Cell, value: Any) -> None:
    kind = type(value).__module__.split(".")[0]
    if cell["output"] != "dlpack":
        assert kind == cell["output"], f"{kind}, not {cell['output']}"


def check_ragged(cell: Cell, rows: Any, expected: list[Any], python: bool) -> None:
    """Rows that differ in length; changed, if a Python transform did."""
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        if isinstance(wanted, str):
            assert row == wanted + "!" * python
            continue
        if cell["transform"] != "collate":
            check_type(cell, row)
        found = as_array(row)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert np.array_equal(found, wanted + wanted.dtype.type(python))


def check_batch(cell: Cell, batch: Any, ids: list[int], epoch: int, data: Data) -> None:
    """Every bit of every field of the batch must be those of samples `ids`."""
    values = list(batch)
    if cell["ids"] == "yes":
        assert as_array(values.pop()).tolist() == ids
    python = cell["transform"] in ("python", "image+python", "collate")
    names = fields_of(cell)
    if python:
        names = [name for name in _CHANGED if name in names]
        assert as_array(values.pop()).tolist() == [epoch] * len(ids)
        assert as_array(values.pop()).tolist() == ids
    assert len(values) == len(names)
    for name, value in zip(names, values, strict=True):
        if name == "image" and cell["transform"] in ("none", "python"):
            rows = [row if isinstance(row, bytes) else as_array(row).tobytes() for row in value]
            assert rows == [data.encoded(sample) for sample in ids], f"image of samples {ids}"
            continue
        if name in RAGGED:
            check_ragged(cell, value, [RAGGED[name][sample] for sample in ids], python)
            continue
        check_type(cell, value)
        if name == "image":
            expected = np.array(ids, np.uint8)[:, None, None, None]
            expected = np.broadcast_to(expected, (len(ids), 3, SIDE, SIDE))
        else:
            expected = ARRAYS[name][ids]
        if python:
            expected = expected + expected.dtype.type(1)
        found = as_array(value)
        assert found.dtype == expected.dtype, f"{name}: {found.dtype}"
        assert np.array_equal(found, expected), f"{name} of samples {ids}: {found}"


class RankLoop:
    """One rank of a cell. `steps()` is its loop, one batch at a time."""

    def __init__(self, cell: Cell, rank: int, data: Data, folder: Path) -> None:
        self._cell, self._rank, self._data, self._folder = cell, rank, data, folder
        self.got: Ids = []
        self.tier_uses = 0

    def steps(self) -> Iterator[None]:
        cell = self._cell
        loader = make(cell, self._rank, self._data, self._folder)
        try:
            plan = planned(cell, self._rank, loader)
            wanted = taken(cell, plan)
            whole = cell["run"] == "through"
            yield from self._epoch(loader, 0, wanted[0] if whole else wanted[0][:CUT], whole)
            if cell["run"] == "resumed":
                state = json.loads(json.dumps(loader.state_dict()))
                loader.close()
                loader = make(cell, self._rank, self._data, self._folder)
                loader.load_state_dict(state)
                first = self.got.pop()
                yield from self._epoch(loader, 0, wanted[0][CUT:], True)
                self.got[0] = first + self.got[0]
            for epoch in range(1, len(wanted)):
                yield from self._epoch(loader, epoch, wanted[epoch], True)
            self.tier_uses = sum(tier["uses"] for tier in loader.stats()["tiers"])
            assert self.got == wanted
        finally:
            loader.close()

    def _epoch(
        self, loader: hr.Loader, epoch: int, wanted: list[list[int]], to_its_end: bool
    ) -> Iterator[None]:
        """The next batches, which have to be these; to the end of the epoch, or left there."""
        self.got.append([])
        batches = iter(loader)
        for step, ids in enumerate(wanted):
            try:
                batch = next(batches)
                check_batch(self._cell, batch, ids, epoch, self._data)
            except StopIteration:
                raise AssertionError(f"epoch {epoch} ends before step {step}: {ids}") from None
            except AssertionError as error:
                where = f"rank {self._rank} epoch {epoch} step {step}"
                raise AssertionError(f"{where}: {error}") from error
            self.got[-1].append(ids)
            yield
        if to_its_end:
            assert next(batches, None) is None, f"epoch {epoch} goes on after its last batch"


def run_here(cell: Cell, ranks: list[int], data: Data, folder: Path) -> tuple[list[Ids], int]:
    """These ranks in this process, in step: what each got, and samples taken from tiers."""
    loops = [RankLoop(cell, rank, data, folder) for rank in ranks]
    for _ in itertools.zip_longest(*(loop.steps() for loop in loops)):
        pass
    return [loop.got for loop in loops], sum(loop.tier_uses for loop in loops)


def expect_refusal(cell: Cell, rank: int, data: Data, folder: Path) -> None:
    row = refusal(cell)
    assert row is not None
    message = "it is not refused"
    try:
        make(cell, rank, data, folder).close()
    except errors.InvalidArgumentError as error:
        message = str(error)
    assert message == row.text(cell), f"{message!r}, must be: {row.text(cell)!r}"


def run_rank(cell: Cell, ranks: list[int], data: Data, folder: Path) -> Any:
    if refusal(cell) is None:
        return run_here(cell, ranks, data, folder)
    for rank in ranks:
        expect_refusal(cell, rank, data, folder)
    return [], 0


def run_forked(cell: Cell, data: Data, folder: Path) -> tuple[list[Ids], int]:
    """Two ranks of one node process, each in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = {"value": run_rank(cell, [1], data, folder)}
        except BaseException:
            result = {"error": traceback.format_exc()}
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    try:
        got, uses = run_rank(cell, [0], data, folder)
    finally:
        with os.fdopen(reader, "rb") as pipe:
            answer = json.loads(pipe.read() or b'{"error": "rank 1 died"}')
        os.waitpid(child, 0)
    assert "error" not in answer, f"of rank 1: {answer.get('error')}"
    return [*got, *answer["value"][0]], uses + answer["value"][1]


_numbers = itertools.count()


def run_cell(cell: Cell, data: Data) -> int:
    """Runs all of its checks; samples that were taken from tiers."""
    os.environ["MASTER_PORT"] = f"{os.getpid()}{next(_numbers):06}"  # No port: a name of its own.
    ranks = list(range(ranks_of(cell)))
    folder = Path(tempfile.mkdtemp(dir=data.root))
    try:
        several = cell["isolation"] == "shared" and len(ranks) > 1
        run = run_forked(cell, data, folder) if several else run_rank(cell, ranks, data, folder)
        if refusal(cell) is None:
            check_each_once(cell, run[0])
        return int(run[1])
    finally:
        shutil.rmtree(folder)


def serve(data: Data) -> None:
    for line in sys.stdin:
        cell = json.loads(line)
        try:
            answer = {"uses": run_cell(cell, data), "error": None}
        except Exception:
            answer = {"uses": 0, "error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


def main(arguments: list[str]) -> None:
    faulthandler.register(signal.SIGUSR1)  # A cell that hangs is asked where.
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "headrace: order=.* mix of labels")
    if arguments[:1] == ["--serve"]:
        serve(Data(Path(arguments[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        cell = parse(arguments)
        uses = run_cell(cell, matrix_data.write_data(Path(folder)))
    print(f"holds; {uses} samples came from tiers")


if __name__ == "__main__":
    main(sys.argv[1:])
