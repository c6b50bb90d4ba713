"""TOML files that people write: every value is checked, errors name the place."""

from __future__ import annotations

from headrace._toml.reading import read_toml
from headrace._toml.table import TomlTable

__all__ = ["TomlTable", "read_toml"]
