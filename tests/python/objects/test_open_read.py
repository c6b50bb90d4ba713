"""Samples of datasets in an object store are those of the same data on a disk."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_checks import put, requests
from served_objects.object_server import ObjectServer
from small_datasets import BATCH, Written

import headrace as hr
from headrace import errors

FORMATS = (
    *("folder", "npy", "npz", "records", "tokens", "tars", "tfrecord", "mds", "arrow"),
    *("manifest", "coco", "pack", "homes", "gzipped", "parquet"),
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(itertools.starmap(same, zip(one, other, strict=True)))
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def batches(ds: hr.Dataset) -> list[Any]:
    ragged: Any = "list" if "list" in map(ds.kind, ds.fields) else None
    output = hr.Output("numpy", ragged=ragged, ids=True)
    with hr.Loader(ds, BATCH, seed=3, output=output) as loader:
        return list(loader)


@pytest.mark.parametrize("name", FORMATS)
def test_samples_and_batches_are_those_of_a_disk(
    tmp_path: Path, server: ObjectServer, name: str
) -> None:
    data = Written(name, tmp_path)
    on_disk = hr.open(data.path, format=data.format)
    ds = hr.open(put(server, data), format=data.format)
    assert len(ds) == len(on_disk)
    for number in range(len(ds)):
        assert same(ds[number], on_disk[number]), number
    assert same(batches(ds), batches(on_disk))


def test_an_object_that_changed_is_an_error_that_names_it(
    tmp_path: Path, server: ObjectServer
) -> None:
    ds = hr.open(put(server, Written("tars", tmp_path)))
    server.put("a b/part-1.tar", server.get("a b/part-0.tar"))
    assert ds[0]
    with pytest.raises(errors.HeadraceError, match=r"part-1\.tar.* changed since it was indexed"):
        _ = ds[8]


def test_a_kept_index_needs_one_list_before_the_first_batch(
    tmp_path: Path, server: ObjectServer
) -> None:
    url = put(server, Written("tars", tmp_path))
    hr.open(url)
    requests(server)
    with hr.Loader(hr.open(url), BATCH, seed=3, output=hr.Output("numpy")) as loader:
        assert next(iter(loader))
    assert requests(server)["list"] == 1


def test_a_pack_opens_without_a_cache_folder(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Written("pack", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no cache yet"))
    assert len(hr.open(put(server, data))) == len(hr.open(data.path))
