"""Finds the version of clang's tools that the project's rules are written for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

# Another version formats otherwise and has other checks: its findings say nothing about ours.
VERSION = 14
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def find(tool: str) -> str:
    """Returns the path of `tool`; ends the process as skipped if this version is not here."""
    for name in (f"{tool}-{VERSION}", tool):
        path = shutil.which(name)
        if path is None:
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        found = re.search(r"version (\d+)", version.stdout)
        if found is not None and int(found[1]) == VERSION:
            return path
    print(f"skipped: no {tool} of version {VERSION} on this machine")
    sys.exit(SKIPPED)
