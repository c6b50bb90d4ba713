"""Datasets of several files, one in each format that reads its files as parts; and a format."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import sys
import tarfile
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from headrace.formats import (
    MDS,
    Arrays,
    Builder,
    Format,
    Hdf5,
    HuggingFace,
    LitData,
    Parquet,
    TFRecord,
    Tokens,
    WebDataset,
)
from headrace.formats._tfrecord.records import masked_crc

FILES = 11


@pytest.fixture(scope="module")
def packages() -> Iterator[None]:
    """h5py, for the files of it; made before a test has a cache of its own."""
    from package_env import PackageEnvError, package_env  # tools/: not known to a program alone.

    try:
        folder = str(package_env("hdf5"))
    except PackageEnvError:
        if os.environ.get("CI"):
            raise
        yield
        return
    sys.path.insert(0, folder)
    yield
    sys.path.remove(folder)


def write_members(path: Path, members: list[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def write_tar(path: Path, number: int, samples: int = 3) -> None:
    write_members(
        path,
        [
            (f"{number:03}-{sample}.{suffix}", data)
            for sample in range(samples)
            for suffix, data in (("jpg", bytes([number]) * (sample + 1)), ("cls", b"%d" % sample))
        ],
    )


def tars(folder: Path) -> tuple[Path, Format]:
    for number in range(FILES):
        write_tar(folder / f"{number:02}.tar", number, samples=number % 4 + 1)
    return folder, WebDataset()


def _wav(frames: int) -> bytes:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(2 * frames))
    return data.getvalue()


def _npy(array: Any) -> bytes:
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


def gz_tars(folder: Path) -> tuple[Path, Format]:
    """Compressed members, whose decoded sizes the index has; and sounds, some not decoded."""
    for number in range(FILES):
        members = []
        for sample in range(number % 4 + 1):
            key, short = f"{number:03}-{sample}", sample * 11 + number
            members += [
                (f"{key}.txt.gz", gzip.compress(b"text" * short, mtime=0)),
                (f"{key}.npy.gz", gzip.compress(_npy(np.full((9, 2), short)), mtime=0)),
                (f"{key}.wav", b"no sound" if sample == 2 else _wav(short)),
            ]
        write_members(folder / f"{number:02}.tar", members)
    return folder, WebDataset()


def arrays(folder: Path) -> tuple[Path, Format]:
    kind = np.dtype([("x", "f4", (2,)), ("label", "i8")])
    for number in range(FILES):
        np.save(folder / f"{number:02}.npy", np.full(number + 1, number, kind))
    return folder / "{00..10}.npy", Arrays(inline=("label",))


def tokens(folder: Path) -> tuple[Path, Format]:
    for number in range(FILES):
        np.arange(number * 7 + 1, dtype=np.uint16).tofile(folder / f"{number:02}.bin")
    return folder / "{00..10}.bin", Tokens(window=5, dtype="uint16")


def write_records(path: Path, records: list[bytes]) -> None:
    with open(path, "wb") as file:
        for data in records:
            length = struct.pack("<Q", len(data))
            file.write(length + struct.pack("<I", masked_crc(length)) + data + bytes(4))


def tfrecords(folder: Path) -> tuple[Path, Format]:
    for number in range(FILES):
        records = [
            bytes([number]) * (record + 1) for record in range(number % 3)
        ]  # Some have none.
        write_records(folder / f"{number:02}.tfrecord", records)
    return folder, TFRecord()


def _table(number: int) -> pa.Table:
    rows = number % 3 * 4
    texts = [f"{number} {row}" * row for row in range(rows)]
    return pa.table({"n": pa.array(range(rows), pa.int64()), "text": pa.array(texts, pa.string())})


def parquets(folder: Path) -> tuple[Path, Format]:
    for number in range(FILES):
        pyarrow.parquet.write_table(_table(number), folder / f"{number:02}.parquet")
    return folder, Parquet()


def plain_parquets(folder: Path) -> tuple[Path, Format]:
    options = {"compression": "none", "use_dictionary": False}
    for number in range(FILES):
        path = folder / f"{number:02}.parquet"
        pyarrow.parquet.write_table(_table(number), path, **options)
    return folder, Parquet()


def arrow_files(folder: Path) -> tuple[Path, Format]:
    for number in range(FILES):
        table = _table(number)
        make = pa.ipc.new_file if number % 2 else pa.ipc.new_stream
        with make(folder / f"{number:02}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    return folder / "{00..10}.arrow", HuggingFace()


def hdf5_files(folder: Path) -> tuple[Path, Format]:
    h5py = pytest.importorskip("h5py")
    for number in range(FILES):
        with h5py.File(folder / f"{number:02}.h5", "w") as file:
            file["x"] = np.full((number + 1, 40), number, np.float32)
            file["label"] = np.arange(number + 1)
    return folder, Hdf5()


def shuffled_hdf5_files(folder: Path) -> tuple[Path, Format]:
    h5py = pytest.importorskip("h5py")
    for number in range(FILES):
        values = np.full((number + 1, 400), number, np.float32)
        with h5py.File(folder / f"{number:02}.h5", "w") as file:
            file.create_dataset("x", data=values, chunks=(1, 400), compression=1, shuffle=True)
    return folder, Hdf5()


def _shard(samples: list[bytes]) -> bytes:
    ends = np.cumsum([4 + 4 * (len(samples) + 1), *map(len, samples)])
    return np.array([len(samples), *ends], np.uint32).tobytes() + b"".join(samples)


def mds_shards(folder: Path) -> tuple[Path, Format]:
    shards = []
    for number in range(FILES):
        samples = [
            struct.pack("<I", row) + struct.pack("<q", number) + b"x" * row for row in range(number)
        ]
        data = _shard(samples)
        name = f"shard.{number:05}.mds"
        (folder / name).write_bytes(data)
        shards.append(
            {
                "format": "mds",
                "column_names": ["label", "text"],
                "column_encodings": ["int", "str"],
                "column_sizes": [8, None],
                "raw_data": {"basename": name, "bytes": len(data)},
                "zip_data": None,
                "samples": number,
            }
        )
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return folder, MDS()


def litdata_tokens(folder: Path) -> tuple[Path, Format]:
    chunks = []
    for number in range(FILES):
        values = np.arange(number * 8, dtype=np.uint16)
        data = _shard([values.tobytes()])
        name = f"chunk-0-{number}.bin"
        (folder / name).write_bytes(data)
        chunk = {"chunk_bytes": len(data), "chunk_size": 1, "dim": len(values), "filename": name}
        chunks.append(chunk)
    config = {"data_format": ["no_header_numpy:5"], "item_loader": "TokensLoader"}
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    return folder, LitData(block_size=6)


def _zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


def _batches(samples: list[bytes]) -> bytes:
    """A chunk of zstd frames of two samples each."""
    bounds = np.cumsum([0, *map(len, samples)])
    pairs = [samples[first : first + 2] for first in range(0, len(samples), 2)]
    frames = [_zstd(b"".join(each)) for each in pairs]
    head = struct.pack("<8sHHIII", b"LDFZ01", 1, 0, len(samples), 2, len(frames))
    at = len(head) + 4 * len(bounds) + 24 * len(frames)
    table = b""
    for number, (pair, frame) in enumerate(zip(pairs, frames, strict=True)):
        sizes = (len(frame), sum(map(len, pair)))
        table += struct.pack("<IIQII", 2 * number, len(pair), at, *sizes)
        at += len(frame)
    return head + bounds.astype(np.uint32).tobytes() + table + b"".join(frames)


def _litdata_frames(
    folder: Path, level: str, write: Callable[[list[bytes]], bytes]
) -> tuple[Path, Format]:
    """Numbers, texts, and arrays whose shape all are looked at for."""
    chunks = []
    for number in range(FILES):
        samples = []
        for row in range(number % 4 + 1):
            array = np.arange(row + 1, dtype=np.float32)
            values = [
                *(struct.pack("<q", number), b"x" * row),
                np.array([9, 1, row + 1], np.uint32).tobytes() + array.tobytes(),
            ]
            sizes = np.array([*map(len, values)], np.uint32)
            samples.append(sizes.tobytes() + b"".join(values))
        data = write(samples)
        name = f"chunk-0-{number}.zstd.bin"
        (folder / name).write_bytes(data)
        size = {"chunk_bytes": len(data), "chunk_size": len(samples)}
        chunks.append({**size, "dim": None, "filename": name})
    config = {
        "data_format": ["int", "str", "numpy"],
        "item_loader": "PyTreeLoader",
        "compression": "zstd",
        "compression_level": level,
    }
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    return folder, LitData()


def litdata_batches(folder: Path) -> tuple[Path, Format]:
    return _litdata_frames(folder, "batch", _batches)


def litdata_samples(folder: Path) -> tuple[Path, Format]:
    return _litdata_frames(folder, "sample", lambda all_: _shard([_zstd(each) for each in all_]))


WRITERS: dict[str, Callable[[Path], tuple[Path, Format]]] = {
    each.__name__: each
    for each in (
        *(tars, arrays, tokens, tfrecords, parquets, plain_parquets, arrow_files),
        *(hdf5_files, mds_shards, litdata_tokens),
        *(gz_tars, shuffled_hdf5_files, litdata_batches, litdata_samples),
    )
}


@dataclass(frozen=True, kw_only=True)
class Named(Format):
    """Each path is a part; `describe` is what a test says."""

    name: ClassVar[str] = "named"
    opens: ClassVar[str] = "files of a test"

    describe: Callable[[str, Builder], object] = lambda path, part: one_sample(path, part)

    def recognises(self, path: str) -> bool:
        return False

    def options(self) -> dict[str, str]:
        return {}

    def fill(self, path: str, builder: Builder) -> None:
        add_files(sorted(map(str, Path(path).iterdir())), builder, self.describe)


def add_files(
    paths: list[str], builder: Builder, describe: Callable[[str, Builder], object]
) -> int:
    builder.add_field("data", "bytes")
    builder.add_field("length", "array", "int64", inline=True)
    builder.add_field("name", "text", inline=True)
    return builder.add_parts(paths, describe)


def one_sample(path: str, part: Builder) -> None:
    """The file, its length and its name."""
    size = Path(path).stat().st_size
    part.add_extents("data", part.add_file(path), 0, size)
    part.add_values("length", [size])
    part.add_values("name", [Path(path).name])
    part.tell(1)
