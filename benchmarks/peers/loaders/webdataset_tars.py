"""WebDataset: tar files in shuffled order, and a buffer of samples in each worker."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import webdataset

from loaders import common

FORMAT = "tar"


def shuffle(task: common.Task) -> str:
    return f"order of tar files, then a buffer of {task.window:,} samples in each worker"


def choices(task: common.Task) -> list[common.Settings]:
    return common.WORKERS


def prepare(source: common.Source, folder: Path) -> None:
    with webdataset.ShardWriter(
        str(folder / "%06d.tar"), maxcount=10**9, maxsize=source.shard_bytes, verbose=0
    ) as sink:
        for number, data, label in source.shuffled():
            sink.write({"__key__": f"{number:09}", "jpg": data, "cls": label})


def _collate(samples: list[Any], images: bool) -> Any:
    return common.to_tensors([data for data, _ in samples], images)


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    torch.set_num_threads(1)
    shards = sorted(map(str, task.stored.glob("*.tar")))
    # detshuffle: without it, workers that live on repeat one order of the shards.
    samples = webdataset.WebDataset(shards, shardshuffle=len(shards), detshuffle=True)
    batches = (
        samples.shuffle(task.window)
        .to_tuple("jpg", "cls")
        .batched(task.batch, collation_fn=partial(_collate, images=task.images))
    )
    loader = webdataset.WebLoader(
        batches,
        batch_size=None,
        num_workers=task.workers,
        persistent_workers=task.workers > 0,
        prefetch_factor=task.prefetch,
    )
    while True:
        yield (common.of_tensors(batch, task.images) for batch in loader)
