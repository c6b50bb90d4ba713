"""Images with the annotations of a COCO file: boxes, masks, keypoints, captions."""

from __future__ import annotations

import json
import os
import shlex
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headrace import _places
from headrace._arguments import choice
from headrace.errors import (
    FailedPreconditionError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace.formats._base.builder import Builder
from headrace.formats._base.findings import ANNOTATION_MEMBER, FindingCounts, callers_level
from headrace.formats._base.format import Format, written
from headrace.formats._coco.annotations import (
    Annotations,
    first_images,
    is_annotations,
    is_results,
    read_annotations,
)
from headrace.formats._files.npy import Read
from headrace.formats._files.reading import file_reader
from headrace.formats._indexing.recorded import file_state
from headrace.formats._tables.files import Files, are_images, may_be_there, path_of
from headrace.formats._tables.numbers import TOO_LARGE, too_large

_AT_ONCE = 5_000  # images
_LOOKED_FOR = 20  # images that tell which folder is theirs


@dataclass(frozen=True, kw_only=True)
class Coco(Format):
    """A file of COCO annotations, and its images: `headrace docs formats/coco`.

    >>> hr.open("annotations/instances_train2017.json", format=Coco(folder="../train2017"))
    """

    name: ClassVar[str] = "coco"
    opens: ClassVar[str] = "a .json of COCO annotations"

    folder: str | None = None
    """The folder of the images, relative to that of the annotations; None: the usual places."""
    captions: str = "lines"
    """"lines": one sample per image, one caption per line. "each": one sample per caption."""
    missing: str = "refuse"
    """What to do with images whose files are missing: "refuse" or "skip"."""
    floats: str = "float64"
    """The type of boxes, areas and keypoints: "float64" or "float32"."""

    def recognises(self, path: str) -> bool:
        if not path.lower().endswith(".json") or not _places.is_file(path):
            return False
        try:
            return is_results(path) or is_annotations(path)
        except HeadraceError:
            return False

    def root(self, path: str) -> str:
        if is_results(path):
            raise InvalidArgumentError(
                f"indexing {path}: it is a list of results, without images; make them the "
                "annotations of the file that they are of: `python -c 'import json, sys; "
                'found = json.load(open(sys.argv[1])); found["annotations"] = '
                'json.load(open(sys.argv[2])); json.dump(found, open(sys.argv[3], "w"))\' '
                f"ANNOTATIONS.json {shlex.quote(path)} BOTH.json`, and open BOTH.json"
            )
        base = os.path.dirname(path)
        if self.folder is not None:
            return _places.absolute(_places.joined(base, self.folder))
        names = first_images(path, _LOOKED_FOR)
        if not names:
            raise InvalidArgumentError(
                f"indexing {path}: it holds no samples: it has annotations, but no images; give it "
                "the list 'images' of the file that they come from"
            )
        tried = _neighbours(path)
        for folder in tried:
            if any(
                may_be_there(folder, path) and _places.is_file(_places.spelled(path))
                for path in (path_of(folder, name) for name in names)
            ):
                return folder
        raise NotFoundError(
            f"indexing {path}: its images, such as {names[:1]!s:.200}, are not in "
            f"{', '.join(tried)}; name their folder: format=hr.formats.Coco(folder=FOLDER)"
        )

    def fill(self, path: str, builder: Builder) -> None:
        choice("coco captions", self.captions, ("lines", "each"))
        choice("coco missing", self.missing, ("refuse", "skip"))
        choice("coco floats", self.floats, ("float64", "float32"))
        state = file_state(path)
        builder.depends_on(path)
        annotations = read_annotations(path, builder.tell)
        files = Files(builder, builder.root, "folder=")
        with file_reader(path) as (read, _):
            writer = _Writer(builder, annotations, read, self)
            writer.add_fields()
            for first in range(0, len(annotations.ids), _AT_ONCE):
                writer.add(files, range(first, min(first + _AT_ONCE, len(annotations.ids))))
        if file_state(path) != state:
            raise FailedPreconditionError(
                f"indexing {path}: it changed while it was read; index it again when nothing "
                "writes to it"
            )
        report = FindingCounts()
        self._note_large(annotations, report)
        for member in annotations.left_out:
            report.add(ANNOTATION_MEMBER, member)
        if annotations.left_out and not annotations.columns and not annotations.spans:
            warnings.warn(
                f"headrace: indexing {path}: its annotations have none of the members that are "
                f"taken, but {', '.join(map(repr, annotations.left_out))}: the dataset has the "
                "images alone (`headrace docs formats/coco`)",
                RuntimeWarning,
                stacklevel=callers_level(),
            )
        files.end(len(annotations.ids), path, self, report)

    def _note_large(self, annotations: Annotations, report: FindingCounts) -> None:
        """Notes numbers that `floats=` cannot hold, and warns of them."""
        large = FindingCounts()
        for part, values in annotations.columns.items():
            if values.dtype.kind != "f":
                continue
            is_large = too_large(values, self.floats).reshape(len(values), -1).any(axis=1)
            for note in np.flatnonzero(is_large).tolist():
                image = int(np.searchsorted(annotations.firsts, note, "right")) - 1
                large.add(TOO_LARGE, f"{part} of the image {annotations.ids[image]}")
        report.by_kind.update(large.by_kind)
        for finding in large.as_findings():
            warnings.warn(
                f"headrace: indexing {annotations.path}: {finding}; for numbers of 64 bits: "
                f"format={written(self, floats='float64')}",
                RuntimeWarning,
                stacklevel=callers_level(),
            )


_FIELDS = {
    "bbox": "boxes",
    "category_id": "labels",
    "area": "area",
    "iscrowd": "iscrowd",
    "keypoints": "keypoints",
}
"""By part of an annotation its field."""


class _Writer:
    """Adds images and their annotations to the builder."""

    def __init__(
        self, builder: Builder, annotations: Annotations, read: Read, options: Coco
    ) -> None:
        self._builder = builder
        self._annotations = annotations
        self._read = read
        self._skips = options.missing == "skip"
        self._floats = options.floats
        self._sample_per_caption = options.captions == "each" and "caption" in annotations.spans

    def add_fields(self) -> None:
        builder = self._builder
        builder.add_field("image", "image" if are_images(self._annotations.names) else "bytes")
        builder.add_field("image_id", "array", "int64", inline=True)
        if self._sample_per_caption:
            builder.add_field("caption", "text", inline=True)
            return
        for part, field in _FIELDS.items():
            if part in self._annotations.columns:
                values = self._annotations.columns[part]
                dtype = self._floats if values.dtype.kind == "f" else "int64"
                builder.add_field(field, "array", dtype, (None, *values.shape[1:]), inline=True)
        if "segmentation" in self._annotations.spans:
            builder.add_field("segmentation", "text", inline=True)
        if "caption" in self._annotations.spans:
            builder.add_field("captions", "text", inline=True)
        if self._annotations.classes:
            builder.set_classes(self._annotations.classes)

    def add(self, files: Files, images: range) -> None:
        """Adds these images whose files are there."""
        annotations = self._annotations
        places = files.look_up(
            [annotations.names[image] for image in images],
            lambda i: (
                f"indexing {annotations.path}: byte {annotations.begins[images[i]]:,}: images"
            ),
        )
        there = np.flatnonzero(places.are_there).tolist()
        kept = [images[position] for position in there]
        files.missing += len(images) - len(kept)
        if (files.missing and not self._skips) or not kept:
            return
        numbers, sizes = files.add(places.select(there))
        counts = np.diff(annotations.firsts)[kept]
        repeats = counts if self._sample_per_caption else 1
        builder = self._builder
        builder.add_extents("image", np.repeat(numbers, repeats), 0, np.repeat(sizes, repeats))
        builder.add_values("image_id", np.repeat(annotations.ids[kept], repeats))
        notes = np.concatenate(
            [np.arange(*annotations.firsts[image : image + 2]) for image in kept]
        )
        notes = notes.astype(np.int64)
        if self._sample_per_caption:
            builder.add_values("caption", [self._text("caption", note) for note in notes])
            builder.tell(kept[-1])
            return
        for part, field in _FIELDS.items():
            if part in annotations.columns:
                values = annotations.columns[part][notes]
                dtype = self._floats if values.dtype.kind == "f" else "int64"
                with np.errstate(over="ignore"):  # `Coco.fill` counts them.
                    builder.add_ragged(field, values.astype(dtype), counts)
        if "segmentation" in annotations.spans:
            builder.add_values("segmentation", [self._json(image) for image in kept])
        if "caption" in annotations.spans:
            builder.add_values("captions", [self._lines(image) for image in kept])
        builder.tell(kept[-1])

    def _notes(self, image: int) -> range:
        return range(*self._annotations.firsts[image : image + 2])

    def _json(self, image: int) -> str:
        return f"[{', '.join(self._raw('segmentation', note) for note in self._notes(image))}]"

    def _lines(self, image: int) -> str:
        texts = (self._text("caption", note) for note in self._notes(image))
        return "\n".join(" ".join(text.split()) for text in texts)

    def _text(self, part: str, note: int) -> str:
        try:
            text: str = json.loads(self._raw(part, note))
            text.encode()
        except ValueError as error:  # It was read before, so only half a surrogate pair is left.
            raise FailedPreconditionError(
                f"indexing {self._annotations.path}: byte "
                f"{self._annotations.spans[part][note][0]:,}: a caption that is no valid "
                "Unicode, or changed while the file was read; correct it"
            ) from error
        return text

    def _raw(self, part: str, note: int) -> str:
        begin, end = map(int, self._annotations.spans[part][note])
        return self._read(begin, end - begin).decode(errors="replace")


def _neighbours(path: str) -> list[str]:
    """Folders that images of an annotation file usually lie in."""
    base = os.path.dirname(path)
    above = os.path.dirname(base)
    split = os.path.splitext(os.path.basename(path))[0].rpartition("_")[2]
    folders = [
        os.path.join(folder, name)
        for folder in (above, base)
        for name in (split, f"images/{split}", "images", "")
    ]
    return [_places.absolute(folder) for folder in folders]
