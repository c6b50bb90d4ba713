"""Packs, folders, tars, arrays, tokens and HDF5, each by its own reader."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from headrace import _core
from headrace.formats import webdataset
from headrace.formats._base.format import Sample
from headrace.formats._files.images import IMAGES
from headrace.formats._files.patterns import expand
from headrace.formats._folders import media
from headrace.formats._hdf5 import hdf5
from headrace.formats._tars.samples import KEY, META
from headrace.formats.pack_format import PACK_INDEX_NAME


def pack(row: Any, path: str) -> Iterator[Sample]:
    import pyarrow as pa

    index = _core.Index.open(os.path.join(path, PACK_INDEX_NAME))
    files = [os.path.join(path, index.object(n)[0]) for n in range(index.object_count)]
    read = [0] * len(files)  # blocks of each, which lie there in the order of their samples
    for shard in index.blocks()[2].tolist():
        with pa.memory_map(os.fsencode(files[shard])) as mapped:
            yield from pa.ipc.open_file(mapped).get_batch(read[shard]).to_pylist()
        read[shard] += 1


def folder(row: Any, path: str) -> Iterator[Sample]:
    classes = sorted(each.name for each in os.scandir(path) if each.is_dir())
    for label, name in enumerate(classes):
        for where, _, files in sorted(os.walk(os.path.join(path, name), followlinks=True)):
            for file in sorted(each for each in files if each.lower().endswith(IMAGES)):
                with open(os.path.join(where, file), "rb") as image:
                    yield {"image": image.read(), "label": label}


def media_files(row: Any, path: str) -> Iterator[Sample]:
    """File by file."""
    classes = media._visible(path)[1] if os.path.isdir(path) else []
    for each, label in media._sound_files(path, classes, lambda folder: None):
        with open(each, "rb") as file:
            sample: Sample = {"audio" if media._is_sound(each) else "image": file.read()}
        yield sample | ({"label": np.int64(label)} if classes else {})


def tars(row: Any, path: str) -> Iterator[Sample]:
    """By Python's tarfile, as webdataset reads them; with the names that fields have here."""
    fields: dict[str, str] = {}
    for shard in webdataset._shards(path):
        with tarfile.open(shard) as tar:
            samples: list[tuple[str, dict[str, bytes]]] = []
            for member in tar:
                match = KEY.fullmatch(member.name)
                is_file = member.isreg() or member.islnk() or member.issym()
                if match is None or not is_file or META.match(member.name):
                    continue
                try:
                    file = tar.extractfile(member)
                except KeyError:
                    continue  # A link to nothing in the tar.
                if file is None:
                    continue  # A link to a folder.
                if not samples or samples[-1][0] != match[1]:
                    samples.append((match[1], {}))
                samples[-1][1][match[2].lower()] = file.read()
        for _, found in samples:
            taken = {each: found[each] for each in row.members or found if each in found}
            if not taken:
                continue
            images = [each for each in taken if each in webdataset.IMAGES and each not in row.raw]
            fields = fields or {each: webdataset._name(each, images, row.raw) for each in taken}
            yield {
                fields.get(each, "image"): row._decoded(each, data) for each, data in taken.items()
            }


def arrays(row: Any, path: str) -> Iterator[Sample]:
    """By NumPy."""
    for file in expand(path):
        loaded = np.load(file, mmap_mode="r")
        if not file.endswith(".npz"):
            yield from _rows_of(loaded)
            continue
        members = {name: loaded[name] for name in loaded.files}
        for i in range(len(next(iter(members.values())))):
            yield {name: array[i] for name, array in members.items()}


def records(row: Any, path: str) -> Iterator[Sample]:
    """By NumPy."""
    for file in expand(path):
        yield from _rows_of(np.fromfile(file, row.element(), offset=row.offset))


def _rows_of(array: np.ndarray[Any, Any]) -> Iterator[Sample]:
    names = array.dtype.names
    for row in array:
        yield {"value": row} if names is None else {name: row[name] for name in names}


def tokens(row: Any, path: str) -> Iterator[Sample]:
    """By numpy.memmap, as nanoGPT and Megatron read them."""
    for each in expand(path):
        file = row._describe(each)
        values = np.memmap(file.path, file.dtype, "r", file.offset, (file.count,))
        if row.documents:
            yield from _documents(row, file, values)
            continue
        assert row.window is not None
        for i in range(row._windows(file.count)):
            start = i * (row.stride or row.window)
            yield {
                name: values[start + shift : start + shift + row.window].astype(
                    row.batch_dtype or file.dtype
                )
                for shift, name in enumerate(row._fields())
            }


def _documents(row: Any, file: Any, tokens: np.ndarray[Any, Any]) -> Iterator[Sample]:
    """One sequence after the other, by the .idx as a whole."""
    assert file.megatron is not None
    table = np.fromfile(file.idx, np.uint8)[34:]
    count = file.megatron.sequences
    lengths = table[: 4 * count].view("<i4")
    ends = table[12 * count : 12 * count + 8 * file.megatron.documents].view("<i8")
    bounds = np.concatenate([[0], np.cumsum(lengths)])[ends]
    for begin, end in pairwise(bounds.tolist()):
        yield {"tokens": tokens[begin:end].astype(row.batch_dtype or file.dtype)}


def datasets(row: Any, path: str) -> Iterator[Sample]:
    """By h5py."""
    files = hdf5._files(path)
    by_row: bool | None = None
    for each in files:
        with hdf5.opened(each) as file:
            columns = row._columns(each, file)
            if by_row is None:
                by_row = row._by_row(files, columns)
            arrays = {hdf5._field(column.name): file[column.name][()] for column in columns}
        if not by_row:
            yield arrays
            continue
        for number in range(columns[0].shape[0]):
            yield {name: array[number] for name, array in arrays.items()}
