"""Parquet files for tests."""

from __future__ import annotations

import datetime
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

ROWS = 50
FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
PAIRS = pa.list_(pa.list_(pa.int8(), 2))


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8 + number % 5, 8), (number % 256, 90, 30)).save(out, "JPEG")
    return out.getvalue()


def every_kind(count: int, first: int = 0) -> pa.Table:
    if count == 0:
        return every_kind(1).slice(1)
    draw = random.Random(first)
    numbers = range(first, first + count)
    return pa.table(
        {
            "label": pa.array(numbers, pa.int64()),
            "text": ["é" * (i % 5) + f"日本{i}" * (i % 2) for i in numbers],
            "word": pa.array([f"w{i % 3}" for i in numbers]).dictionary_encode(),
            "blob": [draw.randbytes(i % 9) for i in numbers],
            "code": pa.array([draw.randbytes(4) for _ in numbers], pa.binary(4)),
            "vector": pa.array([[i, i + 0.5, -i] for i in numbers], pa.list_(pa.float32(), 3)),
            "tokens": pa.array([[*range(i % 4)] for i in numbers], pa.large_list(pa.int32())),
            "pairs": pa.array([[[i, 2]] * (i % 3) for i in numbers], PAIRS),
            "flag": [i % 2 == 0 for i in numbers],
            "half": pa.array(np.arange(first, first + count, dtype=np.float16)),
            "day": pa.array([datetime.date(2020, 1, 1 + i % 9) for i in numbers]),
            "image": pa.array([{"bytes": jpeg(i), "path": f"{i}.jpg"} for i in numbers]),
        }
    )  # fmt: skip


def write(path: Path, table: Any, **options: Any) -> Path:
    made = table if isinstance(table, pa.Table) else pa.table(table)
    pq.write_table(made, path, **options)
    return path


PLAIN: dict[str, Any] = {"compression": "none", "use_dictionary": False}


def flat(count: int) -> pa.Table:
    return every_kind(count).select(["label", "text", "blob", "code", "image", "half"])
