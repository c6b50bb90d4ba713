"""Scripts that run as the ranks of a job, for tests: gloo over loopback, one process a rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
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
    process = subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err += f"\n(killed after {timeout_s} s)"
    return Ended(process.returncode, out, err)


class ProgramServer:
    """Runs scripts one after the other in processes that are forked from one that has imported
    `modules`: importing torch or transformers takes seconds. Use it in a `with`. Threads may share
    it: they wait for each other."""

    def __init__(self, env: dict[str, str], *modules: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, TESTS / "guides" / "program_server.py", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        ranks: Sequence[Mapping[str, str]] = ({},),
        *,
        joined: bool = False,
    ) -> list[Ended]:
        """The command `words` in a process a rank, each with more variables; `joined`: what it
        prints on stderr is in `out`, too, in its place."""
        task = {"ranks": ranks, "words": words, "folder": str(folder), "joined": joined}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            print(json.dumps(task), file=self._process.stdin, flush=True)
            answers = json.loads(self._process.stdout.readline())
        return [Ended(**answer) for answer in answers]

    def __enter__(self) -> ProgramServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def rank_variables(ranks: int = 2) -> list[dict[str, str]]:
    """What torchrun sets for each process of a job on this machine."""
    port = free_port()
    places = [
        {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks}
        | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for rank in range(ranks)
    ]
    return [{name: str(value) for name, value in place.items()} for place in places]
