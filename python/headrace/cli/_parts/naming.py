"""What the options of a command are called, where a message has the argument of a loader."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from typer.models import OptionInfo

from headrace._loading.options import LoaderArguments
from headrace._options.groups import group_forms

_ARGUMENT = re.compile(r"(?:\w+\.|pack )?(\w+)(?=: )")
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

    def meant(self, name: str) -> str | None:
        """The option that gives the argument `name`, or one that is nearly called so; None: no
        option is."""
        import difflib  # It takes long to import.

        argument_of = {argument.split(".")[-1]: option for argument, option in _OTHERS.items()}
        near = difflib.get_close_matches(name, [*argument_of, *self._options], n=1, cutoff=_NEAR)
        return self._options.get(argument_of.get(near[0], near[0])) if near else None

    def in_place_of_arguments(self, message: str) -> str:
        """`message`; if it begins with an argument of a loader or of a pack, as "Job.world_size:
        got 0", "pack workers: got 0", then with the option that gives this argument."""
        match = _ARGUMENT.match(message)
        if match is None or not (match[0] in _ARGUMENTS or match[0].startswith("pack ")):
            return message
        option = self._options.get(_OTHERS.get(match[0], match[1]))
        return message if option is None else option + message[match.end() :]


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
