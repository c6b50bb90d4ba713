"""The samples of each shipped format by the library that is its own, to compare with headrace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.formats import Format
from own_readers import arrow, files, shards, tables

_READERS: dict[str, Callable[[Any, str], Iterator[dict[str, Any]]]] = {
    "Pack": files.pack,
    "Folder": files.folder,
    "Media": files.media_files,
    "WebDataset": files.tars,
    "Arrays": files.arrays,
    "Records": files.records,
    "Tokens": files.tokens,
    "Hdf5": files.datasets,
    "Manifest": tables.manifest,
    "Coco": tables.coco,
    "HuggingFace": arrow.huggingface,
    "Parquet": arrow.parquet,
    "TFRecord": shards.tfrecord,
    "MDS": shards.mds,
    "LitData": shards.litdata,
}


def own_samples(row: Format, path: str) -> Iterator[dict[str, Any]]:
    """Each sample at `path`; of a format of the user's by its own method."""
    reader = _READERS.get(type(row).__name__)
    return row.own_samples(path) if reader is None else reader(row, path)
