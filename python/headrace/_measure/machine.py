"""Measures a machine with a dataset's storage: the points, their sequence and times."""

from __future__ import annotations

import datetime
import importlib.metadata
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace import _core, _places, image
from headrace._dataset import Dataset
from headrace._measure.links import SAMPLE_BYTES, LinkProcess, LinkSlice
from headrace._measure.stored_files import files_as_stored
from headrace._units import format_bytes
from headrace.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from headrace.formats._files.objects import folder_of, is_decoded
from headrace.profile._machine import (
    DatasetFacts,
    DecodeRates,
    Host,
    Link,
    MachineProfile,
    Rates,
    SizedRates,
    Storage,
    Tier,
)

SECONDS_DEFAULT = 40.0

_READ_SIZES = tuple(4096 << 2 * power for power in range(6))  # 4 KiB to 4 MiB
_DEPTHS = (1, 4, 16, 64)
_IN_FLIGHT_BYTES_MAX = (
    64 * 2**20
)  # more in flight adds no information, and takes long on slow storage
_LINK_DEPTHS = (1, 16, 64)
_TIER_SIZES = (65536, 2**20)
_TIER_THREADS = (1, 4, 16)
_TIER_FILE_BYTES = 256 * 2**20
_TIER_FILE_BYTES_MIN = 8 * 2**20
_TIER_SHARE_OF_FREE = 0.05
_TIER_FILL_SECONDS = 3.0
_ROUNDS = 5
_ROUNDS_LEAST = 3
_OVERTIME = 1.5  # for the minimum of rounds
_SLICE_SECONDS_LEAST = 0.05  # fewer rounds are better than shorter slices
_COUNTED_SHARE = 0.7  # of a slice's time; the rest is its start and end
_DIRECT_SHARE = 0.99
_IMAGE_SIZE = 224

Progress = Callable[[int, int], object]
Run = Callable[[float, float], _core.Slice | LinkSlice]


@dataclass
class _Point:
    """One point of a curve, and the results of its slices."""

    run: Run  # of (seconds, most seconds)
    rates: list[float] = field(default_factory=list)
    operation_bytes: list[float] = field(default_factory=list)

    def measure(self, seconds: float, seconds_max: float) -> None:
        result = self.run(seconds, seconds_max)
        self.rates.append(max(result.rate, 1.0))
        self.operation_bytes.append(result.bytes / result.operations)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        return (max(self.rates) - min(self.rates)) / self.rate


@dataclass
class _Line:
    """A curve: points by users."""

    points: dict[int, _Point]
    read_bytes: int = 0

    def rates(self) -> Rates:
        return Rates(
            users=tuple(self.points),
            bytes_per_second=tuple(float(round(p.rate)) for p in self.points.values()),
            spread=tuple(round(p.spread, 3) for p in self.points.values()),
        )

    def sized(self) -> SizedRates:
        return SizedRates(self.read_bytes, self.rates())


@dataclass
class _Cold:
    """Whether storage answered, or a cache."""

    read_bytes: int = 0
    device_bytes: int = 0
    known: bool = True

    def add(self, result: _core.StorageSlice) -> _core.Slice:
        self.read_bytes += result.read_bytes
        self.device_bytes += max(result.device_bytes, 0)
        self.known = self.known and result.device_bytes >= 0
        return result.slice

    @property
    def share(self) -> float | None:
        return round(self.device_bytes / self.read_bytes, 3) if self.known else None


@dataclass
class _LinkCost:
    """The processor time of what other nodes gave in the largest samples."""

    bytes: int = 0
    seconds: float = 0

    def add(self, result: LinkSlice) -> LinkSlice:
        if result.operations and result.bytes // result.operations == SAMPLE_BYTES[-1]:
            self.bytes += result.bytes
            self.seconds += result.cpu_seconds
        return result


def measure(
    dataset: Dataset,
    *,
    tiers: Sequence[Path] = (),
    raw: bool = False,
    seconds: float = SECONDS_DEFAULT,
    links: LinkProcess | None = None,
    progress: Progress | None = None,
) -> MachineProfile:
    """Measures for about `seconds`, in rounds over all points, so that noise affects all equally.

    `raw`: samples are used as they are stored, images too. `links`: to the other nodes of the job;
    None: they are not measured. Makes at least one round, even on a slow machine: each slice has a
    maximum of seconds, too.
    """
    if not 0 < seconds <= 3600:
        raise InvalidArgumentError(f"seconds: got {seconds}, must be above 0 and at most 3600")
    tier_probes = [_probe_folder(tier, seconds) for tier in tiers]
    # Of files that are decoded as a whole, what is read, not copies of what they decode to.
    decoded = is_decoded(dataset.index)
    storage = _core.StorageProbe(files_as_stored(dataset.index) if decoded else dataset.index)
    cold = _Cold()
    cpus = _core.usable_cores()
    threads = _doubling(cpus)
    is_image = any(f.kind == "image" for f in dataset.index.fields) and not raw
    transform = image.train(_IMAGE_SIZE).to_core() if is_image else None
    try:
        samples = _core.StorageProbe(dataset.index) if decoded else storage
        decode_probe = _core.DecodeProbe(samples, transform)
    except DataLossError as error:
        error.add_note("--raw measures without decoding")
        raise

    storage_lines = _storage_lines(storage, cold)
    copy = _Line({n: _Point(_bind(_core.measure_copy, n)) for n in threads})
    decode = _Line({n: _Point(_bind(decode_probe.run, n)) for n in threads})
    reads = [_folder_lines(probe.read, probe.bytes) for probe in tier_probes]
    writes = [_folder_lines(probe.write, probe.bytes) for probe in tier_probes]
    link_cost = _LinkCost()
    link_lines = [] if links is None else _link_lines(links, link_cost)
    lines = [*storage_lines, copy, decode, *itertools.chain(*reads, *writes), *link_lines]
    _measure_in_rounds([p for line in lines for p in line.points.values()], seconds, progress)

    if not storage.reads_ranges:
        (line,) = storage_lines
        sizes = [b for point in line.points.values() for b in point.operation_bytes]
        line.read_bytes = max(1, round(statistics.median(sizes)))
    return MachineProfile(
        date=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
        headrace=_version(),
        host=Host(
            cpus=cpus, memory_bytes=_core.memory_limit_bytes(), kernel=" ".join(os.uname()[0:3:2])
        ),
        dataset=_facts(dataset),
        storage=Storage(
            store=storage.store,
            reads="ranges" if storage.reads_ranges else "files",
            direct=storage.direct_bytes >= _DIRECT_SHARE * cold.read_bytes,
            cold_share=cold.share,
            rates=tuple(line.sized() for line in storage_lines),
        ),
        copy=copy.rates(),
        decode=DecodeRates(
            what=_decode_name(decode_probe.is_copy, is_image),
            sample_bytes=round(decode_probe.mean_bytes, 1),
            rates=decode.rates(),
        ),
        tiers=tuple(
            Tier(
                folder=os.path.abspath(folder),
                file_system=file_system(folder),
                direct=probe.direct,
                read=tuple(line.sized() for line in read),
                write=tuple(line.sized() for line in write),
            )
            for folder, probe, read, write in zip(tiers, tier_probes, reads, writes, strict=True)
        ),
        link=None if links is None else _link(links.nodes, link_lines, link_cost),
    )


def _decode_name(is_copy: bool, is_image: bool) -> str:
    if is_copy:
        return "copy"
    return f"image.train({_IMAGE_SIZE})" if is_image else "decompress"


def _bind(run: Callable[[int, float, float], _core.Slice], users: int) -> Run:
    return lambda seconds, seconds_max: run(users, seconds, seconds_max)


def _storage_lines(storage: _core.StorageProbe, cold: _Cold) -> list[_Line]:
    def point(read_bytes: int, depth: int) -> _Point:
        return _Point(lambda s, most: cold.add(storage.read(read_bytes, depth, s, most)))

    if not storage.reads_ranges:
        return [_Line({depth: point(0, depth) for depth in _DEPTHS})]
    largest = storage.object_bytes_max
    sizes = [size for size in _READ_SIZES if size <= largest] or [largest]
    return [
        _Line(
            {
                depth: point(size, depth)
                for depth in _DEPTHS
                if depth == 1 or size * depth <= _IN_FLIGHT_BYTES_MAX
            },
            size,
        )
        for size in sizes
    ]


def _folder_lines(
    run: Callable[[int, int, float, float], _core.Slice], file_bytes: int
) -> list[_Line]:
    def point(size: int, threads: int) -> _Point:
        return _Point(lambda seconds, most: run(size, threads, seconds, most))

    return [
        _Line({threads: point(size, threads) for threads in _TIER_THREADS}, size)
        for size in _TIER_SIZES
        if size <= file_bytes
    ]


def _link_lines(links: LinkProcess, cost: _LinkCost) -> list[_Line]:
    def point(size: int, depth: int) -> _Point:
        return _Point(lambda seconds, most: cost.add(links.measure(size, depth, seconds, most)))

    return [
        _Line({depth: point(size, depth) for depth in _LINK_DEPTHS}, size) for size in SAMPLE_BYTES
    ]


def _link(nodes: int, lines: Sequence[_Line], cost: _LinkCost) -> Link:
    return Link(
        nodes=nodes,
        latency_seconds=float(f"{lines[0].read_bytes / lines[0].points[1].rate:.3g}"),
        cpu_seconds_per_gb=round(cost.seconds * 1e9 / max(cost.bytes, 1), 3),
        rates=tuple(line.sized() for line in lines),
    )


def _probe_folder(folder: Path, seconds: float) -> _core.FolderProbe:
    if not folder.is_dir():
        raise NotFoundError(f"tier {folder}: no such folder; make it first")
    free = os.statvfs(folder)
    room = int(free.f_bavail * free.f_frsize * _TIER_SHARE_OF_FREE)
    if room < _TIER_FILE_BYTES_MIN:
        raise ResourceExhaustedError(
            f"tier {folder}: measuring takes {format_bytes(_TIER_FILE_BYTES_MIN)}, and at most 5 % "
            f"of the free space, which is {format_bytes(room)}; free some"
        )
    fill_seconds = min(_TIER_FILL_SECONDS, max(seconds / 10, 0.1))
    return _core.FolderProbe(os.fspath(folder), min(_TIER_FILE_BYTES, room), fill_seconds)


def _measure_in_rounds(points: Sequence[_Point], seconds: float, progress: Progress | None) -> None:
    rounds = _ROUNDS
    while rounds > _ROUNDS_LEAST and seconds / (rounds * len(points)) < _SLICE_SECONDS_LEAST:
        rounds -= 1
    one = seconds / (rounds * len(points))
    begin = time.monotonic()
    done = 0
    for number in range(rounds):
        for point in points:
            spent = time.monotonic() - begin
            if number > 0 and spent > seconds * (1 if number >= _ROUNDS_LEAST else _OVERTIME):
                return
            point.measure(one * _COUNTED_SHARE, max(one, seconds / len(points)))
            done += 1
            if progress is not None:
                progress(done, rounds * len(points))


def _facts(dataset: Dataset) -> DatasetFacts:
    stored = _core.stored_bytes(dataset.index)
    blocks = dataset.index.blocks()[4] if dataset.index.block_count else None
    return DatasetFacts(
        path=dataset.path,
        format=dataset.format,
        file_system=_system_of(folder_of(dataset.index)),
        fingerprint=dataset.fingerprint,
        samples=len(dataset),
        sample_bytes=round(max(float(stored.mean()), 1.0), 1),
        block_bytes=None if blocks is None else round(max(float(blocks.mean()), 1.0), 1),
    )


def _system_of(folder: str) -> str:
    """The type of the file system of a folder; of one in a store the scheme of its URL."""
    return file_system(Path(folder)) if _places.is_local(folder) else folder.partition(":")[0]


def file_system(path: Path) -> str:
    """The type of the file system that `path` is on: "ext4", "nfs4"; or "unknown"."""
    where = os.path.realpath(path)
    deepest, kind = "", "unknown"
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return kind
    for line in mounts.splitlines():
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        mount = parts[1].replace("\\040", " ")
        inside = where == mount or where.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(deepest):  # the last of equals hides the others
            deepest, kind = mount, parts[2]
    return kind


def _doubling(most: int) -> list[int]:
    counts = [1]
    while counts[-1] * 2 <= most:
        counts.append(counts[-1] * 2)
    if counts[-1] < most:
        counts.append(most)
    return counts


def _version() -> str:
    try:
        return importlib.metadata.version("headrace")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
