"""A virtual environment for each peer, made when it is asked for, in the cache folder of the user.

envs/NAME.txt pins everything that goes into it: no dependency is followed. It lies in
$XDG_CACHE_HOME/headrace/peers, else ~/.cache/headrace/peers, named by a hash of the file and the
version of Python. Packages come from the indexes that pip is configured for. Delete the folders
whenever you like.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ENVS = Path(__file__).parent / "envs"
_TIMEOUT_S = 1800


class NotInstalledError(Exception):
    """The environment cannot be made; the text is what pip printed last."""


def folder() -> Path:
    """Of all environments."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "peers"


def python_of(name: str) -> Path:
    """The interpreter of an environment. Whoever wants it at the same time waits."""
    requirements = ENVS / f"{name}.txt"
    tag = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    key = hashlib.sha256(requirements.read_bytes() + tag.encode()).hexdigest()[:12]
    root = folder() / f"{name}-{key}"
    root.parent.mkdir(parents=True, exist_ok=True)
    with open(root.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed = root.with_suffix(".failed")
        if failed.exists():
            raise NotInstalledError(failed.read_text().strip())
        if not (root / "complete").exists():
            print(f"installing {requirements.name}", flush=True)
            try:
                _install(requirements, root)
            except NotInstalledError as error:
                shutil.rmtree(root, ignore_errors=True)
                failed.write_text(f"{error}\n")
                raise
            (root / "complete").touch()
    return root / "bin" / "python"


def _install(requirements: Path, root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", root], check=True)
    command = [
        *(root / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--no-deps", "--requirement", requirements),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"pip did not end within {_TIMEOUT_S} s") from None
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        causes = [line for line in lines if re.match(r"(ERROR|\w*Error): ", line)]
        raise NotInstalledError((causes or lines or ["pip failed"])[-1])
