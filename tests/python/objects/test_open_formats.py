"""Datasets in an object store are indexed as those on a disk, with few requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from object_server import ObjectServer
from small_datasets import Written, described

import headrace as hr

FILES = ("npy", "records", "tokens")
FOLDERS = ("tars", "tfrecord", "mds")


def put(server: ObjectServer, data: Written, scheme: str = "s3") -> str:
    """Copies the files into the bucket; the URL of the dataset."""
    for file in data.files(data.root):
        server.put(f"a b/{file.relative_to(data.root).as_posix()}", file.read_bytes())
    return f"{scheme}://data/a b{str(data.path).removeprefix(str(data.root))}"


def requests(server: ObjectServer) -> Counter[str]:
    """How many there were of each kind, since the last call."""
    kinds = Counter("list" if not x["key"] else x["method"].lower() for x in server.log())
    server.clear_log()
    return kinds


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_format_describes_objects_as_files_of_a_disk(
    tmp_path: Path, server: ObjectServer, name: str, scheme: str
) -> None:
    data = Written(name, tmp_path)
    wanted = described(hr.open(data.path, format=data.format).index, str(data.root))
    url = put(server, data, scheme)
    ds = hr.open(url, format=data.format)
    assert described(ds.index, f"{scheme}://data/a b") == wanted
    assert sum(requests(server).values()) <= 2 + len(data.files(data.root))
    again = hr.open(url, format=data.format)
    assert again.index.path == ds.index.path
    assert again.fingerprint == ds.fingerprint
    assert requests(server)["get"] <= 1
