"""Runs a command in a control group of its own, and tells the most memory that it had."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

_MOUNTS = (
    ("memory", Path("/sys/fs/cgroup/memory"), "memory.max_usage_in_bytes"),
    ("", Path("/sys/fs/cgroup"), "memory.peak"),
)
"""Controller as /proc/self/cgroup names it, where it is mounted, and the file of the peak."""


_LOOKS_MAX = 3_000  # of a hundredth of a second


def _make_group() -> tuple[Path, str]:
    """A new group below this process's own. Raises OSError if it cannot be made."""
    own = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    for controller, mount, peak in _MOUNTS:
        for line in own:
            _, controllers, path = line.split(":", 2)
            if controller not in controllers.split(","):
                continue
            group = mount / path.lstrip("/") / f"headrace-test-{uuid.uuid4().hex}"
            if not group.parent.is_dir() or (controller == "" and controllers):
                continue
            group.mkdir()
            if (group / peak).exists():
                return group, peak
            group.rmdir()
    raise OSError("no memory controller of control groups that tells the peak")


def refusal() -> str | None:
    """Why commands cannot be measured here; None if they can."""
    try:
        measure([os.fspath("/bin/true")])
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def measure(command: Sequence[str]) -> tuple[str, int]:
    """What the command printed, and the peak of all its processes' memory in bytes."""
    group, peak = _make_group()
    try:
        procs = os.fspath(group / "cgroup.procs")
        inside = ["/bin/sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh", *command]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout, int((group / peak).read_text(encoding="ascii"))
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Once what the command left running has ended: Python's resource tracker, shortly after it."""
    for _ in range(_LOOKS_MAX):
        try:
            return group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        select.select((), (), (), 0.01)  # What is waited for needs the processor.
    raise AssertionError(f"processes still run in {group}: {(group / 'cgroup.procs').read_text()}")
