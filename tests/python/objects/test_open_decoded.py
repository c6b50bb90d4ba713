"""Row groups of Parquet, and files that are compressed as a whole, in an object store."""

from __future__ import annotations

import gzip
import itertools
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from open_checks import put, requests
from served_objects.object_server import ObjectServer
from small_datasets import BATCH, Gzipped, Written
from test_open_read import batches, same

import headrace as hr
from headrace import errors

NAMES = {"parquet": "part-1.parquet", "gzipped": "1.rows.gz"}


def opened(server: ObjectServer, name: str, at: Path) -> tuple[hr.Dataset, hr.Dataset]:
    """The dataset in the bucket, and on the disk."""
    data = Written(name, at)
    url = put(server, data)
    return hr.open(url, format=data.format), hr.open(data.path, format=data.format)


@pytest.mark.parametrize("name", NAMES)
def test_an_object_that_changed_is_an_error_that_names_it(
    tmp_path: Path, server: ObjectServer, name: str
) -> None:
    ds, _ = opened(server, name, tmp_path)
    key = f"a b/{NAMES[name]}"
    with closing(ds.stored_reader()) as reader:
        reader.check(ds.index.object_count - 1)
    server.put(key, server.get(key)[:-1] + b"?")
    with closing(ds.stored_reader()) as reader:
        reader.check(0)
        with pytest.raises(errors.FailedPreconditionError, match=f"opening s3://data/{key}: .* ch"):
            reader.check(ds.index.object_count - 1)
    assert ds[0]
    with pytest.raises(
        errors.FailedPreconditionError, match=f"reading s3://data/{key} bytes .* changed"
    ):
        _ = ds[len(ds) - 1]


@pytest.mark.parametrize("kind", ["slow-down", "error", "rst"])
@pytest.mark.parametrize("name", NAMES)
def test_what_passes_is_tried_again(
    tmp_path: Path, server: ObjectServer, name: str, kind: str
) -> None:
    ds, on_disk = opened(server, name, tmp_path)
    server.fault(kind, times=3)
    assert same(batches(ds), batches(on_disk))


def write_columns(path: Path, columns: int) -> Path:
    """Four row groups of 100 rows."""
    rng = np.random.default_rng(1)
    table = pa.table({f"c{i}": list(rng.normal(size=(400, 8))) for i in range(columns)})
    pq.write_table(table, path, row_group_size=100)
    return path


def test_an_epoch_reads_each_row_group_by_a_few_requests(
    tmp_path: Path, server: ObjectServer
) -> None:
    path = write_columns(tmp_path / "a.parquet", columns=40)
    server.put("a.parquet", path.read_bytes())
    ds = hr.open("s3://data/a.parquet")
    requests(server)
    output = hr.Output("numpy", ragged="list")
    with hr.Loader(ds, 100, order="epoch", seed=1, output=output) as loader:
        assert len(list(loader)) == 4
    log = server.log()
    assert {entry["method"] for entry in log} == {"GET"}
    assert len(log) <= 4 * 8
    assert sum(entry["sent"] for entry in log) <= 2.5 * path.stat().st_size


def test_a_large_compressed_file_is_read_by_requests_at_once(
    tmp_path: Path, server: ObjectServer
) -> None:
    class Large(Gzipped):
        def fill(self, path: str, builder: hr.formats.Builder) -> None:
            builder.add_field("x", "bytes")
            file = builder.add_file(f"{path}/a.gz", coding="gzip", decoded_bytes=len(data))
            builder.add_extents("x", file, [0, 10**7], [10**7, 10**7])

    data = np.random.default_rng(1).bytes(2 * 10**7)
    server.put("large/a.gz", gzip.compress(data, 1))
    ds = hr.open("s3://data/large", format=Large())
    requests(server)
    assert ds[1]["x"] == data[10**7 :]
    log = server.log("GET")
    assert len(log) == 3  # of 8 MiB
    assert max(entry["at"] for entry in log) - min(entry["at"] for entry in log) < 5


@pytest.mark.parametrize("name", NAMES)
def test_all_samples_of_an_epoch_in_each_order(
    tmp_path: Path, server: ObjectServer, name: str
) -> None:
    ds, on_disk = opened(server, name, tmp_path)
    for order in ("exact", "epoch", "redox"):
        found = [
            [batch["sample_id"].tolist() for batch in loader]
            for loader in (
                hr.Loader(x, BATCH, order=order, seed=2, output=output(x)) for x in (ds, on_disk)
            )
        ]
        assert found[0] == found[1]
        assert sorted(itertools.chain(*found[0])) == list(range(len(ds)))


def output(ds: hr.Dataset) -> hr.Output:
    ragged = "list" if "list" in map(ds.kind, ds.fields) else None
    return hr.Output("numpy", ragged=ragged, ids=True)
