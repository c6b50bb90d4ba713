"""The datasets of an HDF5 file, and where their bytes lie, by h5py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _places
from headrace._text import unread_reason
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace.formats._files.gzipped import DEFLATE_RATIO_MAX
from headrace.formats._files.npy import check_native

INLINE_BYTES_MAX = 64
"""Rows of so few bytes are copied into the index, whatever their layout."""

_AGAIN = "copy or write the file again"
_CHUNKS_MAX = 2**26  # of one dataset
_AHEAD_BYTES = 64 * 1024
_SHOWN_MAX = 20  # names in a message


@dataclass(frozen=True)
class Filters:
    """What h5py does to the chunks of a dataset before it writes them."""

    names: tuple[str, ...]
    are_undone: bool
    """Whether headrace undoes them: deflate, with or without shuffle."""
    is_shuffled: bool


@dataclass(frozen=True)
class Hdf5Column:
    """A dataset whose rows, or which as a whole, are a field."""

    name: str
    """Its path in the file."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of the dataset."""
    filters: Filters

    def sample_shape(self, by_row: bool) -> tuple[int, ...]:
        """Of a sample."""
        return self.shape[1:] if by_row else self.shape

    def sample_bytes(self, by_row: bool) -> int:
        """Bytes of a sample."""
        return self.dtype.itemsize * int(np.prod(self.sample_shape(by_row), dtype=object))


def h5py() -> Any:
    """The module. Raises ImportError that says how to install it."""
    try:
        import h5py as module
    except ModuleNotFoundError as error:
        raise ImportError("HDF5 files need h5py: pip install 'headrace[hdf5]'") from error
    return module


def read_ahead(path: str) -> None:
    """Reads what a file begins with, mostly all metadata.

    Several threads do so at a time; h5py has one lock for all of them while it reads.
    """
    if _places.is_local(path) and _places.is_file(path):
        with suppress(OSError), _places.open(path) as file:
            file.read(_AHEAD_BYTES)


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """The file; an error of h5py becomes that of headrace."""
    module = h5py()
    if not _places.exists(path):
        raise NotFoundError(f"indexing {path}: no such file")
    is_local = _places.is_local(path)
    if is_local and not os.access(_places.local_path(path), os.R_OK):
        raise FailedPreconditionError(f"indexing {path}: no permission to read it; chmod it")
    try:
        # Without a lock: nothing is written, and some file systems have none.
        with (
            nullcontext(path) if is_local else _places.open(path) as source,
            module.File(source, "r", **({"locking": False} if is_local else {})) as file,
        ):
            yield file
    except (HeadraceError, ImportError):
        raise
    except _places.StoreError as error:
        raise FailedPreconditionError(f"indexing {path}: {unread_reason(error)}") from error
    except Exception as error:
        # h5py raises OSError, RuntimeError, KeyError, ValueError and others for a damaged file.
        lines = str(error).splitlines() or [type(error).__name__]
        raise DataLossError(
            f"indexing {path}: h5py cannot read it: {lines[0]:.200}; {_AGAIN}"
        ) from error


def datasets(path: str, file: Any) -> list[str]:
    """The paths of the datasets of the file, each once: not again behind links to it."""
    names: list[str] = []
    module = h5py()

    def add(name: str, item: Any) -> None:
        if isinstance(item, module.Dataset):
            names.append(name)

    file.visititems(add)
    if not names:
        why = _links_away(path, file)
        raise InvalidArgumentError(f"indexing {path}: it has no datasets{f'; {why}' * bool(why)}")
    return sorted(names)


def check_links(path: str, file: Any, names: list[str]) -> None:
    """Refuses a file with links that lead out of it, or nowhere. `names`: its datasets."""
    if why := _links_away(path, file):
        own = f"{tuple(names)!r}" if len(names) <= _SHOWN_MAX else "and their names"
        raise InvalidArgumentError(
            f"indexing {path}: {why}; take the file's own datasets with columns={own}"
        )


def _links_away(path: str, file: Any) -> str:
    """The first of them, for a message; empty: there are none."""
    module = h5py()
    names: list[bytes] = []

    def add(name: bytes, info: Any) -> None:
        if info.type != module.h5l.TYPE_HARD:
            names.append(name)

    file.id.links.visit(add, info=True)
    links = [link for link in (_link_away(file, name) for name in sorted(names)) if link]
    more = f" (and {len(links) - 1:,} more)" if len(links) > 1 else ""
    return f"{links[0]}{more}" if links else ""


def _link_away(file: Any, name: bytes) -> str:
    """Where a link leads that leads out of the file, or nowhere; else empty."""
    item = _item(file, name)
    if item is not None and _is_inside(file, item):
        return ""
    link = file.get(name, getlink=True)
    place = f"{link.filename} ({link.path})" if hasattr(link, "filename") else str(link.path)
    what = "another file" if item is not None else "which is not there"
    return f"its link {name.decode(errors='backslashreplace')!r} leads to {place}, {what}"


def _item(file: Any, name: str | bytes) -> Any:
    """What a path leads to; None: nothing."""
    try:
        return file.get(name)
    except (KeyError, OSError, RuntimeError):  # by a link to a file or a loop of links
        return None


def _is_inside(file: Any, item: Any) -> bool:
    info = h5py().h5o.get_info
    return bool(info(item.id).fileno == info(file.id).fileno)


def columns_of(path: str, file: Any, names: list[str]) -> list[Hdf5Column]:
    """These datasets. Refuses two names of one."""
    info = h5py().h5o.get_info
    columns: list[Hdf5Column] = []
    seen: dict[int, str] = {}
    for name in names:
        columns.append(column_of(path, file, name))
        first = seen.setdefault(info(file[name].id).addr, name)
        if first != name:
            others = tuple(other for other in names if other != name)
            raise _refused(path, name, f"is {first!r} by another name", f"take columns={others!r}")
    return columns


def column_of(path: str, file: Any, name: str) -> Hdf5Column:
    """The dataset; refused if its values are no numbers that an index names."""
    module = h5py()
    item = _item(file, name)
    if not isinstance(item, module.Dataset):
        raise _no_dataset(path, file, name, item)
    if not _is_inside(file, item):
        where = f"is a link to another file, {item.file.filename}"
        raise _refused(path, name, where, "open that, or leave it out with columns=")
    if item.shape is None:
        raise _refused(path, name, "is empty (a null dataspace)", "leave it out with columns=")
    dtype = item.dtype
    if dtype.kind not in "biuf" or dtype.fields is not None or dtype.subdtype is not None:
        what = _kind(module, dtype)
        raise _refused(path, name, f"holds {what}", "leave it out with columns=")
    check_native(dtype, f"{path} ({name})")
    if not item.id.get_type().equal(module.h5t.py_create(dtype, logical=True)):
        raise _refused(
            path, name, f"stores its values otherwise than {dtype}", "write it as numbers of NumPy"
        )
    plist = item.id.get_create_plist()
    if plist.get_layout() == module.h5d.VIRTUAL:
        raise _refused(path, name, "is virtual: its rows lie in other files", "open those")
    if plist.get_external_count():
        raise _refused(path, name, "lies in external files", _repack(path, "-f NONE"))
    return Hdf5Column(name, dtype, tuple(item.shape), _filters(module, item))


def _no_dataset(path: str, file: Any, name: str, item: Any) -> InvalidArgumentError:
    has = f"it has {', '.join(datasets(path, file))}"
    link = None if item is not None else file.get(name, getlink=True)
    if link is None or not hasattr(link, "path"):
        return InvalidArgumentError(f"indexing {path}: it has no dataset {name!r}; {has}")
    return InvalidArgumentError(f"indexing {path}: {_link_away(file, name.encode())}; {has}")


def _filters(module: Any, item: Any) -> Filters:
    plist = item.id.get_create_plist()
    filters = [plist.get_filter(number) for number in range(plist.get_nfilters())]
    codes = [code for code, _, _, _ in filters]
    width = (item.dtype.itemsize,)
    shuffled = codes == [module.h5z.FILTER_SHUFFLE, module.h5z.FILTER_DEFLATE]
    undone = codes == [module.h5z.FILTER_DEFLATE] or (shuffled and filters[0][2][:1] == width)
    names = tuple(name.decode(errors="replace") for _, _, _, name in filters)
    return Filters(names, undone, shuffled)


def _kind(module: Any, dtype: np.dtype[Any]) -> str:
    if module.check_string_dtype(dtype) is not None:
        return "text"
    if module.check_vlen_dtype(dtype) is not None:
        return "values of variable length"
    if module.check_ref_dtype(dtype) is not None:
        return "references"
    if dtype.fields is not None:
        return f"records with fields ({', '.join(dtype.fields)}), a compound type"
    return f"{dtype}, no numbers"


def row_offsets(path: str, item: Any, column: Hdf5Column, size: int) -> NDArray[np.uint64]:
    """Where each row begins: one number, or one for each chunk of rows.

    The rows of a chunk lie end to end. `size`: of the file, in bytes. Raises InvalidArgumentError
    if rows do not lie so that each is one range.
    """
    module = h5py()
    _check_place(path, item, column.name, module)
    row = column.sample_bytes(True)
    if item.id.get_create_plist().get_layout() == module.h5d.CONTIGUOUS:
        begin = item.id.get_offset()
        if begin is None:
            raise _never_written(path, column.name)
        _check_inside(path, column.name, begin, row * column.shape[0], size)
        return np.array([begin], np.uint64)
    rows_a_chunk = item.chunks[0]
    if tuple(item.chunks[1:]) != column.shape[1:]:
        raise _refused(
            path,
            column.name,
            f"has chunks of {list(item.chunks)}: a row of {list(column.shape[1:])} is not one "
            "range of bytes",
            _repack(path, "-l CONTI"),
        )
    chunks = -(-column.shape[0] // rows_a_chunk)
    begins, _ = _chunks(path, item, column.name, chunks, rows_a_chunk)
    if chunks > 1:
        _check_inside(path, column.name, int(begins[:-1].max()), row * rows_a_chunk, size)
    last = column.shape[0] - (chunks - 1) * rows_a_chunk
    _check_inside(path, column.name, int(begins[-1]), row * last, size)
    return begins


def compressed_chunks(
    path: str, item: Any, column: Hdf5Column, by_row: bool, size: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Where the chunk of each sample begins, and its bytes.

    `size`: of the file. Raises InvalidArgumentError unless each sample is one chunk, compressed in
    a way that headrace undoes.
    """
    _check_place(path, item, column.name, h5py())
    rows = 1 if by_row else column.shape[0]
    if not column.filters.are_undone or tuple(item.chunks) != (rows, *column.shape[1:]):
        raise _refused(
            path,
            column.name,
            f"is compressed or filtered ({', '.join(column.filters.names)}) in chunks of "
            f"{list(item.chunks)}: headrace undoes gzip, with or without shuffle, of chunks that "
            f"are one sample, {[rows, *column.shape[1:]]}",
            _repack(path, "-f NONE -l CONTI"),
        )
    begins, sizes = _chunks(path, item, column.name, column.shape[0] // rows, rows)
    least = column.sample_bytes(by_row) / DEFLATE_RATIO_MAX
    for number in np.flatnonzero(sizes < least)[:1].tolist():
        raise DataLossError(
            f"indexing {path}: byte {int(begins[number]):,}: chunk {number} of dataset "
            f"{column.name!r} has {int(sizes[number]):,} bytes, too few for gzip of "
            f"{column.sample_bytes(by_row):,}; {_AGAIN}"
        )
    last = int(np.argmax(begins + sizes))
    _check_inside(path, column.name, int(begins[last]), int(sizes[last]), size)
    return begins, sizes


def _chunks(
    path: str, item: Any, name: str, chunks: int, rows: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Where each chunk begins, in the order of its rows, and its bytes."""
    if chunks > _CHUNKS_MAX:
        raise _refused(path, name, f"has {chunks:,} chunks", _repack(path, "-l CONTI"))
    stored = item.id.get_num_chunks()
    if stored != chunks:
        raise _never_written(path, name)
    begins, sizes = np.zeros(chunks, np.uint64), np.zeros(chunks, np.uint64)
    skipped: list[int] = []

    def note(info: Any) -> None:
        number = info.chunk_offset[0] // rows
        if info.byte_offset is not None and number < chunks:
            begins[number], sizes[number] = info.byte_offset, info.size
            if info.filter_mask != 0:
                skipped.append(number)

    item.id.chunk_iter(note)
    if not begins.all():
        raise _never_written(path, name)
    if skipped:
        raise _refused(
            path,
            name,
            f"has {len(skipped):,} chunks that its filters were not used for, the first of row "
            f"{skipped[0] * rows}",
            _repack(path, "-f NONE -l CONTI"),
        )
    return begins, sizes


def whole_offset(path: str, item: Any, column: Hdf5Column, size: int) -> int:
    """Where the dataset begins. Raises InvalidArgumentError if it is not one range of bytes."""
    module = h5py()
    _check_place(path, item, column.name, module)
    if item.id.get_create_plist().get_layout() == module.h5d.CONTIGUOUS:
        begin = item.id.get_offset()
        if begin is None:
            raise _never_written(path, column.name)
    else:
        begins = row_offsets(path, item, column, size)
        step = np.uint64(item.chunks[0] * column.sample_bytes(True))
        if not np.array_equal(begins, begins[0] + step * np.arange(len(begins), dtype=np.uint64)):
            raise _refused(
                path,
                column.name,
                f"lies in {len(begins):,} chunks apart from each other, so it is not one range of "
                "bytes",
                _repack(path, "-l CONTI"),
            )
        begin = int(begins[0])
    _check_inside(path, column.name, begin, column.sample_bytes(False), size)
    return int(begin)


def _check_place(path: str, item: Any, name: str, module: Any) -> None:
    """Refuses datasets whose bytes are not ranges of this file."""
    if item.id.get_create_plist().get_layout() == module.h5d.COMPACT:
        raise _refused(
            path,
            name,
            f"has the compact layout, and more than {INLINE_BYTES_MAX} bytes a sample",
            _repack(path, "-l CONTI"),
        )


def _check_inside(path: str, name: str, begin: int, count: int, size: int) -> None:
    if begin + count > size:
        raise DataLossError(
            f"indexing {path}: byte {begin:,}: dataset {name!r} has {count:,} bytes here, the file "
            f"{size:,}; {_AGAIN}"
        )


def _never_written(path: str, name: str) -> InvalidArgumentError:
    return _refused(
        path,
        name,
        "has rows that were never written: the file does not hold their fill value",
        "write all rows, or leave it out with columns=",
    )


def _repack(path: str, how: str) -> str:
    name = os.path.basename(path)
    return f"`h5repack {how} {name} NEW.h5` rewrites it, or leave it out with columns="


def _refused(path: str, name: str, why: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"indexing {path}: dataset {name!r} {why}; {remedy}")
