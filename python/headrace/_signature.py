"""The types of `Loader` for type checkers, and the errors for unknown arguments."""

from __future__ import annotations

import functools
import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, get_args
from typing import TypeVar as CoreTypeVar

from headrace._arguments import shown
from headrace._units import counted
from headrace.errors import InvalidArgumentError

OnError = Literal["raise", "substitute"]
Arrays = Literal["auto", "torch", "numpy", "jax", "dlpack"]
WorkerStart = Literal["spawn", "fork", "forkserver"]
Ragged = Literal["error", "pad", "list"]

if TYPE_CHECKING:  # Python 3.11 has no defaults of type variables.
    from typing_extensions import TypeVar

    Field_co = TypeVar("Field_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Field_co = TypeVar("Field_co", covariant=True)


class Fields(Protocol[Field_co]):
    """A batch for type checkers: a tuple of fields, which may be named.

    >>> loader: hr.Loader[hr.Fields[torch.Tensor]] = hr.Loader(path, transform=..., output="torch")

    The parameter is the type of each field: by default `Any`, as one may be a tensor, another a
    list of them. If a Python transform makes batches of another type, give that type:
    ``hr.Loader[dict[str, torch.Tensor]]``.
    """

    def __iter__(self) -> Iterator[Field_co]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, position: Any, /) -> Field_co: ...
    def __getattr__(self, field: str, /) -> Field_co: ...


if TYPE_CHECKING:
    Made = TypeVar("Made", default=Fields[Any])
else:
    Made = TypeVar("Made")


class PublicHelp(ABCMeta):
    """Of a class whose help() shows what its users call, and none of Python's own methods."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]


def words(literal: Any) -> tuple[str, ...]:
    """The words that a `Literal` allows."""
    return get_args(literal)


_DEVICE = (
    "batches are copied to a device, through pinned memory and ahead of the loop, by "
    "headrace.torch.DeviceBatches(loader, device); leave it out"
)
OF_TORCH = {
    "num_workers": (
        "reading and decoding take threads of this process, one per usable core or threads=; "
        "processes that run a Python transform are workers=: leave it out, or write "
        "workers={value} beside transform=function"
    ),
    "pin_memory": _DEVICE,
    "pin_memory_device": _DEVICE,
    "prefetch_factor": (
        "EngineOptions.prefetch is how many batches are worked on ahead, in all and not for each "
        "worker; by default at most 64, as memory= allows: leave it out, or write "
        "engine=hr.EngineOptions(prefetch={value})"
    ),
    "persistent_workers": "workers always live as long as the loader; leave it out",
    "timeout": (
        "a worker or a node process that dies is an error at once, and Ctrl-C ends any wait; leave "
        "it out (Node.start_timeout is for ranks of a node that never come)"
    ),
    "generator": (
        "seed= decides the order and the random transforms, the same for any number of workers; "
        "write seed=generator.initial_seed()"
    ),
    "multiprocessing_context": "use workers=hr.Workers(start={value})",
    "in_order": "batches always come in order, whichever is ready first; leave it out",
}

OF_OTHERS = {
    name: f"an argument of torch's DataLoader; here {advice}" for name, advice in OF_TORCH.items()
} | {
    name: f"an argument of headrace.open; write hr.Loader(hr.open(path, {name}={{value}}), ...)"
    for name in ("index", "format", "split", "skip", "progress")
}
"""The advice about arguments of others that a Loader is given, by name."""

_NO_ARGUMENTS = "this takes no arguments; give none"

P = ParamSpec("P")
R = CoreTypeVar("R")
C = CoreTypeVar("C", bound=type)


def named_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function or method, which refuses unknown arguments with an error that helps."""
    return _checked(function, {}, {})


def named_fields(cls: C) -> C:
    """The class, a dataclass for one, whose constructor does as `named_arguments` says; of names
    that it had earlier it says what the class has as `_hints`."""
    constructed: Any = cls
    hints: Mapping[str, str] = getattr(cls, "_hints", {})
    constructed.__init__ = _checked(constructed.__init__, hints, {})
    return cls


def helped(
    hints: Mapping[str, str], spellings: Mapping[str, str]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As `named_arguments`. `hints`: what to say of a name; `spellings`: how other names, which
    could be meant, are written."""
    return lambda function: _checked(function, hints, spellings)


def _checked(
    function: Callable[P, R], hints: Mapping[str, str], spellings: Mapping[str, str]
) -> Callable[P, R]:
    parameters = list(inspect.signature(function).parameters.values())
    bound = int(parameters[0].name == "self") if parameters else 0
    names = [parameter.name for parameter in parameters[bound:]]
    positional = sum(
        parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters[bound:]
    )

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) - bound > positional:
            raise _too_many(len(args) - bound, names[:positional], names[positional:])
        for name, value in kwargs.items():
            if name not in names:
                raise InvalidArgumentError(
                    f"{name}={shown(value)}: {_advice(name, value, names, hints, spellings)}"
                )
        return function(*args, **kwargs)

    return call


def _too_many(count: int, placed: list[str], named: list[str]) -> InvalidArgumentError:
    text = f"{counted(count, 'argument')} without a name: "
    if not named:
        only = f"there are only {', '.join(placed)}" if placed else _NO_ARGUMENTS
        return InvalidArgumentError(f"{text}{only}")
    if not placed:
        return InvalidArgumentError(f"{text}write all by name, as {named[0]}=...")
    return InvalidArgumentError(
        f"{text}only {', '.join(placed)} may be given so; write the others by name, as "
        f"{named[0]}=..."
    )


def _advice(
    name: str,
    value: Any,
    names: list[str],
    hints: Mapping[str, str],
    spellings: Mapping[str, str],
) -> str:
    if name in hints:
        shows = value.get_start_method() if hasattr(value, "get_start_method") else value
        return hints[name].format(value=shown(shows))
    if name in spellings:
        return f"not an argument of this name; write {spellings[name]}"
    import difflib  # It takes long to import.

    near = difflib.get_close_matches(name, [*names, *spellings], n=1)
    if near:
        meant = repr(near[0]) if near[0] in names else spellings[near[0]]
        return f"unexpected keyword {name!r}; did you mean {meant}?"
    there = f"there are {', '.join(names)}" if names else _NO_ARGUMENTS
    return f"unexpected keyword {name!r}; {there}"
