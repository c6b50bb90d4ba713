"""Each command that reads a dataset, on a small dataset of each format."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commands import run, run_json
from loader_data import write_numbered
from manifest_data import make_folder, plain_row
from manifest_data import write as write_table
from parquet_files import PLAIN, jpeg
from parquet_files import write as write_parquet
from rank_scripts import real_packages

import headrace as hr
from headrace.cli._checks.verify import verify
from headrace.formats import Builder, table
from headrace.pack import write_pack

ROWS = 12
Written = tuple[Path, Sequence[str]]
"""What to open, and the options that it needs."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def folder(root: Path) -> Written:
    return write_numbered(root / "images", (6, 6)), ()


def media(root: Path) -> Written:
    (root / "images").mkdir()
    for i in range(ROWS):
        (root / f"images/{i:02}.jpg").write_bytes(bytes(range(100 + i)))
    return root / "images", ()


def tokens(root: Path) -> Written:
    np.arange(ROWS * 8 + 1, dtype=np.uint16).tofile(root / "a.bin")
    return root / "a.bin", ("dtype=uint16", "window=8")


def arrays(root: Path) -> Written:
    np.savez(root / "a.npz", x=np.ones((ROWS, 3, 5), np.float32), label=np.arange(ROWS))
    return root / "a.npz", ()


def records(root: Path) -> Written:
    (root / "a.raw").write_bytes(bytes(7 * ROWS))
    return root / "a.raw", ('dtype=[["label", "u1"], ["image", "u1", [2, 3]]]',)


def webdataset(root: Path) -> Written:
    with tarfile.open(root / "a.tar", "w") as tar:
        for number in range(ROWS):
            for suffix, data in (("jpg", jpeg(number)), ("cls", b"%d" % (number % 3))):
                info = tarfile.TarInfo(f"{number:03}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return root / "a.tar", ()


def parquet(root: Path) -> Written:
    columns = {"image": [jpeg(i) for i in range(ROWS)], "label": range(ROWS)}
    return write_parquet(root / "a.parquet", columns, **PLAIN), ()


def row_groups(root: Path) -> Written:
    columns = {"text": [f"row {i}" * i for i in range(ROWS)], "label": range(ROWS)}
    return write_parquet(root / "a.parquet", columns, row_group_size=5), ()


def manifest(root: Path) -> Written:
    return write_table(
        make_folder(root / "data") / "a.csv", [plain_row(i) for i in range(ROWS)]
    ), ()


def coco(root: Path) -> Written:
    (root / "images").mkdir()
    images = [{"id": i, "file_name": f"{i}.jpg"} for i in range(ROWS)]
    for i in range(ROWS):
        (root / "images" / f"{i}.jpg").write_bytes(jpeg(i))
    captions = [{"image_id": i, "id": i, "caption": f"caption {i}"} for i in range(ROWS)]
    (root / "captions.json").write_text(json.dumps({"images": images, "annotations": captions}))
    return root / "captions.json", ("folder=images",)


def hdf5(root: Path) -> Written:
    sys.path.insert(0, str(real_packages("hdf5")))
    import h5py

    with h5py.File(root / "a.h5", "w") as file:
        file["images"] = np.ones((ROWS, 40, 50), np.uint8)
        file["label"] = np.arange(ROWS)
    sys.path.pop(0)
    return root / "a.h5", ()


def huggingface(root: Path) -> Written:
    rows = pa.table({"text": [f"row {i}" for i in range(ROWS)], "label": range(ROWS)})
    with (
        pa.OSFile(str(root / "a.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, rows.schema) as out,
    ):
        out.write_table(rows, max_chunksize=5)
    return root / "a.arrow", ()


def shard(values: Sequence[bytes]) -> bytes:
    """As MDS and LitData begin: the number of samples, where each lies; each with its size."""
    samples = [np.uint32(len(value)).tobytes() + value for value in values]
    first = 4 * (len(samples) + 2)
    ends = np.cumsum([first, *map(len, samples)]).astype(np.uint32)
    return np.uint32(len(samples)).tobytes() + ends.tobytes() + b"".join(samples)


def mds(root: Path, compression: str | None = None) -> Written:
    shards = []
    for number in range(2):
        data = shard([b"x" * (i + number) for i in range(ROWS // 2)])
        packed = data if compression is None else pa.Codec("zstd").compress(data, asbytes=True)
        name = f"shard.{number:05}.mds"
        stored = name if compression is None else f"{name}.zstd"
        (root / stored).write_bytes(packed)
        about = {"basename": name, "bytes": len(data), "hashes": {}}
        zipped = {"basename": stored, "bytes": len(packed), "hashes": {}}
        shards.append(
            {
                "column_encodings": ["bytes"],
                "column_names": ["data"],
                "column_sizes": [None],
                "compression": compression,
                "format": "mds",
                "raw_data": about,
                "samples": ROWS // 2,
                "zip_data": None if compression is None else zipped,
            }
        )
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return root, ()


def compressed_mds(root: Path) -> Written:
    return mds(root, "zstd")


def litdata(root: Path) -> Written:
    data = shard([b"x" * i for i in range(ROWS)])
    (root / "chunk-0-0.bin").write_bytes(data)
    chunk = {"chunk_bytes": len(data), "chunk_size": ROWS, "dim": None, "filename": "chunk-0-0.bin"}
    config = {"compression": None, "data_format": ["bytes"], "item_loader": "PyTreeLoader"}
    (root / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))
    return root, ()


def tfrecord(root: Path) -> Written:
    shutil.copy(Path(__file__).parent / "tensorflow" / "examples.tfrecord", root)
    return root / "examples.tfrecord", ()


def pack(root: Path) -> Written:
    write_pack(hr.open(folder(root)[0]), root / "a.pack")
    return root / "a.pack", ()


def index(root: Path) -> Written:
    (root / "a.bin").write_bytes(bytes(100))
    with Builder(root / "a.hri", root=root) as builder:
        builder.add_field("data", "bytes")
        offsets = np.arange(ROWS)
        builder.add_extents("data", builder.add_file(root / "a.bin"), offsets, offsets)
    return root / "a.hri", ()


WRITERS: dict[Callable[[Path], Written], str] = {
    folder: "folder",
    media: "media",
    tokens: "tokens",
    arrays: "arrays",
    records: "records",
    webdataset: "webdataset",
    parquet: "parquet",
    row_groups: "parquet",
    manifest: "manifest",
    coco: "coco",
    hdf5: "hdf5",
    huggingface: "huggingface",
    mds: "mds",
    compressed_mds: "mds",
    litdata: "litdata",
    tfrecord: "tfrecord",
    pack: "pack",
    index: "unknown",
}
"""By the function that writes a dataset: the name of its format."""


def test_every_format_has_a_dataset_here() -> None:
    assert {*WRITERS.values()} == {each.name for each in table.FORMATS}


@pytest.mark.filterwarnings("ignore:headrace")
@pytest.mark.parametrize(
    "write",
    [pytest.param(each, marks=[pytest.mark.foreign] * (each is hdf5)) for each in WRITERS],
    ids=lambda each: each.__name__,
)
def test_every_command_takes_the_dataset(write: Callable[[Path], Written], tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    path, options = write(root)
    given = ["--format", WRITERS[write]] if options else []
    for option in options:
        given += ["--option", option]
    shown = run_json("inspect", path, *given)
    assert shown["format"] == WRITERS[write]
    samples = shown["samples"]
    assert samples == (8 if write is tfrecord else ROWS)
    if write is row_groups:
        assert shown["files"] == 1  # of three row groups
    checked = run_json("verify", path, *given)
    assert checked["ok"]
    assert checked["samples"] == samples
    assert checked["files"] == shown["files"]
    for order in ("exact", "epoch"):
        run_json("order", path, *given, "--order", order, "--batch", 4)
        run_json("plan", path, *given, "--order", order, "--batch", 4, "--epochs", 1)
    if write is not pack:
        packed = run_json("pack", path, tmp_path / "copy.pack", *given)
        assert packed["samples"] == samples
        assert run_json("verify", tmp_path / "copy.pack")["samples_compared"] >= samples
    if write not in (pack, index):
        assert run_json("index", path, *given)["samples"] == samples
    text = run("inspect", path, *given).stdout + run("verify", path, *given).stdout
    assert f"{samples}" in text
    for internal in ("%5B", "rowgroups", "decoded:"):
        assert internal not in text


def test_a_file_of_several_row_groups_that_is_gone_is_one_problem(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["x"] * 20}, row_group_size=5)
    dataset = hr.open(path)
    path.unlink()
    report = verify(dataset)
    assert [each.message.partition(": no such file")[0] for each in report.problems] == [
        f"opening {path}"
    ]
