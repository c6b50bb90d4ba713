"""The sheet of images of `headrace inspect --show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace import _charts
from headrace._dataset import Dataset, left_out_of
from headrace._dataset.decoding import decode_image
from headrace._dataset.left_out import others
from headrace._text import one_line, printable
from headrace.cli._parts.inspecting import spread
from headrace.errors import HeadraceError, InvalidArgumentError

_COLUMNS = 8
_IMAGES = 64


def draw(path: Path, dataset: Dataset) -> None:
    """Images spread over the dataset, each with its number and its class."""
    images = [name for name in dataset.fields if dataset.kind(name) == "image"]
    if not images:
        raise InvalidArgumentError(
            f"drawing images of {dataset.path}: it has no field of images; its fields are "
            f"{', '.join(dataset.fields)}"
        )
    rc_context, figure_class = _charts.matplotlib("headrace inspect --show")
    left = others(len(dataset), left_out_of(dataset))
    numbers = [int(left[at]) for at in spread(len(left), _IMAGES)]
    rows = -(-len(numbers) // _COLUMNS)
    with rc_context(_charts.STYLE):
        figure = figure_class(figsize=(2 * _COLUMNS, 2.2 * max(rows, 1)), layout="constrained")
        places = figure.subplots(max(rows, 1), _COLUMNS, squeeze=False).reshape(-1)
        for place in places:
            place.axis("off")
        for place, number in zip(places, numbers, strict=False):
            _draw_one(place, dataset, number, images[0])
        _charts.save(figure, path)


def _draw_one(place: Any, dataset: Dataset, number: int, field: str) -> None:
    try:
        sample = dataset[number]
        place.imshow(decode_image(np.frombuffer(sample[field], np.uint8)))
    except HeadraceError:
        place.text(0.5, 0.5, "cannot be\ndecoded", ha="center", va="center")
        place.set_title(str(number))
        return
    title = f"{number}: {_class_of(dataset, sample)}".removesuffix(": ")
    place.set_title(printable(one_line(title)), parse_math=False)


def _class_of(dataset: Dataset, sample: dict[str, Any]) -> str:
    label = sample.get("label")
    if label is None or not np.issubdtype(np.asarray(label).dtype, np.integer):
        return ""
    if np.ndim(label) == 0 and 0 <= int(label) < len(dataset.classes):
        return dataset.classes[int(label)]
    return str(label) if np.ndim(label) == 0 else ""
