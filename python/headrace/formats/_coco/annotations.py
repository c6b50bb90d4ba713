"""What a file of COCO annotations says, in columns."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isinf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _places
from headrace.errors import InvalidArgumentError
from headrace.formats._coco.json_stream import Element, elements, wrong
from headrace.formats._json.infinite import as_written, decoded

_TELL_EVERY = 10_000
_INT64 = 2**63
_RESULTS_BYTES = 2**20
I64 = NDArray[np.int64]


@dataclass
class Annotations:
    """Images in ascending order of their ids, and annotations in order of their images."""

    path: str
    ids: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    names: list[str] = field(default_factory=list)
    """The file of each image."""
    begins: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Where the image's object lies in the file, in bytes, for errors."""
    firsts: I64 = field(default_factory=lambda: np.zeros(1, np.int64))
    """The first annotation of each image, and their number."""
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    """bbox, area, iscrowd, category, keypoints: of each annotation, if they have it."""
    spans: dict[str, I64] = field(default_factory=dict)
    """segmentation, caption: where their JSON lies in the file, [begin, end)."""
    classes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Members of annotations that are not taken."""


def first_images(path: str, count: int) -> list[str]:
    """The files of the first images."""
    names: list[str] = []
    for element in elements(path):
        if element.key == "images":
            names.append(_file_name(path, element))
            if len(names) == count:
                break
        elif names:
            break
    return names


def is_results(path: str) -> bool:
    """Whether the file is a list of results, as of pycocotools: annotations without images."""
    with _places.open(path) as file:
        text = file.read(_RESULTS_BYTES).decode("latin-1").lstrip()
    if not text.startswith("["):
        return False
    try:
        first, _ = _DECODER.raw_decode(text[1:].lstrip())
    except ValueError:
        return False
    return isinstance(first, dict) and "image_id" in first and bool(_PARTS.keys() & first.keys())


def is_annotations(path: str) -> bool:
    """Whether the file has images, or annotations of images, in its first array of either."""
    for element in elements(path, refuses_twice=False):
        value = element.value
        if element.key == "images":
            return (
                isinstance(value, dict)
                and "id" in value
                and bool({"file_name", "coco_url"} & value.keys())
            )
        if element.key == "annotations":
            return isinstance(value, dict) and "image_id" in value
        if element.begin > 2**20:
            break
    return False


def read_annotations(path: str, tell: Callable[[int], None]) -> Annotations:
    """Reads the file. Raises DataLossError, InvalidArgumentError."""
    reader = _AnnotationReader(path)
    for number, element in enumerate(elements(path)):
        reader.add(element)
        if number % _TELL_EVERY == 0:
            tell(number)
    return reader.ended()


class _AnnotationReader:
    def __init__(self, path: str) -> None:
        self._path = path
        self._ids = array("q")
        self._names: list[str] = []
        self._begins = array("q")
        self._categories: dict[int, str] = {}
        self._images = array("q")  # of each annotation
        self._places = array("q")
        self._numbers: dict[str, array[Any]] = {}
        self._spans: dict[str, array[Any]] = {}
        self._has: set[str] | None = None
        self._left_out: tuple[str, ...] = ()
        self._keypoints = 0

    def add(self, element: Element) -> None:
        if element.key not in ("images", "annotations", "categories"):
            return
        if not isinstance(element.value, dict):
            raise wrong(self._path, element, "no object; correct the file")
        if element.key == "images":
            self._ids.append(self._whole(element, "id"))
            self._names.append(_file_name(self._path, element))
            self._begins.append(element.begin)
        elif element.key == "categories":
            number, name = self._whole(element, "id"), element.value.get("name")
            if not isinstance(name, str) or number in self._categories:
                why = f"id {number}, {name!r:.80}: twice, or no name; give each category its own"
                raise wrong(self._path, element, why)
            self._categories[number] = name
        else:
            self._annotation(element)

    def _annotation(self, element: Element) -> None:
        value = element.value
        has = _PARTS.keys() & value.keys()
        if self._has is None:
            self._left_out = tuple(sorted(value.keys() - _PARTS.keys() - _PLAIN))
            if not has and "segments_info" in value:
                raise InvalidArgumentError(
                    f"indexing {self._path}: byte {element.begin:,}: its annotations are panoptic "
                    "ones ('segments_info', and a mask of their own as 'file_name'), which a table "
                    "of images, masks and segments takes: `headrace docs formats/coco` has the "
                    "lines that write it"
                )
            self._has = has
            for name in has:
                if _PARTS[name] == "span":
                    self._spans[name] = array("q")
                else:
                    self._numbers[name] = array("q" if _PARTS[name] == "whole" else "d")
        if has != self._has:
            other = sorted(has ^ self._has)[0]
            raise wrong(
                self._path,
                element,
                f"it {'has' if other in has else 'lacks'} {other!r}, other than the first one; "
                "leave it out of all, or give it to all",
            )
        self._images.append(self._whole(element, "image_id"))
        self._places.append(element.begin)
        for name in has:
            kind = _PARTS[name]
            if kind == "span":
                self._span(element, name)
            elif kind == "whole":
                self._numbers[name].append(self._whole(element, name))
            else:
                self._numbers[name].extend(self._floats(element, name))

    def _span(self, element: Element, name: str) -> None:
        if name == "caption" and not isinstance(element.value[name], str):
            raise wrong(self._path, element, "its caption is no text; correct the file")
        begin, end = _member(element, name)
        self._spans[name].extend((begin, end))

    def _floats(self, element: Element, name: str) -> list[float]:
        value = element.value[name]
        values = value if isinstance(value, list) else [value]
        wanted = {"bbox": 4, "area": 1, "keypoints": self._keypoints or len(values)}[name]
        if len(values) != wanted or not all(type(number) in (int, float) for number in values):
            why = f"its {name} is {value!r:.80}, no {wanted} numbers; correct the file"
            raise wrong(self._path, element, why)
        if name == "keypoints":
            if wanted % 3 or not wanted:
                why = f"its {wanted} keypoint numbers are no triples; correct the file"
                raise wrong(self._path, element, why)
            self._keypoints = wanted
        try:
            numbers = [float(number) for number in values]
        except OverflowError:
            raise wrong(self._path, element, f"its {name} is too large; correct it") from None
        if any(map(isinf, numbers)):  # The file may have the word itself.
            text, is_infinite = as_written(decoded(element.text)[name])
            if is_infinite:
                why = f"its {name}, {text:.80}, is too large for a float64; correct the file"
                raise wrong(self._path, element, why)
        return numbers

    def _whole(self, element: Element, name: str) -> int:
        number = element.value.get(name)
        if type(number) is bool and name == "iscrowd":
            return int(number)
        if type(number) is not int or not -_INT64 <= number < _INT64:
            why = f"its {name} is {number!r:.80}, no whole number of 64 bits; correct the file"
            raise wrong(self._path, element, why)
        return number

    def ended(self) -> Annotations:
        if not self._ids:
            raise InvalidArgumentError(f"indexing {self._path}: it has no images")
        ids = np.array(self._ids, np.int64)
        order = np.argsort(ids, kind="stable")
        ids, begins = ids[order], np.array(self._begins, np.int64)[order]
        twice = np.flatnonzero(ids[1:] == ids[:-1])
        if twice.size:
            raise InvalidArgumentError(
                f"indexing {self._path}: byte {begins[twice[0] + 1]:,}: images: id "
                f"{ids[twice[0]]} a second time; give each image an id of its own"
            )
        images = np.searchsorted(ids, np.array(self._images, np.int64))
        self._check_images(ids, images)
        by_image = np.argsort(images, kind="stable")
        firsts = np.searchsorted(images[by_image], np.arange(len(ids) + 1))
        annotations = Annotations(self._path, ids, [self._names[i] for i in order], begins, firsts)
        for name, numbers in self._numbers.items():
            array = np.array(numbers)
            if name == "bbox":
                array = array.reshape(-1, 4)
            if name == "keypoints":
                array = array.reshape(-1, self._keypoints // 3, 3)
            if name == "category_id":
                array = self._contiguous(array)
            annotations.columns[name] = array[by_image]
        for name, spans in self._spans.items():
            annotations.spans[name] = np.array(spans, np.int64).reshape(-1, 2)[by_image]
        annotations.left_out = self._left_out
        annotations.classes = tuple(
            self._categories[category] for category in sorted(self._categories)
        )
        return annotations

    def _check_images(self, ids: I64, images: NDArray[np.intp]) -> None:
        named = np.array(self._images, np.int64)
        absent = np.flatnonzero(ids[np.minimum(images, len(ids) - 1)] != named)
        if absent.size:
            raise InvalidArgumentError(
                f"indexing {self._path}: byte {self._places[absent[0]]:,}: annotations: image_id "
                f"{named[absent[0]]} is no image of this file; {absent.size:,} of {len(named):,} "
                "annotations are of images that it lacks; write the file without them"
            )

    def _contiguous(self, numbers: NDArray[Any]) -> I64:
        known = np.array(sorted(self._categories), np.int64)
        places = np.searchsorted(known, numbers)
        if not known.size and numbers.size:
            unknown = np.zeros(1, np.intp)
        else:
            unknown = np.flatnonzero(known[np.minimum(places, len(known) - 1)] != numbers)
        if unknown.size:
            raise InvalidArgumentError(
                f"indexing {self._path}: byte {self._places[unknown[0]]:,}: annotations: "
                f"category_id {numbers[unknown[0]]} is no category of this file; add it to them"
            )
        return places.astype(np.int64)


_PARTS = {
    "bbox": "float",
    "area": "float",
    "keypoints": "float",
    "iscrowd": "whole",
    "category_id": "whole",
    "segmentation": "span",
    "caption": "span",
}
"""What an annotation may have, and how it is kept."""
_PLAIN = {"id", "image_id", "num_keypoints"}
"""What else it has, of which nothing is lost."""

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


def _file_name(path: str, element: Element) -> str:
    name = element.value.get("file_name") if isinstance(element.value, dict) else None
    if not isinstance(name, str) or not name:
        raise wrong(
            path,
            element,
            f"its file_name is {name!r:.80}, no name of a file below the folder of images; give "
            "each image one, as '000000000139.jpg'",
        )
    return name


def _member(element: Element, wanted: str) -> tuple[int, int]:
    """Where in the file the value of a member of this object lies."""
    text = element.text
    at = 1
    span = None
    while True:  # The text was decoded before: it is valid.
        at = _skip(text, at)
        if text[at] == "}":
            break
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        if key == wanted:
            span = element.begin + at, element.begin + end
        at = _skip(text, end)
        if text[at] == ",":
            at += 1
    assert span is not None, "the object has the member"
    return span


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at
