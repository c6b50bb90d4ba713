"""Asks other machines for their loaders: runs `headrace top --json` there, by ssh or the like."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from headrace._observe.monitor import Address
from headrace.cli._parts.top import Snapshots
from headrace.errors import InvalidArgumentError

VIA = "ssh -o BatchMode=yes -o ConnectTimeout=5 {node}"
_ASK = ("headrace", "top", "--json")
_SECONDS_MAX = 20.0  # that a node may take to answer
_ANSWER_BYTES_MAX = 64 * 2**20
_REASON_CHARACTERS = 200
_BY_HAND = "run it by hand to see why, or change --via"
_ASKED_MAX = 64  # at a time


class OtherNodes:
    """Machines that are asked by a command.

    Thread safety: one thread.
    """

    def __init__(self, names: Iterable[str], via: str) -> None:
        """`via`: what comes before a command, to run it on the machine {node}."""
        self._names = tuple(dict.fromkeys(names))
        self._via = _split(via)

    def __bool__(self) -> bool:
        return bool(self._names)

    def ask(self) -> tuple[Snapshots, dict[str, str]]:
        """The loaders of all machines; and by machine why it gave no answer."""
        with ThreadPoolExecutor(_ASKED_MAX) as threads:
            answers = list(threads.map(self._ask, self._names))
        snapshots: Snapshots = {}
        silent: dict[str, str] = {}
        for name, answer in zip(self._names, answers, strict=True):
            if isinstance(answer, str):
                silent[name] = answer
            else:
                snapshots |= answer
        return snapshots, silent

    def _ask(self, name: str) -> Snapshots | str:
        if name.startswith("-"):
            return "its name begins with '-', which a command would take for an option"
        command = [word.replace("{node}", name) for word in self._via] + list(_ASK)
        try:
            return _loaders(name, _output(command))
        except (OSError, ValueError, KeyError, TypeError) as error:
            return str(error)[:_REASON_CHARACTERS]


def _split(via: str) -> Sequence[str]:
    try:
        words = shlex.split(via)
    except ValueError as error:
        raise InvalidArgumentError(
            f"--via: got {via!r}: {error}; write it as for a shell"
        ) from error
    if not any("{node}" in word for word in words):
        raise InvalidArgumentError(
            f"--via: got {via!r}, must contain {{node}}, the name of the machine, as {VIA!r} does"
        )
    return words


def _output(command: Sequence[str]) -> bytes:
    """What the command prints.

    Raises:
        OSError: it cannot be run, fails, takes too long or prints too much.
    """
    late = threading.Event()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None

        def end() -> None:
            late.set()
            _kill(process.pid)

        limit = threading.Timer(_SECONDS_MAX, end)
        limit.start()
        try:
            data = process.stdout.read(_ANSWER_BYTES_MAX + 1)
            if len(data) > _ANSWER_BYTES_MAX:
                _kill(process.pid)
            code = process.wait()
        finally:
            limit.cancel()
    if len(data) > _ANSWER_BYTES_MAX:
        raise OSError(
            f"{shlex.join(command)}: prints more than {_ANSWER_BYTES_MAX:,} bytes; {_BY_HAND}"
        )
    if late.is_set():
        raise OSError(f"{shlex.join(command)}: no answer within {_SECONDS_MAX:.0f} s; {_BY_HAND}")
    if code != 0:
        last = data.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"{shlex.join(command)}: ended with {code}: {last}")
    return data


def _kill(pid: int) -> None:
    """With all that it started: they may hold its output."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _loaders(name: str, output: bytes) -> Snapshots:
    """By address. What a shell prints in front is passed over."""
    text = output.decode(errors="replace").rstrip().rpartition("\n")[2]
    try:
        answer = json.loads(text)["loaders"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"its answer is no JSON of 'headrace top': {text!r}") from None
    snapshots: Snapshots = {}
    for snapshot in answer:
        address = replace(Address(int(snapshot["pid"]), int(snapshot["ordinal"])), node=name)
        snapshots[address] = snapshot
    return snapshots


def nodes_of_job(snapshots: Iterable[dict[str, Any]]) -> list[str]:
    """The other machines of these loaders' jobs, as they reach each other."""
    machines: dict[str, None] = {}
    for snapshot in snapshots:
        job = snapshot.get("job")
        if job is None:
            continue
        for number, address in enumerate(job["addresses"]):
            if number != job["node"]:
                machines[address.rpartition(":")[0].strip("[]")] = None
    return list(machines)
