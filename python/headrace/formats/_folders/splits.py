"""Splits of a dataset that lie in one folder, as train and test: known by names, alike in all
formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import InvalidArgumentError
from headrace.formats._folders.files_by_format import path_of_files

_SPLITS = frozenset(
    (
        *("train", "training", "trainset", "trainval", "val", "valid", "validation", "valset"),
        *("dev", "test", "testing", "testset", "eval", "evaluation", "holdout", "minival"),
    )
)
_SAME = (
    frozenset(("train", "training")),
    frozenset(("val", "valid", "validation", "dev", "minival")),
    frozenset(("test", "testing")),
    frozenset(("eval", "evaluation")),
)
_WITH = frozenset(("set", "sets", "data", "dataset", "images", "image", "imgs", "split", "samples"))
"""Words that stand beside that of a split."""
_SET = re.compile(r"(.+?)([.]\w+)?[-.]\d+-of-\d+(-[0-9a-f]+)?([.]\w+)*")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_LOOKED_AT = 10_000  # files that are samples


@dataclass(frozen=True)
class Splits:
    """Parts of what lies in a folder, by the name of each."""

    folder: str
    parts: Mapping[str, tuple[str, ...]]
    """Names of files of the folder; or of one folder in it."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """What `hr.open` takes for a part, where that does not follow from the names."""

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def names(self) -> str:
        """ "test, train"."""
        return ", ".join(sorted(self.parts))

    @property
    def first(self) -> str:
        """The one that a user most likely wants: that of training."""
        return min(self.parts, key=lambda part: (not part.lower().startswith("train"), part))

    @property
    def has_usual_name(self) -> bool:
        """Whether a part has a usual word for a split in its name."""
        return any(_word_of(part) is not None for part in self.parts)

    @property
    def are_sure(self) -> bool:
        """Whether a name has no other word, or two differ by that of their split alone."""
        letters = [re.sub(r"[^A-Za-z?]", "", _without_word(part)) for part in self.parts]
        return any(map(is_split, self.parts)) or len(set(letters)) < len(letters)

    @property
    def path_of_all(self) -> str | None:
        """What `hr.open` takes for all parts, if they are files."""
        names = sorted(name for names in self.parts.values() for name in names)
        return path_of_files(self.folder, names)

    def like(self, split: str) -> str | None:
        """The part whose usual word means the same, as val for validation."""
        group = next((group for group in _SAME if split.lower() in group), frozenset[str]())
        return next((part for part in self.parts if _word_of(part) in group), None)

    def chosen(self, split: str) -> str | None:
        """The part that `split` names: by its name, in any case, or as train names train2017."""
        for names in (
            [part for part in self.parts if part == split],
            [part for part in self.parts if part.lower() == split.lower()],
            [part for part in self.parts if _word_of(part) == split.lower()],
        ):
            if len(names) == 1:
                return names[0]
        return None

    def path_of(self, part: str) -> str:
        """What `hr.open` takes for this part alone: a file, a folder, or a pattern."""
        names = self.parts[part]
        path = self.paths.get(part) or path_of_files(self.folder, names)
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
    return Splits(folder, {part: tuple(files) for part, files in parts.items()})


def splits_of_folders(folder: str, names: Iterable[str], *, any_other: bool = False) -> Splits:
    """The splits by the names of its folders.

    Unless `any_other`: none if it is one, or if there are more folders of other names. A name that
    has a word of splits among others, as test_tube, is one of a split only if another one differs
    from it by such a word alone (seg_train, seg_test), or if all names have one.
    """
    visible = sorted(name for name in names if not name.startswith("."))
    if any_other:
        return Splits(folder, {name: (name,) for name in visible if _word_of(name) is not None})
    parts = {name: (name,) for name in _named_as_splits(visible)}
    are_splits = len(parts) > 1 and 2 * len(parts) >= len(visible)
    return Splits(folder, parts if are_splits else {})


def splits_of_samples(folder: str, names: Sequence[str], *, any_other: bool) -> Splits:
    """The splits by the names of files that are samples, as train_0.png and test_0.png.

    By names as for folders, without digits. Of many files some decide whether there are splits, and
    then all that have a word are of its split.
    """
    looked_at = names if any_other else names[:: max(1, len(names) // _LOOKED_AT)]
    stems = sorted({_stem_of(sample) for sample in looked_at})
    words = {stem: _word_of(stem) for stem in stems}
    named = {stem for stem in stems if words[stem]} if any_other else set(_named_as_splits(stems))
    if len({words[stem] for stem in named}) < 2 - any_other or 2 * len(named) < len(stems):
        return Splits(folder, {})
    words |= dict.fromkeys(words.keys() - named)  # Those whose word is no split.
    parts: dict[str, list[str]] = {}
    for name in names:
        stem = _stem_of(name)
        word = words[stem] if stem in words else _word_of(stem)
        if word is not None:
            parts.setdefault(word, []).append(name)
    return Splits(folder, {part: tuple(samples) for part, samples in parts.items()})


def is_split(name: str) -> bool:
    """Whether a folder has the name of a split, and no other word: Train, val2017, test set."""
    words = {word.lower() for word in _WORD.findall(name)}
    return bool(words & _SPLITS) and words <= _SPLITS | _WITH


def _stem_of(name: str) -> str:
    return re.sub(r"\d+", "", name.rpartition(".")[0])


def _named_as_splits(names: Sequence[str]) -> list[str]:
    rest: dict[str, set[str | None]] = {}
    for name in names:
        rest.setdefault(_without_word(name), set()).add(_word_of(name))
    named = [
        name
        for name in names
        if is_split(name) or (_has_word(name) and len(rest[_without_word(name)] - {None}) > 1)
    ]
    return list(names) if all(map(_has_word, names)) else named


def _has_word(name: str) -> bool:
    """Whether a word of splits stands in a name, or in one with blanks beside words for data."""
    return _word_of(name) is not None if " " not in name else is_split(name)


def _without_word(name: str) -> str:
    """A name without the usual word for a split, and without numbers."""
    return "".join(
        "?" if x.lower() in _SPLITS else x for x in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\D", name)
    )


def _word_of(name: str) -> str | None:
    """The usual word for a split in a name."""
    words = (word.lower() for word in _WORD.findall(name))
    return next((word for word in words if word in _SPLITS), None)


def _part_of(name: str) -> str | None:
    match = _SET.fullmatch(name)
    if match is None:
        return _word_of(name)
    last = match[1].rpartition("-")[2]
    whole = _word_of(match[1])
    return last if whole is None or _word_of(last) is not None else whole
