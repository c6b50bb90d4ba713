"""LitData: chunks in a local folder; permutes chunks, and the samples inside each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from loaders import common

FORMAT = "litdata"
_CHUNK_BYTES = 64 * 10**6  # as its documentation has it


def shuffle(task: common.Task) -> str:
    return "order of chunks of 64 MB, and permutation within a chunk"


def choices(task: common.Task) -> list[common.Settings]:
    return common.WORKERS


def prepare(source: common.Source, folder: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder), chunk_bytes=_CHUNK_BYTES)
    for at, (_, data, label) in enumerate(source.shuffled()):
        writer.add_item(at, {"data": data, "label": label})
    writer.done()
    writer.merge(1)


class _Collate:
    def __init__(self, images: bool) -> None:
        self._images = images

    def __call__(self, samples: list[Any]) -> Any:
        return common.to_tensors([sample["data"] for sample in samples], self._images)


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    from litdata import StreamingDataLoader, StreamingDataset

    torch.set_num_threads(1)
    dataset = StreamingDataset(str(task.stored), shuffle=True)
    loader = StreamingDataLoader(
        dataset,
        batch_size=task.batch,
        num_workers=task.workers,
        collate_fn=_Collate(task.images),
        persistent_workers=task.workers > 0,
        prefetch_factor=task.prefetch,
    )
    while True:
        yield (common.of_tensors(batch, task.images) for batch in loader)
