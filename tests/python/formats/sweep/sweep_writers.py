"""Writers of the formats: numbers in, a file out, and the rows that it must give."""

from __future__ import annotations

import csv
import io
import json
import struct
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from headrace.formats import Format, TFRecord, Tokens
from headrace.formats._tfrecord.records import masked_crc

Numbers = np.ndarray[Any, Any]
PLAIN: dict[str, Any] = {"compression": "none", "use_dictionary": False}
"""Of Parquet: values that lie in the file as they are, which no reader process decodes."""


@dataclass(frozen=True)
class Kind:
    """A format of files. Most have a column `x` of numbers and one of texts."""

    suffix: str
    write: Callable[[Path, Numbers], object]
    rows: Callable[[Numbers], list[dict[str, Any]]]
    named: str
    """Of its format."""
    format: Format | None = None


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 3), (number % 256, 0, 0)).save(file, "PNG")
    return file.getvalue()


def text_of(number: Any) -> str:
    return f"row {number:g} ü"


def texts_of(numbers: Numbers) -> list[str]:
    return [text_of(each) for each in numbers]


def rows_of(numbers: Numbers) -> list[dict[str, Any]]:
    return [{"x": each, "text": text_of(each)} for each in numbers]


def columns_of(numbers: Numbers) -> dict[str, Any]:
    return {"x": numbers, "text": pa.array(texts_of(numbers), pa.string())}


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def npy_bytes(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(value))
    return file.getvalue()


def write_tar(path: Path, numbers: Numbers) -> None:
    with tarfile.open(path, "w") as tar:
        for at, number in enumerate(numbers):
            add(tar, f"{at:03}.npy", npy_bytes(number[None]))
            add(tar, f"{at:03}.txt", text_of(number).encode())


def tar_rows(numbers: Numbers) -> list[dict[str, Any]]:
    return [{"npy": each[None], "txt": text_of(each).encode()} for each in numbers]


def write_cells(path: Path, numbers: Numbers, header: tuple[str, ...] = ("x", "text")) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(header)
        writer.writerows(zip(numbers.tolist(), texts_of(numbers), strict=True))


def write_lines(path: Path, numbers: Numbers) -> None:
    rows = [{"x": each.item(), "text": text_of(each)} for each in numbers]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_parquet(path: Path, numbers: Numbers) -> None:
    with path.open("wb") as file:  # pyarrow takes no names but those of UTF-8.
        pq.write_table(pa.table(columns_of(numbers)), file, **PLAIN)


def write_arrow(path: Path, numbers: Numbers) -> None:
    table = pa.table(columns_of(numbers))
    with path.open("wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write_npy(path: Path, numbers: Numbers) -> None:
    with path.open("wb") as file:
        np.save(file, numbers[:, None] * np.ones(2, numbers.dtype))


def npy_rows(numbers: Numbers) -> list[dict[str, Any]]:
    return [{"value": np.array([each, each])} for each in numbers]


def write_npz(path: Path, numbers: Numbers) -> None:
    with path.open("wb") as file:
        np.savez(file, x=numbers, y=numbers.astype(np.float32))


def npz_rows(numbers: Numbers) -> list[dict[str, Any]]:
    return [{"x": each, "y": each.astype(np.float32)} for each in numbers]


def write_tokens(path: Path, numbers: Numbers) -> None:
    ids = np.repeat(numbers, 2).astype("<u2")
    path.write_bytes((ids.tobytes() + b"\0\0") if len(ids) else b"")


def token_rows(numbers: Numbers) -> list[dict[str, Any]]:
    ids = [*np.repeat(numbers, 2).tolist(), 0]
    windows = range(0, len(ids) - 1, 2)
    return [
        {"tokens": np.array(ids[at : at + 2]), "targets": np.array(ids[at + 1 : at + 3])}
        for at in windows
    ]


def part(number: int, data: bytes) -> bytes:
    """Of a protocol buffer: a field of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(data)]) + data


def feature(name: str, kind: int, values: bytes) -> bytes:
    return part(1, part(1, name.encode()) + part(2, part(kind, values)))


def frame(data: bytes) -> bytes:
    size = struct.pack("<Q", len(data))
    crcs = [struct.pack("<I", masked_crc(each)) for each in (size, data)]
    return size + crcs[0] + data + crcs[1]


def write_tfrecord(path: Path, numbers: Numbers) -> None:
    path.write_bytes(
        b"".join(
            frame(
                part(
                    1,
                    feature("x", 2, part(1, np.float32(each).tobytes()))
                    + feature("text", 1, part(1, text_of(each).encode())),
                )
            )
            for each in numbers
        )
    )


def tfrecord_rows(numbers: Numbers) -> list[dict[str, Any]]:
    return [{"x": np.float32(each), "text": text_of(each)} for each in numbers]


def write_hdf5(path: Path, numbers: Numbers) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["x"] = numbers
        file["rows"] = numbers[:, None] * np.ones(20, numbers.dtype)


def hdf5_rows(numbers: Numbers) -> list[dict[str, Any]]:
    return [{"x": each, "rows": np.full(20, each)} for each in numbers]


KINDS: dict[str, Kind] = {
    "tar": Kind(".tar", write_tar, tar_rows, "webdataset"),
    "CSV": Kind(".csv", write_cells, rows_of, "manifest"),
    "TSV": Kind(".tsv", write_cells, rows_of, "manifest"),
    "JSON lines": Kind(".jsonl", write_lines, rows_of, "manifest"),
    "Parquet": Kind(".parquet", write_parquet, rows_of, "parquet"),
    "Arrow": Kind(".arrow", write_arrow, rows_of, "huggingface"),
    "npy": Kind(".npy", write_npy, npy_rows, "arrays"),
    "npz": Kind(".npz", write_npz, npz_rows, "arrays"),
    "tokens": Kind(".bin", write_tokens, token_rows, "tokens", Tokens(dtype="uint16", window=2)),
    "TFRecord": Kind(
        ".tfrecord",
        write_tfrecord,
        tfrecord_rows,
        "tfrecord",
        TFRecord(features={"x": "float32", "text": "text"}),
    ),
    "HDF5": Kind(".h5", write_hdf5, hdf5_rows, "hdf5"),
}
