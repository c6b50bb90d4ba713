"""Starts ray_program.py, which is a Ray cluster on this machine, and tells it what to do."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 150.0  # Only against a hang.
PROGRAM = Path(__file__).with_name("ray_program.py")
TESTS = PROGRAM.parents[1]


class OnRay:
    """The cluster. Its `with` block ends all of its processes."""

    def __init__(self, packages: list[str], log: Path) -> None:
        # Names of its sockets are short.
        self.folder = tempfile.mkdtemp(prefix="hr-ray-", dir="/tmp")
        paths = [str(TESTS), str(TESTS / "formats"), *sys.path, *packages]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "RAY_TMPDIR": self.folder,
            "XDG_CACHE_HOME": f"{self.folder}/cache",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Otherwise Ray replaces 127.0.0.1 by an address that others reach.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            # A killed raylet is known to be dead after 2 s, in place of 15.
            "RAY_health_check_period_ms": "400",
            # One that is slow, as the machine is busy, is not dead: it has this long to answer.
            "RAY_health_check_timeout_ms": "60000",
            "RAY_worker_niceness": "0",  # 15 by default.
            "OMP_NUM_THREADS": "1",
        }
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=file, env=self.environment, text=True, start_new_session=True,
            )  # fmt: skip
        try:
            self.environment["RAY_ADDRESS"] = self.ask("start")
        except BaseException:
            self.close()
            raise

    def ask(self, name: str, /, *arguments: Any, **named: Any) -> Any:
        """What a function of the program returned."""
        pipes = self._process
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        pipes.stdin.write(json.dumps([name, arguments, named]) + "\n")
        pipes.stdin.flush()
        ready, _, _ = select.select([pipes.stdout], [], [], PATIENCE_S)
        line = pipes.stdout.readline() if ready else ""
        assert line, f"{name}: no answer; {self._log.read_text()[-4000:]}"
        answer, error = json.loads(line)
        assert error is None, f"{name}: {error}; {self._log.read_text()[-4000:]}"
        return answer

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A headrace command that connects to the cluster."""
        return subprocess.run(
            [sys.executable, "-m", "headrace", *map(str, arguments)],
            env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            self._process.stdin.close()
            self._process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._kill_workers()
        self._process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # A program that is killed leaves it.

    def _kill_workers(self) -> None:
        """Workers of Ray have sessions of their own, and some end late: Ray Train's controller."""
        mark = f"RAY_TMPDIR={self.folder}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # It is no process, or ended.
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
