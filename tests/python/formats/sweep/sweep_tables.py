"""Oddities of tables: CSV, TSV, JSON lines, Parquet, Arrow."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sweep_cases import FLOATS, ODD_NAMES, Case, cell
from sweep_writers import KINDS, PLAIN, picture, rows_of

from headrace.formats import HuggingFace, Manifest, Parquet

_ABSENT = ((1, "a"), (0, "b"), (3, "c"))
CELLS = {"CSV": ",", "TSV": "\t"}


def text_table(path: Path, lines: Sequence[str], encoding: str = "utf-8", end: str = "\n") -> Path:
    path.write_bytes("".join(each + end for each in lines).encode(encoding))
    return path


@cell("CSV", "TSV", oddity="nulls")
def _(format: str, at: Path) -> Iterator[Case]:
    cut = CELLS[format]
    suffix = KINDS[format].suffix
    lines = [cut.join(each) for each in (("x", "text"), ("1", "a"), ("", "b"), ("3", "c"))]
    path = text_table(at / f"a{suffix}", lines)
    yield Case("an empty cell", path, None, [path, "'x'", "1 of 3"])
    rows = [{"x": np.int64(x or -1), "text": t} for x, t in _ABSENT]
    yield Case("`fill=`", path, rows, options={"format": Manifest(fill={"x": -1})})
    valid = [{"x": np.int64(x), "text": t, "x_valid": np.bool_(x)} for x, t in _ABSENT]
    yield Case("`optional=`", path, valid, options={"format": Manifest(optional=("x",))})
    short = text_table(at / f"b{suffix}", [*lines, "4"])
    yield Case("a short row", short, None, [short, "line 5"])


@cell("JSON lines", oddity="nulls")
def _(format: str, at: Path) -> Iterator[Case]:
    for name, lacking in (("a null", {"x": None, "text": "b"}), ("a member less", {"text": "b"})):
        path = at / f"{name}.jsonl"
        path.write_text("".join(json.dumps(e) + "\n" for e in ({"x": 1, "text": "a"}, lacking)))
        yield Case(name, path, None, [path, "'x'", "1 of 2"])
        rows = [{"x": np.int64(1), "text": "a"}, {"x": np.int64(-1), "text": "b"}]
        yield Case(f"{name}, `fill=`", path, rows, options={"format": Manifest(fill={"x": -1})})


def _columns(x: Any, text: Any) -> pa.Table:
    return pa.table({"x": pa.array(x, pa.int64()), "text": pa.array(text, pa.string())})


def _write(path: Path, table: pa.Table, **options: Any) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, **PLAIN | options)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return path


@cell("Parquet", "Arrow", oddity="nulls")
def _(format: str, at: Path) -> Iterator[Case]:
    suffix = KINDS[format].suffix
    row = Parquet if format == "Parquet" else HuggingFace
    path = _write(at / f"a{suffix}", _columns([1, None, 3], ["a", "b", "c"]))
    yield Case("numbers", path, None, [path, "'x'"])
    filled = [{"x": np.int64(x or -1), "text": t} for x, t in _ABSENT]
    yield Case("`fill=`", path, filled, options={"format": row(fill={"x": -1})})
    valid = [{"x": np.int64(x), "x_valid": np.bool_(x), "text": t} for x, t in _ABSENT]
    yield Case("`optional=`", path, valid, options={"format": row(optional=("x",))})
    path = _write(at / f"b{suffix}", _columns([1, 2, 3], ["a", None, "c"]))
    yield Case("texts", path, None, [path, "'text'"])
    table = pa.table({"x": [1, 2], "ids": pa.array([[1, None], [2]], pa.list_(pa.int64()))})
    path = _write(at / f"c{suffix}", table)
    yield Case("in lists", path, None, [path, "'ids'"])
    path = _write(at / f"d{suffix}", pa.table({"x": [1, 2], "none": pa.nulls(2)}))
    yield Case("columns of nulls", path, None, [path, "'none'", "columns=('x',)"])


@cell("CSV", "TSV", "JSON lines", oddity="names")
def _(format: str, at: Path) -> Iterator[Case]:
    suffix = KINDS[format].suffix
    chosen = [e for e in ODD_NAMES if "\udcff" not in e and "\n" not in e]
    path, rows = at / f"names{suffix}", []
    for number, name in enumerate(chosen):
        (at / f"{name}.png").write_bytes(picture(number))
        rows.append({"image": picture(number), "ü x": np.int64(number)})
    _table(path, [(f"{name}.png", number) for number, name in enumerate(chosen)], ("image", "ü x"))
    yield Case("in cells", path, rows)
    if format != "JSON lines":
        bad = text_table(
            at / f"latin{suffix}", [f"x{CELLS[format]}text", f"1{CELLS[format]}é"], "latin-1"
        )
        yield Case("Latin-1", bad, None, [bad, "line 2"])
    else:
        bad = at / "latin.jsonl"
        bad.write_bytes(b'{"x": 1, "text": "\xe9"}\n')
        yield Case("Latin-1", bad, None, [bad, "line 1"])
        bad = text_table(at / "half.jsonl", ['{"x": 1, "text": "\\ud800"}'])
        yield Case("half a character", bad, None, [bad, "line 1"])


def _table(path: Path, rows: Sequence[tuple[Any, ...]], header: Sequence[str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows)
            return path
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerows([header, *rows])
    return path


@cell("Parquet", "Arrow", oddity="names")
def _(format: str, at: Path) -> Iterator[Case]:
    suffix = KINDS[format].suffix
    odd = ["ü 日本", "a b", "it's {1} [x]", "a.b", "back\\slash", "line\nfeed"]
    table = pa.table({name: [1, number] for number, name in enumerate(odd)})
    rows = [{n: np.int64(1) for n in odd}, {n: np.int64(i) for i, n in enumerate(odd)}]
    yield Case("of columns", _write(at / f"columns{suffix}", table), rows)


@cell("CSV", "TSV", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    cut, suffix = CELLS[format], KINDS[format].suffix
    head, *body = [cut.join(e) for e in (("x", "text"), ("1", "a"), ("2", "b"))]
    rows = [{"x": np.int64(1), "text": "a"}, {"x": np.int64(2), "text": "b"}]
    lines = [head, *body]
    yield Case("a mark of UTF-8", text_table(at / f"a{suffix}", lines, "utf-8-sig"), rows)
    yield Case("CR LF", text_table(at / f"b{suffix}", lines, end="\r\n"), rows)
    quoted = text_table(at / f"c{suffix}", [cut.join(('"x"', '"text"')), *body])
    yield Case("quotes", quoted, rows)
    path = text_table(at / f"d{suffix}", [f"{cut}x", f"0{cut}1", f"1{cut}2"])
    unnamed = [{"column1": np.int64(i), "x": np.int64(i + 1)} for i in range(2)]
    yield Case("no name", path, unnamed)
    path = text_table(at / f"e{suffix}", [cut.join(("x", " text")), *body])
    blank = [{"x": row["x"], " text": row["text"]} for row in rows]
    yield Case("a blank", path, blank, [path, "' text'"], warns=True)
    path = text_table(at / f"f{suffix}", [cut.join(("x", "x")), *body])
    yield Case("a name twice", path, None, [path, "'x'"])
    path = text_table(at / f"g{suffix}", [cut.join(("1", "2")), cut.join(("3", "4"))])
    yield Case("no header", path, None, [path, "line 1"])
    path = text_table(at / f"h{suffix}", ["x;text", "1;a"])
    yield Case("semicolons", path, None, [path, "';'"])
    path = text_table(at / f"i{suffix}", lines, "utf-16")
    yield Case("UTF-16", path, None, [path, "line 1"])


@cell("JSON lines", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    lines = ['{"x": 1, "text": "a"}', '{"text": "b", "x": 2}']
    rows = [{"x": np.int64(1), "text": "a"}, {"x": np.int64(2), "text": "b"}]
    yield Case("a mark of UTF-8", text_table(at / "a.jsonl", lines, "utf-8-sig"), rows)
    yield Case("CR LF", text_table(at / "b.jsonl", lines, end="\r\n"), rows)
    yield Case("empty lines", text_table(at / "c.jsonl", [lines[0], "", lines[1], ""]), rows)
    path = text_table(at / "d.jsonl", ["[1, 2]", "[3, 4]"])
    yield Case("lists", path, None, [path, "line 1"])
    path = text_table(at / "e.jsonl", ["[", *(f"{e}," for e in lines), "{}]"])
    yield Case("a list over lines", path, None, [path, "line 1"])
    path = text_table(at / "f.jsonl", lines, "utf-16")
    yield Case("UTF-16", path, None, [path, "line 1"])


@cell("Parquet", "Arrow", oddity="headers")
def _(format: str, at: Path) -> Iterator[Case]:
    suffix = KINDS[format].suffix
    table = pa.table(_columns([1, 2], ["a", "b"]))
    rows = [{"x": np.int64(1), "text": "a"}, {"x": np.int64(2), "text": "b"}]
    told = table.replace_schema_metadata(
        {b"pandas": b"{", b"huggingface": b"no JSON", b"\xff": b""}
    )
    path = _write(at / f"a{suffix}", told)
    if format == "Arrow":
        yield Case("metadata that are no JSON", path, None, [path])
    else:
        yield Case("metadata that are no JSON", path, rows)
    path = _write(at / f"b{suffix}", pa.table({"": [1], "text": ["a"]}))
    yield Case("a column without a name", path, None, [path, "column 1", "columns=('text',)"])
    path = _write(at / f"c{suffix}", table)
    path.write_bytes(path.read_bytes()[:-5])
    yield Case("cut", path, None, [path])
    if format == "Arrow":
        path = at / "d.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
            out.write_table(table)
        yield Case("a stream", path, rows)
        path = at / "e.arrow"
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with path.open("wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as out:
            out.write_table(table)
        yield Case("compressed", path, None, [path])


@cell("CSV", "TSV", "JSON lines", "Parquet", "Arrow", oddity="NaN and infinities")
def _(format: str, at: Path) -> Iterator[Case]:
    path = at / f"a{KINDS[format].suffix}"
    KINDS[format].write(path, FLOATS)
    if format in ("Parquet", "Arrow"):
        yield Case("", path, rows_of(FLOATS))
    else:
        yield Case("", path, rows_of(FLOATS[:-1]) + rows_of(FLOATS[:1]))  # NaN has no bits there.
        huge = _table(at / f"b{path.suffix}", [(7777, "a"), (2.5, "b")], ("x", "text"))
        huge.write_text(huge.read_text().replace("7777", "1e400"))
        rows = [{"x": np.float64(x), "text": t} for x, t in ((np.inf, "a"), (2.5, "b"))]
        yield Case("`1e400`", huge, rows, [huge, "'x'"], warns=True)


@cell("CSV", "TSV", "JSON lines", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    (at / "a.png").write_bytes(picture(1))
    path = at / f"rows{KINDS[format].suffix}"
    _table(path, [("a.png", "./a.png", 1), ("a.png", "a.png", 2)], ("image", "mask", "x"))
    rows = [{"image": picture(1), "mask": picture(1), "x": np.int64(x)} for x in (1, 2)]
    yield Case("of files", path, rows)
    if format == "JSON lines":
        path = text_table(at / "twice.jsonl", ['{"x": 1, "x": 2, "text": "a"}'])
        rows = [{"x": np.int64(2), "text": "a"}]
        yield Case("a member twice", path, rows, [path, "'x'"], warns=True)


@cell("Parquet", "Arrow", oddity="aliases")
def _(format: str, at: Path) -> Iterator[Case]:
    x = pa.array([1, 2])
    for name, others in (("alone", []), ("with others", ["y"])):
        table = pa.table([x] * (2 + len(others)), names=["x", "x", *others])
        path = _write(at / f"{name}{KINDS[format].suffix}", table)
        yield Case("columns of one name", path, None, [path, "2 columns are named 'x'"])
    row = Parquet if format == "Parquet" else HuggingFace
    rows = [{"y": np.int64(each)} for each in (1, 2)]
    yield Case("the others", path, rows, options={"format": row(columns=("y",))})
