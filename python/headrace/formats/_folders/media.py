"""Folders of images without classes, and of sounds with and without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import ClassVar

import numpy as np

from headrace import _core, _places
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.formats._base.builder import Builder
from headrace.formats._base.findings import Finding, FindingCounts
from headrace.formats._base.format import Format
from headrace.formats._base.sounds import sound_bytes
from headrace.formats._coco.annotations import is_annotations
from headrace.formats._files.images import IMAGES
from headrace.formats._files.patterns import expand
from headrace.formats._files.reading import open_file
from headrace.formats._folders.beside import files_beside, warn_of_files_beside
from headrace.formats._folders.files_by_format import entries_of, is_note
from headrace.formats._indexing.recorded import file_state

SOUNDS = (".wav", ".flac")
_FOLDERS_LOOKED_AT = 20
_FILES_LOOKED_AT = 50
_AT_ONCE = 10_000


class Media(Format):
    """A folder of images, whose samples have no label; or of sounds, whose class folders are.

    Files are in the order of their names, in each class folder.
    """

    name: ClassVar[str] = "media"
    opens: ClassVar[str] = "a folder of images without classes, or of sounds (.wav, .flac)"
    file_a_sample: ClassVar[bool] = True
    has_class_folders: ClassVar[bool] = True

    def recognises(self, path: str) -> bool:
        if not _places.is_folder(path):
            first = expand(path)[0]
            return is_media(first) and _places.is_file(first)
        files, folders = _visible(path)
        if folders:
            first_files = (_first_file(os.path.join(path, x)) for x in folders[:_FOLDERS_LOOKED_AT])
            sounds = all(file is not None and _is_sound(file) for file in first_files)
            return sounds and all(map(is_note, files))  # A table says which class a sound is of.
        media = [file for file in files if is_media(file)]
        if not media or len(set(map(_is_sound, media))) > 1:
            return False
        others = set(files).difference(media)
        stems = {os.path.splitext(file)[0] for file in media} if others else set()
        return all(
            is_note(other)
            and os.path.splitext(other)[0] not in stems
            and not _is_coco(os.path.join(path, other))
            for other in others
        )

    def fill(self, path: str, builder: Builder) -> None:
        classes = _visible(path)[1] if _places.is_folder(path) else []
        files = list(_sound_files(path, classes, builder.depends_on))
        if not files:
            raise InvalidArgumentError(
                f"indexing {path}: it holds no samples; open a folder that has some"
            )
        are_sounds = _is_sound(files[0][0])
        other = next((file for file, _ in files if _is_sound(file) != are_sounds), None)
        if other is not None:
            raise InvalidArgumentError(
                f"indexing {path}: {files[0][0]} and {other}: images and sounds are not one "
                "dataset; open those of one kind by a pattern"
            )
        name = "audio" if are_sounds else "image"
        builder.add_field(name, "bytes" if are_sounds else "image", decoded_sizes=are_sounds)
        if classes:
            builder.add_field("label", "array", "int64", inline=True)
            builder.set_classes(classes)
            warn_of_files_beside(path)
        undecoded = FindingCounts()
        for first in range(0, len(files), _AT_ONCE):
            paths, labels = zip(*files[first : first + _AT_ONCE], strict=True)
            states = [file_state(path) for path in paths]
            sizes = [size for _, size, _ in states]
            number = builder.add_files(paths, sizes, [mtime for _, _, mtime in states])
            decoded = [_decoded_bytes(path, undecoded) for path in paths]
            numbers = np.arange(number, number + len(paths))
            builder.add_extents(name, numbers, 0, sizes, decoded=decoded if are_sounds else None)
            if classes:
                builder.add_values("label", np.array(labels, np.int64))
            builder.tell(first + len(paths))
        undecoded.report(builder)

    def also_found(self, index: _core.Index) -> tuple[Finding, ...]:
        finding = files_beside(index.root) if "label" in {x.name for x in index.fields} else None
        return () if finding is None else (finding,)


def _is_coco(path: str) -> bool:
    """Whether a file says of each image what is in it."""
    with suppress(HeadraceError):
        return path.endswith(".json") and is_annotations(path)
    return False


def is_media(name: str) -> bool:
    """Whether a file is an image or a sound, by its name."""
    return name.lower().endswith((*IMAGES, *SOUNDS))


def _is_sound(name: str) -> bool:
    return name.lower().endswith(SOUNDS)


def _visible(folder: str) -> tuple[list[str], list[str]]:
    """The files and the folders in it, by name."""
    files, folders = entries_of(folder)
    return ([x for x in files if x[0] != "."], [x for x in folders if x[0] != "."])


def _first_file(folder: str) -> str | None:
    """A file in a folder, or in those below; None: none of the first entries is one."""
    some: list[_places.Entry] = []
    with suppress(OSError), _places.entries(folder) as entries:
        some = [x for x in islice(entries, _FILES_LOOKED_AT) if not x.name.startswith(".")]
    file = next((entry.name for entry in some if entry.is_file() and not is_note(entry.name)), None)
    if file is not None:
        return file
    below = next((entry.path for entry in some if entry.is_dir(follow_symlinks=False)), None)
    return None if below is None else _first_file(below)


def _sound_files(
    path: str, classes: Sequence[str], visit: Callable[[str], object]
) -> Iterator[tuple[str, int]]:
    """The files, each with the number of its class folder. `visit` gets each folder."""
    if not _places.is_folder(path):
        yield from ((file, 0) for file in expand(path))
        return
    visit(path)
    if not classes:
        yield from ((os.path.join(path, name), 0) for name in _visible(path)[0] if is_media(name))
    for label, name in enumerate(classes):
        for where, folders, files in _places.walk(os.path.join(path, name)):
            folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
            visit(where)
            for file in sorted(files):
                if not file.startswith(".") and _is_sound(file):
                    yield os.path.join(where, file), label


def _decoded_bytes(path: str, undecoded: FindingCounts) -> int:
    """What a sound decodes to; 0 of others, and of sounds that are not decoded."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in SOUNDS:
        return 0
    with open_file(path) as file:
        decoded = sound_bytes(file.read, file.size)
    if decoded is None:
        undecoded.add(suffix, os.path.basename(path))
    return decoded or 0
