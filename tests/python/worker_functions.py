"""Datasets of records, and functions that workers can import."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import headrace as hr
from headrace import _core

RECORDS = 103  # a prime: no batch size divides it
WIDTH = 6


def write_records(root: Path, count: int = RECORDS, width: int = WIDTH) -> Path:
    """An index of records in one file: float32[width] of i, i + 1/8, ...; label 3 i, inline."""
    root.mkdir(parents=True, exist_ok=True)
    records(count, width).tofile(root / "records.bin")
    size = 4 * width
    contents = _core.IndexContents(count, str(root))
    stat = (root / "records.bin").stat()
    contents.add_objects(
        ["records.bin"], np.array([stat.st_size], np.uint64), np.array([stat.st_mtime_ns])
    )
    zeros = np.zeros(count, np.uint64)
    offsets = np.arange(count, dtype=np.uint64) * np.uint64(size)
    extents = (zeros, offsets, np.full(count, size, np.uint64))
    contents.add_extent_field("record", ("array", "float32", (width,)), extents)
    contents.add_inline_field("label", ("array", "int64", ()), np.arange(count) * 3)
    contents.set_attribute("format", "test")
    _core.write_index(contents, str(root / "records.hri"))
    return root / "records.hri"


def records(count: int = RECORDS, width: int = WIDTH) -> np.ndarray[Any, Any]:
    return (np.arange(count)[:, None] + np.arange(width) / 8).astype(np.float32)


class Pair(NamedTuple):
    first: Any
    second: Any


class NoArray:
    """What NumPy cannot convert."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("there is no array of it")


def no_array_at_seven(sample: hr.Sample) -> Any:
    return NoArray() if sample.id == 7 else sample.record


def too_large_at_seven(sample: hr.Sample) -> int:
    return 2**70 if sample.id == 7 else int(sample.label)


def sparse_at_seven(sample: hr.Sample) -> Any:
    import torch

    row = torch.from_numpy(np.array(sample.record))
    return row.to_sparse() if sample.id == 7 else row


def none_at_seven(sample: hr.Sample) -> Any:
    return None if sample.id == 7 else sample.record


def record(sample: hr.Sample) -> Any:
    return sample.record


def everything(sample: hr.Sample) -> dict[str, Any]:
    """Leaves of every sort, nested."""
    import torch  # Here: most workers need no torch, and start sooner.

    return {
        "view": sample.record,
        "both": (sample["record"] * 2, torch.from_numpy(sample[0]) + 1),
        "pair": Pair(sample.label, [float(sample.label), int(sample.label), sample.label > 9]),
        "text": f"sample {sample.id} of {sample.epoch}",
        "raw": bytes([sample.id % 256]),
        "bf16": torch.from_numpy(sample.record).to(torch.bfloat16),
        "random": sample.rng.random(3),
        "when": np.datetime64(int(sample.id), "s"),
        "ago": np.timedelta64(int(sample.id), "100ms"),
    }


def bfloat16_then_integers(sample: hr.Sample) -> Any:
    """Which lie in memory alike, and are not of the same value."""
    import torch

    if sample.id < 48:
        return torch.full((2,), sample.id, dtype=torch.bfloat16)
    return np.full(2, sample.id, np.uint16)


def growing(sample: hr.Sample) -> Any:
    """Of sample i: i % 5 + 1 rows of i."""
    return np.full((sample.id % 5 + 1, 2), sample.id, np.int32), sample.label


def by_epoch(sample: hr.Sample) -> Any:
    return np.full(sample.epoch + 2, sample.id)


def changing_dtype(sample: hr.Sample) -> Any:
    return sample.record if sample.id != 50 else sample.record.astype(np.float64)


def changing_structure(sample: hr.Sample) -> Any:
    return sample.record if sample.id != 50 else (sample.record, 1)


def unknown_type(sample: hr.Sample) -> Any:
    return object()


def nothing(sample: hr.Sample) -> Any:
    return ()


def many_numbers(sample: hr.Sample) -> Any:
    return list(range(5000))


def most_numbers(sample: hr.Sample) -> Any:
    return [sample.id] * _core.WorkerChannel.LEAVES_MAX


def much_text(sample: hr.Sample) -> Any:
    return bytes(65 << 20)


def fail_at_50(sample: hr.Sample) -> Any:
    if sample.id == 50:
        raise ValueError("no fifty")
    return sample.record


def leave_at_50(sample: hr.Sample) -> Any:
    if sample.id == 50:
        sys.exit("no fifty")
    return sample.record


def collate_leaves(results: list[Any]) -> Any:
    sys.exit("no batch")


def interrupt_at_50(sample: hr.Sample) -> Any:
    if sample.id == 50:
        raise KeyboardInterrupt
    return sample.record


class UnpicklableError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail_unpicklably(sample: hr.Sample) -> Any:
    raise UnpicklableError(1, 2)


def exit_at_50(sample: hr.Sample) -> Any:
    if sample.id == 50:
        os._exit(7)
    return sample.record


def kill_at_50(sample: hr.Sample) -> Any:
    if sample.id == 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample.record


def fork_and_die(sample: hr.Sample, pipe: str) -> Any:
    """Leaves a child that lives until the pipe has a writer, or for a while."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    if os.fork() == 0:
        select.select([reader], [], [], 20)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def hang_after_telling(sample: hr.Sample, pipe: int) -> Any:
    """Of a forked worker: writes a byte into the pipe first."""
    os.write(pipe, b".")
    threading.Event().wait()


def hang_after_start(sample: hr.Sample) -> Any:
    os.write(1, f"{os.getpid()}\n".encode())
    threading.Event().wait()


def process_of(sample: hr.Sample) -> Any:
    return os.getpid()


def scribble(sample: hr.Sample) -> Any:
    """Writes into what it was given."""
    sample.record[:] += 1
    return sample.record


def pixels(sample: hr.Sample) -> Any:
    """A native decode came before."""
    image, label = sample
    return image.astype(np.int32) + 1, label


def encoded_bytes(sample: hr.Sample) -> Any:
    return len(sample.image), bytes(sample.image[:2])


def collate(results: list[Any]) -> dict[str, Any]:
    import torch

    return {
        "stack": np.stack([result.record for result in results]),
        "tensor": torch.tensor([int(result.label) for result in results]),
        "count": len(results),
        "other": {1, 2},
    }


def collate_lists(results: list[Any]) -> list[int]:
    return [len(result) for result in results]


def collate_fails(results: list[Any]) -> Any:
    raise ValueError("no batch")


def init_environment(worker: int) -> None:
    os.environ["HEADRACE_TEST_WORKER"] = str(worker)


def init_fails(worker: int) -> None:
    raise ValueError("no start")


def worker_number(sample: hr.Sample) -> Any:
    return int(os.environ["HEADRACE_TEST_WORKER"])


def global_random(sample: hr.Sample) -> Any:
    return np.random.random()


def corner(sample: hr.Sample) -> Any:
    """Of each decoded image its dtype, its shape, and its first pixel."""
    image = sample.image
    return str(image.dtype), np.array(image.shape), image[0, 0].copy(), sample.label


def shape_and_label(sample: hr.Sample) -> Any:
    return np.array(sample.image.shape), sample.label


def collate_shapes(samples: list[Any]) -> Any:
    return [tuple(sample.image.shape) for sample in samples]


def kind_of(image: Any) -> Any:
    """What a library gives its transforms."""
    return np.frombuffer(
        f"{type(image).__module__}.{type(image).__name__}".ljust(80).encode(), "u1"
    )


def text_of(row: Any) -> str:
    return bytes(np.asarray(row)).decode().strip()
