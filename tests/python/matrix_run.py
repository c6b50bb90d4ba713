"""Runs one cell of the matrix test: each batch of each rank against what the cell must give.

`python tests/python/matrix_run.py order=epoch fields=inline ...` runs it alone, factors that are
left out at their defaults. `--serve ROOT` runs cells of standard input, one a line, on data below
ROOT.
"""

from __future__ import annotations

import contextlib
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matrix_data
import numpy as np
from forks.group_readers import use_server
from loader_data import COUNT, FLAT, made_profile
from matrix_cells import Cell, exchanges, is_of_nodes, leaves_out, parse, refusal, world_of
from matrix_data import ARRAYS, FIELDS, FILLED, FILLED_TEXTS, NESTED, RAGGED, SIDE, Data
from matrix_job import (
    CUT,
    GLOBAL_BATCH,
    LEFT_OUT,
    SEED,
    Ids,
    Job,
    Sampler,
    check_each_once,
    epochs_of,
    order_of,
    planned,
    run_ranks,
    taken,
)

import headrace as hr
from headrace import errors
from headrace.tiers import Ram, Ssd

TIER_BYTES = COUNT // 2 * 4096  # Holds half of the samples.
SERVICE = "HEADRACE_TEST_SERVICE"
"""The name of a node service whose jobs share reads: of cells whose data are in an object store."""


# What a loader of the cell is given.


def fields_of(cell: Cell) -> list[str]:
    if cell.get("opened") == "filled":
        return FILLED
    return FIELDS[cell["fields"]] or ["image", "label"]


class Brighter:
    """An image transform that a loader takes for one of Albumentations."""

    __module__ = "albumentations.of_a_test"

    def set_random_seed(self, seed: int) -> None: ...

    def __call__(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"image": image.transpose(2, 0, 1) + np.uint8(1)}


def names_of(cell: Cell) -> dict[str, str] | list[str] | None:
    """`fields` of the loader."""
    if "names" in cell:
        return {f"its {name}": name for name in fields_of(cell)}
    return FILLED if cell.get("opened") == "filled" else FIELDS[cell["fields"]]


def changed(sample: hr.Sample) -> Any:
    """Every field, changed so that it shows, with what the sample says of itself."""
    values = []
    for name in (n for n in _CHANGED if hasattr(sample, n)):
        value = getattr(sample, name)
        if isinstance(value, str):
            values.append(value + "!")
        elif isinstance(value, list):
            values.append(joined(value) + 1)
        else:
            encoded = name == "image" and value.ndim == 1
            more = np.asarray(value).dtype.type(1)  # True stays true.
            values.append(bytes(value) if encoded else value + more)
    return (*values, sample.id, sample.epoch)


_CHANGED = (
    *("weight", "image", "record", "label", "tokens", "level", "age", "age_valid"),
    *(*RAGGED, *NESTED),
)


def joined(lists: list[Any]) -> np.ndarray[Any, Any]:
    """The inner lists of a nested field, one after the other."""
    return np.concatenate([np.zeros(0, np.int32), *lists])


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
    form: Any = "decoded" if cell.get("held") == "decoded" else "stored"
    ram, ssd = Ram(TIER_BYTES, form=form), Ssd(folder / "tier", TIER_BYTES)
    return {"none": None, "ram": [ram], "ssd": [ssd], "both": [ram, ssd]}[cell["tiers"]]


def profile_of(cell: Cell, folder: Path) -> Path | None:
    """Of a machine whose storage is faster than all tiers."""
    if cell["profile"] == "none":
        return None
    made = made_profile(folder, storage=1e9, ram=1e6, disk=1e6)
    return written_once(folder / "machine.toml", made.save)


def written_once(path: Path, write: Callable[[Path], object]) -> Path:
    """The file as the first of the ranks has written it: each may have a process of its own, and
    another one may read it already."""
    if not path.exists():
        own = path.with_name(f"{os.getpid()}-{path.name}")
        write(own)
        with contextlib.suppress(FileExistsError):
            os.link(own, path)
        own.unlink()
    return path


_kept_readers: list[Any] = []
"""So that the process that decodes row groups is not started for each cell."""


def make(
    cell: Cell, rank: int, data: Data, folder: Path, job: Job, again: bool = False
) -> hr.Loader:
    ranks = world_of(cell)
    if cell["format"] == "row-groups" and not _kept_readers:
        _kept_readers.append(hr.open(data.path("both", "row-groups")).stored_reader())
    if cell["fields"] == "mapped":
        (data.root / "mapped.bin").read_bytes()  # Into the page cache.
    given: dict[str, Any] = {
        "order": order_of(cell),
        "seed": SEED,
        "tiers": hr.Cache(tiers_of(cell, folder), placement=cell["placement"]),
        "drop_last": cell["drop_last"] == "yes",
        "epochs": epochs_of(cell) if cell["epochs"] == "known" else None,
        "on_error": cell["on_error"],
        "engine": hr.EngineOptions(
            prefetch=1 if cell["prefetch"] == "1" else None,
            io=cell["io"],
            verify=cell["verify"] == "yes",
            profile=profile_of(cell, folder),
            schedule=cell.get("schedule", hr.EngineOptions.schedule),
        ),
    }
    if cell["draw"] == "batch-sampler":
        given["batch_sampler"] = Sampler(cell, rank)
    else:
        given["batch_size"] = GLOBAL_BATCH // ranks
        given["shuffle"] = cell["draw"] == "shuffle"
        if cell["draw"] == "sampler":
            given["sampler"] = Sampler(cell, rank)
    has_images = "image" in fields_of(cell)  # Else an image transform is refused.
    both = (FLAT, changed) if has_images else changed
    given["transform"] = {
        "none": None,
        "image": FLAT if has_images else None,
        "python": changed,
        "image+python": both,
        "collate": both,
        "library": (FLAT, Brighter()) if has_images else None,
    }[cell["transform"]]
    is_filled = cell.get("opened") == "filled"
    is_ragged = is_filled or cell["fields"] in ("ragged", "nested")
    given["output"] = hr.Output(
        cell["output"],
        fields=names_of(cell),
        decode=False if cell["transform"] == "python" else None,
        ragged="list" if is_ragged and cell["transform"] in ("python", "image+python") else None,
        ids=cell["ids"] == "yes",
    )
    given["workers"] = hr.Workers(
        None if cell["workers"] == "default" else int(cell["workers"]),
        start="fork",
        collate_fn=stacked if cell["transform"] == "collate" else None,
    )
    here = int(cell["ranks"])  # ranks of the node
    options: dict[str, Any] = {}  # of the node
    if cell["isolation"] == "shared":
        options = {"local_rank": rank % here, "local_world_size": here}
    if "stored" in cell and cell["run"] != "resumed" and SERVICE in os.environ:
        options["name"] = os.environ[SERVICE]
    asks = is_of_nodes(cell) and cell["isolation"] == "shared" and cell["tiers"] != "none"
    if exchanges(cell) or asks:
        options["addresses"] = job.addresses[again]
    given["job"] = hr.Job(
        rank=rank,
        world_size=ranks,
        node=hr.Node(**options) if cell["isolation"] in ("process", "shared") else None,
    )
    node = rank // here if exchanges(cell) else None
    if again and "restored" in cell:
        data = data.elsewhere
    path = data.path(cell["fields"], cell["format"], node)
    if cell.get("opened") == "split":
        return hr.Loader(data.open_split(cell["format"]), **given)
    if is_filled:
        return hr.Loader(data.open_filled(), **given)
    if cell.get("opened") == "mixed":
        return hr.Loader(data.open_mixed(cell["format"]), **given)
    if "stored" in cell:  # A store has what all nodes have.
        return hr.Loader(data.url(data.path(cell["fields"], cell["format"])), **given)
    if not leaves_out(cell):
        return hr.Loader(path, **given)
    if path.name == "images":  # Of a folder files are left out by name: they have no numbers then.
        path = data.root / "plain.hri"
    listed = written_once(
        folder / "listed.txt",
        lambda own: own.write_text("".join(f"{sample}\n" for sample in LEFT_OUT)),
    )
    return hr.Loader(hr.open(path, skip=f"@{listed}"), **given)


# One rank's loop.


def as_array(value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    return np.asarray(value.numpy() if hasattr(value, "numpy") else np.from_dlpack(value))


def check_type(cell: Cell, value: Any) -> None:
    kind = type(value).__module__.split(".")[0]
    kind = {"jaxlib": "jax"}.get(kind, kind)
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


def check_nested(cell: Cell, rows: Any, expected: list[Any], python: bool) -> None:
    """Lists of lists; a Python transform made one list of each."""
    if python:
        check_ragged(cell, rows, [joined(lists) for lists in expected], python)
        return
    assert len(rows) == len(expected)
    for row, lists in zip(rows, expected, strict=True):
        check_ragged(cell, row, lists, python)


def check_batch(cell: Cell, batch: Any, ids: list[int], epoch: int, data: Data) -> None:
    """Every bit of every field of the batch must be those of samples `ids`."""
    values = list(batch)
    if "names" in cell:
        assert isinstance(batch, dict)
        own = [f"its {name}" for name in fields_of(cell)]
        assert values == own + ["sample_id"] * (cell["ids"] == "yes")
        values = list(batch.values())
    if cell["ids"] == "yes":
        assert as_array(values.pop()).tolist() == ids
    python = cell["transform"] in ("python", "image+python", "collate")
    names = fields_of(cell)
    if python:
        names = [name for name in _CHANGED if name in names]
        assert as_array(values.pop()).tolist() == [epoch] * len(ids)
        assert as_array(values.pop()).tolist() == ids
    assert len(values) == len(names)
    own = [sample % COUNT for sample in ids]  # A mixture has each twice.
    for name, value in zip(names, values, strict=True):
        if name == "image" and cell["transform"] in ("none", "python"):
            rows = [row if isinstance(row, bytes) else as_array(row).tobytes() for row in value]
            assert rows == [data.encoded(sample) for sample in ids], f"image of samples {ids}"
            continue
        if name in RAGGED:
            texts = FILLED_TEXTS if cell.get("opened") == "filled" else RAGGED[name]
            check_ragged(cell, value, [texts[sample] for sample in ids], python)
            continue
        if name in NESTED:
            check_nested(cell, value, [NESTED[name][sample] for sample in ids], python)
            continue
        check_type(cell, value)
        if name == "image":
            expected = np.array(own, np.uint8)[:, None, None, None]
            expected = expected + np.uint8(cell["transform"] == "library")
            expected = np.broadcast_to(expected, (len(ids), 3, SIDE, SIDE))
        else:
            expected = ARRAYS[name][own]
        if python:
            expected = expected + expected.dtype.type(1)
        found = as_array(value)
        assert found.dtype == expected.dtype, f"{name}: {found.dtype}"
        assert np.array_equal(found, expected), f"{name} of samples {ids}: {found}"


class RankLoop:
    """One rank of a cell. `steps()` is its loop, one batch at a time."""

    def __init__(self, cell: Cell, rank: int, data: Data, folder: Path, job: Job) -> None:
        self._cell, self._rank, self._data, self._folder = cell, rank, data, folder
        self._job = job
        self.got: Ids = []
        self.uses = 0
        """Samples that came from tiers, and from other nodes in parcels."""

    def steps(self) -> Iterator[None]:
        cell = self._cell
        loader = self._made()
        try:
            plan = planned(cell, self._rank, loader)
            wanted = taken(cell, plan)
            whole = cell["run"] == "through"
            yield from self._epoch(loader, 0, wanted[0] if whole else wanted[0][:CUT], whole)
            if cell["run"] == "resumed":
                state = json.loads(json.dumps(loader.state_dict()))
                loader.close()
                loader = self._made(again=True)
                if "restored" in cell:
                    self._restore_elsewhere(loader, state)
                else:
                    loader.load_state_dict(state)
                first = self.got.pop()
                yield from self._epoch(loader, 0, wanted[0][CUT:], True)
                self.got[0] = first + self.got[0]
            for epoch in range(1, len(wanted)):
                yield from self._epoch(loader, epoch, wanted[epoch], True)
            stats = loader.stats()
            self.uses = sum(tier["uses"] for tier in stats["tiers"])
            if stats["parcels"] is not None:
                self.uses += stats["parcels"]["received_samples"]
            assert self.got == wanted
            self._job.barrier.wait()
        finally:
            loader.close()

    def _restore_elsewhere(self, loader: hr.Loader, state: Any) -> None:
        """In a loader of other files, which only `strict=False` takes."""
        message = "it is not refused"
        try:
            loader.load_state_dict(state)
        except errors.FailedPreconditionError as error:
            message = str(error)
        assert message.endswith("continue with load_state_dict(state, strict=False)"), message
        loader.load_state_dict(state, strict=False)
        self._data = self._data.elsewhere

    def _made(self, again: bool = False) -> hr.Loader:
        """`again`: after another loader of the rank."""
        return make(self._cell, self._rank, self._data, self._folder, self._job, again)

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
        else:
            self._job.barrier.wait()  # As steps of training end: a node that leaves sends no more.


def run_here(
    cell: Cell, ranks: list[int], data: Data, folder: Path, job: Job
) -> tuple[list[Ids], int]:
    """These ranks in this process, in step: what each got, and samples from tiers and nodes."""
    if refusal(cell) is not None:
        for rank in ranks:
            expect_refusal(cell, rank, data, folder, job)
        return [], 0
    loops = [RankLoop(cell, rank, data, folder, job) for rank in ranks]
    for _ in itertools.zip_longest(*(loop.steps() for loop in loops)):
        pass
    return [loop.got for loop in loops], sum(loop.uses for loop in loops)


def expect_refusal(cell: Cell, rank: int, data: Data, folder: Path, job: Job) -> None:
    row = refusal(cell)
    assert row is not None
    message = "it is not refused"
    try:
        make(cell, rank, data, folder, job).close()
    except errors.InvalidArgumentError as error:
        message = str(error)
    assert message == row.text(cell), f"{message!r}, must be: {row.text(cell)!r}"


def run_cell(cell: Cell, data: Data) -> int:
    """Runs all of its checks; samples that came from tiers, and from other nodes."""
    folder = Path(tempfile.mkdtemp(dir=data.root))
    try:
        got, uses = run_ranks(cell, lambda ranks, job: run_here(cell, ranks, data, folder, job))
        if refusal(cell) is None:
            check_each_once(cell, got)
        return uses
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
    use_server()
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "headrace: order=.* mix of labels")
    # Nodes that need not meet have no addresses in these jobs.
    warnings.filterwarnings("ignore", "headrace: tiers= has no effect")
    warnings.filterwarnings("ignore", "headrace: tiers on . nodes: other nodes are not asked")
    if arguments[:1] == ["--serve"]:
        serve(Data(Path(arguments[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        cell = parse(arguments)
        uses = run_cell(cell, matrix_data.write_data(Path(folder)))
    print(f"holds; {uses} samples came from tiers and other nodes")


if __name__ == "__main__":
    main(sys.argv[1:])
