"""Numbers of JSON that float64 cannot hold, which `json` reads as infinite: 1e400."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

_MARK = "\0number "
_MARKED = re.compile(r'"\\u0000number ([^"]*)"')  # as JSON has it


def decoded(text: str) -> Any:
    """The value, with marked texts in place of such numbers."""
    return json.loads(text, parse_float=_marked)


def as_written(value: Any) -> tuple[str, bool]:
    """The JSON of what `decoded` returned, or a part of it, with such numbers as they were written;
    and whether there are any."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text, count = _MARKED.subn(r"\1", text)
    return text, count > 0


def _marked(digits: str) -> float | str:
    number = float(digits)
    return number if isfinite(number) else f"{_MARK}{digits}"
