"""The samples of a manifest by csv, json and pyarrow, for tests that compare them with headrace."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace.formats._format import Sample
from headrace.formats._tables.columns import Holds
from headrace.formats._tables.plan import Options, Plan

Row = dict[str, Any]


def own_rows(table: str, folder: str, plan: Plan, options: Options) -> Iterator[Sample]:
    """The samples of one table."""
    for row in _rows(table):
        if options.split is not None and str(row["split"]) != options.split:
            continue
        paths = {field: os.path.join(folder, row[name]) for field, name in plan.files.items()}
        if options.skips and not all(map(os.path.isfile, paths.values())):
            continue
        sample: Sample = {}
        for field, path in paths.items():
            with open(path, "rb") as file:
                sample[field] = file.read()
        for field, (column, holds) in plan.values.items():
            sample[field] = _value(_inside(row, column), holds, plan.classes)
        yield sample


def _rows(table: str) -> Iterator[Row]:
    suffix = os.path.splitext(table)[1].lower()
    if suffix == ".parquet":
        import pyarrow.parquet

        yield from pyarrow.parquet.read_table(table).to_pylist()
    elif suffix in (".jsonl", ".ndjson"):
        with open(table, encoding="utf-8-sig") as lines:
            yield from (json.loads(line) for line in lines if line.strip())
    else:
        with open(table, encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ",")


def _inside(row: Row, column: str) -> Any:
    """The value of a column, which may lie in an object."""
    if column in row:
        return row[column]
    for name, inner in row.items():
        if isinstance(inner, dict) and column.startswith(f"{name}_"):
            return _inside(inner, column.removeprefix(f"{name}_"))
    raise KeyError(column)


def _value(value: Any, holds: Holds, classes: tuple[str, ...] | None) -> Any:
    if holds.what == "classes":
        assert classes is not None
        return np.int64(classes.index(value))
    if holds.what == "text":
        if isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if holds.what == "list":
        return np.array(value, holds.dtype).reshape(-1, *holds.shape)
    if isinstance(value, str):
        value = float(value) if holds.dtype.startswith("float") else int(value)
    return np.array(value, holds.dtype)[()]
