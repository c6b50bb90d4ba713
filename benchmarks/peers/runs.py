"""Runs of loaders in processes of their own: formats, caches, clocks, memory."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _harness
from cells import PEERS, Cell, Peer
from loaders.common import Source
from monitor import Monitor

_RUN_ONE = Path(__file__).parent / "run_one.py"
_WRITE_TIMEOUT_S = 1800
_RUN_TIMEOUT_S = 240


class RunError(Exception):
    """A loader cannot do a cell; the text is what it printed last."""


@dataclass
class Contestant:
    """A loader that is ready to run."""

    peer: Peer
    version: str
    shuffle: str
    format: str
    stored: Path
    files: list[Path]
    choices: list[dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)


class Runs:
    """The data of one cell, and runs on them."""

    def __init__(self, cell: Cell, root: Path, quick: bool) -> None:
        self._cell = cell
        self._stored = cell.stored(root, quick)
        self._formats = root / "peers" / self._stored.name
        self._formats.mkdir(parents=True, exist_ok=True)
        self._source = Source(self._stored.source, cell.record_bytes)
        self._expected = self._kept("sums.json", self._sums)

    @property
    def formats(self) -> Path:
        """The folder of what peers' writers wrote."""
        return self._formats

    def facts(self) -> dict[str, int]:
        """Of the samples."""
        return {key: self._expected[key] for key in ("samples", "payload_bytes")}

    def _sums(self) -> dict[str, Any]:
        found = {"samples": 0, "payload_bytes": 0, "crc_sum": 0}
        for _, data, _ in self._source.shuffled():
            found["samples"] += 1
            found["payload_bytes"] += len(data)
            found["crc_sum"] += zlib.crc32(data)
        return found

    def _kept(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        path = self._formats / name
        if not path.exists():
            path.write_text(json.dumps(make()))
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept

    def contestant(self, peer: Peer, settings: dict[str, Any]) -> Contestant:
        """Installs the package and writes the format, if that was not done before."""
        facts = self._ask(peer, "describe", self._formats, settings)
        stored = self._format(peer, facts["format"])
        files = [stored] if stored.is_file() else sorted(stored.rglob("*"))
        files = [path for path in files if path.is_file()]
        return Contestant(
            peer, facts["version"], facts["shuffle"], facts["format"], stored, files,
            facts["choices"], settings,
        )  # fmt: skip

    def _format(self, peer: Peer, name: str) -> Path:
        if name in ("source", "pack"):
            return self._stored.source if name == "source" else self._stored.pack
        target = self._formats / name
        if not target.exists():
            writer = PEERS[peer.writer] if peer.writer else peer
            part = self._formats / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            took = self._ask(writer, "prepare", part, {})["seconds"]
            part.rename(target)
            subprocess.run(["sync", "--file-system", target], check=True)
            print(f"  wrote {target.name} in {took:.0f} s", flush=True)
        return target

    def check(self, contestant: Contestant) -> None:
        """Whether an epoch delivers every sample once, or decodes so many images.

        Raises:
            RunError: it does not.
        """
        found = self._ask(contestant.peer, "check", contestant.stored, contestant.settings)
        if self._cell.images:
            right = found["samples"] == self._expected["samples"] and 64 < found["pixels"] < 192
        else:
            right = all(found[key] == value for key, value in self._expected.items())
        if not right:
            raise RunError(f"an epoch delivered {found}, the samples are {self._expected}")

    def read(
        self, contestant: Contestant, settings: dict[str, Any] | None = None, part: float = 1
    ) -> dict[str, Any]:
        """A timed run, of `part` of the cell's time."""
        settings = contestant.settings | (settings or {})
        if self._cell.cold:
            _harness.make_cold(contestant.files)
        with contextlib.ExitStack() as stack:
            if not self._cell.cold:
                stack.enter_context(_harness.resident(contestant.files))
            steal = _harness.steal_share()
            run = self._ask(contestant.peer, "read", contestant.stored, settings, part)
            run["steal"] = round(steal(), 4)
        run["settings"] = settings
        begin = run["begin"]
        if self._cell.cold and run["reading_from"] is not None:
            begin = run["reading_from"]
        run["seconds"] = run["end"] - begin
        run["rate"] = run["samples"] / run["seconds"]
        of_one = self._expected["payload_bytes"] / self._expected["samples"]
        run["stored_bytes"] = round(run["samples"] * of_one)
        for absolute in ("starting", "begin", "end", "reading_from"):
            del run[absolute]
        return {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in run.items()
        }

    def _ask(
        self, peer: Peer, action: str, stored: Path, settings: dict[str, Any], part: float = 1
    ) -> dict[str, Any]:
        cell = self._cell
        spec = {
            "module": peer.module,
            "package": peer.package,
            "source": str(self._stored.source),
            "record_bytes": cell.record_bytes,
            "stored": str(stored),
            "images": cell.images,
            "cold": cell.cold,
            "batch": cell.batch,
            "window": cell.window,
            "seconds": part * cell.seconds,
            "seconds_max": part * cell.seconds_max,
            "settings": settings,
        }
        command = [str(peer.python), str(_RUN_ONE), action, json.dumps(spec)]
        timeout = _WRITE_TIMEOUT_S if action == "prepare" else _RUN_TIMEOUT_S
        return _run(command, timeout, watched=action == "read")


def _run(command: list[str], timeout: float, watched: bool) -> dict[str, Any]:
    """The line of JSON that a command prints; with what the monitor saw, if it is watched."""
    quiet = {
        "PYTHONWARNINGS": "ignore",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with contextlib.ExitStack() as stack:
        out, errors = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
        group = None
        if watched and _harness.can_limit_memory():
            group = stack.enter_context(_harness.MemoryGroup())
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True,
            env={**os.environ, **quiet}, preexec_fn=group.join if group else None,
        )  # fmt: skip
        monitor = Monitor(process.pid, group) if watched else None
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise RunError(f"did not end within {timeout:.0f} s") from None
        finally:
            if monitor is not None:
                monitor.stop()
            with contextlib.suppress(ProcessLookupError):  # its workers, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        errors.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith("{")]
        if process.returncode != 0 or not lines:
            said = errors.read().strip().splitlines() or [f"exit status {process.returncode}"]
            raise RunError(said[-1][:300])
        result: dict[str, Any] = json.loads(lines[-1])
        if monitor is not None:
            result |= monitor.result(result["starting"], result["begin"], result["end"])
        return result
