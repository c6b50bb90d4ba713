"""Datasets whose payload says which sample it is, and what tests of the Loader have in common."""

from __future__ import annotations

import datetime
import gc
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import headrace as hr
from headrace import _core
from headrace.profile import (
    DatasetFacts,
    DecodeRates,
    Host,
    Link,
    MachineProfile,
    Rates,
    SizedRates,
    Storage,
    Tier,
)

NUMBERED = (40, 37, 20)  # images of each class
COUNT = sum(NUMBERED)  # a prime: no batch size and no world size divides it
LABELS = np.repeat(np.arange(len(NUMBERED)), NUMBERED)

FLAT = hr.image.train(8, dtype="uint8")
"""Random crops and flips of one colour are that colour."""


def write_numbered(root: Path, counts: Sequence[int] = NUMBERED) -> Path:
    """Class folders of JPEGs; every pixel of sample number i is the grey i."""
    number = 0
    for label, count in enumerate(counts):
        folder = root / f"class{label}"
        folder.mkdir(parents=True)
        for _ in range(count):
            size = (16 + number % 7, 16 + number % 5)
            Image.new("RGB", size, (number,) * 3).save(folder / f"{number:03}.jpg", quality=100)
            number += 1
    return root


def sample_file(root: Path, number: int) -> Path:
    """The file of a sample of write_numbered()."""
    (path,) = root.glob(f"*/{number:03}.jpg")
    return path


def write_tiny(path: Path, count: int) -> Path:
    """An index of `count` samples that are only labels, in the index itself: label 3 i + 1."""
    contents = _core.IndexContents(count, str(path.parent))
    labels = np.arange(count, dtype=np.int64) * 3 + 1
    contents.add_inline_field("label", ("array", "int64", ()), labels)
    contents.set_attribute("format", "test")
    _core.write_index(contents, str(path))
    return path


def payload_ids(batch: Any) -> list[int]:
    """The samples of a batch of write_numbered(), told by every one of their pixels."""
    pixels = np.asarray(batch.image)
    ids = pixels[:, 0, 0, 0].astype(int)
    assert (pixels == pixels[:, :1, :1, :1]).all()
    assert (np.asarray(batch.label) == LABELS[ids]).all()
    if hasattr(batch, "sample_id"):
        assert np.asarray(batch.sample_id).tolist() == ids.tolist()
    return [int(i) for i in ids]


def epoch_ids(loader: Iterable[Any]) -> list[list[int]]:
    """One epoch, as the ids of each batch."""
    return [payload_ids(batch) for batch in loader]


def flat(batches: Iterable[Iterable[int]]) -> list[int]:
    return [sample for batch in batches for sample in batch]


def as_bytes(batch: Any) -> list[bytes]:
    """Every bit of a batch: dtype, shape and content of each field."""
    parts = []
    for field in batch:
        rows = field if isinstance(field, list) else [field]
        for row in rows:
            array = np.asarray(row)
            parts += [f"{array.dtype}{array.shape}".encode(), array.tobytes()]
    return parts


def told(value: Any) -> list[Any]:
    """Type, shape and bytes of a field; bytes as they are or as an array are the same."""
    if isinstance(value, str):
        return ["text", value]
    if isinstance(value, list):
        return [told(each) for each in value]
    if isinstance(value, (bytes, bytearray)):
        value = np.frombuffer(value, np.uint8)
    array = np.asarray(value)
    return [array.dtype.name, list(array.shape), array.tobytes().hex()]


def sample_digest(fields: Iterable[tuple[str, Any]]) -> str:
    """Of a sample's fields, by name."""
    whole = {name: told(value) for name, value in fields}
    return hashlib.sha256(repr(sorted(whole.items())).encode()).hexdigest()


def batch_digests(batch: Any) -> list[tuple[int, str]]:
    """Of a batch with `sample_id`: each sample's number and digest."""
    names = [name for name in batch._fields if name != "sample_id"]
    columns = [getattr(batch, name) for name in names]
    return [
        (int(number), sample_digest(zip(names, [each[row] for each in columns], strict=True)))
        for row, number in enumerate(batch.sample_id)
    ]


def run_python(code: str, *arguments: object, code_expected: int = 0, stderr: str = "") -> str:
    """Runs a program in an interpreter of its own; its stdout. Nothing else may be on stderr."""
    done = subprocess.run(
        python_command(code, *arguments), capture_output=True, text=True, timeout=280
    )
    assert (done.returncode, done.stderr) == (code_expected, stderr), done.stdout
    return done.stdout


def shared_names() -> set[str]:
    """What the core left in the machine's shared memory; other programs' names come and go."""
    return {name for name in os.listdir("/dev/shm") if "headrace" in name and "test" not in name}


def kept() -> tuple[int, set[str]]:
    """Descriptors of this process, and names in shared memory, without what is garbage."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), shared_names()


def python_command(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]


def interrupt(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGINT)


# Machines that nobody measured.


Rate = float | tuple[tuple[int, float], ...]
"""Bytes a second: of one user, or (users, of all of them together)."""
BySize = Rate | Mapping[int, Rate]
"""Of operations of any size, or by their bytes."""


def rates(rate: Rate) -> Rates:
    points = rate if isinstance(rate, tuple) else ((1, rate),)
    return Rates(
        users=tuple(users for users, _ in points),
        bytes_per_second=tuple(each for _, each in points),
        spread=(0.125,) * len(points),
    )


def sized_rates(given: BySize) -> tuple[SizedRates, ...]:
    by_size = given if isinstance(given, Mapping) else {1: given}
    return tuple(SizedRates(size, rates(each)) for size, each in by_size.items())


def made_profile(
    folder: Path, *, storage: BySize, ram: Rate, disk: BySize, link: BySize | None = None
) -> MachineProfile:
    """Of each source its rates; `folder`: on the disk of tiers."""
    return MachineProfile(
        date=datetime.datetime(2026, 11, 26, tzinfo=datetime.UTC),
        headrace="0",
        host=Host(cpus=2, memory_bytes=2**30, kernel="none"),
        dataset=DatasetFacts(
            path="none",
            format="pack",
            file_system="nfs4",
            fingerprint="none",
            samples=1,
            sample_bytes=1.0,
            block_bytes=None,
        ),
        storage=Storage(
            store="threads",
            reads="ranges",
            direct=True,
            cold_share=0.0,
            rates=sized_rates(storage),
        ),
        copy=rates(ram),
        decode=DecodeRates(what="copy", sample_bytes=1.0, rates=rates(1e9)),
        tiers=(
            Tier(
                folder=str(folder),
                file_system="xfs",
                direct=True,
                read=sized_rates(disk),
                write=sized_rates(disk),
            ),
        ),
        link=None
        if link is None
        else Link(nodes=2, latency_seconds=1e-4, cpu_seconds_per_gb=0.5, rates=sized_rates(link)),
    )
