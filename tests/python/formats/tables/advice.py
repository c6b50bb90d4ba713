"""What a message tells the user to type, as objects."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import errors
from headrace.formats import Format


def formats_in(message: str) -> list[Format]:
    """Each `format=hr.formats.NAME(...)` of the message, as it stands."""
    found = []
    for match in re.finditer(r"format=(hr\.formats\.\w+\()", message):
        text = message[match.start(1) :]
        for end in range(len(text)):
            if text[end] == ")" and _is_python(text[: end + 1]):
                found.append(eval(text[: end + 1], {"hr": hr, "nan": float("nan")}))
                break
    return found


def _is_python(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


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
