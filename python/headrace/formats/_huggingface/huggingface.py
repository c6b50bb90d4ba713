"""Hugging Face `datasets`, read in place: saved folders, caches, Arrow files, open datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace import _core
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._arrow.add_rows import add_in_order, add_mapped, has_files
from headrace.formats._arrow.arrow_file import ArrowFile, pyarrow
from headrace.formats._arrow.leaves import (
    Leaf,
    add_fields,
    features_in,
    leaves_of,
    with_sounds,
    with_stand_ins,
)
from headrace.formats._arrow.mapped_files import Places
from headrace.formats._arrow.record_batch import Chunk
from headrace.formats._base.builder import Builder
from headrace.formats._base.findings import FindingCounts
from headrace.formats._base.format import Format, Given, later_option
from headrace.formats._huggingface import open_datasets
from headrace.formats._huggingface.saved_folders import SUFFIXES, is_saved, saved_at

_OBJECT = "datasets.Dataset"


@dataclass(frozen=True, kw_only=True)
class HuggingFace(Format):
    """What `datasets` writes, and Arrow files: `headrace docs formats/huggingface`.

    >>> hr.open("imagenet", format=HuggingFace(split="train", columns=("image", "label")))
    """

    name: ClassVar[str] = "huggingface"
    opens: ClassVar[str] = "a dataset of Hugging Face `datasets`, or Arrow files (.arrow, .feather)"

    split: str | None = None
    """The split to read, if there are several."""
    columns: tuple[str, ...] | None = None
    """The columns to take, in this order; None: all."""
    sounds: tuple[str, ...] = ()
    """Columns of WAV and FLAC whose lengths the index shall record, for `headrace.audio.whole`."""
    fill: Mapping[str, Any] | None = later_option(None, hash=False)  # type: ignore[assignment]
    """By column, the value of rows that are null; for text and lists, which lie in the file, an
    empty one."""
    optional: tuple[str, ...] = later_option(())
    """Columns that may be null: an extra field, NAME_valid, says which rows have a value. The
    others get that of `fill`, else 0 or an empty value."""

    def recognises(self, path: str) -> bool:
        return is_saved(path)

    def takes(self, name: str) -> bool:
        return name.endswith(SUFFIXES)

    def root(self, path: str) -> str:
        saved = saved_at(path, self.split)
        if not saved.files:
            return super().root(path)
        first = ArrowFile(saved.files[0])
        leaves = self._leaves(first.schema, saved.features, saved.files[0])
        outside = has_files(leaves, _chunks_of(first))
        return "/" if outside else super().root(path)

    def _index_into(self, path: str, builder: Builder) -> None:
        pyarrow()
        saved = saved_at(path, self.split)
        for other in saved.beside:
            builder.depends_on(other)
        if not saved.files:
            raise InvalidArgumentError(f"indexing {path}: it has no files of rows: it is empty")
        first = ArrowFile(saved.files[0])
        leaves = self._leaves(first.schema, saved.features, saved.files[0])
        add_fields(leaves, builder, saved.files[0])
        types, first_path = _types(first, leaves), first.path

        undecoded = FindingCounts()

        def describe(file_path: str, part: Builder) -> str | None:
            file = ArrowFile(file_path)
            if _types(file, leaves) != types:
                raise InvalidArgumentError(
                    f"indexing {file_path}: its columns are {_types(file, leaves)}, those of "
                    f"{first_path} {types}; open files of the same columns together"
                )
            file.file.number = part.add_file(file_path)
            own = FindingCounts()
            add_in_order(leaves, _chunks_of(file, part, own), part)
            return own.json() if own.by_kind else None

        count = builder.add_parts(saved.files, describe, undecoded.add_json)
        undecoded.report(builder)
        if saved.rows is not None and saved.rows != count:
            raise DataLossError(
                f"indexing {path}: its files have {count} rows, {saved.beside[-1]} says "
                f"{saved.rows}; load the dataset again with datasets, or copy it again"
            )

    def of_object(self, source: object) -> Given | None:
        if open_datasets.kind_of(source) is None:
            return None
        dataset = open_datasets.check(source, self.split)
        return Given(
            title=f"{_OBJECT} {dataset._fingerprint}",
            key=open_datasets.key_of(dataset),
            root=self._root_of(dataset),
            fill=lambda builder: self._fill_from(dataset, builder),
        )

    def _root_of(self, dataset: Any) -> str:
        table = open_datasets.ObjectTable(dataset)
        leaves = self._leaves_of(table, dataset)
        folders = [os.path.dirname(path) for path in open_datasets.files_of(dataset)]
        return "/" if has_files(leaves, table.chunks(Places())) else os.path.commonpath(folders)

    def _leaves_of(self, table: open_datasets.ObjectTable, dataset: Any) -> list[Leaf]:
        columns = self.columns or open_datasets.columns_of(dataset)
        leaves = leaves_of(table.schema, dataset.features.to_dict(), columns, f"a {_OBJECT}")
        leaves = with_stand_ins(leaves, self, f"a {_OBJECT}")
        return with_sounds(leaves, self.sounds, f"a {_OBJECT}")

    def _fill_from(self, dataset: Any, builder: Builder) -> None:
        table = open_datasets.ObjectTable(dataset)
        leaves = self._leaves_of(table, dataset)
        add_fields(leaves, builder, f"a {_OBJECT}")
        undecoded = FindingCounts()
        chunks = table.chunks_for(builder, undecoded)
        mapping = open_datasets.mapping_of(dataset)
        if mapping is None:
            add_in_order(leaves, chunks(), builder)
        else:
            add_mapped(leaves, chunks, mapping, builder)
        undecoded.report(builder)

    def remedy(self, index: _core.Index) -> str:
        if index.attributes.get("source", "").startswith(_OBJECT):
            return "open the dataset again: hr.open(ds)"
        return super().remedy(index)

    def _leaves(self, schema: Any, features: Any, what: str) -> list[Leaf]:
        leaves = leaves_of(schema, features or features_in(schema, what), self.columns, what)
        return with_sounds(with_stand_ins(leaves, self, what), self.sounds, what)


def _chunks_of(
    file: ArrowFile, builder: Builder | None = None, undecoded: FindingCounts | None = None
) -> Iterator[Chunk]:
    rows = 0  # of this file, whose name errors give
    for batch, what in file.batches():
        yield Chunk(batch, file.places, what, rows, builder, undecoded=undecoded or FindingCounts())
        rows += batch.num_rows


def _types(file: ArrowFile, leaves: Sequence[Leaf]) -> dict[str, str]:
    types = {}
    for leaf in leaves:
        at = file.schema.get_field_index(leaf.column)
        types[leaf.column] = "missing" if at < 0 else str(file.schema.field(at).type)
    return types
