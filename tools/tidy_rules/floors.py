"""The floors of python/headrace: which room may import which; the table, and the rules of it.

A room is a package or module directly in python/headrace. It imports rooms of its own floor and of
those below, at the top of a module, in a function and for a type checker alike; and no two rooms
import each other, directly or by others. What a lower floor needs of a higher one is handed to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

PACKAGE = "headrace"

FLOORS = {
    "values": (  # they know no dataset
        *("_arguments", "_charts", "_core", "_descriptors", "_html", "_names", "_places"),
        *(
            "_objects",
            "_process",
            "_signature",
            "_text",
            "_toml",
            "_units",
            "audio",
            "errors",
            "image",
        ),
        "profile",
    ),
    "data": ("formats", "_dataset", "pack"),
    "run": (
        *(
            "orders",
            "tiers",
            "_options",
            "_nodes",
            "_observe",
            "_workers",
            "_loading",
            "_loader",
            "simulation",
        ),
    ),
    "adapters": ("torch", "papers", "ray", "tensorflow"),
    "face": ("cli", "_measure", "_show", "__init__", "__main__"),
}
"""The rooms of each floor, the lowest floor first."""
_NAMES = list(FLOORS)

Arrow = tuple[str, int, str, str]  # file, line, module, imported module
Places = dict[str, dict[str, list[tuple[str, int]]]]  # of the arrows from one name to another


def room_of(module: str) -> str | None:
    """None: not of the package. The package's own __init__ is the face."""
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    return parts[1] if len(parts) > 1 else "__init__"


def floor_of(room: str) -> int | None:
    return next((at for at, rooms in enumerate(FLOORS.values()) if room in rooms), None)


def upward_imports(arrows: Collection[Arrow]) -> Iterator[tuple[str, int, str]]:
    unknown: set[str] = set()
    for file, line, module, imported in arrows:
        room, other = room_of(module), room_of(imported)
        if room is None or other is None or room == other:
            continue
        for name in {room, other} - unknown:
            if floor_of(name) is None:
                unknown.add(name)
                yield file, line, f"room '{name}' has no floor in tools/tidy_rules/floors.py"
        below, above = floor_of(room), floor_of(other)
        if below is not None and above is not None and above > below:
            yield (
                file,
                line,
                f"'{room}' is on the floor of {_NAMES[below]}, and imports '{other}' of "
                f"{_NAMES[above]}: hand it in from above",
            )


def room_arrows(arrows: Collection[Arrow]) -> Places:
    """Which room imports which, and where."""
    return _places((room_of(module), room_of(imported), at) for *at, module, imported in arrows)


def folder_arrows(arrows: Collection[Arrow], folders: Mapping[str, str]) -> Places:
    """Which folder of the package imports which. `folders`: of each module. Rooms are not compared
    again."""
    return _places(
        (folders[module], folders[imported], at)
        for *at, module, imported in arrows
        if room_of(module) == room_of(imported) is not None
    )


def _places(arrows: Iterable[tuple[str | None, str | None, list[Any]]]) -> Places:
    places: Places = {}
    for one, other, (file, line) in arrows:
        if one is not None and other is not None and one != other:
            places.setdefault(one, {}).setdefault(other, []).append((file, line))
    return places
