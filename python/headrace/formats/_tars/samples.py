"""The samples of a tar: consecutive members with one key."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

import numpy as np

from headrace.errors import DataLossError
from headrace.formats._tars.tar import Member, TarReader

KEY = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)  # webdataset's own
META = re.compile(r"__[^/]*__($|/)")
IMAGES = ("jpg", "jpeg", "png", "webp")
"""Extensions of which a sample may have another one than the first has."""


def samples_of(tar: TarReader) -> Iterator[tuple[str, dict[str, Member]]]:
    """Consecutive members with one key, by extension, as webdataset groups them."""
    current = ""
    members: dict[str, Member] = {}
    for member in tar:
        name = member.name
        begin = name.rfind("/") + 1
        dot = name.find(".", begin)
        if dot > begin:  # As in nearly all; what the pattern finds, sooner.
            key, extension = name[:dot], name[dot + 1 :].lower()
        else:
            match = KEY.fullmatch(name)
            if match is None:
                continue
            key, extension = match[1], match[2].lower()
        if name.startswith("__") and META.match(name):
            continue
        if key != current:
            if members:
                yield current, members
            current, members = key, {}
        if extension in members:
            raise DataLossError(
                f"indexing {tar.path}: byte {member.offset}: sample {key!r} has two members "
                f".{extension}; keys of neighbours must differ"
            )
        members[extension] = member
    if members:
        yield current, members


def keys_again(tar: TarReader, hashes: array[int]) -> Iterator[str]:
    """The keys of samples of which an earlier one has the key, too; `hashes`: of all keys."""
    values, counts = np.unique(np.frombuffer(hashes, np.int64), return_counts=True)
    twice = set(values[counts > 1].tolist())
    before: set[str] = set()
    for key, _ in samples_of(tar) if twice else ():
        if key in before:
            yield key
        if hash(key) in twice:
            before.add(key)
