"""NVIDIA DALI on the processor: tar files in one sequence, and a buffer of samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline

from loaders import common

FORMAT = "tar"


def shuffle(task: common.Task) -> str:
    return f"a buffer of {task.window:,} samples over the tar files in one order"


def choices(task: common.Task) -> list[common.Settings]:
    return [
        {"threads": threads, "prefetch": 2, "map": mapped}
        for threads in (1, 2, 4)
        for mapped in (True, False)
    ]


def prepare(source: common.Source, folder: Path) -> None:
    """The tar files are WebDataset's."""
    raise NotImplementedError


def _pipeline(task: common.Task) -> Any:
    settings = task.settings
    pipeline = Pipeline(
        batch_size=task.batch,
        num_threads=settings["threads"],
        device_id=None,
        prefetch_queue_depth=settings["prefetch"],
        seed=1,
    )
    with pipeline:
        data = fn.readers.webdataset(
            paths=sorted(map(str, task.stored.glob("*.tar"))),
            ext=["jpg"],
            random_shuffle=True,
            initial_fill=task.window,
            dont_use_mmap=not settings["map"],
            name="samples",
        )
        if task.images:
            data = fn.decoders.image_random_crop(
                data,
                device="cpu",
                random_area=list(common.SCALE),
                random_aspect_ratio=list(common.RATIO),
            )
            data = fn.resize(data, size=[common.IMAGE_SIZE] * 2, interp_type=types.INTERP_LINEAR)
            data = fn.flip(data, horizontal=fn.random.coin_flip())
        pipeline.set_outputs(data)
    pipeline.build()
    return pipeline


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    pipeline = _pipeline(task)
    samples = pipeline.epoch_size("samples")
    due = 0  # of the samples that the pipeline has to deliver until the epoch's end
    while True:
        due += samples
        yield _epoch(pipeline, task, due)
        due -= -(-due // task.batch) * task.batch  # A batch may hold the next epoch's first.


def _epoch(pipeline: Any, task: common.Task, samples: int) -> Iterator[common.Batch]:
    left = samples
    while left > 0:
        (batch,) = pipeline.run()
        if task.images:
            found = common.image_batch(batch.as_array()[: max(left, 0)])
        else:
            rows = [batch.at(i) for i in range(min(left, len(batch)))]
            found = common.Batch(len(rows), sum(row.nbytes for row in rows), lambda: rows)  # noqa: B023
        yield found
        left -= task.batch
