"""The commands that start Headrace's own processes: helpers of stores, of this process and of its
node; the lister and the writer of objects."""

from __future__ import annotations

import os
import sys

from headrace import _core

_PROGRAMS = {
    "group-reader": "headrace.formats._row_group_reader",
    "fetcher": "headrace._objects.fetching.fetcher",
    "lister": "headrace._objects.lister",
    "writer": "headrace._objects.uploading.writer",
}
"""The module of each, which has `main`. src/store/helper_command.h has the first two."""

_RUN = """\
import importlib, sys, types
sys.path[:] = {path!r}
program = sys.argv.pop(1)
if program != "group-reader":  # without the core, which takes longer to load than all else
    headrace = sys.modules["headrace"] = types.ModuleType("headrace")
    headrace.__path__ = [{package!r}]
importlib.import_module({programs!r}[program]).main()"""


def helper_command() -> list[str]:
    """This interpreter, with this process's path for modules; empty if it is not known."""
    if not sys.executable:
        return []
    path = [os.path.abspath(folder) for folder in sys.path]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-c", _RUN.format(path=path, package=package, programs=_PROGRAMS)]


def command_of(program: str) -> list[str]:
    """What starts this one; empty if this interpreter is not known."""
    command = helper_command()
    return [*command, program] if command else []


def node_arguments() -> list[str]:
    """The same, as arguments of the node process."""
    return [part for word in helper_command() for part in ("--helper", word)]


def set_helper_command() -> None:
    """Tells the core."""
    _core.set_helper_command(helper_command())
