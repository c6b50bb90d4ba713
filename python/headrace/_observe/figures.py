"""How figures of statistics are declared: once, as annotations of a TypedDict's keys."""

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

Core = Mapping[str, Any]
"""What the core counted: its structs, as dicts; or one of these."""


@dataclass(frozen=True)
class Figure:
    """What is declared of a figure besides its name, type and docstring."""

    unit: str = ""
    """"s": the core counts nanoseconds"""
    source: str | Callable[[Any], Any] | None = None
    """Where it is in the core's structs: "engine.reads"; "engine.lanes.*.samples": a sum; "": they
    themselves; None: by its own name"""
    label: str = ""
    """Its label as a metric, beside those of the loader: "kind=read" """
    metric: str = ""
    """Its name in METRICS; else that of the figure that it is in. Not exported without either, and
    in such a figure not without a label"""
    own: bool = False
    """A metric of this rank; else of all ranks that share the engine"""
    exported: Callable[[Any], float] | None = None
    """Its value as a metric, if that is another"""


@dataclass(frozen=True)
class Declared:
    """One declared figure. `inner`: the TypedDict of a figure that has figures of its own."""

    name: str
    figure: Figure
    inner: type | None
    is_list: bool
    shown_type: str

    def of(self, core: Any) -> Any:
        """The figure as the core's structs have it."""
        source = self.name if self.figure.source is None else self.figure.source
        value = _at(core, source) if isinstance(source, str) else source(core)
        if self.inner is None:
            return value / 1e9 if self.figure.unit == "s" else value
        if self.is_list:
            return [make(self.inner, element) for element in value]
        return None if value is None else make(self.inner, value)


@cache
def declared(kind: type) -> tuple[Declared, ...]:
    """The figures of a TypedDict."""
    return tuple(_declared(name, hint) for name, hint in kind.__annotations__.items())


def _declared(name: str, hint: Any) -> Declared:
    assert typing.get_origin(hint) is Annotated, name
    kind, figure = typing.get_args(hint)
    inner = next(
        (part for part in (kind, *typing.get_args(kind)) if typing.is_typeddict(part)), None
    )
    shown = kind.__name__ if isinstance(kind, type) else str(kind)
    return Declared(name, figure, inner, typing.get_origin(kind) is list, shown)


def make(kind: type, core: Any, **known: Any) -> Any:
    """What a TypedDict declares, from the core's structs; `known`: figures known already."""
    return {
        entry.name: known[entry.name] if entry.name in known else entry.of(core)
        for entry in declared(kind)
    }


def _at(core: Any, path: str) -> Any:
    before, star, rest = path.partition(".*.")
    value = core
    for name in filter(None, before.split(".")):
        value = value[int(name) if name.isdigit() else name]
    return sum(_at(element, rest) for element in value) if star else value


def metrics(
    kind: type, values: Mapping[str, Any], own: bool, inherited: str = ""
) -> Iterator[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of each exported figure but those in lists; see `Figure.own`."""
    for entry in declared(kind):
        figure, value = entry.figure, values[entry.name]
        name = figure.metric or inherited
        if entry.inner is not None:
            if value is not None and not entry.is_list:
                yield from metrics(entry.inner, value, own, name)
        elif name and figure.own == own and (figure.label or figure.metric):
            if figure.exported is not None:
                value = figure.exported(value)
            if value is not None:
                yield name, dict([figure.label.split("=")]) if figure.label else {}, value
