"""Indexing a dataset anew."""

from __future__ import annotations

import os
from collections.abc import Iterable

from headrace import _places, formats
from headrace._dataset import left_out as listed
from headrace._dataset.dataset import Dataset, FormatArgument, row_of
from headrace.errors import InvalidArgumentError
from headrace.formats._base.builder import Progress
from headrace.formats._base.findings import skip_patterns
from headrace.formats._base.format import Wanted
from headrace.formats._files.paths import dataset_path
from headrace.formats._indexing.elsewhere import Elsewhere


@_places.remembering()
def index_folder(
    root: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    skip: str | Iterable[str] = (),
    format: FormatArgument = None,
    jobs: int | None = None,
    elsewhere: Elsewhere | None = None,
    split: str | None = None,
) -> tuple[Dataset, str]:
    """Indexes a dataset anew, whatever is cached: the dataset and where its index was written."""
    where = dataset_path("indexing", root)
    patterns, lists = listed.divided(skip)
    named = listed.with_names(patterns, lists)
    where, row = formats.table.chosen(where, row_of(format), split, named)
    if any(listed.numbers or not row.follows_skip for listed in lists):
        raise InvalidArgumentError(
            f"indexing {where}: skip={list(skip_patterns(skip))!r}: an index holds all samples of "
            f"{row.opens}; index it without, and give skip= to hr.open()"
        )
    wanted = Wanted(output, named, progress, jobs, elsewhere)
    index, target = row.build(where, wanted)
    return Dataset(index, where, None, row), target
