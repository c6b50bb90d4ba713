"""A machine profile, and its TOML file."""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._arguments import given_path, written_path
from headrace._signature import named_arguments
from headrace._toml import TomlTable, read_toml
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.profile._toml import to_toml

SCHEMA = 1

_KNEE = 0.9  # of the best rate: more users gain little
_DEVICE_SHARE = 0.9  # of the bytes that storage gave: they came from a disk of this machine
_READS = ("ranges", "files")


@dataclass(frozen=True)
class Rates:
    """Bytes a second by the number of users: threads, or reads in flight."""

    users: tuple[int, ...]
    bytes_per_second: tuple[float, ...]
    """Of all users together; the median of several slices."""
    spread: tuple[float, ...]
    """(largest - smallest slice) / median: the uncertainty."""

    @property
    def points(self) -> list[tuple[float, float]]:
        """(users, rate), as the core's curves take them."""
        return [(float(u), r) for u, r in zip(self.users, self.bytes_per_second, strict=True)]

    @property
    def best(self) -> float:
        """The highest rate."""
        return max(self.bytes_per_second)

    @property
    def users_enough(self) -> int:
        """The fewest users that get nearly the best rate."""
        enough = [u for u, rate in self.points if rate >= _KNEE * self.best]
        return int(enough[0])


@dataclass(frozen=True)
class SizedRates:
    """`Rates` of reads (or writes) of one size."""

    read_bytes: int
    rates: Rates


@dataclass(frozen=True, kw_only=True)
class Host:
    """The machine that was measured."""

    cpus: int
    """CPUs that this process may use."""
    memory_bytes: int
    kernel: str


@dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """The properties of the dataset that the numbers depend on."""

    path: str
    format: str
    file_system: str
    fingerprint: str
    samples: int
    sample_bytes: float
    """Mean stored bytes of a sample, all fields together."""
    block_bytes: float | None
    """Mean bytes of a block; None: the dataset has no blocks."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Cold, random reads of the dataset's files."""

    store: str
    """Which of the loader's stores read: `headrace docs stores`."""
    reads: str
    """ "ranges" of large files, of any size; or whole "files", as large as they are."""
    direct: bool
    """Whether the reads went past the page cache."""
    cold_share: float | None
    """Bytes from devices / bytes read; None: not known."""
    rates: tuple[SizedRates, ...]


@dataclass(frozen=True, kw_only=True)
class DecodeRates:
    """Stored bytes a second that become rows of a batch."""

    what: str
    """"image.train(224)", or "copy" where samples are taken as they are."""
    sample_bytes: float
    """Mean stored bytes of the samples that were decoded."""
    rates: Rates


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A folder that may hold copies of samples."""

    folder: str
    file_system: str
    direct: bool
    read: tuple[SizedRates, ...]
    write: tuple[SizedRates, ...]


@dataclass(frozen=True, kw_only=True)
class Link:
    """Reads of this node from the memory of the other nodes of its job."""

    nodes: int
    """Nodes of the job, this one included; the others served in turn."""
    latency_seconds: float
    """For the smallest sample, requested alone."""
    cpu_seconds_per_gb: float
    """Processor time of the requesting node for 10^9 bytes, in the largest samples."""
    rates: tuple[SizedRates, ...]


@dataclass(frozen=True)
class Preprocess:
    """The mean time of preprocessing, as measured by a loader."""

    transform: int
    """A hash of the fields and the transform."""
    bytes: float
    """Mean stored bytes of a sample."""
    threads: int
    """Threads that preprocessed concurrently."""
    count: int
    """Number of samples measured, up to some hundred."""
    seconds: float
    """Mean time of one sample on one thread."""


@dataclass(frozen=True, kw_only=True)
class MachineProfile:
    """A machine under one dataset's storage. `load` reads one, `headrace profile` makes one."""

    date: datetime.datetime
    headrace: str
    """The version that measured."""
    host: Host
    dataset: DatasetFacts
    storage: Storage
    copy: Rates
    decode: DecodeRates
    tiers: tuple[Tier, ...] = ()
    peer_bytes_per_second: float | None = None
    """From other nodes, for samples of any size: set by hand, and ignored if there is `link`."""
    link: Link | None = None
    """Measured with `headrace profile --links`."""
    preprocess: tuple[Preprocess, ...] = ()
    """Not measured: learned by loaders (`headrace.Loader.save_profile`)."""

    @property
    def storage_is_shared(self) -> bool:
        """Whether the nodes of a job share the storage: not if it is a disk of this machine."""
        share = self.storage.cold_share
        return share is None or share < _DEVICE_SHARE

    def to_model(self) -> _core.MachineModel:
        """The core's model; private to headrace."""
        link: tuple[Any, float] | None = None
        if self.link is not None:
            link = (_sized_points(self.link.rates), self.link.rates[-1].rates.users_enough)
        elif self.peer_bytes_per_second is not None:
            link = ([(1, [(1.0, self.peer_bytes_per_second)])], 1)
        return _core.MachineModel(
            storage=_sized_points(self.storage.rates),
            readers=self.storage.rates[-1].rates.users_enough,
            tiers=[
                (
                    _sized_points(tier.read),
                    _sized_points(tier.write),
                    tier.read[-1].rates.users_enough,
                )
                for tier in self.tiers
            ],
            storage_shared=self.storage_is_shared,
            link=link,
            decode=self.decode.rates.points,
            copy=self.copy.points,
        )

    def to_plain(self) -> dict[str, Any]:
        """The content of its file, as plain values."""
        plain: dict[str, Any] = {
            "schema": SCHEMA,
            "date": self.date,
            "headrace": self.headrace,
            "host": dict(vars(self.host)),
            "dataset": {k: v for k, v in vars(self.dataset).items() if v is not None},
            "storage": {
                "store": self.storage.store,
                "reads": self.storage.reads,
                "direct": self.storage.direct,
            },
            "copy": _plain_rates(self.copy, "threads"),
            "decode": {
                "what": self.decode.what,
                "sample_bytes": self.decode.sample_bytes,
            }
            | _plain_rates(self.decode.rates, "threads"),
        }
        if self.storage.cold_share is not None:
            plain["storage"]["cold_share"] = self.storage.cold_share
        plain["storage"]["rate"] = _plain_sizes(self.storage.rates, "in_flight")
        if self.tiers:
            plain["tier"] = [
                {
                    "folder": tier.folder,
                    "file_system": tier.file_system,
                    "direct": tier.direct,
                    "read": _plain_sizes(tier.read, "threads"),
                    "write": _plain_sizes(tier.write, "threads"),
                }
                for tier in self.tiers
            ]
        if self.peer_bytes_per_second is not None:
            plain["peers"] = {"bytes_per_second": self.peer_bytes_per_second}
        if self.link is not None:
            plain["link"] = {
                "nodes": self.link.nodes,
                "latency_seconds": self.link.latency_seconds,
                "cpu_seconds_per_gb": self.link.cpu_seconds_per_gb,
                "rate": _plain_sizes(self.link.rates, "in_flight"),
            }
        if self.preprocess:
            # A hash is beyond TOML's integers.
            plain["preprocess"] = [
                vars(row) | {"transform": f"{row.transform:016x}"} for row in self.preprocess
            ]
        return plain

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file atomically. Replaces only another profile."""
        target = Path(written_path("writing profile", path))
        check_target(target)
        handle, partial = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=".partial", dir=target.parent
        )
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(to_toml(self.to_plain()))
            os.chmod(partial, 0o644)
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise


def measuring(profile: MachineProfile, *words: str) -> str:
    """The command that measures the machine again, with these words more."""
    folders = [word for tier in profile.tiers for word in ("--tier", tier.folder)]
    command = ["headrace", "profile", profile.dataset.path, *folders, *words]
    return f"`{shlex.join([*command, '--output', 'machine.toml'])}`"


def check_target(path: Path) -> None:
    """Checks that a profile may be written there, before minutes of measuring."""
    if not path.parent.is_dir():
        raise NotFoundError(f"writing profile {path}: no such folder {path.parent}")
    if not path.exists():
        return
    try:
        _open(path)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"writing profile {path}: the file exists and is not a machine profile, so it is not "
            f"replaced; name another ({error})"
        ) from error


@named_arguments
def load(path: str | os.PathLike[str]) -> MachineProfile:
    """Reads a profile and checks all of it: an error names file, line, key and value."""
    name = given_path("profile", path)
    root = _open(Path(name))
    date = root.date("date")
    version = root.text("headrace")
    profile = MachineProfile(
        date=date,
        headrace=version,
        host=_load_host(root.table("host")),
        dataset=_load_dataset(root.table("dataset")),
        storage=_load_storage(root.table("storage")),
        copy=_load_copy(root.table("copy")),
        decode=_load_decode(root.table("decode")),
        tiers=tuple(_load_tier(tier) for tier in root.tables("tier", least=0)),
        peer_bytes_per_second=_load_peers(root),
        link=_load_link(root),
        preprocess=tuple(_load_preprocess(row) for row in root.tables("preprocess", least=0)),
    )
    root.finish()
    return profile


def _open(path: Path) -> TomlTable:
    """The file, if it is a profile of this schema."""
    try:
        root = read_toml(path, "profile")
        root.integer("schema", SCHEMA, SCHEMA)
        root.table("storage")
    except (InvalidArgumentError, NotFoundError) as error:
        raise type(error)(f"{error}; `headrace profile` makes one") from error
    return root


def _load_host(table: TomlTable) -> Host:
    host = Host(
        cpus=table.integer("cpus", least=1),
        memory_bytes=table.integer("memory_bytes", least=1),
        kernel=table.text("kernel"),
    )
    table.finish()
    return host


def _load_dataset(table: TomlTable) -> DatasetFacts:
    facts = DatasetFacts(
        path=table.text("path"),
        format=table.text("format"),
        file_system=table.text("file_system"),
        fingerprint=table.text("fingerprint"),
        samples=table.integer("samples", least=1),
        sample_bytes=table.positive("sample_bytes"),
        block_bytes=table.positive("block_bytes") if table.has("block_bytes") else None,
    )
    table.finish()
    return facts


def _load_storage(table: TomlTable) -> Storage:
    storage = Storage(
        store=table.text("store"),
        reads=table.choice("reads", _READS),
        direct=table.flag("direct"),
        cold_share=table.at_least("cold_share", 0) if table.has("cold_share") else None,
        rates=_load_sizes(table.tables("rate", least=1), "in_flight"),
    )
    table.finish()
    return storage


def _load_copy(table: TomlTable) -> Rates:
    rates = _load_rates(table, "threads")
    table.finish()
    return rates


def _load_decode(table: TomlTable) -> DecodeRates:
    decode = DecodeRates(
        what=table.text("what"),
        sample_bytes=table.positive("sample_bytes"),
        rates=_load_rates(table, "threads"),
    )
    table.finish()
    return decode


def _load_tier(table: TomlTable) -> Tier:
    tier = Tier(
        folder=table.text("folder"),
        file_system=table.text("file_system"),
        direct=table.flag("direct"),
        read=_load_sizes(table.tables("read", least=1), "threads"),
        write=_load_sizes(table.tables("write", least=1), "threads"),
    )
    table.finish()
    return tier


def _load_peers(root: TomlTable) -> float | None:
    if not root.has("peers"):
        return None
    table = root.table("peers")
    rate = table.positive("bytes_per_second")
    table.finish()
    return rate


def _load_link(root: TomlTable) -> Link | None:
    if not root.has("link"):
        return None
    table = root.table("link")
    link = Link(
        nodes=table.integer("nodes", least=2),
        latency_seconds=table.positive("latency_seconds"),
        cpu_seconds_per_gb=table.at_least("cpu_seconds_per_gb", 0),
        rates=_load_sizes(table.tables("rate", least=1), "in_flight"),
    )
    table.finish()
    return link


def _load_preprocess(table: TomlTable) -> Preprocess:
    row = Preprocess(
        transform=table.hexadecimal("transform", digits=16),
        bytes=table.positive("bytes"),
        threads=table.integer("threads", least=1),
        count=table.integer("count", least=1),
        seconds=table.positive("seconds"),
    )
    table.finish()
    return row


def _load_sizes(tables: Sequence[TomlTable], users: str) -> tuple[SizedRates, ...]:
    sizes: list[SizedRates] = []
    for table in tables:
        least = sizes[-1].read_bytes + 1 if sizes else 1
        read_bytes = table.integer("read_bytes", least=least)
        sizes.append(SizedRates(read_bytes, _load_rates(table, users)))
        table.finish()
    return tuple(sizes)


def _load_rates(table: TomlTable, users: str) -> Rates:
    counts = table.ascending(users)
    return Rates(
        users=tuple(counts),
        bytes_per_second=tuple(table.numbers("bytes_per_second", len(counts))),
        spread=tuple(table.numbers("spread", len(counts), zero=True)),
    )


def _sized_points(sizes: Sequence[SizedRates]) -> list[tuple[int, list[tuple[float, float]]]]:
    return [(size.read_bytes, size.rates.points) for size in sizes]


def _plain_rates(rates: Rates, users: str) -> dict[str, Any]:
    return {
        users: list(rates.users),
        "bytes_per_second": [round(rate) for rate in rates.bytes_per_second],
        "spread": [round(spread, 3) for spread in rates.spread],
    }


def _plain_sizes(sizes: Sequence[SizedRates], users: str) -> list[dict[str, Any]]:
    return [{"read_bytes": size.read_bytes} | _plain_rates(size.rates, users) for size in sizes]
