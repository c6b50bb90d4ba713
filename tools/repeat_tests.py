"""Runs what starts processes or threads again and again: a test that fails by chance shows itself.

Usage: tools/repeat_tests.py [ROUNDS]     50 if not given; `make soak STAGES=again` calls it

In every second round two processes keep the cores busy, and, where root may say so (cgroup 1's
blkio), the disk takes 100 writes and 300 reads a second. A test that takes 30 s prints the stacks
of all its threads. Ends with a line for each test that failed, and its rounds; not 0 if one did.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "tests/python/ends",
    "tests/python/nodes",
    "tests/python/torch_loader/test_map_processes.py",
    "tests/python/torch_loader/test_map_left.py",
    "tests/python/torch_loader/test_map_streams.py",
    *(f"tests/python/test_{name}.py" for name in ("workers", "workers_end", "workers_sent")),
    *(f"tests/python/test_{name}.py" for name in ("worker_failures", "loader_lifetime", "monitor")),
    *(f"tests/python/test_{name}.py" for name in ("node", "node_start", "node_stopped")),
)
# Long, and many alike: soak's `nodes` and `kills` repeat these by seeds.
LEFT_OUT = ("tests/python/nodes/test_nodes_torchrun.py", "tests/python/nodes/test_restore.py")
PRESETS = ("release", "tsan")  # whose ctest programs with the label `threads` run, if built
SLOW_DISK = Path("/sys/fs/cgroup/blkio/headrace_slow")
LIMITS = {"read_iops_device": 300, "write_iops_device": 100}  # a second
STACKS_S = 30

_PYTEST = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", re.MULTILINE)
_CTEST = re.compile(r"^\s*\d+ - (\w+) \((?:Failed|Timeout|.*Exception.*|SEGFAULT)", re.MULTILINE)


def main(arguments: list[str]) -> int:
    rounds = int(arguments[0]) if arguments else 50
    failed: dict[str, list[int]] = defaultdict(list)
    log = ROOT / "build" / "repeat_tests.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as output:
        for number in range(1, rounds + 1):
            begin = time.monotonic()
            with beside(busy=number % 2 == 0):
                names = sorted(one_round(output))
            for name in names:
                failed[name].append(number)
            seconds = round(time.monotonic() - begin)
            print(f"round {number:3}  {seconds:4} s  {', '.join(names) or 'passed'}", flush=True)
    for name, of_rounds in sorted(failed.items()):
        print(f"FAILED {name} in rounds {', '.join(map(str, of_rounds))}; see {log}")
    return 1 if failed else 0


def one_round(output: object) -> Iterator[str]:
    """Names of the tests that failed."""
    left_out = [f"--ignore={file}" for file in LEFT_OUT]
    how = ["-W", "error", "-n", "2", "--dist", "loadfile"]
    how += ["-o", f"faulthandler_timeout={STACKS_S}"]
    yield from _run(["pytest", *how, *left_out, *TESTS], _PYTEST, output)
    for preset in PRESETS:
        if (ROOT / "build" / preset / "CTestTestfile.cmake").is_file():
            yield from _run(["ctest", "--preset", preset, "-L", "threads"], _CTEST, output)


def _run(command: list[str], names: re.Pattern[str], output: object) -> Iterator[str]:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(ended.stdout, ended.stderr, file=output, flush=True)  # type: ignore[call-overload]
    if ended.returncode != 0:
        found = names.findall(ended.stdout)
        yield from found or [f"{command[0]} ended with {ended.returncode}"]
    if f"Timeout (0:00:{STACKS_S})" in ended.stdout + ended.stderr:
        yield f"{command[0]}: a test took more than {STACKS_S} s"


@contextmanager
def beside(*, busy: bool) -> Iterator[None]:
    """Two busy processes and a slow disk, if `busy`."""
    processes = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * busy)
    ]
    slow = _slow_disk() if busy else None
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
        if slow is not None:
            (slow / "cgroup.procs").write_text(str(os.getpid()))


def group_of(cgroups: str) -> str:
    """The group of blkio, without the first slash; of the text of /proc/self/cgroup."""
    for line in cgroups.splitlines():
        _, controllers, group = line.split(":", 2)
        if "blkio" in controllers.split(","):
            return group.lstrip("/")
    raise ProcessLookupError("no group of blkio in /proc/self/cgroup: cgroup 1 is not mounted")


def _slow_disk() -> Path | None:
    """Moves this process, whose children are the tests, into a group of slow reads and writes.
    Returns the group that it was in; None if it may not be moved."""
    device = os.stat(ROOT).st_dev
    try:
        own = SLOW_DISK.parent / group_of(Path("/proc/self/cgroup").read_text())
        SLOW_DISK.mkdir(exist_ok=True)
        for name, limit in LIMITS.items():
            limits = SLOW_DISK / f"blkio.throttle.{name}"
            limits.write_text(f"{os.major(device)}:{os.minor(device)} {limit}")
        (SLOW_DISK / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return None
    return own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
