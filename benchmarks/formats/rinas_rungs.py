"""The rungs of rinas_ladder.py, which runs each in a process of its own; prints lines of JSON.

python benchmarks/formats/rinas_rungs.py write ROWS FOLDER
python benchmarks/formats/rinas_rungs.py convert FOLDER TARGET ROWS
python benchmarks/formats/rinas_rungs.py run < JSON

`convert`: ROWS of a record batch. `run`: a rung's cells, one after another, a line for each one.
"""

from __future__ import annotations

import errno
import functools
import gc
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _harness
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

TOKENS = 512  # of a row
_WARM_UP_STEPS, _WARM_UP_S = 10, 0.7  # whichever ends first
_STEPS_MIN = 8  # of a measurement, unless they take longer than
_ROOM_MIN = 256 * 10**6  # beside what is taken when it is warm: queues fill later
_LIMIT_TRIES, _LIMIT_STEP = 40, 8 * 2**20
_LONGEST = 3.0  # times the seconds that it should
_WORDS = 50_000
_ROWS_A_BATCH = 1000  # as datasets writes them


def write(rows: int, folder: str) -> None:
    """Tokenised text as RoBERTa's: ids and a mask a row, saved by datasets."""
    import datasets
    import pyarrow as pa

    draw = np.random.default_rng(0)
    features = datasets.Features(
        {
            "input_ids": datasets.Sequence(datasets.Value("int32"), length=TOKENS),
            "attention_mask": datasets.Sequence(datasets.Value("int8"), length=TOKENS),
        }
    )
    schema = features.arrow_schema
    stream = f"{folder}.stream"
    mask = pa.FixedSizeListArray.from_arrays(np.ones(_ROWS_A_BATCH * TOKENS, np.int8), TOKENS)
    with pa.OSFile(stream, "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for first in range(0, rows, _ROWS_A_BATCH):
            count = min(_ROWS_A_BATCH, rows - first)
            ids = draw.integers(0, _WORDS, count * TOKENS, np.int32)
            columns = [pa.FixedSizeListArray.from_arrays(ids, TOKENS), mask[:count]]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    datasets.Dataset.from_file(stream).save_to_disk(folder)
    os.unlink(stream)


def convert(folder: str, target: str, rows: str) -> None:
    """Rinas's data plane: streams become a file with a footer, a record batch at a time."""
    import pyarrow as pa

    writer = None
    for path in sorted(Path(folder).glob("*.arrow")):
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            writer = writer or pa.ipc.new_file(target, stream.schema)
            for batch in stream:
                for first in range(0, batch.num_rows, int(rows)):
                    writer.write_batch(batch.slice(first, int(rows)))
    assert writer is not None
    writer.close()


class _Plane(Dataset[Any]):
    """Rows by number out of an Arrow file with a footer: `get_batch(i)`, then a slice.

    The file is mapped; or read, with `pread`, a record batch whole.
    """

    def __init__(self, path: str, how: str = "map") -> None:
        self._path = path
        self._how = how
        self._file: Any = None
        self._firsts = np.zeros(1, np.int64)
        self._open()
        rows = [self._file.get_batch(i).num_rows for i in range(self._file.num_record_batches)]
        self._firsts = np.concatenate([[0], np.cumsum(rows)])
        self._file = None  # Opened again where it is read: in workers.

    def _open(self) -> None:
        import pyarrow as pa

        source = pa.memory_map if self._how == "map" else pa.OSFile
        self._file = pa.ipc.open_file(source(self._path))

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if self._file is None:
            self._open()
        at = int(np.searchsorted(self._firsts, number, "right")) - 1
        row = self._file.get_batch(at).slice(number - int(self._firsts[at]), 1)
        ids, mask = (column.flatten().to_numpy().astype(np.int64) for column in row.columns)
        return torch.from_numpy(ids), torch.from_numpy(mask)


class _Arriving(Dataset[Any]):
    """Rinas's control plane: threads fetch a batch, a sample each, in the order of arrival."""

    def __init__(self, rows: Any, threads: int) -> None:
        self._rows = rows
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        self._pool = self._pool or ThreadPoolExecutor(self._threads)
        begun = [self._pool.submit(self._rows.__getitem__, number) for number in numbers]
        return [each.result() for each in as_completed(begun)]


class _Files(Dataset[Any]):
    """A folder of images, decoded by Pillow: a random resized crop of 224, a flip."""

    def __init__(self, path: str) -> None:
        self._paths = sorted(Path(path).glob("*/*.jpg"))
        names = sorted({each.parent.name for each in self._paths})
        self._labels = [names.index(each.parent.name) for each in self._paths]

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        from peers.loaders.common import decode_one

        image = decode_one(self._paths[number].read_bytes())
        return torch.from_numpy(image.copy()), self._labels[number]


def _torch(rows: Any, batch: int, workers: int) -> Any:
    return DataLoader(
        rows,
        batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def _hf(path: str, batch: int, workers: int) -> Any:
    import datasets

    return _torch(datasets.load_from_disk(path).with_format("torch"), batch, workers)


def _headrace(path: str, batch: int, order: str, memory: int, images: bool) -> Any:
    import headrace as hr

    transform = hr.image.train(224, mean=None, std=None, dtype="uint8", layout="NHWC")
    return hr.Loader(
        hr.open(path), batch, order=order, memory=memory, transform=transform if images else None
    )


def loader_of(rung: str, path: str, cell: dict[str, Any]) -> Any:
    """The loader of a rung; an iteration is an epoch.

    Of a cell: `batch`, and where they matter `workers`; `pool`, threads that fetch a batch, by
    default one a sample; `how` an Arrow file is read; `memory` of Headrace.
    """
    batch, workers = cell["batch"], cell["workers"]
    pool = cell.get("pool") or batch
    if rung == "hf":
        return _hf(path, batch, workers)
    if rung == "plane":
        return _torch(_Plane(path, cell.get("how", "map")), batch, workers)
    if rung == "planes":
        return _torch(_Arriving(_Plane(path), pool), batch, workers)
    if rung == "torch":
        return _torch(_Files(path), batch, workers)
    if rung == "arriving":
        return _torch(_Arriving(_Files(path), pool), batch, workers)
    images = rung.endswith("-images")
    return _headrace(path, batch, rung.partition("-")[0], cell["memory"], images)


def measure(loader: Any, seconds: float, when_warm: Callable[[], int]) -> dict[str, float]:
    """Samples in so many seconds, after some steps; epochs follow each other.

    `taken`: what `when_warm` says.
    """
    steps = samples = taken = 0
    begin, is_warm = time.perf_counter(), False
    while True:
        for batch in loader:
            first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
            steps += 1
            samples += len(first)
            elapsed = time.perf_counter() - begin
            if not is_warm:
                if steps >= _WARM_UP_STEPS or elapsed >= _WARM_UP_S:
                    taken = when_warm()
                    begin, steps, samples, is_warm = time.perf_counter(), 0, 0, True
            elif elapsed >= seconds and (steps >= _STEPS_MIN or elapsed >= _LONGEST * seconds):
                return {"samples": samples, "seconds": elapsed, "taken": taken}


def _limit(spec: dict[str, Any], limit_bytes: int) -> None:
    """Limits the memory group of this process; a little higher where the kernel cannot evict."""
    for _ in range(_LIMIT_TRIES):
        try:
            Path(spec["limit"]).write_text(str(limit_bytes))
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            limit_bytes += _LIMIT_STEP
    raise RuntimeError(f"{spec['limit']}: the kernel does not evict down to {limit_bytes} bytes")


def tighten(spec: dict[str, Any], size: float, own: int) -> int:
    """Leaves room for one part in `size` of the data, beside what the processes take by now.

    That is returned. `own`: what the loader holds of the data itself, which is part of that room.
    """
    data_bytes = sum(Path(path).stat().st_size for path in spec["files"])
    lines = (Path(spec["limit"]).parent / "memory.stat").read_text().splitlines()
    counts = {name: int(count) for name, count in map(str.split, lines)}
    usage = int((Path(spec["limit"]).parent / "memory.usage_in_bytes").read_text())
    taken = usage - counts["total_cache"] + counts.get("total_shmem", 0)
    _limit(spec, taken + max(_ROOM_MIN, round(data_bytes / size)) - own)
    return taken


def prepare(spec: dict[str, Any], size: float) -> None:
    """Evicts the data, and fills the page cache with one part in `size` of it: without a limit."""
    files = [Path(path) for path in spec["files"]]
    data_bytes = sum(path.stat().st_size for path in files)
    for path in files:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    _limit(spec, -1)
    left, buffer = data_bytes / size, bytearray(2**20)
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while left > 0 and (count := file.readinto(buffer)):
                left -= count


def run(
    spec: dict[str, Any], loader_of: Callable[[str, str, dict[str, Any]], Any] = loader_of
) -> Iterator[str]:
    """Measures the cells of a rung: each one as JSON, with its `rate`, samples a second.

    Cells with workers first; then, in random order, those whose `workers` is None: they have the
    number of the fastest.
    """
    random.seed(spec["seed"])
    swept = [cell for cell in spec["cells"] if cell["workers"] is not None]
    others = [cell for cell in spec["cells"] if cell["workers"] is None]
    best, best_rate = 0, 0.0
    for cell in [*random.sample(swept, len(swept)), *random.sample(others, len(others))]:
        prepare(spec, cell["size"])
        used = cell | {"workers": best if cell["workers"] is None else cell["workers"]}
        loader = loader_of(spec["rung"], spec["path"], used)
        room = functools.partial(tighten, spec, cell["size"], cell.get("memory") or 0)
        found = measure(loader, spec["seconds"], room)
        cached = _harness.resident_bytes(map(Path, spec["files"]))
        if hasattr(loader, "close"):
            loader.close()
        del loader
        gc.collect()
        rate = found["samples"] / found["seconds"]
        if cell["workers"] is not None and rate > best_rate:
            best, best_rate = cell["workers"], rate
        swept = cell["workers"] is not None
        held = {"cached": cached, "taken": found["taken"]}
        yield json.dumps(used | held | {"rate": rate, "swept": swept})


def main(arguments: list[str]) -> None:
    if arguments[0] == "write":
        write(int(arguments[1]), arguments[2])
    elif arguments[0] == "convert":
        convert(*arguments[1:])
    else:
        torch.set_num_threads(1)
        for line in run(json.load(sys.stdin)):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
