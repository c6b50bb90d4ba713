"""Names of a package that are imported when they are used first."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from headrace._process.former import no_attribute


def lazy_names(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package. `places`: the module of each name, as
    ".module"; ".module:other" if it has another name there; "" for a module of that name."""

    def get(name: str) -> Any:
        if name not in places:
            raise no_attribute(package, name)
        if not places[name]:
            return importlib.import_module(f"{package}.{name}")
        module, _, other = places[name].partition(":")
        value = getattr(importlib.import_module(package + module), other or name)
        setattr(sys.modules[package], name, value)
        return value

    def known() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get, known
