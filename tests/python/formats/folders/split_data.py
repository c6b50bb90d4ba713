"""Folders of several splits, written by each format's own writer, or as it writes."""

from __future__ import annotations

import csv
import io
import json
import struct
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from format_checks import calls as calls
from PIL import Image

import headrace as hr
from headrace import errors
from headrace.formats import Format, Tokens
from headrace.formats._tfrecord.records import masked_crc

Write = Callable[[Path, Sequence[int]], None]
Read = Callable[[Any], int]


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 3), (number, 0, 0)).save(file, "PNG")
    return file.getvalue()


def tar(path: Path, numbers: Sequence[int]) -> None:
    with tarfile.open(path, "w") as file:
        for number in numbers:
            info = tarfile.TarInfo(f"{number:06}.cls")
            info.size = len(str(number))
            file.addfile(info, io.BytesIO(str(number).encode()))


def tfrecord(path: Path, numbers: Sequence[int]) -> None:
    path.write_bytes(b"".join(_record(str(each).encode()) for each in numbers))


def _record(data: bytes) -> bytes:
    size = struct.pack("<Q", len(data))
    crcs = (struct.pack("<I", masked_crc(each)) for each in (size, data))
    return size + next(crcs) + data + next(crcs)


def parquet(path: Path, numbers: Sequence[int]) -> None:
    pq.write_table(pa.table({"n": list(numbers)}), path)


def arrow(path: Path, numbers: Sequence[int]) -> None:
    table = pa.table({"n": list(numbers)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def npy(path: Path, numbers: Sequence[int]) -> None:
    np.save(path, np.array(numbers))


def npz(path: Path, numbers: Sequence[int]) -> None:
    np.savez(path, n=np.array(numbers))


def table(path: Path, numbers: Sequence[int]) -> None:
    names = []
    for number in numbers:
        (path.parent / "images").mkdir(exist_ok=True)
        names.append(f"images/{number}.png")
        (path.parent / names[-1]).write_bytes(picture(number))
    with path.open("w", newline="") as file:
        if path.suffix == ".jsonl":
            for name, number in zip(names, numbers, strict=True):
                file.write(json.dumps({"image": name, "n": number}) + "\n")
            return
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(["image", "n"])
        writer.writerows(zip(names, numbers, strict=True))


def tokens(path: Path, numbers: Sequence[int]) -> None:
    np.array([*numbers, 0], np.uint16).tofile(path)


WINDOWS = Tokens(dtype="uint16", window=1)

KINDS: dict[str, tuple[Write, Read, Format | None]] = {
    "tar": (tar, lambda row: row["label"], None),
    "tfrecord": (tfrecord, lambda row: row["record"], None),
    "parquet": (parquet, lambda row: row["n"], None),
    "arrow": (arrow, lambda row: row["n"], None),
    "npy": (npy, lambda row: row["value"], None),
    "npz": (npz, lambda row: row["n"], None),
    "csv": (table, lambda row: row["n"], None),
    "tsv": (table, lambda row: row["n"], None),
    "jsonl": (table, lambda row: row["n"], None),
    "bin": (tokens, lambda row: row["tokens"][0], WINDOWS),
}

# By test the kind of files, and by split their names.
NAMES: dict[str, tuple[str, dict[str, list[str]]]] = {
    "tar": ("tar", {"train": ["train-0000.tar", "train-0001.tar"], "val": ["val-0000.tar"]}),
    "tar of a name": (
        "tar",
        {s: [f"cc3m-{s}-{i:04}.tar" for i in range(12)] for s in ("train", "validation")},
    ),
    "tar of sets": (
        "tar",
        {s: [f"imagenet-{s}-{i:05}-of-00003.tar" for i in range(3)] for s in ("train", "extra")},
    ),
    "tar one each": ("tar", {"train": ["train.tar"], "dev": ["dev.tar"], "test": ["test.tar"]}),
    "tfds": (
        "tfrecord",
        {
            "train": [f"mnist-train.tfrecord-{i:05}-of-00010" for i in range(10)],
            "test": ["mnist-test.tfrecord-00000-of-00001"],
        },
    ),
    "tfrecord": ("tfrecord", {s: [f"{s}_0.tfrecord"] for s in ("training", "validation")}),
    "tfrecord without a suffix": (
        "tfrecord",
        {s: [f"{s}-{i:05}-of-00002" for i in range(2)] for s in ("train", "validation")},
    ),
    "parquet": ("parquet", {s: [f"{s}.parquet"] for s in ("train", "test")}),
    "hub": (
        "parquet",
        {
            "train": [f"train-{i:05}-of-00002-0123456789abcdef.parquet" for i in range(2)],
            "unsupervised": ["unsupervised-00000-of-00001-0123456789abcdef.parquet"],
        },
    ),
    "hub of one word": (
        "parquet",
        {s: [f"{s}-00000-of-00001.parquet"] for s in ("train_sft", "train_gen", "test_sft")},
    ),
    "arrow": ("arrow", {s: [f"{s}-{i}.arrow" for i in range(2)] for s in ("train", "test")}),
    "npy": ("npy", {"train": ["train.npy"], "test": ["test.npy"]}),
    "npy numbered": ("npy", {s: [f"{i}_{s}.npy" for i in range(12)] for s in ("train", "test")}),
    "arrow between": ("arrow", {s: [f"{i}_{s}.arrow" for i in "ab"] for s in ("train", "test")}),
    "tar of two names": ("tar", {"train": ["a_train.tar", "train_b.tar"], "test": ["test.tar"]}),
    "npz": ("npz", {"train": ["Train.npz"], "test": ["Test.npz"]}),
    "csv": ("csv", {"train": ["train.csv"], "test": ["test.csv"]}),
    "csv of a name": ("csv", {"training": ["iris_training.csv"], "test": ["iris_test.csv"]}),
    "tsv": ("tsv", {"train": ["train.tsv"], "dev": ["dev.tsv"]}),
    "jsonl": ("jsonl", {"train": ["train.jsonl"], "valid": ["valid.jsonl"]}),
    "bin": ("bin", {"train": ["train.bin"], "val": ["val.bin"]}),
}


def write(folder: Path, kind: str, names: dict[str, list[str]]) -> dict[str, list[int]]:
    """Writes the files of each split, and returns the number in each row."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[int]] = {}
    for split, files in names.items():
        rows[split] = []
        for file in sorted(files):
            begin = sum(map(len, rows.values())) + 1
            numbers = range(begin, begin + 3)
            KINDS[kind][0](folder / file, numbers)
            rows[split] += numbers
    return rows


def numbers_of(dataset: Any, kind: str) -> list[int]:
    return [int(KINDS[kind][1](row)) for row in dataset]


def refusal(path: object, **options: Any) -> str:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message
