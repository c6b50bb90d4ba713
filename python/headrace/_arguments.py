"""What arguments of the loader mean: sizes, ranks, names."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any, SupportsIndex

from headrace import _core
from headrace._units import parse_share_or_bytes
from headrace.errors import InvalidArgumentError


def integer(name: str, value: SupportsIndex, least: int, most: int) -> int:
    """`value` as an int in [least, most]; else an error that names the argument."""
    number = whole(value)
    if number is None:
        raise InvalidArgumentError(f"{name}: got {value!r}, must be an integer")
    if not least <= number <= most:
        raise InvalidArgumentError(f"{name}: got {value!r}, must be in [{least}, {most}]")
    return number


def whole(value: Any) -> int | None:
    """`value` as an int; None if it is none: True and False are likelier a mistake."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def given_path(doing: str, path: str | os.PathLike[str]) -> str:
    """`path` as text, if there is any: none would mean the current folder."""
    text = os.fspath(path)
    if not text:
        raise InvalidArgumentError(
            f"{doing} {text!r}: the path is empty; the current folder is written '.'"
        )
    return text


def flag(name: str, value: Any) -> bool:
    """`value` if it is true or false; what merely counts as one is likelier a mistake."""
    if type(value).__name__ not in ("bool", "bool_"):  # bool_: NumPy's
        raise InvalidArgumentError(f"{name}: got {value!r}, must be True or False")
    return bool(value)


def items(name: str, value: Any, of: str) -> list[Any]:
    """What `value` iterates over; else an error that names the argument."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{name}: got {value!r}, must be an iterable of {of}")
    return list(value)


def memory_bytes(value: int | str | None, name: str = "memory") -> int:
    """Bytes of 4 * 2**30, "4GiB", "500MB" or "20%" (of the machine's memory); None: 0."""
    if value is None:
        return 0
    if isinstance(value, str):
        value = parse_share_or_bytes(value, name, _core.memory_limit_bytes())
    return integer(name, value, 1, 2**62)


def rank_and_world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """As given; else torch.distributed's, if it runs; else torchrun's environment; else (0, 1)."""
    if (rank is None) != (world_size is None):
        raise InvalidArgumentError(
            f"rank={rank}, world_size={world_size}: give both, or neither to have them found"
        )
    if rank is None or world_size is None:
        rank, world_size = _found_rank_and_world()
    world_size = integer("world_size", world_size, 1, 2**20)
    return integer("rank", rank, 0, world_size - 1), world_size


def _found_rank_and_world() -> tuple[int, int]:
    import sys

    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    found = os.environ.get("RANK") or None, os.environ.get("WORLD_SIZE") or None
    if not any(found):
        return 0, 1
    try:
        return int(found[0] or ""), int(found[1] or "")
    except ValueError:
        raise InvalidArgumentError(
            f"environment RANK={found[0]!r}, WORLD_SIZE={found[1]!r}: must both be integers; "
            "or give rank= and world_size="
        ) from None


def choice(name: str, value: str, allowed: tuple[str, ...], hint: str = "") -> str:
    """`value` if it is one of `allowed`."""
    if value not in allowed:
        names = ", ".join(map(repr, allowed))
        raise InvalidArgumentError(f"{name}: got {value!r}, must be one of {names}{hint}")
    return value
