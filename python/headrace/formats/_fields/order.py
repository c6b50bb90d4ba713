"""Data before labels: the order in which fields are delivered where nobody chose one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace import _core
from headrace.formats._files.nested import Nesting

_LABELS = frozenset(
    {
        *("label", "labels", "cls", "class", "classes", "category", "categories"),
        *("target", "targets", "gt", "annotation", "annotations"),
        *("bbox", "bboxes", "box", "boxes", "keypoint", "keypoints"),
        *("mask", "masks", "seg", "segmentation", "segmentations"),
        *("id", "idx", "index", "url", "json", "xml", "yaml", "meta", "metadata"),
    }
)
_MASKS = frozenset(
    {
        *("mask", "masks", "trimap", "annotation", "annotations", "label", "labels", "labelmap"),
        *("seg", "segmentation", "segmentations", "segmap", "semantic", "panoptic"),
    }
)
_TEXTS = frozenset({"txt", "text", "texts", "caption", "captions", "transcript", "transcripts"})
_SOUNDS = frozenset({"wav", "flac", "mp3", "ogg", "opus", "m4a", "aac", "audio"})
_MEDIA = _SOUNDS | {"mp4", "avi", "mov", "mkv", "webm", "video"}
_CODINGS = frozenset({"gz", "npy", "jpg", "jpeg", "png", "webp"})
"""Words at the end of a name that tell how it is written, not what it is."""


class FieldType(NamedTuple):
    """A field, as far as its order is concerned."""

    name: str
    kind: str
    """As `Dataset.kind` has it."""
    is_one_number: bool = False
    """Of kind array: whether a sample has one number."""


def field_types(fields: Sequence[_core.Field], nesting: Nesting) -> list[FieldType]:
    """Of the fields that the user sees, in the order of `nesting`."""
    types = []
    for position, name in zip(nesting.visible, nesting.names, strict=True):
        field, is_nested = fields[position], nesting.field_at(position) is not None
        kind = "nested" if is_nested else field.kind
        types.append(FieldType(name, kind, kind == "array" and math.prod(field.shape) == 1))
    return types


class Role(IntEnum):
    """What a field is to a training loop. Data have lower ones than labels."""

    MEDIA = 0
    """Encoded images, sounds and videos."""
    VALUES = 1
    """Arrays, lists and bytes; text where a sample has nothing but labels beside it."""
    LABEL = 2
    """One number, a label by its name, and text that describes data."""


def roles(fields: Sequence[FieldType]) -> list[Role]:
    """The role of each field of a sample, by its type and the words in its name.

    - A *label* is one number; and whatever has one of these words in its name: label, cls, class,
      category, target, gt, annotation, bbox, box, keypoint, mask, seg, segmentation, their
      plurals, id, idx, index, url, json, xml, yaml, meta, metadata. Words are separated by all but
      letters and digits, or by a capital letter, and may be followed by a number.
    - *Data* is the rest: images; bytes whose last word is that of a sound or video (wav, mp4, ...);
      then other bytes, arrays of more than one number, lists.
    - *Text* (kind text, and bytes whose last word is txt, text, caption or transcript) is data in a
      sample without other data, as in text classification. Beside data it is a label: a caption.
    """
    by_field = [_role(field) for field in fields]
    alone = not any(role in (Role.MEDIA, Role.VALUES) for role in by_field)
    return [(Role.VALUES if alone else Role.LABEL) if role is None else role for role in by_field]


def data_first(fields: Sequence[FieldType]) -> list[str]:
    """The names of the fields, data before labels.

    If the first field is data, all stay as they are: a loop over images and labels gets these.
    Otherwise they are sorted by their roles; fields of one role stay in their order.
    """
    ranked = list(zip(roles(fields), fields, strict=True))
    if ranked and ranked[0][0] is Role.LABEL:
        ranked.sort(key=lambda pair: pair[0])
    return [field.name for _, field in ranked]


def _role(field: FieldType) -> Role | None:
    """None: text."""
    words = _words(field.name)
    if field.is_one_number or _has(words, _LABELS) or is_mask(field.name, field.kind):
        return Role.LABEL
    if field.kind == "image":
        return Role.MEDIA
    last = _last(words)
    if field.kind == "text" or (field.kind == "bytes" and last in _TEXTS):
        return None
    return Role.MEDIA if field.kind == "bytes" and last in _MEDIA else Role.VALUES


def is_mask(name: str, kind: str) -> bool:
    """Whether the pixels of a field's images are numbers of classes, as far as its name tells."""
    return kind == "image" and _has(_words(name), _MASKS)


def is_sound(name: str, kind: str) -> bool:
    """Whether the bytes of a field are sounds, as far as its name tells."""
    return kind == "bytes" and _last(_words(name)) in _SOUNDS


def _last(words: Sequence[str]) -> str:
    """The last word that is no coding."""
    return next((word for word in reversed(words) if word not in _CODINGS), "")


def _has(words: Sequence[str], wanted: frozenset[str]) -> bool:
    return any(word.rstrip("0123456789") in wanted for word in words)


def _words(name: str) -> list[str]:
    """In lower case: of "image/classLabel" image, class, label."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()
    return re.findall(r"[a-z0-9]+", apart)
