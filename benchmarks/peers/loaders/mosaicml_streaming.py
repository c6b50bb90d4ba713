"""MosaicML Streaming: MDS shards in a local folder, its default shuffle `py1e`."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from loaders import common

FORMAT = "mds"


def shuffle(task: common.Task) -> str:
    return "`py1e`, within blocks of at least 262,144 samples: here all of them"


_UNUSED = {
    "torchvision": (),
    "torchvision.datasets": ("VisionDataset",),
    "torchvision.transforms": (),
    "torchvision.transforms.functional": ("to_tensor",),
    "transformers": (),
    "transformers.feature_extraction_utils": ("BatchFeature",),
    "transformers.tokenization_utils_base": ("BatchEncoding",),
    "transformers.models": (),
    "transformers.models.auto": (),
    "transformers.models.auto.tokenization_auto": ("AutoTokenizer",),
}


def _replace_unused() -> None:
    """It imports them for its datasets of images and texts; none is used here."""
    for name, classes in _UNUSED.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        for each in classes:
            setattr(module, each, type(each, (), {}))
        sys.modules[name] = module


def choices(task: common.Task) -> list[common.Settings]:
    return common.WORKERS


def prepare(source: common.Source, folder: Path) -> None:
    _replace_unused()
    from streaming import MDSWriter

    columns = {"data": "bytes", "label": "int"}
    with MDSWriter(out=str(folder), columns=columns) as sink:
        for _, data, label in source.shuffled():
            sink.write({"data": data, "label": label})


class _Collate:
    def __init__(self, images: bool) -> None:
        self._images = images

    def __call__(self, samples: list[Any]) -> Any:
        return common.to_tensors([sample["data"] for sample in samples], self._images)


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    _replace_unused()
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    clean_stale_shared_memory()  # of runs that were ended
    dataset = StreamingDataset(local=str(task.stored), shuffle=True, batch_size=task.batch)
    loader = DataLoader(
        dataset,
        batch_size=task.batch,
        num_workers=task.workers,
        collate_fn=_Collate(task.images),
        persistent_workers=task.workers > 0,
        prefetch_factor=task.prefetch,
    )
    while True:
        yield (common.of_tensors(batch, task.images) for batch in loader)
