"""Splits of a dataset that lie in one folder, as train and test: known by names, alike in all
formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headrace.errors import InvalidArgumentError
from headrace.formats._folders.contents import path_of_files

_SPLITS = frozenset(
    (
        *("train", "training", "trainset", "trainval", "val", "valid", "validation", "valset"),
        *("dev", "test", "testing", "testset", "eval", "evaluation", "holdout", "minival"),
    )
)
_SET = re.compile(r"(.+?)([.]\w+)?-\d{5,}-of-\d{5,}(-[0-9a-f]+)?([.]\w+)*")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True)
class Splits:
    """Parts of what lies in a folder, by the name of each."""

    folder: str
    parts: Mapping[str, tuple[str, ...]]
    """Names of files of the folder; or of one folder in it."""

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def names(self) -> str:
        """ "test, train"."""
        return ", ".join(sorted(self.parts))

    @property
    def first(self) -> str:
        """The one that a user most likely wants: that of training."""
        return min(self.parts, key=lambda each: (not each.lower().startswith("train"), each))

    def chosen(self, split: str) -> str | None:
        """The part that `split` names: by its name, in any case, or as train names train2017."""
        for names in (
            [each for each in self.parts if each == split],
            [each for each in self.parts if each.lower() == split.lower()],
            [each for each in self.parts if _word_of(each) == split.lower()],
        ):
            if len(names) == 1:
                return names[0]
        return None

    def path_of(self, part: str) -> str:
        """What `hr.open` takes for this part alone: a file, a folder, or a pattern."""
        names = self.parts[part]
        path = path_of_files(self.folder, names)
        if path is not None:
            return path
        raise InvalidArgumentError(
            f"opening dataset {self.folder}: no pattern names its split {part!r} alone; put its "
            f"{len(names)} files into a folder of their own, and open that"
        )


def splits_of_files(folder: str, names: Iterable[str], takes: Callable[[str], bool]) -> Splits:
    """The splits by the names of files that `takes` takes.

    NAME-00000-of-00002 is of a split of that name, as `datasets` and TensorFlow Datasets have it;
    other names tell by one of the usual words.
    """
    parts: dict[str, list[str]] = {}
    for name in sorted(names):
        if name.startswith((".", "_")) or not takes(name):
            continue
        part = _part_of(name)
        if part is not None:
            parts.setdefault(part, []).append(name)
    return Splits(folder, {part: tuple(found) for part, found in parts.items()})


def splits_of_folders(folder: str, names: Iterable[str], *, any_other: bool = False) -> Splits:
    """The splits by the names of its folders.

    Unless `any_other`: none if it is one, or if there are more folders of other names.
    """
    visible = sorted(each for each in names if not each.startswith("."))
    parts = {each: (each,) for each in visible if _word_of(each) is not None}
    are_splits = any_other or (len(parts) > 1 and 2 * len(parts) >= len(visible))
    return Splits(folder, parts if are_splits else {})


def _word_of(name: str) -> str | None:
    """The usual word for a split in a name."""
    words = (each.lower() for each in _WORD.findall(name))
    return next((each for each in words if each in _SPLITS), None)


def _part_of(name: str) -> str | None:
    found = _SET.fullmatch(name)
    if found is None:
        return _word_of(name)
    last = found[1].rpartition("-")[2]
    whole = _word_of(found[1])
    return last if whole is None or _word_of(last) is not None else whole
