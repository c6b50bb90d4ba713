"""Files of samples to leave out: `headrace verify --decode --failures FILE` writes one, and
`skip="@FILE"` reads it.

A line for each: the path of a file below a folder of images, with "/" in front, or a sample number;
then, after a tab, why. Lines with "#" in front are notes, of which one names the dataset's content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._text import one_line
from headrace._units import counted
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from headrace.formats._base.findings import skip_patterns
from headrace.formats._files.objects import object_path

Numbers = npt.NDArray[np.uint32]

_OF = re.compile(r"# content: ([0-9a-f]{32})")
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_SAMPLES_MAX = 2**32  # that have numbers here


@dataclass(frozen=True)
class Listed:
    """What a file lists."""

    path: str
    names: tuple[str, ...] = ()
    """As patterns of `skip=`: "/ant/broken.jpg"."""
    numbers: tuple[int, ...] = ()
    content: str | None = None
    """The dataset's when the file was written; None: the file does not say."""

    def of(self, index: _core.Index, path: str) -> Numbers:
        """The numbers, if they are of this dataset."""
        doing = f"opening {path}: skip='@{self.path}'"
        if self.numbers and self.content not in (None, index.content()):
            raise FailedPreconditionError(
                f"{doing}: the file lists samples of other data (content {self.content}, here "
                f"{index.content()}), where the numbers are of other samples; write it again: "
                f"headrace verify --decode --failures {self.path} {path}"
            )
        if max(self.numbers, default=0) >= index.sample_count:
            raise InvalidArgumentError(
                f"{doing}: it lists sample {max(self.numbers)}, the dataset has "
                f"{counted(index.sample_count, 'sample')}, numbered from 0"
            )
        return np.array(self.numbers, np.uint32)


def divided(skip: str | Iterable[str]) -> tuple[tuple[str, ...], list[Listed]]:
    """The patterns of `skip=`, and what its files list."""
    patterns = skip_patterns(skip)
    files = [read_listed(pattern[1:]) for pattern in patterns if pattern.startswith("@")]
    return tuple(pattern for pattern in patterns if not pattern.startswith("@")), files


def with_names(patterns: tuple[str, ...], lists: Iterable[Listed]) -> tuple[str, ...]:
    """The patterns, and the names that are listed."""
    return skip_patterns([*patterns, *(name for listed in lists for name in listed.names)])


def numbers_of(
    lists: Iterable[Listed], index: _core.Index, path: str, *, by_name: bool
) -> Numbers | None:
    """The numbers of samples that are listed, ascending; None: there are none.

    `by_name`: the dataset's files are left out by name. Raises for a list of the other kind.
    """
    parts = [np.zeros(0, np.uint32)]
    for listed in lists:
        if listed.numbers if by_name else listed.names:
            has, needs = ("numbers of samples", "names of files")[:: 1 if by_name else -1]
            raise InvalidArgumentError(
                f"opening {path}: skip='@{listed.path}': it lists {has}, and this dataset needs "
                f"{needs}; write it again: headrace verify --decode --failures {listed.path} {path}"
            )
        parts.append(listed.of(index, path))
    numbers = np.unique(np.concatenate(parts))
    return numbers if len(numbers) else None


def has(numbers: Numbers | None, number: int) -> bool:
    """Whether it is one of these."""
    if numbers is None:
        return False
    at = int(np.searchsorted(numbers, number))
    return at < len(numbers) and int(numbers[at]) == number


def others(count: int, numbers: Numbers | None) -> npt.NDArray[np.uint64]:
    """Of so many samples the numbers of those that are not left out, ascending."""
    every = np.arange(count, dtype=np.uint64)
    return every if numbers is None else np.delete(every, numbers)


def read_listed(path: str) -> Listed:
    """What a file lists."""
    doing = f"skip='@{path}'"
    path = os.path.abspath(os.path.expanduser(path))
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            lines = file.read().split("\n")
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{doing}: there is no file {path}; `headrace verify PATH --decode --failures {path}` "
            "writes it"
        ) from error
    except OSError as error:
        raise FailedPreconditionError(f"{doing}: {path} cannot be read: {error}") from error
    names, numbers, content = [], [], None
    for at, line in enumerate(lines, 1):
        match = _OF.match(line)
        if match is not None:
            content = match[1]
        entry = line.partition("\t")[0]
        if not entry.strip() or entry.startswith("#"):
            continue
        if entry.startswith("/"):
            names.append(entry)
        elif _NUMBER.fullmatch(entry.strip()) and int(entry) < _SAMPLES_MAX:
            numbers.append(int(entry))
        else:
            raise InvalidArgumentError(
                f"{doing}: line {at} is {one_line(entry)!r}, must be the number of a sample, or "
                "the path of a file below the folder, with / in front"
            )
    return Listed(path, tuple(names), tuple(numbers), content)


def write_listed(
    path: str, index: _core.Index, title: str, failures: Mapping[int, str], *, by_name: bool
) -> list[str]:
    """Writes the file of samples, each with why it is there. Replaces an older one.

    Returns the names of files that cannot be listed.
    """
    lines = [
        f"# {counted(len(failures), 'sample')} of {index.sample_count} of {one_line(title)}: "
        f'hr.open(..., skip="@{one_line(path)}") leaves them out',
        f"# content: {index.content()}",
    ]
    unlisted = []
    for number, why in sorted(failures.items()):
        entry = _file_of(index, number) if by_name else str(number)
        if set("\n\t*?") & set(entry):
            unlisted.append(entry)
            lines.append(f"# {one_line(entry)} cannot be listed: its name has *, ?, tab or newline")
        else:
            lines.append(f"{entry}\t{one_line(why)}")
    temporary = f"{path}.{os.getpid()}.partial"
    with open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(temporary, path)
    return unlisted


def _file_of(index: _core.Index, number: int) -> str:
    """The path of a sample's file below the folder, with "/" in front."""
    stored = next(at for at, field in enumerate(index.fields) if not field.is_inline)
    path = object_path(index, int(index.extents(stored, number, 1)[0][0]))
    return "/" + os.path.relpath(path, index.root)


def hash_of(numbers: Numbers) -> str:
    """What a state says of the list."""
    return f"{_core.hash64(numbers.tobytes()):016x}"
