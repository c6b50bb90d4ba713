"""Datasets whose payload says which sample it is, and what tests of the Loader have in common."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import headrace as hr
from headrace import _core

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
