"""The rungs of rinas_ladder.py, which runs each in a process of its own; prints a line of JSON.

python benchmarks/formats/rinas_rungs.py write ROWS FOLDER
python benchmarks/formats/rinas_rungs.py convert FOLDER TARGET
python benchmarks/formats/rinas_rungs.py RUNG PATH BATCH WORKERS SECONDS MEMORY
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

TOKENS = 512  # of a row
_WARM_UP_STEPS = 10
_WORDS = 50_000
_ROWS_A_BATCH = 1000  # as datasets writes them


def write(rows: int, folder: str) -> None:
    """Tokenised text as RoBERTa's: ids and a mask a row, saved by datasets."""
    import datasets

    draw = np.random.default_rng(0)

    def some(begin: int) -> Iterator[dict[str, Any]]:
        for first in range(begin, rows, _ROWS_A_BATCH):
            ids = draw.integers(0, _WORDS, (min(_ROWS_A_BATCH, rows - first), TOKENS), np.int32)
            for row in ids:
                yield {"input_ids": row, "attention_mask": np.ones(TOKENS, np.int8)}

    features = datasets.Features(
        {
            "input_ids": datasets.Sequence(datasets.Value("int32"), length=TOKENS),
            "attention_mask": datasets.Sequence(datasets.Value("int8"), length=TOKENS),
        }
    )
    made = datasets.Dataset.from_generator(some, features=features, gen_kwargs={"begin": 0})
    made.save_to_disk(folder)


def convert(folder: str, target: str) -> None:
    """Rinas's data plane: streams become a file with a footer, a record batch at a time."""
    import pyarrow as pa

    writer = None
    for path in sorted(Path(folder).glob("*.arrow")):
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            writer = writer or pa.ipc.new_file(target, stream.schema)
            for batch in stream:
                writer.write_batch(batch)
    assert writer is not None
    writer.close()


class _Plane(Dataset[Any]):
    """Rows by number out of an Arrow file with a footer: `get_batch(i)`, then a slice."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = None
        self._firsts = np.zeros(1, np.int64)
        self._open()
        rows = [self._file.get_batch(i).num_rows for i in range(self._file.num_record_batches)]
        self._firsts = np.concatenate([[0], np.cumsum(rows)])
        self._file = None  # Opened again where it is read: in workers.

    def _open(self) -> None:
        import pyarrow as pa

        self._file = pa.ipc.open_file(pa.memory_map(self._path))

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
    """Rinas's control plane: a thread a sample fetches a batch, in the order of arrival."""

    def __init__(self, rows: Any, batch: int) -> None:
        self._rows = rows
        self._batch = batch
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        self._pool = self._pool or ThreadPoolExecutor(self._batch)
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
        prefetch_factor=4 if workers else None,
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


def loader_of(rung: str, path: str, batch: int, workers: int, memory: int) -> Any:
    """The loader of a rung; an iteration is an epoch."""
    if rung == "hf":
        return _hf(path, batch, workers)
    if rung == "plane":
        return _torch(_Plane(path), batch, workers)
    if rung == "planes":
        return _torch(_Arriving(_Plane(path), batch), batch, workers)
    if rung == "torch":
        return _torch(_Files(path), batch, workers)
    if rung == "arriving":
        return _torch(_Arriving(_Files(path), batch), batch, workers)
    return _headrace(path, batch, rung.partition("-")[0], memory, rung.endswith("-images"))


def measure(loader: Any, seconds: float) -> dict[str, Any]:
    """Samples in so many seconds, after some steps; epochs follow each other."""
    steps = samples = 0
    begin = time.perf_counter()
    while True:
        for batch in loader:
            first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
            steps += 1
            samples += len(first)
            if steps == _WARM_UP_STEPS:
                begin, samples = time.perf_counter(), 0
            elapsed = time.perf_counter() - begin
            if steps > _WARM_UP_STEPS and elapsed >= seconds:
                return {"samples": samples, "seconds": elapsed, "steps": steps}


def main(arguments: list[str]) -> None:
    if arguments[0] == "write":
        write(int(arguments[1]), arguments[2])
    elif arguments[0] == "convert":
        convert(*arguments[1:])
    else:
        rung, path, batch, workers, seconds, memory = arguments
        torch.set_num_threads(1)
        random.seed(0)
        loader = loader_of(rung, path, int(batch), int(workers), int(memory))
        print("\n" + json.dumps(measure(loader, float(seconds))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
