"""Scripts that run as the ranks of a job, for tests: gloo over loopback, one process a rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cluster.network import free_ports
from package_env import PackageEnvError, cache_folder, package_env

TIMEOUT_S = 300  # Some import for a minute where the machine is busy.
TESTS = Path(__file__).parent
_CACHE = cache_folder()  # the user's folder: later each test sets a cache of its own
_RANK_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Ended(NamedTuple):
    """What a process left."""

    code: int
    out: str
    err: str


def free_port() -> int:
    return free_ports(["127.0.0.1"])[0]


def real_packages(name: str) -> Path:
    """Where the packages of tools/envs/NAME.txt are. Skips the test if they cannot be installed;
    not in CI. Call it in a test or a fixture of it: `make check` alone runs these
    (tests/conftest.py)."""
    if os.environ.get("HEADRACE_FOREIGN") == "no":
        raise RuntimeError(f"the packages of {name}: mark the test with pytest.mark.foreign")
    try:
        return package_env(name, _CACHE)
    except PackageEnvError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"without the packages of {name}: {error}")


def environment(packages: Path | None = None, **variables: object) -> dict[str, str]:
    """For a script: the tests' modules can be imported, then those of `packages`; no network."""
    made = {name: value for name, value in os.environ.items() if name not in _RANK_NAMES}
    folders = [TESTS, TESTS / "trainers", *([packages] if packages else [])]
    own = os.environ.get("PYTHONPATH")  # as where a headrace is tested that is not installed
    made["PYTHONPATH"] = os.pathsep.join([*map(str, folders), *([own] if own else [])])
    made |= {"HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    made |= {"PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
    made |= {"ACCELERATE_USE_CPU": "true"}  # as `accelerate launch --cpu` says
    return made | {name: str(value) for name, value in variables.items()}


def run_script(
    script: Path | str,
    *arguments: object,
    env: dict[str, str],
    folder: Path | None = None,
    timeout_s: int = TIMEOUT_S,
) -> Ended:
    """Runs a script alone, to its end; in `folder`, or the current one."""
    return _end(_begin(script, arguments, env, folder), timeout_s)


def run_ranks(
    script: Path | str,
    *arguments: object,
    packages: Path | None = None,
    ranks: int = 2,
    folder: Path | None = None,
) -> list[Ended]:
    """Runs a script as torchrun does, in `ranks` processes, to the end of all."""
    port = free_port()
    started = []
    for rank in range(ranks):
        place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
        env = environment(packages, **place, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        started.append(_begin(script, arguments, env, folder))
    return [_end(process) for process in started]


def _begin(
    script: Path | str, arguments: tuple[object, ...], env: dict[str, str], folder: Path | None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str], timeout_s: int = TIMEOUT_S) -> Ended:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"\n(killed after {timeout_s} s)"
    return Ended(process.returncode, out, err)
