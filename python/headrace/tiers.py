"""Tiers, which keep samples between epochs, and budgets that loaders share.

`headrace docs tiers` has the details.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, SupportsIndex

from headrace import _core
from headrace import profile as machines
from headrace._arguments import (
    choice,
    given_path,
    integer,
    items,
    memory_bytes,
    shown,
    written_path,
)
from headrace._signature import named_arguments, named_fields
from headrace._text import os_reason
from headrace._units import format_bytes, parse_share_or_bytes
from headrace.errors import InvalidArgumentError
from headrace.formats._base.outside import check_outside

__all__ = ["PLACEMENTS", "Budget", "Part", "Ram", "Ssd", "Tier"]

RAM = "ram"
"""The name of a tier in memory, where tiers have names."""
DECODED = "decoded"
"""The form of tiers that hold the pixels of images."""
FORMS = ("stored", DECODED)
SSD_UNIT_BYTES = 4096
"""The least bytes that a sample takes on a disk."""

PLACEMENTS = tuple(_core.placements())
"""Names of the placements, the default first; see `headrace docs placements`."""


def tier_key(name: str) -> str:
    """By which a tier is found: a folder by its path, memory in letters of either case."""
    return RAM if name.lower() == RAM else name


def needs_tiers(placement: str) -> bool:
    """Whether the placement was chosen by the user and needs tiers."""
    return placement != PLACEMENTS[0] and _core.placement_keeps_blocks(placement)


@named_fields
@dataclass(frozen=True)
class Ram:
    """Memory, a part of the loader's `memory`.

    Args:
        capacity: bytes, or "4GiB", or "20%" of the machine's memory.
        form: how it holds samples: "stored", as they are on storage; or "decoded", with the pixels
            of the images that `transform=hr.image...` takes: their decode is saved, at 3 bytes a
            pixel (`headrace docs tiers`).
    """

    capacity: int | str
    form: Literal["stored", "decoded"] = "stored"


@named_fields
@dataclass(frozen=True)
class Ssd:
    """A folder on a disk that is faster than storage.

    Its entries outlive the loader: the next one with the same dataset, fields, rank and `verify`
    reuses them, and verifies every sample before use. Each rank has a subfolder ``rank-N``.

    Args:
        path: the folder, created if it does not exist; its parent must exist.
        capacity: bytes for one rank, or "200GB", or "20%" of the file system.
        threads: number of threads that read and write it.
    """

    path: str | os.PathLike[str]
    capacity: int | str
    threads: int = 4


Tier = Ram | Ssd


@dataclass(frozen=True)
class CoreTier:
    """A tier as plain values: path "" is memory."""

    path: str
    capacity_bytes: int
    threads: int
    decoded: bool = False
    """Whether it holds images decoded."""

    def members(self) -> dict[str, Any]:
        """Of the core's struct of this tier alone."""
        return {"path": self.path, "capacity_bytes": self.capacity_bytes, "threads": self.threads}


def core_tiers(
    tiers: Tier | Iterable[Tier] | None, *, make: bool = True, images: str | None = None
) -> list[CoreTier]:
    """The core's tiers. Makes their folders if asked to; refuses folders in `images`.

    Raises:
        InvalidArgumentError: names the invalid value.
    """
    if tiers is None:
        return []
    if isinstance(tiers, (Ram, Ssd)):
        tiers = [tiers]
    tiers = items(
        "tiers", tiers, "headrace.tiers, fastest first, or one, as headrace.tiers.Ram('8GiB')"
    )
    if images is not None:
        for tier in tiers:
            if isinstance(tier, Ssd):
                check_outside("tiers: folder", tier.path, images, is_folder=True)
    made = [_core_tier(number, tier, make) for number, tier in enumerate(tiers)]
    folders = [os.path.realpath(tier.path) for tier in made if tier.path]
    for folder in folders:
        if folders.count(folder) > 1:
            raise InvalidArgumentError(
                f"tiers: folder {folder} is given twice; give each tier its own"
            )
    return made


def _core_tier(number: int, tier: Any, make: bool) -> CoreTier:
    name = f"tiers[{number}] capacity"
    if isinstance(tier, Ram):
        _check_capacity(tier.capacity, name)
        choice(f"tiers[{number}] form", tier.form, FORMS)
        return CoreTier("", memory_bytes(tier.capacity, name), 1, tier.form == DECODED)
    if not isinstance(tier, Ssd):
        raise InvalidArgumentError(
            f"tiers[{number}]: got {shown(tier)}, must be headrace.tiers.Ram(capacity) for memory, "
            "or headrace.tiers.Ssd(folder, capacity)"
        )
    path = _folder(number, tier.path)
    above = os.path.dirname(path)
    if make and not os.path.isdir(above):
        raise InvalidArgumentError(
            f"tiers[{number}]: folder {path} cannot be made: {above} is not there, so the disk may "
            f"not be mounted; if it is, make it first: mkdir -p {shlex.quote(path)}"
        )
    try:
        if make:
            os.makedirs(path, exist_ok=True)
        system = os.statvfs(_there(path))
    except OSError as error:
        raise InvalidArgumentError(
            f"tiers[{number}]: making folder {path}: {os_reason(error)}; name another folder"
        ) from None
    _check_capacity(tier.capacity, name)
    capacity = tier.capacity
    if isinstance(capacity, str):
        whole = system.f_frsize * system.f_blocks
        capacity = parse_share_or_bytes(capacity, name, whole)
    capacity = integer(name, capacity, SSD_UNIT_BYTES, 2**62)
    threads = integer(f"tiers[{number}] threads", tier.threads, 1, 1024)
    return CoreTier(path, capacity, threads)


def _check_capacity(capacity: Any, name: str) -> None:
    if not isinstance(capacity, (str, SupportsIndex)):
        raise InvalidArgumentError(f'{name}: got {capacity!r}, must be bytes, or "4GiB", or "20%"')


def _folder(number: int, folder: Any) -> str:
    """The absolute path of a tier's folder, which may not exist yet."""
    path = os.path.abspath(written_path(f"tiers[{number}]: folder", folder))
    for there in (path, _there(path)):
        if os.path.lexists(there) and not os.path.isdir(there):
            is_link = os.path.islink(there)
            what = f"a symbolic link to {os.readlink(there)}" if is_link else "a file"
            raise InvalidArgumentError(
                f"tiers[{number}]: {there} is {what}, not a folder; name another"
            )
    return path


def _there(path: str) -> str:
    """`path`, or the nearest existing folder above it."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def profile_with_tiers(
    profile: machines.MachineProfile, tiers: list[CoreTier]
) -> machines.MachineProfile:
    """A profile with these tiers, in their order: memory by its copy rate, folders as measured.

    Raises:
        InvalidArgumentError: a folder on a file system of which the profile has no folder.
    """
    return dataclasses.replace(profile, tiers=tuple(_profile_tier(profile, tier) for tier in tiers))


def _profile_tier(profile: machines.MachineProfile, tier: CoreTier) -> machines.Tier:
    if not tier.path:
        rates = (machines.SizedRates(1, profile.copy),)
        return machines.Tier(folder="", file_system="", direct=True, read=rates, write=rates)
    for measured in profile.tiers:
        if _on_one_disk(measured.folder, tier.path):
            return measured
    from headrace.profile._machine import measuring  # It takes long to import.

    raise InvalidArgumentError(
        f"profile: it has no folder on the disk of tier {tier.path}; measure it again: "
        f"{measuring(profile, '--tier', tier.path)}"
    )


def _on_one_disk(measured: str, path: str) -> bool:
    try:
        return os.stat(measured).st_dev == os.stat(_there(path)).st_dev
    except OSError:  # The disk of this measurement is not mounted now.
        return os.path.abspath(measured) == path


class Budget:
    """Memory and tiers shared by several loaders, such as training and validation.

    >>> budget = hr.tiers.Budget(memory="8GiB", tiers=[hr.tiers.Ram("4GiB")])
    >>> train = hr.Loader(train_set, memory=budget.part("train", 0.9))
    >>> valid = hr.Loader(valid_set, memory=budget.part("valid", 0.1))

    Each part has its share of the memory and of every tier, in a subfolder of its name. The parts
    of all open loaders together never exceed the whole.

    Thread safety: for one thread.
    """

    @named_arguments
    def __init__(self, memory: int | str, tiers: Tier | Iterable[Tier] | None = None) -> None:
        if memory is None:
            raise InvalidArgumentError(
                "budget: memory: missing, must be bytes or a size such as 8GiB"
            )
        self.memory = memory_bytes(memory)
        self._tiers = core_tiers(tiers)
        self._parts: dict[str, float] = {}

    @named_arguments
    def part(self, name: str, share: float) -> Part:
        """A share of it, in (0, 1], for one loader.

        Raises:
            InvalidArgumentError: an invalid or duplicate folder name, or a share that exceeds the
                rest.
        """
        _check_part_name(name)
        if name in self._parts:
            raise InvalidArgumentError(f"part {name!r}: the budget has one of that name")
        left = 1.0 - sum(self._parts.values())
        if not _is_number(share) or not 0 < share <= left + 1e-9:
            taken = ", ".join(f"{other!r} {part:.0%}" for other, part in self._parts.items())
            raise InvalidArgumentError(
                f"part {name!r}: got share {share!r}, must be above 0 and at most {left:.4g}: "
                f"taken are {taken or 'none'}"
            )
        if int(self.memory * share) == 0:
            raise InvalidArgumentError(
                f"part {name!r}: got share {share!r}, less than a byte of the budget's "
                f"{format_bytes(self.memory)}; give more"
            )
        tiers = tuple(
            CoreTier(
                os.path.join(tier.path, name) if tier.path else "",
                int(tier.capacity_bytes * share),
                tier.threads,
                tier.decoded,
            )
            for tier in self._tiers
        )
        for tier in tiers:
            if tier.path:
                try:
                    os.makedirs(tier.path, exist_ok=True)
                except OSError as error:
                    raise InvalidArgumentError(
                        f"part {name!r}: making folder {tier.path}: {os_reason(error)}; give the "
                        "part another name, or the budget's tier another folder"
                    ) from None
        self._parts[name] = share
        return Part(name, int(self.memory * share), tiers)


def _check_part_name(name: Any) -> None:
    usable = isinstance(name, str) and name and not name.startswith(".")
    if not usable or given_path("part: name", name) != os.path.basename(name):
        raise InvalidArgumentError(f"part: name {name!r} must be one that a folder can have")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)


class Part:
    """A loader's part of a `Budget`: its ``memory``, with these tiers."""

    def __init__(self, name: str, memory: int, tiers: tuple[CoreTier, ...]) -> None:
        self.name = name
        self.memory = memory
        self.tiers = tiers
        self._taken_by: int | None = None  # id() of a loader: it gives the part back before it dies

    def take(self, loader: object) -> None:
        """Assigns the part to one loader, until the loader returns it."""
        if self._taken_by is not None:
            raise InvalidArgumentError(
                f"budget: part {self.name!r} has a loader already; close it first, or take "
                "another part"
            )
        self._taken_by = id(loader)

    def give_back(self, loader: object) -> None:
        """Returns the part. Does nothing if the loader no longer has it: another may have it."""
        if self._taken_by == id(loader):
            self._taken_by = None

    def __repr__(self) -> str:
        return f"<part {self.name!r} of a budget: {format_bytes(self.memory)}>"
