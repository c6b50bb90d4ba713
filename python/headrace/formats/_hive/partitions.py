"""Partitions as Hive, Spark and pyarrow write them: folders `COLUMN=VALUE`."""

from __future__ import annotations

import glob
import os
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes

import numpy as np

from headrace._units import counted
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._files.patterns import expand, folder_above, is_pattern
from headrace.formats._findings import callers_level

if TYPE_CHECKING:
    from headrace.formats._builder import Builder

_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"-?0*[0-9]{1,10}|0[xX][0-9a-fA-F]{1,8}")
_SHOWN = 3
_ROWS_AT_ONCE = 65_536
_DEPTH_MAX = 32  # of partitions
_BESIDE_MAX = 1000  # files that may lie beside them
_READ_BY_PYARROW = {
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".orc": "orc",
}


@dataclass(frozen=True)
class Partitions:
    """The columns that the folders of some files name."""

    columns: dict[str, str]
    """By name "int32" or "text"."""
    values: dict[str, tuple[int | str, ...]]
    """By file a value of each."""

    def of(self, file: str) -> dict[str, int | str]:
        """By name what the folders of a file say of each of its rows."""
        return dict(zip(self.columns, self.values[file], strict=True))

    def add(self, builder: Builder, file: str, rows: int) -> None:
        """Adds the values of a file with so many rows."""
        for name, value in self.of(file).items():
            for first in range(0, rows, _ROWS_AT_ONCE):
                count = min(rows - first, _ROWS_AT_ONCE)
                if self.columns[name] == "text":
                    data = str(value).encode()
                    builder.add_ragged(name, data * count, np.full(count, len(data)))
                else:
                    builder.add_values(name, np.full(count, value, self.columns[name]))


def keys_of(base: str, file: str) -> dict[str, str]:
    """The columns that the folders between `base` and a file name, and their values as they stand.

    Of a column that is named twice the first.
    """
    found: dict[str, str] = {}
    for part in file[len(base) :].split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            found.setdefault(unquote(key), value)
    return found


def base_of(path: str) -> str:
    """The folder below which folders name columns: `path`, or that above a pattern's wildcards."""
    if os.path.isdir(path):
        return path
    return folder_above(path) if is_pattern(path) else os.path.dirname(path)


def names_of(path: str, files: Iterable[str]) -> list[str]:
    """The columns that the folders of any of the files name."""
    base = base_of(path)
    return list(dict.fromkeys(name for each in files for name in keys_of(base, each)))


def crosses_folders(pattern: str) -> bool:
    """Whether the wildcards of a pattern, which may be a path, stand for folders."""
    return "/" in pattern[len(base_of(pattern)) :].strip("/")


def partitions_of(
    path: str, files: Sequence[str], has: Sequence[str], wanted: Sequence[str] | None
) -> Partitions:
    """The columns of the files at `path`, with types as pyarrow finds them.

    `has`: the columns that the files themselves have. `wanted`: of all; None: all.
    """
    base = base_of(path)
    texts = {each: keys_of(base, each) for each in files}
    names = [name for name in names_of(path, files) if name not in has]
    if wanted is not None:
        names = [name for name in wanted if name in names]
    partial = [name for name in names if any(name not in texts[each] for each in files)]
    for each in files:
        lacks = [name for name in partial if name not in texts[each]]
        if lacks:
            raise InvalidArgumentError(
                f"indexing {path}: {each} lies in no folder {lacks[0]}=..., as others of its files "
                f"do; name those that do by a pattern, or {_choice(has, names, partial)}"
            )
    columns: dict[str, str] = {}
    values: dict[str, list[int | str]] = {each: [] for each in files}
    for name in names:
        choice = _choice(has, names, [name])
        found = {each: _decoded(path, each, name, texts[each][name], choice) for each in files}
        numbers = {each: _number(value) for each, value in found.items()}
        is_text = any(each is None for each in numbers.values())
        columns[name] = "text" if is_text else "int32"
        for each in files:
            number = numbers[each]
            values[each].append(found[each] if is_text or number is None else number)
    return Partitions(columns, {each: tuple(row) for each, row in values.items()})


def _choice(has: Sequence[str], partitions: Sequence[str], without: Sequence[str]) -> str:
    others = (*has, *(each for each in partitions if each not in without))
    return f"leave the column out: format=hr.formats.Parquet(columns={others!r})"


def _decoded(path: str, file: str, name: str, value: str, choice: str) -> str:
    try:
        text = unquote_to_bytes(os.fsencode(value)).decode()
    except UnicodeDecodeError as error:
        raise DataLossError(
            f"indexing {path}: {file}: the folder {name}={value!r} is not UTF-8: {error.reason}; "
            f"rename it, or {choice}"
        ) from error
    if text == _NULL:
        raise InvalidArgumentError(
            f"indexing {path}: {file}: column {name!r} has no value (null) there, as the folder's "
            f"name says; name the other folders by a pattern, or {choice}"
        )
    return text


def _number(text: str) -> int | None:
    """A whole number of 32 bits; None: pyarrow takes it for text."""
    if not _WHOLE.fullmatch(text):
        return None
    is_hex = text[:2] in ("0x", "0X")
    number = int(text, 16 if is_hex else 10)
    if is_hex and number >= 2**31:
        number -= 2**32
    return number if -(2**31) <= number < 2**31 else None


def partition_files(folder: str) -> list[str]:
    """The files in a folder of partitions, by path; none of a hidden folder, or of one of "_"."""
    found: list[str] = []
    for where, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(each for each in folders if not each.startswith((".", "_")))
        found += (os.path.join(where, each) for each in files if not each.startswith((".", "_")))
    return sorted(found)


def folders_between(folder: str, file: str) -> list[str]:
    """The folders in `folder` that a file lies in."""
    found = []
    while len(file := os.path.dirname(file)) > len(folder):
        found.append(file)
    return found


def first_files(folder: str) -> list[str]:
    """The files in the first partition of a folder that holds partitions; none: it does not."""
    at = folder
    for _ in range(_DEPTH_MAX):
        first, files = "", []
        with os.scandir(at) as entries:
            for each in entries:
                if each.name.startswith((".", "_")):
                    continue
                if not each.is_dir():
                    files.append(each.name)
                elif at == folder and each.name.find("=") <= 0:
                    return []
                else:
                    first = min(first or each.name, each.name)
                if at == folder and not first and len(files) > _BESIDE_MAX:
                    return []  # A folder of files, of which there may be millions.
        if not first:
            return sorted(files) if at != folder else []
        at = os.path.join(at, first)
    return []


def values_of_splits(folder: str, is_split: Callable[[str], bool]) -> tuple[str, dict[str, str]]:
    """The column of a folder of partitions whose values are all names of splits, and by value a
    pattern of its files; none: there is no such column."""
    above = glob.escape(folder)
    names = _partitions_in(folder)
    for _ in range(_DEPTH_MAX):
        if not names:
            break
        key = names[0].partition("=")[0]
        values = [each.partition("=")[2] for each in names if each.startswith(f"{key}=")]
        if all(is_split(unquote(each)) for each in values):
            there = map(os.path.basename, glob.iglob(f"{above}/{glob.escape(key)}=*"))
            values = sorted({each.partition("=")[2] for each in there})
        if all(is_split(unquote(each)) for each in values):
            # With a wildcard for its name the column stays one of the files.
            found = {unquote(x): f"{above}/*={glob.escape(x)}/**/*.parquet" for x in values}
            return unquote(key), found
        folder = os.path.join(folder, names[0])
        above += f"/{glob.escape(key)}=*"
        names = _partitions_in(folder)
    return "", {}


def _partitions_in(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(x.name for x in entries if x.name.find("=") > 0 and x.is_dir())


def refuse_other_partitions(folder: str) -> None:
    """Raises if a folder holds partitions of tables that are not Parquet."""
    files = first_files(folder)
    suffixes = {os.path.splitext(each)[1].lower() for each in files} - {""}
    written = next((each for each in _READ_BY_PYARROW if each in suffixes), None)
    if written is None:
        return
    names = sorted(each for each in os.listdir(folder) if each.find("=") > 0)
    more = ", ..." if len(names) > _SHOWN else ""
    code = (
        "import pyarrow.dataset as d; d.write_dataset(d.dataset("
        f"{folder!r}, format={_READ_BY_PYARROW[written]!r}, partitioning='hive'), "
        f"{folder + '-parquet'!r}, format='parquet')"
    )
    raise InvalidArgumentError(
        f"opening dataset {folder}: it is a folder of partitions "
        f"({', '.join(map(repr, names[:_SHOWN]))}{more}) of {written} files; headrace takes the "
        "columns of partitions of Parquet alone: write it as Parquet: "
        f"`python -c {shlex.quote(code)}`, and open {folder}-parquet"
    )


def warn_of_partitions(path: str, fields: Sequence[str]) -> None:
    """Warns if the folders of a pattern's files name columns that are no fields."""
    if not crosses_folders(path) or os.path.isdir(path):
        return
    lost = [each for each in names_of(path, expand(path)) if each not in fields]
    if lost:
        warnings.warn(
            f"headrace: indexing {path}: folders name {counted(len(lost), 'column', 'columns')}, "
            f"{', '.join(map(repr, lost))}, left out; of Parquet files they are fields",
            RuntimeWarning,
            stacklevel=callers_level(),
        )
