"""Files beside the images and sounds of class folders that have their names: captions as a.txt."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence, Set
from fnmatch import fnmatchcase
from itertools import islice

from headrace import _places
from headrace.formats._base.findings import Finding, callers_level
from headrace.formats._files.images import IMAGES

BESIDE = "beside"
"""The kind of finding."""

_SAMPLES = (*IMAGES, ".wav", ".flac")
_FOLDERS_LOOKED_AT = 20
_FILES_LOOKED_AT = 200  # in each
_SHOWN = 3
_DEPTH_MAX = 3


def files_beside(root: str, skip: Sequence[str] = ()) -> Finding | None:
    """Those among the first files of the first class folders; None: none is there.

    Not those whose names patterns of `skip=` leave out.
    """
    beside: list[str] = []
    for folder in islice(_folders(root, 0), _FOLDERS_LOOKED_AT):
        try:
            with _places.entries(folder) as entries:
                names = [x.name for x in islice(entries, _FILES_LOOKED_AT) if not x.is_dir()]
        except OSError:
            continue  # The walk has told of it.
        samples = {x for x in names if x.lower().endswith(_SAMPLES)}
        others = (x for x in sorted(names) if x not in samples and x[0] != ".")
        beside += (
            os.path.relpath(os.path.join(folder, other), root)
            for other in others
            if not any(fnmatchcase(other, pattern) for pattern in skip)
            and _has_sample(folder, os.path.splitext(other)[0], samples)
        )
    return Finding(BESIDE, len(beside), tuple(beside[:_SHOWN])) if beside else None


def warn_of_files_beside(root: str, skip: Sequence[str] = ()) -> None:
    """Warns of them."""
    finding = files_beside(root, skip)
    if finding is not None:
        warnings.warn(
            f"headrace: indexing {root}: {finding}; to have them as fields, write a table with a "
            "row a sample, which names its files (headrace docs formats/manifests)",
            RuntimeWarning,
            stacklevel=callers_level(),
        )


def _has_sample(folder: str, stem: str, samples: Set[str]) -> bool:
    """Whether a folder has a sample of this name, by the endings of the `samples` of it."""
    wanted = {stem + os.path.splitext(sample)[1] for sample in samples}
    if not wanted.isdisjoint(samples):
        return True
    return any(_places.is_file(os.path.join(folder, name)) for name in wanted)


def _folders(above: str, depth: int) -> Iterator[str]:
    """The folders below, those of each before the next ones."""
    try:
        with _places.entries(above) as entries:
            some = islice(entries, _FILES_LOOKED_AT)
            names = sorted(x.name for x in some if x.name[0] != "." and x.is_dir())
    except OSError:
        return
    for name in names:
        where = os.path.join(above, name)
        yield where
        if depth + 1 < _DEPTH_MAX:
            yield from _folders(where, depth + 1)
