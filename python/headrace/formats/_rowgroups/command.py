"""The command that starts a reader of row groups, for stores of this process and its node."""

from __future__ import annotations

import os
import sys

from headrace import _core

_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from headrace.formats._row_group_reader import main; main()"
)


def reader_command() -> list[str]:
    """This interpreter, with this process's path for modules; empty if it is not known."""
    if not sys.executable:
        return []
    path = [os.path.abspath(folder) for folder in sys.path]
    return [sys.executable, "-c", _PROGRAM.format(path=path)]


def node_arguments() -> list[str]:
    """The same, as arguments of the node process."""
    return [part for word in reader_command() for part in ("--group-reader", word)]


def set_reader_command() -> None:
    """Tells the core."""
    _core.set_group_reader(reader_command())
