"""Makes a folder of Python packages that only some tests need, once, and prints its path.

Usage: python tools/package_env.py NAME
       python tools/package_env.py --all       those of all tests, one after the other
       PYTHONPATH=$(python tools/package_env.py NAME) python SCRIPT

tools/envs/NAME.txt pins everything that goes into the folder: no dependency is followed, and what
the file leaves out (torch, NumPy, headrace itself) comes from the Python that runs this. So the
folder is small, and .venv stays as `make setup` leaves it. It lies in the cache folder of the user
($XDG_CACHE_HOME/headrace/envs, else ~/.cache/headrace/envs), named by a hash of the file, the
version of Python and the platform: a change of any makes another folder. Packages come from the
indexes that pip is configured for. Delete the folders whenever you like.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ENVS = Path(__file__).parent / "envs"
_TIMEOUT_S = 600


class PackageEnvError(Exception):
    """The folder cannot be made."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "envs"


def package_env(name: str, cache: Path | None = None) -> Path:
    """The folder of tools/envs/NAME.txt, made if it is not there; in `cache`, or the user's.

    Processes that want it at the same time wait for the one that makes it.

    Raises:
        PackageEnvError: there is no such file, or pip failed; with what pip said last.
    """
    requirements = ENVS / f"{name}.txt"
    if not requirements.is_file():
        known = ", ".join(sorted(each.stem for each in ENVS.glob("*.txt")))
        raise PackageEnvError(f"package environment {name!r}: no {requirements}; there are {known}")
    tag = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    key = hashlib.sha256(requirements.read_bytes() + tag.encode()).hexdigest()[:16]
    folder = (cache or cache_folder()) / f"{name}-{key}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _install(name, requirements, folder)
    return folder


def _install(name: str, requirements: Path, folder: Path) -> None:
    part = folder.with_name(f"{folder.name}.part")  # Whoever has the lock has it alone.
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--no-deps", "--only-binary=:all:"),
        *("--target", str(part), "--requirement", str(requirements)),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        said, failed = done.stderr.strip().splitlines(), done.returncode != 0
    except subprocess.TimeoutExpired:
        said, failed = [f"pip did not end within {_TIMEOUT_S} s"], True
    if failed:
        shutil.rmtree(part, ignore_errors=True)
        last = "\n".join(said[-3:])
        raise PackageEnvError(f"package environment {name!r}: installing {requirements}: {last}")
    part.rename(folder)


def names_for_tests() -> list[str]:
    """The folders that tests need: not those of `make wheel` and `make bench`."""
    names = {file.stem for file in ENVS.glob("*.txt")}
    return sorted(names - {"wheel", "torchvision-cuda", "objects"})


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    failed = False
    for name in names_for_tests() if arguments == ["--all"] else arguments:
        try:
            print(package_env(name), flush=True)
        except PackageEnvError as error:
            print(error, file=sys.stderr)
            failed = True
    # Without a network the tests that need them are skipped.
    return int(failed and (arguments != ["--all"] or "CI" in os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
