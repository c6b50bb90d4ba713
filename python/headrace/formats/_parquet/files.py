"""Opens Parquet files; what pyarrow raises becomes an error of headrace that names the file."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace import _places
from headrace._text import unread_reason
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    HeadraceError,
    NotFoundError,
    ResourceExhaustedError,
)
from headrace.formats._base.findings import callers_level
from headrace.formats._files.patterns import files_at
from headrace.formats._hive.partitions import first_files, partition_files

if TYPE_CHECKING:
    import pyarrow.parquet as pq

SUFFIXES = (".parquet", ".pq")
_NOTES = ("", ".md", ".txt", ".json", ".yaml", ".yml", ".py", ".crc")
"""Of files that say something about the data beside them."""


def arrow() -> Any:
    """The module pyarrow, with its parts for Parquet."""
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files are decoded by pyarrow: pip install 'headrace[pack]', or pyarrow"
        ) from error
    return pyarrow


def release_unused() -> None:
    """Gives the memory back that pyarrow keeps of what this thread decoded."""
    arrow().default_memory_pool().release_unused()


@contextmanager
def opened(path: str, doing: str = "indexing") -> Iterator[pq.ParquetFile]:
    """The file, opened by pyarrow."""
    pa = arrow()
    try:
        with (
            _source(path) as source,
            pa.parquet.ParquetFile(
                source,
                page_checksum_verification=True,
                pre_buffer=not _places.is_local(path),
            ) as file,
        ):
            yield file
    except (HeadraceError, ImportError):
        raise  # Some are OSErrors, too.
    except FileNotFoundError as error:
        raise NotFoundError(f"{doing} {path}: no such file") from error
    except (PermissionError, _places.StoreError) as error:
        raise FailedPreconditionError(f"{doing} {path}: {unread_reason(error)}") from error
    except (MemoryError, pa.ArrowMemoryError) as error:
        raise ResourceExhaustedError(
            f"{doing} {path}: out of memory: {_first(error)}; take "
            "fewer columns with columns=(...), or write it again with a smaller row_group_size="
        ) from error
    except (pa.ArrowException, Exception) as error:
        raise DataLossError(
            f"{doing} {path}: pyarrow cannot read it: {type(error).__name__}: {_first(error)}; it "
            "is damaged or no Parquet file: copy or write it again"
        ) from error


def _source(path: str) -> Any:
    """The file for pyarrow, to be closed."""
    pa = arrow()
    if _places.is_local(path):
        return pa.OSFile(os.fsencode(_places.local_path(path)), "rb")
    return pa.PythonFile(_places.open_ahead(path), "r")


def files_of(path: str) -> list[str]:
    """The files of a dataset: a file, a pattern, or the Parquet files of a folder, by name; also of
    its partitions."""
    if _places.is_folder(path) and first_files(path):
        return [file for file in partition_files(path) if file.endswith(SUFFIXES)]
    return files_at(path, lambda name: name.endswith(SUFFIXES) and not name.startswith((".", "_")))


def is_partitioned(folder: str) -> bool:
    """Whether it is a folder of partitions that hold Parquet files."""
    return any(file.endswith(SUFFIXES) for file in first_files(folder))


def is_folder_of_files(folder: str) -> bool:
    """Whether it has Parquet files, and no folders."""
    has_files = False
    with _places.entries(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                return False
            has_files = has_files or entry.name.endswith(SUFFIXES)
    return has_files


def warn_of_others(folder: str, files: Sequence[str]) -> None:
    """Warns of files in the folder that look like data, and are not part of the dataset."""
    taken = {os.path.basename(file) for file in files}
    suffixes = Counter(
        os.path.splitext(name)[1]
        for name in _places.names(folder)
        if name not in taken and not name.startswith((".", "_"))
    )
    others = [f"{suffixes[suffix]} {suffix}" for suffix in sorted(suffixes) if suffix not in _NOTES]
    if others:
        warnings.warn(
            f"headrace: indexing {folder}: its Parquet files are the dataset; others in it are "
            f"left out ({', '.join(others[:5])}); open these by a path or a pattern of their own",
            RuntimeWarning,
            stacklevel=callers_level(),
        )


def _first(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
