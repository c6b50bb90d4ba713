"""Grain: records of ArrayRecord files, a permutation of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from loaders import common

FORMAT = "arrayrecord"


def shuffle(task: common.Task) -> str:
    return "permutation of all samples"


def choices(task: common.Task) -> list[common.Settings]:
    return [
        {"workers": 0, "threads": 4, "buffer": 64},
        {"workers": 0, "threads": 16, "buffer": 500},
        {"workers": 1, "threads": 4, "buffer": 64},
        {"workers": 2, "threads": 4, "buffer": 64},
        {"workers": 4, "threads": 4, "buffer": 64},
    ]


def prepare(source: common.Source, folder: Path) -> None:
    writer, written, number = None, 0, 0
    for _, data, _ in source.shuffled():
        if writer is None:
            # group_size:1: its documentation asks for it where records are read at random.
            path = str(folder / f"{number:06}.array_record")
            writer, written, number = (
                ArrayRecordWriter(path, "group_size:1,uncompressed"),
                0,
                number + 1,
            )
        writer.write(data)
        written += len(data)
        if written >= source.shard_bytes:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


def _images(samples: Sequence[Any]) -> Any:
    return np.stack(samples)


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    files = sorted(map(str, task.stored.glob("*.array_record")))
    source = grain.sources.ArrayRecordDataSource(files)
    settings = task.settings
    options = grain.ReadOptions(
        num_threads=settings["threads"], prefetch_buffer_size=settings["buffer"]
    )
    epoch = 0
    while True:
        samples = grain.MapDataset.source(source).seed(epoch).shuffle()
        epoch += 1
        if task.images:
            batches = samples.map(common.decode_one).batch(task.batch, batch_fn=_images)
        else:
            batches = samples.batch(task.batch, batch_fn=common.join)
        read = batches.to_iter_dataset(options)
        if task.workers:
            read = read.mp_prefetch(grain.MultiprocessingOptions(num_workers=task.workers))
        yield (
            common.image_batch(batch) if task.images else common.flat_batch(*batch)
            for batch in read
        )
