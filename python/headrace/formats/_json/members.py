"""Members that an object of JSON has twice, of which Python's json takes the last."""

from __future__ import annotations

import json
from typing import Any


class Members:
    """Decodes JSON as `json` does, and notes members that an object has twice.

    Not those whose values are equal.
    """

    def __init__(self) -> None:
        self.decoder = json.JSONDecoder(object_pairs_hook=self._object)
        self._twice: list[str] = []

    def taken(self) -> list[str]:
        """The names of those since the last call."""
        twice, self._twice = self._twice, []
        return twice

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: dict[str, Any] = {}
            for name, value in pairs:
                if seen.setdefault(name, value) != value:
                    self._twice.append(name)
        return members
