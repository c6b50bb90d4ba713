"""Manifests and COCO by csv, json and pyarrow."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace.formats._base.absent import NOT_GIVEN, valid_field
from headrace.formats._base.format import Sample
from headrace.formats._tables.cells import Cells
from headrace.formats._tables.column_field import ColumnField
from headrace.formats._tables.scan import Options, Plan

Row = dict[str, Any]


def manifest(row: Any, path: str) -> Iterator[Sample]:
    """By csv, json and pyarrow, each row and its files alone."""
    tables = row._tables(path)
    plan = row._plan(tables, lambda found: None)
    for table in tables:
        yield from _table_samples(table, row.root(path), plan, row._options(), row._cells())


def _table_samples(
    table: str, folder: str, plan: Plan, options: Options, cells: Cells
) -> Iterator[Sample]:
    """The samples of one table."""
    typed = os.path.splitext(table)[1].lower() not in (".csv", ".tsv")
    for row in _rows(table, cells):
        if options.split is not None and str(row["split"]) != options.split:
            continue
        paths = {
            field: os.path.join(folder, row.get(name) or options.fill.get(name, "\0"))
            for field, name in plan.files.items()
        }
        if options.skips and not all(map(os.path.isfile, paths.values())):
            continue
        sample: Sample = {}
        for field, path in paths.items():
            with open(path, "rb") as file:
                sample[field] = file.read()
        for field, (column, holds) in plan.values.items():
            value = _inside(row, column)
            is_there = value is not None and (value != "" or typed)
            if not is_there and holds.stand_in is not NOT_GIVEN:
                value = holds.stand_in
            sample[field] = _value(value, holds, plan.classes)
            if holds.is_optional:
                sample[valid_field(field)] = np.bool_(is_there)
        yield sample


def _rows(table: str, cells: Cells) -> Iterator[Row]:
    suffix = os.path.splitext(table)[1].lower()
    if suffix == ".parquet":
        import pyarrow.parquet

        yield from pyarrow.parquet.read_table(table).to_pylist()
    elif suffix in (".jsonl", ".ndjson"):
        with open(table, encoding="utf-8-sig") as lines:
            yield from (json.loads(line) for line in lines if line.strip())
    else:
        with open(table, encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(
                file,
                delimiter=cells.delimiter or ("\t" if suffix == ".tsv" else ","),
                quotechar=cells.quote or '"',
                skipinitialspace=cells.strip,
                quoting=csv.QUOTE_NONE if cells.quote is None else csv.QUOTE_MINIMAL,
            )
            header = next(rows)
            names = [each if each.strip() else f"column{at}" for at, each in enumerate(header, 1)]
            for row in filter(None, rows):
                pair = [names, row]
                if cells.strip:
                    pair = [[each.strip() for each in x] for x in pair]
                pair[1] = ["" if each in cells.absent else each for each in pair[1]]
                yield dict(zip(*pair, strict=True))


def _inside(row: Row, column: str) -> Any:
    """The value of a column, which may lie in an object."""
    if column in row:
        return row[column]
    for name, inner in row.items():
        if isinstance(inner, dict) and column.startswith(f"{name}_"):
            return _inside(inner, column.removeprefix(f"{name}_"))
    return None


def _value(value: Any, holds: ColumnField, classes: tuple[str, ...] | None) -> Any:
    if holds.what == "classes":
        assert classes is not None
        return np.int64(classes.index(value) if isinstance(value, str) else value)
    if holds.what == "text":
        if isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if holds.what == "list":
        return np.array(value, holds.dtype).reshape(-1, *holds.shape)
    if isinstance(value, str):
        value = float(value) if holds.dtype.startswith("float") else int(value)
    return np.array(value, holds.dtype)[()]


def coco(row: Any, path: str) -> Iterator[Sample]:
    """By json, as torchvision's CocoDetection orders them."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    categories = sorted(each["id"] for each in content.get("categories", []))
    notes: dict[int, list[dict[str, Any]]] = {each["id"]: [] for each in content["images"]}
    for each in content.get("annotations", []):
        notes[each["image_id"]].append(each)
    parts = {key for each in content.get("annotations", []) for key in each}
    for image in sorted(content["images"], key=lambda each: each["id"]):
        where = os.path.join(row.root(path), image["file_name"])
        if row.missing == "skip" and not os.path.isfile(where):
            continue
        with open(where, "rb") as file:
            sample: Sample = {"image": file.read(), "image_id": np.int64(image["id"])}
        own = notes[image["id"]]
        if "caption" in parts and row.captions == "each":
            for each in own:
                yield sample | {"caption": each["caption"]}
            continue
        yield sample | _parts(row, own, parts, categories)


def _parts(row: Any, notes: list[dict[str, Any]], parts: set[str], categories: list[int]) -> Sample:
    found: Sample = {}
    if "bbox" in parts:
        found["boxes"] = np.array([x["bbox"] for x in notes], row.floats).reshape(-1, 4)
    if "category_id" in parts:
        labels = [categories.index(each["category_id"]) for each in notes]
        found["labels"] = np.array(labels, np.int64)
    if "area" in parts:
        found["area"] = np.array([each["area"] for each in notes], row.floats)
    if "iscrowd" in parts:
        found["iscrowd"] = np.array([each["iscrowd"] for each in notes], np.int64)
    if "keypoints" in parts:
        points = [each["keypoints"] for each in notes]
        some = next((x["keypoints"] for x in notes), [0] * 51)
        found["keypoints"] = np.array(points, row.floats).reshape(-1, len(some) // 3, 3)
    if "segmentation" in parts:
        found["segmentation"] = json.dumps([each["segmentation"] for each in notes])
    if "caption" in parts:
        found["captions"] = "\n".join(" ".join(each["caption"].split()) for each in notes)
    return found
