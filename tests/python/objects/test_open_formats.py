"""Datasets in an object store are indexed as those on a disk, with few requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from object_server import ObjectServer
from open_checks import put, requests
from small_datasets import Written, described

import headrace as hr

FILES = ("npy", "records", "tokens")
FOLDERS = ("tars", "tfrecord", "mds")


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
