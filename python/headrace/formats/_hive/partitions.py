"""Partitions as Hive, Spark and pyarrow write them: folders `COLUMN=VALUE`."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes

import numpy as np

from headrace import _places
from headrace._units import counted
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._base.findings import callers_level
from headrace.formats._files.patterns import expand, folder_above, is_pattern

if TYPE_CHECKING:
    from headrace.formats._base.builder import Builder

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
    values: dict[str, str] = {}
    for part in file[len(base) :].split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            values.setdefault(unquote(key), value)
    return values


def base_of(path: str) -> str:
    """The folder below which folders name columns: `path`, or that above a pattern's wildcards."""
    if _places.is_folder(path):
        return path
    return folder_above(path) if is_pattern(path) else os.path.dirname(path)


def names_of(path: str, files: Iterable[str]) -> list[str]:
    """The columns that the folders of any of the files name."""
    base = base_of(path)
    return list(dict.fromkeys(name for file in files for name in keys_of(base, file)))


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
    texts = {file: keys_of(base, file) for file in files}
    names = [name for name in names_of(path, files) if name not in has]
    if wanted is not None:
        names = [name for name in wanted if name in names]
    partial = [name for name in names if any(name not in texts[file] for file in files)]
    for file in files:
        lacks = [name for name in partial if name not in texts[file]]
        if lacks:
            raise InvalidArgumentError(
                f"indexing {path}: {file} lies in no folder {lacks[0]}=..., as others of its files "
                f"do; name those that do by a pattern, or {_choice(has, names, partial)}"
            )
    columns: dict[str, str] = {}
    values: dict[str, list[int | str]] = {file: [] for file in files}
    for name in names:
        choice = _choice(has, names, [name])
        decoded = {file: _decoded(path, file, name, texts[file][name], choice) for file in files}
        numbers = {file: _number(value) for file, value in decoded.items()}
        is_text = any(number is None for number in numbers.values())
        columns[name] = "text" if is_text else "int32"
        for file in files:
            number = numbers[file]
            values[file].append(decoded[file] if is_text or number is None else number)
    return Partitions(columns, {file: tuple(row) for file, row in values.items()})


def _choice(has: Sequence[str], partitions: Sequence[str], without: Sequence[str]) -> str:
    others = (*has, *(partition for partition in partitions if partition not in without))
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
    paths: list[str] = []
    for where, folders, files in _places.walk(folder):
        folders[:] = sorted(folder for folder in folders if not folder.startswith((".", "_")))
        paths += (os.path.join(where, file) for file in files if not file.startswith((".", "_")))
    return sorted(paths)


def folders_between(folder: str, file: str) -> list[str]:
    """The folders in `folder` that a file lies in."""
    folders = []
    while len(file := os.path.dirname(file)) > len(folder):
        folders.append(file)
    return folders


def first_files(folder: str) -> list[str]:
    """The files in the first partition of a folder that holds partitions; none: it does not."""
    at = folder
    for _ in range(_DEPTH_MAX):
        first, files = "", []
        with _places.entries(at) as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")):
                    continue
                if not entry.is_dir():
                    files.append(entry.name)
                elif at == folder and entry.name.find("=") <= 0:
                    return []
                else:
                    first = min(first or entry.name, entry.name)
                if at == folder and not first and len(files) > _BESIDE_MAX:
                    return []  # A folder of files, of which there may be millions.
        if not first:
            return sorted(files) if at != folder else []
        at = os.path.join(at, first)
    return []


def values_of_splits(folder: str, is_split: Callable[[str], bool]) -> tuple[str, dict[str, str]]:
    """The column of a folder of partitions whose values are all names of splits, and by value a
    pattern of its files; none: there is no such column."""
    above = _places.escape(folder)
    names = _partitions_in(folder)
    for _ in range(_DEPTH_MAX):
        if not names:
            break
        key = names[0].partition("=")[0]
        values = [name.partition("=")[2] for name in names if name.startswith(f"{key}=")]
        if all(is_split(unquote(value)) for value in values):
            there = map(os.path.basename, _places.match(f"{above}/{_places.escape(key)}=*"))
            values = sorted({name.partition("=")[2] for name in there})
        if all(is_split(unquote(value)) for value in values):
            # With a wildcard for its name the column stays one of the files.
            patterns = {unquote(x): f"{above}/*={_places.escape(x)}/**/*.parquet" for x in values}
            return unquote(key), patterns
        folder = os.path.join(folder, names[0])
        above += f"/{_places.escape(key)}=*"
        names = _partitions_in(folder)
    return "", {}


def _partitions_in(folder: str) -> list[str]:
    with _places.entries(folder) as entries:
        return sorted(x.name for x in entries if x.name.find("=") > 0 and x.is_dir())


def refuse_other_partitions(folder: str) -> None:
    """Raises if a folder holds partitions of tables that are not Parquet."""
    files = first_files(folder)
    suffixes = {os.path.splitext(file)[1].lower() for file in files} - {""}
    written = next((suffix for suffix in _READ_BY_PYARROW if suffix in suffixes), None)
    if written is None:
        return
    names = sorted(name for name in _places.names(folder) if name.find("=") > 0)
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
    if not crosses_folders(path) or _places.is_folder(path):
        return
    lost = [name for name in names_of(path, expand(path)) if name not in fields]
    if lost:
        warnings.warn(
            f"headrace: indexing {path}: folders name {counted(len(lost), 'column', 'columns')}, "
            f"{', '.join(map(repr, lost))}, left out; of Parquet files they are fields",
            RuntimeWarning,
            stacklevel=callers_level(),
        )
