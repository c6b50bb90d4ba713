"""Headrace, with its defaults: a pack, in the order that the settings name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace as hr
from loaders import common

FORMAT = "pack"  # that the project's own data sets have


def shuffle(task: common.Task) -> str:
    if task.settings["order"] == "exact":
        return "permutation of all samples"
    return "`epoch`: blocks in random order, then draws from a pool, by its defaults"


def choices(task: common.Task) -> list[common.Settings]:
    return []


def prepare(source: common.Source, folder: Path) -> None:
    """_data.py has written it."""


def _rows(rows: Any) -> common.Batch:
    return common.Batch(len(rows), sum(row.nbytes for row in rows), lambda: rows)


def epochs(task: common.Task) -> Iterator[Iterator[common.Batch]]:
    transform = hr.image.train(common.IMAGE_SIZE, mean=None, std=None, dtype="uint8", layout="NHWC")
    records = task.source.record_bytes > 0
    with hr.Loader(
        task.stored,
        task.batch,
        order=task.settings["order"],
        transform=transform if task.images else None,
        output=hr.Output("numpy", fields=["record" if records else "image"]),
        epochs=task.settings["epochs"],
    ) as loader:
        while True:
            if task.images:
                yield (common.image_batch(rows) for (rows,) in loader)
            else:
                yield (_rows(rows) for (rows,) in loader)
