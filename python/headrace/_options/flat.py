"""The earlier names of grouped options, as arguments of `Loader`: accepted with a warning.

They go with the version after this one; then this module does, too.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from headrace import _signature as signature
from headrace._arguments import choice, integer, shown
from headrace._options.groups import Cache, Engine, Group, NodeProcess, Nodes, Sharding, Workers
from headrace.errors import InvalidArgumentError
from headrace.formats._base.findings import callers_level

GROUPS: dict[str, type[Group]] = {
    "workers": Workers,
    "cache": Cache,
    "sharding": Sharding,
    "node_process": NodeProcess,
    "nodes": Nodes,
    "engine": Engine,
}
"""By the loader's argument."""

FLAT: dict[str, tuple[str, str]] = {
    "worker_start": ("workers", "start"),
    "collate_fn": ("workers", "collate_fn"),
    "worker_init_fn": ("workers", "init_fn"),
    "placement": ("cache", "placement"),
    "horizon": ("cache", "horizon"),
    "budget": ("cache", "budget"),
    "rank": ("sharding", "rank"),
    "world_size": ("sharding", "world_size"),
    "isolation": ("node_process", ""),  # A node process is what its group is there for.
    "node": ("node_process", "name"),
    "local_rank": ("node_process", "local_rank"),
    "local_world_size": ("node_process", "local_world_size"),
    "start_timeout": ("node_process", "start_timeout"),
    "io": ("engine", "io"),
    "verify": ("engine", "verify"),
    "prefetch": ("engine", "prefetch"),
    "profile": ("engine", "profile"),
    "schedule": ("engine", "schedule"),
    "monitor": ("engine", "monitor"),
}
"""Of each earlier name: the loader's argument that has the group, and the name in the group."""

P = ParamSpec("P")
R = TypeVar("R")


def loader_arguments(method: Callable[P, R]) -> Callable[P, R]:
    """`Loader.__init__`, which takes earlier names, and refuses others with an error that helps."""
    spellings = {name: _spelling(argument, field) for name, (argument, field) in FLAT.items()}
    checked: Any = signature.checked(method, signature.OF_OTHERS, spellings)

    @functools.wraps(method)
    def grouped(*args: P.args, **kwargs: P.kwargs) -> R:
        made: R = checked(*args, **in_groups(kwargs))
        return made

    return grouped


def _spelling(argument: str, field: str) -> str:
    return f"{argument}=hr.{GROUPS[argument].__name__}({field}{'=...' if field else ''})"


def in_groups(given: Mapping[str, Any]) -> dict[str, Any]:
    """A loader's arguments, with those of earlier names in their groups.

    Raises:
        InvalidArgumentError: an earlier name together with its group.
    """
    flat = {name: value for name, value in given.items() if name in FLAT}
    if not flat:
        return dict(given)
    made = {name: value for name, value in given.items() if name not in FLAT}
    for argument, kind in GROUPS.items():
        names = [name for name in flat if FLAT[name][0] == argument]
        if not names:
            continue
        fields = {FLAT[name][1]: flat[name] for name in names if FLAT[name][1]}
        beside = made.get(argument)
        if argument == "workers" and not isinstance(beside, Group):
            fields = {"count": beside, **fields} if beside is not None else fields
        elif beside is not None:
            raise InvalidArgumentError(
                f"{names[0]}= beside {argument}=: {names[0]} is an option of that group now: write "
                f"{_spelling(argument, FLAT[names[0]][1])} with the group's other options"
            )
        if argument == "node_process" and not _has_node_process(flat):
            if flat.get("isolation") == "thread":
                made[argument] = False
            continue
        made[argument] = kind(**fields)
    _warn(flat, made)
    return made


def _has_node_process(flat: Mapping[str, Any]) -> bool:
    """Whether the earlier names ask for a node process; refuses those that contradict."""
    isolation, node = flat.get("isolation"), flat.get("node")
    if isolation is not None:
        choice("isolation", isolation, ("thread", "process"))
    if node is not None and isolation == "thread":
        raise InvalidArgumentError(
            f"node={shown(node)} with isolation='thread': leave isolation out, or say 'process'"
        )
    if node is not None or isolation == "process":
        return True
    integer("start_timeout", flat.get("start_timeout", 600), 1, 10**6)
    rank, ranks = flat.get("local_rank"), flat.get("local_world_size")
    if rank is not None or ranks is not None:
        raise InvalidArgumentError(
            f"local_rank={shown(rank)}, local_world_size={shown(ranks)} without a node process: "
            "only one asks for them: write node_process=hr.NodeProcess(local_rank=..., "
            "local_world_size=...), or leave both out (hr.Sharding says what to load)"
        )
    return False


def _warn(flat: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    instead = []
    for argument in dict.fromkeys(FLAT[name][0] for name in flat):
        names = [name for name in flat if FLAT[name][0] == argument]
        if argument not in made:
            instead.append(f"leave {', '.join(names)} out")
            continue
        if made[argument] is False:
            instead.append(f"write {argument}=False")
            continue
        fields = [f"{FLAT[name][1]}={_shown(flat[name])}" for name in names if FLAT[name][1]]
        if argument == "workers" and made[argument].count is not None:
            fields.insert(0, str(made[argument].count))
        instead.append(f"write {argument}=hr.{GROUPS[argument].__name__}({', '.join(fields)})")
    warnings.warn(
        f"headrace.Loader: {', '.join(f'{name}=' for name in flat)}: earlier names of options, "
        f"which the next version refuses; {', '.join(instead)}",
        FutureWarning,
        stacklevel=callers_level(),
    )


def _shown(value: Any) -> str:
    """As a program would have it, where that is known."""
    if value is None or isinstance(value, (bool, int, str)):
        return shown(value)
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    return getattr(value, "__name__", "...")
