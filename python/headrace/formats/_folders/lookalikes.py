"""Folders that `Folder` would take for class folders, and that look like something else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from headrace import _places
from headrace.formats._base.format import Format
from headrace.formats._files.images import IMAGES
from headrace.formats._folders.advice import undecoded_advice, undecoded_suffixes
from headrace.formats._folders.calls import open_call
from headrace.formats._folders.files_by_format import UNLIKE, are_numbered, entries_of, taker
from headrace.formats._tables.manifest import Manifest, names_files

Opens = Callable[[str], Format | None]
"""The format by which `hr.open` opens a path; None: it refuses it."""

_LOOKED_AT = 2_000  # entries
_TABLES_LOOKED_AT = 20
_PICTURED = ("media", "folder")
"""Formats of images and sounds."""
_DEPTH_MAX = 6
_SHOWN = 3
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_PICTURES = ("images", "imgs", "img", "jpegimages")
_PARTNERS = {
    "labels": "a YOLO dataset",
    "annotations": "a dataset of images and annotations, as Pascal VOC's",
    "masks": "images and their masks",
    "mask": "images and their masks",
    "segmentationclass": "images and their masks",
    "captions": "images and their captions",
    "texts": "images and their texts",
}


def coco_look(path: str, folders: Sequence[str], opens: Opens) -> str | None:
    """What to type for a folder of COCO: `annotations` beside the images."""
    if "annotations" not in folders:
        return None
    where = os.path.join(path, "annotations")
    names = sorted(name for name in _places.names(where) if name.endswith(".json"))
    tables = [
        name
        for name in names[:_TABLES_LOOKED_AT]
        if (row := opens(os.path.join(where, name))) is not None and row.name == "coco"
    ]
    if not tables:
        return None
    first = next((table for table in tables if table.startswith("instances_train")), tables[0])
    call = open_call(os.path.join(where, first))
    return f"it looks like a COCO dataset, whose annotations name its images: {call}"


def pair_look(path: str, folders: Sequence[str], opens: Opens) -> str | None:
    """What to type where a folder of images lies beside one of labels, masks or annotations."""
    pictures = [folder for folder in folders if folder.lower() in _PICTURES]
    partners = [folder for folder in folders if folder.lower() in _PARTNERS]
    if len(pictures) != 1 or not partners:
        return None
    images = os.path.join(path, pictures[0])
    folders_below = [folder for folder in entries_of(images)[1] if not folder.startswith(".")]
    below = [images, *(os.path.join(images, folder) for folder in folders_below)]
    first = next((folder for folder in reversed(below) if _opens_alone(folder, opens)), None)
    what = f"{_PARTNERS[partners[0].lower()]}: {pictures[0]}/ beside {partners[0]}/"
    alone = "" if first is None else f"; the images alone: {open_call(first)}"
    are_classes = all(_has_image(path, folder) for folder in folders)
    classes = "; format='folder' takes them as classes" if are_classes else ""
    return (
        f"it looks like {what}{alone}; together: write a table with a row a sample, which names "
        f"its files (headrace docs formats/manifests), and open that{classes}"
    )


def table_look(path: str, files: Sequence[str], folders: Sequence[str]) -> str | None:
    """What to type where a table that names files lies beside the one folder of them."""
    if len(folders) > 1:
        return None
    calls = []
    for file in [x for x in sorted(files) if x.lower().endswith(_TABLES)][:_TABLES_LOOKED_AT]:
        table = os.path.join(path, file)
        if names_files(table, path):
            calls.append(open_call(table))
        elif any(names_files(table, os.path.join(path, below)) for below in folders):
            calls.append(open_call(table, Manifest(folder=folders[0])))
    if not calls:
        return None
    return f"it looks like a table and the folder of its files: {' or '.join(calls[:_SHOWN])}"


def nested_look(
    path: str, folders: Sequence[str], opens: Opens, formats: Sequence[Format]
) -> str | None:
    """What to type where no folder has an image, but other data; None: there are images."""
    by_kind: dict[str, list[str]] = {}
    suffixes: set[str] = set()
    for folder, name in islice(_files_below(path, folders), _LOOKED_AT):
        suffix = os.path.splitext(name)[1].lower()
        if suffix in IMAGES:
            return None
        if taker(name, formats) is not None:
            by_kind.setdefault(_kind_of(suffix), []).append(os.path.join(folder, name))
        suffixes.add(suffix)
    for below in sorted(folders):
        if len(folders) == 1 and opens(os.path.join(path, below)) is not None:
            return f"its data lie below: {open_call(os.path.join(path, below))}"
    calls = []
    for kind, files in by_kind.items():
        pattern = _path_below(path, kind, files)
        row = opens(pattern)
        own = None if row is not None else taker(os.path.basename(files[0]), formats)
        calls.append(open_call(pattern, None if own is None else own.example()))
    for dataset in () if calls else _datasets_below(path, folders, opens):
        calls.append(open_call(dataset))
    if calls:
        return f"its folders hold other data than images: {' or '.join(calls[:_SHOWN])}"
    undecoded = undecoded_suffixes(suffixes)
    return undecoded_advice(undecoded) if undecoded else None


def _datasets_below(path: str, folders: Sequence[str], opens: Opens) -> list[str]:
    """Folders below that are datasets, such as MDS, but no images and sounds."""
    where = dict.fromkeys(file for file, _ in islice(_files_below(path, folders), _LOOKED_AT))
    rows = ((table, opens(table)) for table in islice(where, _TABLES_LOOKED_AT))
    return [table for table, row in rows if row is not None and row.name not in _PICTURED]


def below_look(path: str, folders: Sequence[str], row: Format) -> str | None:
    """What to type where the files of a format that was given lie in folders below."""
    by_kind: dict[str, list[str]] = {}
    for folder, name in islice(_files_below(path, folders), _LOOKED_AT):
        if row.takes(name):
            kind = _kind_of(os.path.splitext(name)[1].lower())
            by_kind.setdefault(kind, []).append(os.path.join(folder, name))
    calls = [open_call(_path_below(path, *of_kind), row) for of_kind in by_kind.items()]
    if not calls:
        return None
    return f"its files lie in folders below: {' or '.join(calls[:_SHOWN])}"


def _kind_of(suffix: str) -> str:
    """What files of one kind have in common: not the number of `.tfrecord-00000-of-00010`."""
    return "" if "-of-" in suffix else suffix


def _path_below(path: str, kind: str, files: Sequence[str]) -> str:
    """A pattern of all files below of one kind; the first of those that are not to be joined."""
    names = [os.path.basename(file) for file in files]
    if len(files) == 1 or (kind in UNLIKE and not are_numbered(names)):
        return files[0]
    depths = {file.removeprefix(path).count("/") - 1 for file in files}
    between = "/".join(["*"] * depths.pop()) if len(depths) == 1 else "**"
    numbered = all("-of-" in name for name in names)  # `*` takes folders, too.
    name = "*-of-*" if numbered and not kind else f"*{kind}"
    return os.path.join(_places.escape(path), between, name)


def _files_below(path: str, folders: Sequence[str], depth: int = 0) -> Iterator[tuple[str, str]]:
    """The files of these folders and those below: the folder and the name of each."""
    for folder in sorted(folders):
        where = os.path.join(path, folder)
        below = []
        with contextlib.suppress(OSError), _places.entries(where) as entries:
            for entry in islice(entries, _LOOKED_AT):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                elif entry.is_file():
                    yield where, entry.name
        if depth < _DEPTH_MAX:
            yield from _files_below(where, below, depth + 1)


def _has_image(path: str, folder: str) -> bool:
    some = islice(_files_below(path, [folder]), _LOOKED_AT)
    return any(name.lower().endswith(IMAGES) for _, name in some)


def _opens_alone(path: str, opens: Opens) -> bool:
    row = opens(path)
    return row is not None and row.name in _PICTURED
