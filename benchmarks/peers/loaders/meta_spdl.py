"""SPDL: the files of a folder in the order of a permutation, read and decoded by threads."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from loaders import common

FORMAT = "source"


def shuffle(task: common.Task) -> str:
    return "permutation of all samples"


def choices(task: common.Task) -> list[common.Settings]:
    return [
        {"threads": threads} | ({"decoder": decoder} if task.images else {})
        for decoder in (("ffmpeg", "pillow") if task.images else ("",))
        for threads in (1, 2, 4, 8)
    ]


def prepare(source: common.Source, folder: Path) -> None:
    """Nothing to write."""


class _Reader:
    def __init__(self, task: common.Task) -> None:
        self._task = task

    @cached_property
    def _records(self) -> int:
        fd = os.open(self._task.source.path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        return fd

    def one(self, sample: int) -> bytes:
        with open(self._task.source.files[sample], "rb", buffering=0) as file:  # type: ignore[attr-defined]
            return file.read()

    def batch(self, samples: list[int]) -> Any:
        """Of bytes: one task a batch, for a task a sample costs more than the read."""
        size = self._task.source.record_bytes
        if size:
            return common.join([os.pread(self._records, size, i * size) for i in samples])
        return common.join([self.one(i) for i in samples])

    def decoded(self, sample: int) -> Any:
        """By FFmpeg, whose libraries SPDL takes from the system."""
        packets = spdl.io.demux_image(self.one(sample))
        left, top, width, height = common.random_box(packets.width, packets.height)
        flip = ",hflip" if random.random() < 0.5 else ""
        size = common.IMAGE_SIZE
        filters = (
            f"crop={width}:{height}:{left}:{top},scale={size}:{size}:flags=bilinear{flip},"
            "format=pix_fmts=rgb24"
        )
        return spdl.io.decode_packets(packets, filter_desc=filters)


def _convert(frames: list[Any]) -> Any:
    buffer = spdl.io.convert_frames(frames)
    return np.asarray(spdl.io.to_numpy(buffer))


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    reader = _Reader(task)
    rng = np.random.default_rng(0)
    while True:
        yield _epoch(task, reader, rng.permutation(len(task.source)).tolist())


def _epoch(task: common.Task, reader: _Reader, order: list[int]) -> Iterator[common.Batch]:
    threads = task.settings["threads"]
    builder = PipelineBuilder()
    if task.images:
        ffmpeg = task.settings["decoder"] == "ffmpeg"
        decode = reader.decoded if ffmpeg else lambda i: common.decode_one(reader.one(i))
        builder.add_source(order).pipe(decode, concurrency=threads).aggregate(task.batch)
        builder.pipe(_convert if ffmpeg else np.stack).add_sink(4)
    else:
        lists = [order[i : i + task.batch] for i in range(0, len(order), task.batch)]
        builder.add_source(lists).pipe(reader.batch, concurrency=threads).add_sink(4)
    pipeline = builder.build(num_threads=threads)
    with pipeline.auto_stop():
        for batch in pipeline:
            yield common.image_batch(batch) if task.images else common.flat_batch(*batch)
