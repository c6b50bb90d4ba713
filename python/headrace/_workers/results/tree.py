"""The structure of a transform's results: leaves in nested tuples, lists and dicts.

A structure is described by a *skeleton*: `LEAF`, or (kind, values needed to make one, skeletons of
its members). Leaves are numbered in their order in the skeleton.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

LEAF = None
_TUPLE, _LIST, _DICT, _NAMED, _NOTED = range(5)

Skeleton = tuple[int, Any, tuple[Any, ...]] | None


def flatten(result: Any, leaves: list[Any]) -> Skeleton:
    """Appends the leaves of a result to `leaves`; returns its skeleton."""
    kind = type(result)
    if kind is tuple or kind is list:
        members = tuple(flatten(member, leaves) for member in result)
        return (_TUPLE if kind is tuple else _LIST, None, members)
    if isinstance(result, dict):
        members = tuple(flatten(member, leaves) for member in result.values())
        return (_DICT, tuple(result), members)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return (_NAMED, kind, tuple(flatten(member, leaves) for member in result))
    if isinstance(result, (tuple, list)):
        return flatten(list(result) if isinstance(result, list) else tuple(result), leaves)
    leaves.append(result)
    return LEAF


def listed(skeleton: Skeleton) -> Skeleton:
    """The skeleton with lists in place of plain tuples."""
    if skeleton is LEAF:
        return LEAF
    kind, maker, members = skeleton
    return (_LIST if kind == _TUPLE else kind, maker, tuple(map(listed, members)))


def noted(skeleton: Skeleton, note: Any) -> Skeleton:
    """The skeleton with a note: it differs from those with other notes, and makes the same
    structure."""
    return _NOTED, note, (skeleton,)


def without_note(skeleton: Skeleton) -> Skeleton:
    if skeleton is LEAF or skeleton[0] != _NOTED:
        return skeleton
    inner: Skeleton = skeleton[2][0]
    return inner


def flattener(skeleton: Skeleton) -> Callable[[Any], Sequence[Any] | None]:
    """A function that returns the leaves of a result with this skeleton, and None for most others.
    The leaves of a flat one may still be containers, which are not valid leaves.
    """
    if skeleton is LEAF:
        return lambda result: (result,)
    kind, maker, members = skeleton
    flat = all(member is LEAF for member in members)
    count = len(members)
    if flat and kind == _TUPLE:
        return lambda result: result if type(result) is tuple and len(result) == count else None
    if flat and kind == _DICT:
        return lambda result: (
            tuple(result.values()) if type(result) is dict and tuple(result) == maker else None
        )

    def general(result: Any) -> Sequence[Any] | None:
        leaves: list[Any] = []
        return leaves if flatten(result, leaves) == skeleton else None

    return general


def flat_parts(skeleton: Skeleton) -> Callable[[Sequence[Any]], list[Sequence[Any]] | None] | None:
    """A function that converts results of a flat skeleton to a column for each leaf, or returns
    None if a result has another skeleton. None if the skeleton is not flat.
    """
    if skeleton is LEAF:
        return lambda results: [results]
    kind, maker, members = skeleton
    if not all(member is LEAF for member in members):
        return None
    count = len(members)

    def of_tuples(results: Sequence[Any]) -> list[Sequence[Any]] | None:
        if set(map(type, results)) != {tuple} or set(map(len, results)) != {count}:
            return None
        return list(zip(*results, strict=True))

    def of_dicts(results: Sequence[Any]) -> list[Sequence[Any]] | None:
        if set(map(type, results)) != {dict} or set(map(tuple, results)) != {maker}:
            return None
        return list(zip(*map(dict.values, results), strict=True))

    return {_TUPLE: of_tuples, _DICT: of_dicts}.get(kind)


def unflatten(skeleton: Skeleton, leaves: Iterator[Any]) -> Any:
    """Makes the structure from other leaves."""
    if skeleton is LEAF:
        return next(leaves)
    kind, maker, members = skeleton
    made = [unflatten(member, leaves) for member in members]
    if kind == _LIST:
        return made
    if kind == _NOTED:
        return made[0]
    if kind == _DICT:
        return dict(zip(maker, made, strict=True))
    return maker(*made) if kind == _NAMED else tuple(made)


def dump_skeleton(skeleton: Any) -> bytes:
    """Bytes that are equal for equal skeletons."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.fast = True  # No memo: with it the bytes depend on which parts are the same object.
    pickler.dump(skeleton)
    return buffer.getvalue()


def load_skeleton(data: bytes) -> Skeleton:
    """The skeleton from the bytes of dump_skeleton(), made in any process."""
    skeleton: Skeleton = pickle.loads(data)
    return skeleton
