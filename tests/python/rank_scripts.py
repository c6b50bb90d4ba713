"""Scripts that run as the ranks of a job, for tests: gloo over loopback, one process a rank."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

TIMEOUT_S = 300  # Some import for a minute where the machine is busy.
TESTS = Path(__file__).parent
_RANK_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Ended(NamedTuple):
    """What a process left."""

    code: int
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(packages: Path | None = None, **variables: object) -> dict[str, str]:
    """For a script: the tests' modules can be imported, then those of `packages`; no network."""
    made = {name: value for name, value in os.environ.items() if name not in _RANK_NAMES}
    folders = [TESTS, TESTS / "trainers", *([packages] if packages else [])]
    made["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    made |= {"HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    made |= {"PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
    return made | {name: str(value) for name, value in variables.items()}


def run_script(
    script: Path | str, *arguments: object, env: dict[str, str], folder: Path | None = None
) -> Ended:
    """Runs a script alone, to its end; in `folder`, or the current one."""
    return _end(_begin(script, arguments, env, folder))


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


def _end(process: subprocess.Popen[str]) -> Ended:
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"\n(killed after {TIMEOUT_S} s)"
    return Ended(process.returncode, out, err)
