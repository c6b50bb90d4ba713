"""The command that starts a process of this folder. Imported in the user's process, too."""

from __future__ import annotations

import os
import sys

_PROGRAM = """\
import sys, types
sys.path[:] = {path!r}
headrace = types.ModuleType("headrace")
headrace.__path__ = [{package!r}]
sys.modules["headrace"] = headrace
from headrace._objects.{module} import main
main()"""


def command_of(module: str) -> list[str]:
    """This interpreter, with this process's path for modules; empty if it is not known.

    The package itself is not imported: it would load the core, which takes longer than all else.
    """
    if not sys.executable:
        return []
    path = [os.path.abspath(folder) for folder in sys.path]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-c", _PROGRAM.format(path=path, package=package, module=module)]
