"""Errors about samples of a tar that differ, with what helps against them."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence

from headrace.errors import InvalidArgumentError
from headrace.formats._tars.samples import IMAGES, samples_of
from headrace.formats._tars.tar import Member, TarReader

DEREFERENCE = (
    "write the tar with `tar --dereference --hard-dereference`, which stores the bytes that links "
    "lead to"
)
_IMAGE = "image"

Samples = list[tuple[str, tuple[str, ...]]]
"""Keys, and extensions."""


def without_bytes(path: str, key: str, member: Member) -> InvalidArgumentError:
    """An error about a part of a sample that has no bytes in the tar at `path`."""
    return InvalidArgumentError(
        f"indexing {path}: byte {member.offset}: of sample {key!r} {member.name!r} is "
        f"{member.missing}; {DEREFERENCE}"
    )


def unlike(
    tar: TarReader,
    key: str,
    sample: dict[str, Member],
    what: str,
    members: Sequence[str] | None,
    raw: tuple[str, ...],
) -> InvalidArgumentError:
    """An error about a sample that differs from the first; `what` says how. The format's options.

    Reads all headers of the tar.
    """
    at = min(member.offset for member in sample.values())
    samples = [(other, tuple(its)) for other, its in samples_of(tar)]
    parted = _parted(samples)
    if parted is not None:
        advice = f"its members are not beside each other, {parted}; {_sorting(tar.path)}"
    else:
        if members is not None:
            samples = [(other, tuple(m for m in its if m in members)) for other, its in samples]
        common, count = _common([pair for pair in samples if pair[1]], raw)
        more = f", raw={raw!r}" if raw else ""
        advice = (
            f"take the members that {count} of its {len(samples)} samples have: "
            f"format=hr.formats.WebDataset(members={common!r}{more})"
        )
    return InvalidArgumentError(f"indexing {tar.path}: byte {at}: sample {key!r} {what}; {advice}")


def _parted(samples: Samples) -> str | None:
    """A sample with other samples between its members; None: there is none."""
    before: dict[str, tuple[str, ...]] = {}
    for key, members in samples:
        others = before.setdefault(key, members)
        if set(others) != set(members):
            return f"as those of {key!r}, .{others[0]} and .{members[0]}"
    return None


def _sorting(path: str) -> str:
    """How to write the tar again, into another folder: here it would be one more of the dataset."""
    target = f"{os.path.dirname(path)}-sorted"
    return (
        f"write each tar again with its members sorted by name: `members=$(mktemp -d) && tar -xf "
        f'{shlex.quote(path)} -C "$members" && mkdir -p {shlex.quote(target)} && tar --sort=name '
        f'-cf {shlex.quote(os.path.join(target, os.path.basename(path)))} -C "$members" .`'
    )


def _common(samples: Samples, raw: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """Extensions of which each sample has all or none, and the number of samples that have them.

    Of several the most, and those of most samples. Images of which samples have one each are one.
    """
    images = [extension for extension in IMAGES if extension not in raw]
    is_one = all(
        sum(extension in images for extension in extensions) < 2 for _, extensions in samples
    )
    named = {
        extension: _IMAGE if is_one and extension in images else extension
        for _, s in samples
        for extension in s
    }
    shapes = Counter(
        tuple(dict.fromkeys(named[extension] for extension in extensions))
        for _, extensions in samples
    )
    has: dict[str, list[int]] = {}
    for number, shape in enumerate(shapes):
        for name in shape:
            has.setdefault(name, []).append(number)
    counts = list(shapes.values())
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, where in has.items():
        groups.setdefault(tuple(where), []).append(name)
    usual = max(counts)  # A file beside the samples, such as info.json, counts for none.

    def worth(where: tuple[int, ...]) -> tuple[int, bool]:
        count = min(usual, sum(counts[number] for number in where))
        return count * len(groups[where]), _IMAGE in groups[where]

    best = max(groups, key=worth)
    members = tuple(extension for extension in named if named[extension] in groups[best])
    return members, sum(counts[number] for number in best)
