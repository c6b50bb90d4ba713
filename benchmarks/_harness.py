"""What benchmarks share: cold caches, phases in processes of their own, statistics, results.

Figures of a shared virtual machine mean nothing by themselves: every one here is a ratio to
something measured seconds before and after, in the same place.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import mmap
import multiprocessing
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"

_CACHESTAT = 451  # The same number on every architecture; Linux 6.5.
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVICTIONS_MAX = 10
_RESAMPLES = 10_000


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _CacheStat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recent")
    )


_libc = ctypes.CDLL(None, use_errno=True)


def resident_bytes(files: Iterable[Path]) -> int:
    """Bytes of the files that the page cache holds. Looking does not change it."""
    pages = 0
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            found = _CacheStat()
            whole = _Range(0, 0)
            if _libc.syscall(_CACHESTAT, fd, ctypes.byref(whole), ctypes.byref(found), 0) != 0:
                raise OSError(ctypes.get_errno(), "cachestat: needs Linux 6.5")
            pages += found.cache
        finally:
            os.close(fd)
    return pages * _PAGE


def make_cold(files: Sequence[Path]) -> None:
    """Evicts the files from the page cache, and fails if any page stays.

    The files alone, unlike /proc/sys/vm/drop_caches: other work on the machine keeps its cache, and
    directories stay known, to whoever reads.
    """
    for _ in range(_EVICTIONS_MAX):  # A page that is in use at the moment stays at first.
        for path in files:
            fd = os.open(path, os.O_RDONLY)
            try:
                with contextlib.suppress(OSError):
                    os.fsync(fd)  # Pages that are not written yet stay.
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
        if not resident_bytes(files):
            return
        time.sleep(0.05)
    check_cold(files)


def check_cold(files: Sequence[Path]) -> None:
    """Fails if the page cache holds any page of the files."""
    left = resident_bytes(files)
    if left:
        raise RuntimeError(f"{left} bytes of {files[0].parent} stay in the page cache")


def make_warm(files: Sequence[Path]) -> None:
    """Reads the files once, all of them."""
    buffer = bytearray(2**20)
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


class NotResidentError(Exception):
    """Pages of files are not in the page cache."""


@contextlib.contextmanager
def resident(files: Sequence[Path]) -> Iterator[None]:
    """All pages of the files are in the page cache, and locked there if the limit permits.

    A file whose pages nobody maps can lose them at any time: some virtual machines return memory
    to their host steadily. Raises NotResidentError if pages are missing right after they were read.
    """
    with contextlib.ExitStack() as stack:
        for path in files:
            if path.stat().st_size:
                stack.enter_context(_locked(path))
        wanted = sum(-(-path.stat().st_size // _PAGE) * _PAGE for path in files)
        if (missing := wanted - resident_bytes(files)) > 0:
            raise NotResidentError(f"{missing} bytes of {files[0].parent.name} left the page cache")
        yield


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        pages = np.frombuffer(mapped, np.uint8)
        if _libc.mlock(ctypes.c_void_p(pages.ctypes.data), ctypes.c_size_t(len(pages))) != 0:
            make_warm([path])
        del pages
        yield


def in_child(phase: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Runs a phase in a forked process: what it imports is shared, what it starts is not.

    Adds what the process and its own children took: `cpu_s`, `device_bytes`.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            sender.send(phase(*arguments))
            status = 0
        except BaseException as error:
            print(f"{phase.__name__}: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    sender.close()
    try:
        result: dict[str, Any] | None = receiver.recv()
    except EOFError:
        result = None
    _, status, usage = os.wait4(pid, 0)
    if result is None or status != 0:
        raise RuntimeError(f"{phase.__name__} failed")
    result["cpu_s"] = usage.ru_utime + usage.ru_stime
    result["device_bytes"] = usage.ru_inblock * 512
    return result


_BLKIO = Path("/sys/fs/cgroup/blkio")
_MEMORY = Path("/sys/fs/cgroup/memory")
_LEAVING_S = 15.0  # what processes of a group that ended may take to be gone


@dataclass(frozen=True)
class Throttle:
    """Limits of a device, for the processes that join: cgroup v1, as root. None: no limit."""

    bytes_per_s: int | None = None
    reads_per_s: int | None = None

    def join(self, path: Path) -> None:
        """Puts this process, and what it starts, under the limits for the device of `path`."""
        if self.bytes_per_s is None and self.reads_per_s is None:
            return
        group = _BLKIO / "headrace-bench"
        group.mkdir(exist_ok=True)
        self.limit(group, _device_number(path))
        (group / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, group: Path, device: str) -> None:
        """Writes the limits of a device into a control group."""
        for name, limit in (("bps", self.bytes_per_s), ("iops", self.reads_per_s)):
            (group / f"blkio.throttle.read_{name}_device").write_text(f"{device} {limit or 0}")


def _device_number(path: Path) -> str:
    device = os.stat(path).st_dev
    return f"{os.major(device)}:{os.minor(device)}"


class DeviceGroup:
    """A control group of its own for the device of `path`, as long as the `with` lasts.

    Limits reads, and counts them; of those who share it, and not of the rest of the machine.
    """

    def __init__(self, path: Path, throttle: Throttle) -> None:
        self._device = _device_number(path)
        self._throttle = throttle
        self._path = _BLKIO / f"headrace-bench-{os.getpid()}"

    def __enter__(self) -> DeviceGroup:
        self._path.mkdir()
        self._throttle.limit(self._path, self._device)
        return self

    def __exit__(self, *_: object) -> None:
        _remove_group(self._path)

    def join(self) -> None:
        """Puts this process into the group."""
        (self._path / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def read_bytes(self) -> int:
        """That the device was asked for since the group is there."""
        counts = (self._path / "blkio.throttle.io_service_bytes").read_text()
        for line in counts.splitlines():
            if line.startswith(f"{self._device} Read "):
                return int(line.split()[2])
        return 0


class MemoryGroup:
    """A control group of its own for memory, the page cache included, as long as the `with` lasts.

    Pages are charged to who touches them first: make files cold before.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._path = _MEMORY / f"headrace-bench-{os.getpid()}"
        self._limit = limit_bytes

    def __enter__(self) -> MemoryGroup:
        self._path.mkdir()
        if self._limit is not None:
            self.limit_file.write_text(str(self._limit))
        return self

    def __exit__(self, *_: object) -> None:
        _wait_until_empty(self._path)
        (self._path / "memory.force_empty").write_text("0")
        _remove_group(self._path)

    def join(self) -> None:
        """Puts this process into the group."""
        (self._path / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def limit_file(self) -> Path:
        """Where the limit is written, also while processes are in the group."""
        return self._path / "memory.limit_in_bytes"

    @property
    def pids(self) -> list[int]:
        """The processes in the group."""
        return [int(pid) for pid in (self._path / "cgroup.procs").read_text().split()]

    @property
    def peak_bytes(self) -> int:
        """Of everything: the kernel's own count."""
        return int((self._path / "memory.max_usage_in_bytes").read_text())

    @property
    def anon_bytes(self) -> int:
        """What nothing can take back, now."""
        return self.stat("total_rss")

    def stat(self, name: str) -> int:
        """A line of memory.stat; 0 if there is none."""
        for line in (self._path / "memory.stat").read_text().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        return 0


def _wait_until_empty(group: Path) -> None:
    """Workers of a process that ended take a moment to notice."""
    end = time.monotonic() + _LEAVING_S
    while (group / "cgroup.procs").read_text() and time.monotonic() < end:
        time.sleep(0.05)


def _remove_group(group: Path) -> None:
    _wait_until_empty(group)
    group.rmdir()


def can_limit_memory() -> bool:
    """Whether `MemoryGroup` can work here."""
    return os.geteuid() == 0 and (_MEMORY / "memory.limit_in_bytes").exists()


def can_throttle() -> bool:
    """Whether `Throttle.join` can work here."""
    return os.geteuid() == 0 and (_BLKIO / "blkio.throttle.read_bps_device").exists()


def steal_share() -> Callable[[], float]:
    """Call the result for the share of processor time that the host took since."""

    def read() -> tuple[int, int]:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        return fields[7], sum(fields[:8])

    begin = read()

    def since() -> float:
        now = read()
        return (now[0] - begin[0]) / max(1, now[1] - begin[1])

    return since


def median_and_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The median and its bootstrap 95 % interval, on the logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    rng = random.Random(0)
    medians = sorted(median(rng.choices(logs, k=len(logs))) for _ in range(_RESAMPLES))
    low, high = medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES) - 1]
    return math.exp(median(logs)), math.exp(low), math.exp(high)


def _machine() -> str:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE / 2**30
    return f"{os.cpu_count()} x {model}, {memory:.0f} GiB, Linux {platform.release()}"


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def record(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Prints a result as one line of JSON, and appends it to results/<name>.jsonl; returns it."""
    recorded = {
        "benchmark": name,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": _machine(),
        "revision": _revision(),
        "command": " ".join([f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "load": round(os.getloadavg()[0], 2),
        **result,
    }
    line = json.dumps(recorded)
    RESULTS.mkdir(exist_ok=True)
    with open(RESULTS / f"{name}.jsonl", "a", encoding="utf-8") as file:
        file.write(line + "\n")
    print(line, flush=True)
    return recorded


def replace_generated(page: Path, begin: str, end: str, text: str) -> None:
    """Replaces what stands between two marks of a page."""
    before, found_begin, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"{page}: has no {begin} before {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
