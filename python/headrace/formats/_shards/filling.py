"""Chooses the columns of shards, and adds their samples to an index."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from threading import Lock
from typing import Any

from headrace.errors import DataLossError, HeadraceError, InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._files.reading import file_reader
from headrace.formats._indexing.in_order import in_order
from headrace.formats._shards.frames import frames
from headrace.formats._shards.sample_table import pieces
from headrace.formats._shards.shard_columns import ExtentColumn, ShardColumn, ShardValues
from headrace.formats._shards.source import AGAIN, ShardFile, open_shard

_LARGE_BYTES = 2**24  # decoded: such pieces of shards are decoded one at a time

Chosen = Mapping[int, ShardColumn]
"""By the position in a sample: the columns that become fields."""


_KEYS = {"shards": "MDS", "chunks": "LitData"}
"""The entry that lists the files, and the format of an index.json that has it."""


def read_index(path: str, key: str) -> Any:
    """The JSON of an index.json, in which `key` lists the files."""
    with file_reader(path) as (read, size):
        text = read(0, size)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataLossError(
            f"indexing {path}: its {size} bytes are no JSON: {str(error) or 'nested too deep'}; "
            f"{AGAIN}"
        ) from error
    other = next((known for known in _KEYS if isinstance(content, dict) and known in content), key)
    if other != key and key not in content:
        raise InvalidArgumentError(
            f"indexing {path}: it lists {other}: the dataset is of {_KEYS[other]}, not of "
            f"{_KEYS[key]}; leave format= out, or give hr.formats.{_KEYS[other]}(...)"
        )
    return content


def damaged(index: str, why: str) -> DataLossError:
    """An error about what an index.json says."""
    return DataLossError(f"indexing {index}: {why}; {AGAIN}")


@contextmanager
def making_shards(folder: str, index: str, entry: str, made: Sequence[ShardFile]) -> Iterator[None]:
    """Meanwhile each entry of an index.json becomes one of the shards `made`. `entry`: what the
    format calls it.

    Raises: DataLossError for an entry that is not as it must be, InvalidArgumentError if the shards
    have no samples.
    """
    try:
        yield
    except HeadraceError:
        raise  # Some are of these types, too.
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(
            index,
            f"{entry} {len(made)}: an entry is missing or of another type "
            f"({type(error).__name__}: {error!s:.100})",
        ) from error
    if not sum(shard.samples for shard in made):
        raise InvalidArgumentError(
            f"indexing {folder}: it holds no samples; open a folder that has some"
        )


def add_file(shard: ShardFile, builder: Builder) -> int:
    """Adds the file of a shard, or of a piece of one; returns its number."""
    coded = shard.coding != "stored"
    return builder.add_file(
        shard.path,
        coding=shard.coding,
        decoded_bytes=shard.decoded_bytes if coded else None,
        part=shard.part,
    )


def choose(
    path: str,
    stored: Mapping[str, str],
    columns: tuple[str, ...] | None,
    raw: tuple[str, ...],
    make: Callable[[str, str, str, list[str]], ShardColumn],
) -> Chosen:
    """The columns that become fields.

    `stored`: by name, in the order of a sample, how each column is stored. `columns`: those to
    take; None: all. `raw`: those whose bytes are taken as they are. `make(path, name, how, names)`:
    another one; `names`: those of all columns.
    """
    check_some(path, columns)
    for option, names in (("columns", columns or ()), ("raw", raw)):
        for name in names:
            if name not in stored:
                raise InvalidArgumentError(
                    f"indexing {path}: {option}={names!r}: there is no {name!r}; there are "
                    f"{', '.join(stored)}"
                )
    chosen: dict[int, ShardColumn] = {}
    for at, (name, how) in enumerate(stored.items()):
        if columns is None or name in columns:
            is_raw = name in raw
            chosen[at] = (
                ExtentColumn(name, "bytes") if is_raw else make(path, name, how, list(stored))
            )
    if not chosen:
        raise InvalidArgumentError(f"indexing {path}: its samples have no columns; write some")
    return chosen


def check_some(path: str, columns: tuple[str, ...] | None) -> None:
    """Raises if there are columns to take, but none."""
    if columns is not None and not columns:
        raise InvalidArgumentError(
            f"indexing {path}: columns=() takes no column; name some, or leave columns out for all"
        )


def refused(path: str, name: str, how: str, why: str, stored: Sequence[str]) -> Exception:
    """An error about a column that cannot be a field."""
    others = tuple(other for other in stored if other != name)
    leave_out = f", or leave it out with columns={others!r}" if others else ""
    return InvalidArgumentError(
        f"indexing {path}: column {name!r} is stored as {how!r}: {why}; keep its bytes with "
        f"raw=({name!r},){leave_out}"
    )


def add_samples(
    shards: Sequence[ShardFile], widths: list[int | None], chosen: Chosen, builder: Builder
) -> None:
    """Adds the fields, and all samples of the shards.

    `widths`: bytes of each column that a sample has; None: they differ, and a sample says them.
    """
    looking = {at: column for at, column in chosen.items() if column.looks}
    if looking:
        _look(shards, widths, looking, builder)
    for column in chosen.values():
        column.declare(builder)
    are_decoded = any(shard.coding != "stored" for shard in shards)
    decoding = Lock()

    def describe(shard: ShardFile, part: Builder) -> None:
        numbers: list[int] = []
        counts: list[int] = []
        decoded: list[int] = []
        for piece in frames([shard]):
            number = add_file(piece, part)
            with _turn(piece, decoding):
                for at, values in _values(piece, number, widths, chosen):
                    chosen[at].add(values, part)
                    part.tell(values.first)
            if piece.samples:
                numbers.append(number)
                counts.append(piece.samples)
                decoded.append(piece.decoded_bytes)
        if are_decoded and counts:
            part.add_blocks(counts, numbers, 0, decoded)
        part.tell(shard.samples)

    add_shards(shards, describe, builder)


def _look(
    shards: Sequence[ShardFile], widths: list[int | None], looking: Chosen, builder: Builder
) -> None:
    """Shows all values to columns that look: the first sample's shard, then several at a time."""
    decoding = Lock()

    def look(shard: ShardFile) -> None:
        for piece in frames([shard]):
            with decoding if _is_whole(piece) else _turn(piece, decoding):
                for at, values in _values(piece, 0, widths, looking):
                    looking[at].look(values)

    first = next(number for number, shard in enumerate(shards) if shard.samples)
    for shard in shards[: first + 1]:
        look(shard)
    with closing(in_order(look, shards[first + 1 :])) as looked:
        for _ in looked:
            builder.tell(0)  # The user may stop it.


def add_shards(
    shards: Sequence[ShardFile], describe: Callable[[ShardFile, Builder], object], builder: Builder
) -> int:
    """Adds each shard as a part; of those that are compressed, which are decoded as a whole, one
    at a time. Returns what all told.
    """
    decoding = Lock()
    by_path = {shard.path: shard for shard in shards}

    def describe_one(path: str, part: Builder) -> None:
        shard = by_path[path]
        with decoding if _is_whole(shard) else nullcontext():
            describe(shard, part)

    return builder.add_parts([shard.path for shard in shards], describe_one)


def _is_whole(shard: ShardFile) -> bool:
    """Whether it is decoded as a whole."""
    return shard.coding != "stored" and shard.pieces == "chunk" and shard.part is None


def _turn(piece: ShardFile, decoding: Lock) -> AbstractContextManager[object]:
    """Held while a piece of a shard is read: small ones are decoded several at a time."""
    is_large = piece.part is not None and piece.decoded_bytes > _LARGE_BYTES
    return decoding if is_large else nullcontext()


def _values(
    shard: ShardFile, number: int, widths: list[int | None], chosen: Chosen
) -> Iterator[tuple[int, ShardValues]]:
    with open_shard(shard) as source:
        for piece in pieces(source, shard, widths):
            for at in chosen:
                yield (
                    at,
                    ShardValues(source, number, piece.first, piece.starts[at], piece.sizes[at]),
                )
