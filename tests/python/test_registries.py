"""Formats, stores, orders, placements and lane policies: each is one file and one row of a table.

Here is such a file for a format. Those for the others, whose tables are C++, are in
src/loader/session/registries_test.cc and src/papers/lobster/lane_schedule_test.cc.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from own_readers import own_samples

import headrace as hr
from headrace import _core, errors
from headrace.cli._checks import verify as _verify
from headrace.formats import table
from headrace.formats._base.format import Format, Opened, Sample, Wanted
from headrace.pack import write_pack

ROOT = Path(__file__).parent.parent.parent

# Where the names of a table's entries may stand: their own files, the table, the types that users
# see, which `make stub` writes, and models of published loaders, which are made of them.
TABLES = [
    (
        _core.order_names(),
        r"^src/(plan|papers/redox)/(.*/)?\w+_(order|factory)\.cc$|/_names\.py$",
    ),
    (
        _core.placements(),
        r"^src/(plan/placement/(\w+/)?\w+|sim/published/policies)\.cc$|/(_names|thread_models)\.py$",
    ),
    (
        _core.lane_policies(),
        r"^src/(engine/lanes/lane_policies|papers/lobster/lobster_policy)\.cc$|/thread_models\.py$",
    ),
    (
        _core.stores()[1:],
        r"^src/store/(\w+_store\.(cc|h)|uring\.cc|store_table\.h|(decoded|rowgroups|objects)/\w+\.(cc|h))$|/_names\.py$",
    ),
    (
        [each.name for each in table.FORMATS],
        r"^src/index/folder/folder\.cc$|/formats/(_\w+/)?[a-z]\w+\.py$",
    ),
]
# Words that mean other things, too: looked for only where something is compared with them.
WORDS = {
    "batch",
    "decoded",
    "epoch",
    "exact",
    "fixed",
    "folder",
    "frequency",
    "none",
    "pack",
    "pinned",
} | {
    "reuse",
    "threads",
    "unknown",
}


def python_strings(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, string, whether something is compared with it) of a Python source.

    Without docstrings and the defaults of arguments and fields, which are documentation.
    """
    tree = ast.parse(text)
    left_out: set[int] = set()
    compared: set[int] = set()
    keys: set[int] = set()  # of dicts
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        elif isinstance(node, ast.arguments):
            left_out.update(map(id, (*node.defaults, *node.kw_defaults)))
        elif isinstance(node, ast.ClassDef):
            left_out.update(id(each.value) for each in node.body if isinstance(each, ast.AnnAssign))
        elif isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                compared.update(map(id, ast.walk(part)))
        elif isinstance(node, ast.Subscript):
            keys.add(id(node.slice))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in left_out:
            yield node.lineno, str(node.value), id(node) in compared - keys


def cpp_strings(text: str) -> Iterator[tuple[int, str, bool]]:
    """The same of a C++ source; what a name is set to counts as compared."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in re.finditer(r'"((?:[^"\\]|\\.)*)"', line.partition("//")[0]):
            before = line[: found.start()].rstrip()
            yield number, found[1], before.endswith("=")


def misplaced(path: str, text: str) -> list[str]:
    """The names of entries in a source that is not theirs."""
    strings = python_strings if path.endswith(".py") else cpp_strings
    return [
        f"{path}:{line}: {string!r} is the name of an entry: ask the entry, not for its name"
        for line, string, is_compared in strings(text)
        for names, places in TABLES
        if string in names and not re.search(places, path)
        if is_compared or string not in WORDS
    ]


def shipped() -> Iterator[Path]:
    """Every source that users get."""
    yield from (ROOT / "python" / "headrace").rglob("*.py")
    for folder in ("include", "src", "bindings"):
        for path in (ROOT / folder).rglob("*.*"):
            is_test = re.search(r"_(test|fuzz|bench)$|^test_", path.stem) or "testing" in path.parts
            if path.suffix in (".cc", ".h") and not is_test and "_conformance" not in path.stem:
                yield path


def test_names_of_entries_stand_in_their_tables_only() -> None:
    found = [
        each
        for path in shipped()
        for each in misplaced(path.relative_to(ROOT).as_posix(), path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "text", "is_found"),
    [
        ("python/headrace/a.py", 'if dataset.format == "folder":\n    pass', True),
        ("python/headrace/a.py", 'if placement not in ("coordinated", "none"):\n    pass', True),
        ("python/headrace/a.py", 'orders = {"redox": 1}', True),
        ("python/headrace/a.py", 'def f(order: str = "redox") -> None:\n    """"redox"."""', False),
        ("python/headrace/a.py", 'state = {"epoch": 1, "batch": 2}', False),
        ("python/headrace/a.py", 'if row["epoch"] > 2:\n    pass', False),
        ("python/headrace/a.py", "say = \"use order 'redox'\"", False),
        ("src/runtime/a.cc", 'if (order == "epoch") return;', True),
        ("src/runtime/a.h", '  std::string name = "exact";', True),
        ("src/runtime/a.cc", 'Open("io_uring");  // "redox"', True),
        ("src/runtime/a.cc", 'add("threads", 1);  // "redox"', False),
        ("src/papers/redox/redox_order.cc", 'return "redox";', False),
        ("src/store/redox_store.cc", 'return "redox";', True),
    ],
)
def test_the_rule_finds_a_name_out_of_place(path: str, text: str, is_found: bool) -> None:
    assert bool(misplaced(path, text)) == is_found


class Lines(Format):
    """Text files: each line is a sample, and its number the label."""

    name: ClassVar[str] = "lines"
    opens: ClassVar[str] = "a file of lines (.lines)"

    def recognises(self, path: str) -> bool:
        return path.endswith(".lines") and os.path.isfile(path)

    def open(self, path: str, wanted: Wanted) -> Opened:
        with open(path, "rb") as file:
            sizes = np.array([len(line) for line in file], np.uint64)
        ends = np.cumsum(sizes, dtype=np.uint64)
        contents = _core.IndexContents(len(sizes), os.path.dirname(path))
        mtime_ns = os.stat(path).st_mtime_ns
        contents.add_objects(
            [os.path.basename(path)], ends[-1:].copy(), np.array([mtime_ns], np.int64)
        )
        extents = (np.zeros(len(sizes), np.uint64), ends - sizes, sizes - np.uint64(1))
        contents.add_extent_field("text", ("bytes", "uint8", []), extents)
        labels = np.arange(len(sizes), dtype=np.int64)
        contents.add_inline_field("label", ("array", "int64", []), labels)
        contents.set_attribute("format", self.name)
        _core.write_index(contents, path + ".hri")
        return Opened(_core.Index.open(path + ".hri"), is_new=True)

    def remedy(self, index: _core.Index) -> str:
        return "write the lines again"

    def own_samples(self, path: str) -> Iterator[Sample]:
        with open(path, "rb") as file:
            for number, line in enumerate(file):
                yield {"text": line.rstrip(b"\n"), "label": number}


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of a format that the table has during this test."""
    path = tmp_path / "data.lines"
    path.write_bytes(b"".join(b"%d%s\n" % (n, b"x" * (n % 7)) for n in range(50)))
    with pytest.raises(errors.InvalidArgumentError, match=r"no dataset; headrace opens: a folder"):
        hr.open(path)
    monkeypatch.setattr(table, "FORMATS", (*table.FORMATS, Lines()))
    return path


def samples_at(path: Path) -> list[Sample]:
    row = table.recognise(str(path))
    assert row is not None
    return list(own_samples(row, str(path)))


def check_against_own_reader(path: Path) -> hr.Dataset:
    dataset = hr.open(path)
    assert dataset.format_row.is_current(dataset.index)
    own = samples_at(path)
    assert own
    assert list(dataset) == own
    return dataset


def test_a_format_of_a_test_is_opened_read_packed_and_loaded(lines: Path, tmp_path: Path) -> None:
    dataset = check_against_own_reader(lines)
    assert dataset.format == "lines"
    assert _verify.verify(dataset).ok
    with hr.Loader(dataset, 8, shuffle=False, output="numpy") as loader:
        loaded = [bytes(text) for texts, _ in loader for text in texts]
    assert loaded == [each["text"] for each in samples_at(lines)]
    write_pack(dataset, tmp_path / "pack")
    packed = {int(each["label"]): each["text"] for each in hr.open(tmp_path / "pack")}
    assert packed == {each["label"]: each["text"] for each in samples_at(lines)}


def test_what_an_error_advises_is_the_formats_own(lines: Path) -> None:
    dataset = hr.open(lines)
    lines.write_bytes(lines.read_bytes() + b"more\n")
    advice = r"size in bytes was \d+, is \d+; write the lines again$"
    with pytest.raises(errors.FailedPreconditionError, match=advice):
        dataset.read(0)
    with (
        hr.Loader(dataset) as loader,
        pytest.raises(errors.FailedPreconditionError, match=advice),
    ):
        next(iter(loader))
    (problem,) = _verify.verify(dataset).problems
    assert problem.message.endswith("; write the lines again")


def test_a_folder_is_as_its_own_reader_says(folder: Path) -> None:
    check_against_own_reader(folder)


def test_a_pack_is_as_its_own_reader_says(original: Path, tmp_path: Path) -> None:
    write_pack(hr.open(original), tmp_path / "pack")
    check_against_own_reader(tmp_path / "pack")
