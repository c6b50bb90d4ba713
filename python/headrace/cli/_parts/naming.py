"""Errors as a command says them: with its options in place of arguments of Python.

Errors have no field for the argument: the core's are texts. All begin with it, though, as
"Job.world_size: got 0", so `renamed` finds it there.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from typer.models import OptionInfo

from headrace._loading.options import LoaderArguments
from headrace._options.groups import group_forms
from headrace.formats import table

_ARGUMENT = re.compile(r"(?:\w+\.|pack )?\w+(?=: )|\w+\[\d+\](?=[ :])")
_NEAR = 0.85  # Parameters of orders are less alike.
_OTHERS = {
    "batch_size": "batch",
    "Job.world_size": "ranks",
    "pack block_bytes": "block_size",
    "pack shard_bytes": "shard_size",
    "pack workers": "threads",
}
"""Options of commands that have other names than the arguments, as messages have these."""


class OptionNames:
    """The options of one command, as they are typed."""

    def __init__(self, command: Callable[..., Any]) -> None:
        self._options = dict(_options_of(command))
        packs = [f"pack {name}" for name in self._options]
        named = {name: _OTHERS.get(name, _own(name)) for name in {*_ARGUMENTS, *packs, *_OTHERS}}
        self._of_arguments = {
            argument: self._options[option]
            for argument, option in named.items()
            if option in self._options
        }

    def meant(self, name: str) -> str | None:
        """The option that gives the argument `name`, or one that is nearly called so; None: no
        option is."""
        import difflib  # It takes long to import.

        argument_of = {argument.split(".")[-1]: option for argument, option in _OTHERS.items()}
        near = difflib.get_close_matches(name, [*argument_of, *self._options], n=1, cutoff=_NEAR)
        return self._options.get(argument_of.get(near[0], near[0])) if near else None

    def said(self, message: str) -> str:
        """`message` of an error, with the options that give a loader's or a pack's argument, and a
        format of `hr.open`."""
        return renamed(table.for_commands(message), self._of_arguments)


def renamed(message: str, options: Mapping[str, str]) -> str:
    """`message`; if it begins with an argument, as "Job.world_size: got 0", "pack workers: got 0",
    "tiers[1] capacity: got 0", then with the option of this argument."""
    match = _ARGUMENT.match(message)
    option = None if match is None else options.get(match[0])
    return message if match is None or option is None else option + message[match.end() :]


def _own(argument: str) -> str:
    """Its name without the group or "pack"."""
    return re.split(r"[. ]", argument)[-1]


def _options_of(command: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(info, OptionInfo):
                # In an annotation the first name stands where the default would.
                names = (info.default, *(info.param_decls or ()))
                typed = [name for name in names if isinstance(name, str) and name.startswith("-")]
                plain = "--" + parameter.name.replace("_", "-")
                yield parameter.name, max(typed or [plain], key=len)


def _arguments() -> Iterator[str]:
    kinds: list[tuple[str, Any]] = [(f"{kind.__name__}.", kind) for _, kind in group_forms()]
    for prefix, kind in [("", LoaderArguments), *kinds]:
        for argument in dataclasses.fields(kind):
            yield prefix + argument.name


_ARGUMENTS = frozenset(_arguments())
"""As messages have them."""
