"""LitData's chunks in an object store: plain, compressed as a whole, and as tables of Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from open_checks import put_folder, requests
from served_objects.object_server import ObjectServer
from test_open_read import batches, same

import headrace as hr

ROWS = 40
_AT_ONCE = 20  # samples of a chunk


def table_before(samples: list[bytes]) -> bytes:
    """The number of the samples, and where each begins and ends."""
    ends = np.cumsum([4 * (len(samples) + 2), *map(len, samples)]).astype("<u4")
    return np.uint32(len(samples)).tobytes() + ends.tobytes()


def image(i: int) -> bytes:
    return np.random.default_rng(i).bytes(1000 + i)


def plain(first: int) -> bytes:
    samples = []
    for i in range(first, first + _AT_ONCE):
        parts = [image(i), np.int64(i).tobytes()]
        samples.append(b"".join([*(np.uint32(len(part)).tobytes() for part in parts), *parts]))
    return table_before(samples) + b"".join(samples)


def packed(first: int) -> bytes:
    return bytes(pa.Codec("zstd").compress(plain(first), asbytes=True))


def rows(first: int, size: int = 1) -> bytes:
    """As LitData 0.2.76 lays them out; `size`: factor of the images."""
    numbers = range(first, first + _AT_ONCE)
    columns = {"image": [image(i) * size for i in numbers], "label": list(numbers)}
    table = pa.table({**columns, "ids": [[i] * (i % 3) for i in numbers]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table, max_chunksize=8)
    data = sink.getvalue().to_pybytes()
    return table_before([b""] * _AT_ONCE) + data + np.uint32(len(data)).tobytes() + b"LDARW01\0"


KINDS: dict[str, Callable[[int], bytes]] = {"plain": plain, "packed": packed, "rows": rows}


def written(folder: Path, kind: str, chunk: Callable[[int], bytes]) -> Path:
    """A dataset of two chunks."""
    folder.mkdir()
    chunks: list[dict[str, Any]] = []
    for first in range(0, ROWS, _AT_ONCE):
        name = f"chunk-0-{len(chunks)}{'.zstd' if kind == 'packed' else ''}.bin"
        data = chunk(first)
        (folder / name).write_bytes(data)
        size = len(plain(first) if kind == "packed" else data)
        chunks.append({"filename": name, "chunk_size": _AT_ONCE, "chunk_bytes": size, "dim": None})
    config = {
        "compression": "zstd" if kind == "packed" else None,
        "compression_level": "chunk",
        "data_format": ["bytes", "int"],
        "data_spec": None,
        "item_loader": "PyTreeLoader",
    }
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_batches_are_those_of_a_disk(
    tmp_path: Path, server: ObjectServer, kind: str
) -> None:
    on_disk = hr.open(written(tmp_path / "data", kind, KINDS[kind]))
    ds = hr.open(put_folder(server, tmp_path / "data"))
    assert len(ds) == len(on_disk) == ROWS
    assert all(same(ds[i], on_disk[i]) for i in range(ROWS))
    assert same(batches(ds), batches(on_disk))


def test_of_a_table_of_arrow_the_values_are_not_read(tmp_path: Path, server: ObjectServer) -> None:
    folder = written(tmp_path / "data", "rows", lambda first: rows(first, size=200))
    wanted = hr.open(folder)
    url = put_folder(server, folder)
    requests(server)
    ds = hr.open(url)
    log = [entry for entry in server.log("GET") if entry["key"]]
    assert len(log) <= 24
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert sum(entry["sent"] for entry in log) < size / 2
    assert same(ds[ROWS - 1], wanted[ROWS - 1])
