"""What a message tells the user to type, as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from format_checks import formats_in as formats_in

import headrace as hr
from headrace import errors
from headrace.formats import Format


def refusal(path: Path, row: Format | str | None = None) -> str:
    """The message that the dataset is refused with."""
    with pytest.raises(errors.HeadraceError) as caught:
        hr.open(path, format=row)
    return str(caught.value)


def opened_by_advice(path: Path, row: Format | str | None = None) -> list[hr.Dataset]:
    """The dataset by each format that the refusal names; each must open it."""
    message = refusal(path, row)
    advised = formats_in(message)
    assert advised, message
    return [hr.open(path, format=each) for each in advised]


def column(dataset: hr.Dataset, name: str) -> list[Any]:
    return [
        each[name].tolist() if hasattr(each[name], "tolist") else each[name] for each in dataset
    ]
