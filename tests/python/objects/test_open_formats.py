"""Datasets in an object store are indexed as those on a disk, with few requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from open_checks import put, put_folder, requests
from served_objects.object_server import ObjectServer
from small_datasets import Written, described, picture

import headrace as hr
from headrace import errors
from headrace.formats import Manifest
from headrace.formats._files.objects import object_path

FILES = ("npy", "npz", "records", "tokens", "arrow", "manifest", "coco")
FOLDERS = ("folder", "tars", "tfrecord", "mds", "pack", "homes", "gzipped", "parquet")


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
    assert sum(requests(server).values()) <= 4 + len(data.files(data.root))
    again = hr.open(url, format=data.format)
    assert again.index.path == ds.index.path
    assert again.fingerprint == ds.fingerprint
    assert requests(server)["get"] <= 1  # Formats are recognised by a file's first bytes.
    assert ds.content == again.content


def test_a_saved_dataset_of_hugging_face(tmp_path: Path, server: ObjectServer) -> None:
    (tmp_path / "saved").mkdir()
    written = Written("arrow", tmp_path)
    files = {"filename": "data-00000-of-00001.arrow"}
    written.path.rename(tmp_path / "saved" / files["filename"])
    (tmp_path / "saved/state.json").write_text(json.dumps({"_data_files": [files]}))
    (tmp_path / "saved/dataset_info.json").write_text("{}")
    wanted = hr.open(tmp_path / "saved")
    url = put_folder(server, tmp_path / "saved")
    ds = hr.open(url)
    assert ds.format == wanted.format == "huggingface"
    assert described(ds.index, url) == described(wanted.index, str(tmp_path / "saved"))


def test_hdf5_is_read_by_ranges(tmp_path: Path, server: ObjectServer, h5py: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(600.0).reshape(60, 10), chunks=(1, 10))
        file["label"] = np.arange(60)
    wanted = hr.open(tmp_path / "a.h5")
    server.put("a.h5", (tmp_path / "a.h5").read_bytes())
    ds = hr.open("s3://data/a.h5")
    assert described(ds.index, "s3://data") == described(wanted.index, str(tmp_path))


def test_a_table_of_a_disk_names_objects(tmp_path: Path, server: ObjectServer) -> None:
    for i in range(3):
        server.put(f"im ages/{i}#.png", picture(i))
    (tmp_path / "below.csv").write_text("image,y\n" + "".join(f"{i}#.png,{i}\n" for i in range(3)))
    urls = "".join(f"s3://data/im ages/{i}#.png,{i}\n" for i in range(3))
    (tmp_path / "urls.csv").write_text("image,y\n" + urls)
    below = hr.open(tmp_path / "below.csv", format=Manifest(folder="s3://data/im ages"))
    with pytest.raises(errors.NotFoundError, match=r'is a URL, .*: folder="s3://BUCKET"; 3 of 3'):
        hr.open(tmp_path / "urls.csv", format=Manifest(paths={"image": "image"}))
    named = hr.open(tmp_path / "urls.csv", format=Manifest(folder="s3://data"))
    for ds in (below, named):
        paths = [object_path(ds.index, i) for i in range(3)]
        assert paths == [f"s3://data/im ages/{i}#.png" for i in range(3)]
    assert below.content != named.content  # Names below the root.


def test_many_tars_are_named_by_braces_and_wildcards(tmp_path: Path, server: ObjectServer) -> None:
    url = put(server, Written("tars", tmp_path))
    wanted = hr.open(url).index
    for pattern in ("part-{0..2}.tar", "part-*.tar", "part-[0-2].tar"):
        assert described(hr.open(f"{url}/{pattern}").index, url) == described(wanted, url)
    assert len(hr.open([f"{url}/part-1.tar", f"{url}/part-0.tar"])) == 16


def test_files_of_a_web_server(tmp_path: Path, server: ObjectServer) -> None:
    data = Written("tars", tmp_path)
    put(server, data)
    web = f"{server.url}/data/a%20b"
    ds = hr.open(f"{web}/part-{{0..2}}.tar")
    assert described(ds.index, web) == described(hr.open(data.root).index, str(data.root))
    for path in (f"{web}/part-*.tar", web):
        with pytest.raises(errors.HeadraceError, match="a web server has no list of its files"):
            hr.open(path)


def test_values_of_parquet_that_lie_as_they_are_are_read_by_ranges(
    tmp_path: Path, server: ObjectServer
) -> None:
    values = [np.random.default_rng(i).bytes(100 + i) for i in range(50)]
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet", **plain)
    server.put("a.parquet", (tmp_path / "a.parquet").read_bytes())
    ds = hr.open("s3://data/a.parquet")
    assert ds.index.root == "s3://data"
    assert [bytes(sample["x"]) for sample in ds] == values


def test_a_table_in_parquet_names_objects(tmp_path: Path, server: ObjectServer) -> None:
    for i in range(3):
        server.put(f"t/{i}.png", picture(i))
    table = pa.table({"image": [f"{i}.png" for i in range(3)], "y": [0, 1, 2]})
    pq.write_table(table, tmp_path / "train.parquet")
    server.put("t/train.parquet", (tmp_path / "train.parquet").read_bytes())
    ds = hr.open("s3://data/t/train.parquet")
    assert (ds.format, len(ds)) == ("manifest", 3)
    assert ds.index.inline_values(1).tolist() == [0, 1, 2]


READ = ("npz", "tokens", "arrow", "manifest", "coco", "tars", "tfrecord", "mds")


@pytest.mark.parametrize("kind", ["denied", "changed"])
@pytest.mark.parametrize("name", [*READ, "parquet"])
def test_an_object_that_cannot_be_read_is_named_with_the_cause(
    tmp_path: Path, server: ObjectServer, name: str, kind: str
) -> None:
    data = Written(name, tmp_path)
    url = put(server, data)
    server.fault(kind, method="GET", key="?*")
    cause = "the server answered 403 AccessDenied" if kind == "denied" else "it has changed"
    with pytest.raises(errors.FailedPreconditionError, match=f"ing .*s3://data/a b.*: {cause}"):
        hr.open(url, format=data.format)


def test_hdf5_that_cannot_be_read_is_named_with_the_cause(
    tmp_path: Path, server: ObjectServer, h5py: Any
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(60)
    server.put("a.h5", (tmp_path / "a.h5").read_bytes())
    server.fault("denied", method="GET", key="a.h5")
    with pytest.raises(errors.FailedPreconditionError, match=r"ing .*s3://data/a\.h5: .* 403"):
        hr.open("s3://data/a.h5", format="hdf5")
