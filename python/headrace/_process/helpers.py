"""The command that starts helpers of stores: of those of this process and of its node."""

from __future__ import annotations

import os
import sys

from headrace import _core

_PROGRAMS = {
    "group-reader": "headrace.formats._row_group_reader",
    "fetcher": "headrace._objects.fetcher",
}
"""The module of each, which has `main`, by the names in src/store/helper_command.h."""

_RUN = (
    "import importlib, sys; sys.path[:] = {path!r}; "
    "importlib.import_module({programs!r}[sys.argv.pop(1)]).main()"
)


def helper_command() -> list[str]:
    """This interpreter, with this process's path for modules; empty if it is not known."""
    if not sys.executable:
        return []
    path = [os.path.abspath(folder) for folder in sys.path]
    return [sys.executable, "-c", _RUN.format(path=path, programs=_PROGRAMS)]


def node_arguments() -> list[str]:
    """The same, as arguments of the node process."""
    return [part for word in helper_command() for part in ("--helper", word)]


def set_helper_command() -> None:
    """Tells the core."""
    _core.set_helper_command(helper_command())
