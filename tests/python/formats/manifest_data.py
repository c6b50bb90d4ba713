"""Tables that name files, and the files, for tests of manifests."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

ROWS = 24
Row = dict[str, Any]


def make_folder(folder: Path) -> Path:
    """Images, masks and sounds."""
    (folder / "images").mkdir(parents=True)
    for i in range(ROWS):
        (folder / f"images/{i}.jpg").write_bytes(bytes([i]) * (20 * i + 1))
        (folder / f"images/{i}.png").write_bytes(b"mask %d" % i)
        (folder / f"images/{i}.wav").write_bytes(b"sound %d" % i)
    return folder


def plain_row(i: int) -> Row:
    return {
        "image_path": f"images/{i}.jpg",
        "label": ("dog", "cat", "ant")[i % 3],
        "caption": f'a "photo", of {i}\nü' if i % 4 else "",
        "score": i / 7,
        "count": i - 5,
        "split": "train" if i % 3 else "test",
    }


def rich_row(i: int) -> Row:
    return plain_row(i) | {
        "objects": {
            "bbox": [[1.5, 2, i, 4]] * (i % 4),
            "category": list(range(i % 4)),
            "crowd": [True] * (i % 4),
        },
        "ok": i % 2 == 0,
        "vector": [0.5, i, -i],
    }


def write(path: Path, rows: list[Row]) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    elif path.suffix in (".jsonl", ".ndjson"):
        path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows))
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path
