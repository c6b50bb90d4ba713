"""What `hr.open` reads of a path: all of it, or the split that is asked for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, cast

from headrace import _places
from headrace._arguments import shown
from headrace._text import unread_reason
from headrace.errors import FailedPreconditionError, HeadraceError, InvalidArgumentError
from headrace.formats._base.findings import callers_level
from headrace.formats._base.format import Format
from headrace.formats._files.patterns import expand, is_pattern
from headrace.formats._folders.advice import advice_on_files
from headrace.formats._folders.calls import lists_many, open_call
from headrace.formats._folders.files_by_format import (
    UNLIKE,
    Contents,
    are_numbered,
    contents_of,
    entries_of,
    path_of_files,
    taker,
)
from headrace.formats._folders.lookalikes import (
    below_look,
    coco_look,
    nested_look,
    pair_look,
    table_look,
)
from headrace.formats._folders.media import is_media
from headrace.formats._folders.numbered_files import refuse_incomplete, words_of_incomplete
from headrace.formats._folders.splits import (
    Splits,
    is_split,
    splits_of_files,
    splits_of_folders,
    splits_of_samples,
)
from headrace.formats._hive.partitions import refuse_other_partitions, values_of_splits

_FOLDER = "folder"
_CALLS_SHOWN = 4
_PATTERNS_MAX = 5
"""Of `skip=`, in a call of a message."""
_LISTS_OF_FILES = {"state.json", "index.json"}
"""Files that say which others are the dataset."""


class Chooser:
    """Finds the splits of paths, by the formats that there are. For one call of `hr.open`."""

    def __init__(
        self, formats: Sequence[Format], recognise: Callable[[str], Format | None]
    ) -> None:
        self._formats = formats
        self.recognise = cache(recognise)
        self._entries_of = cache(entries_of)
        self._warnings: list[str] = []  # For when it is known that the path opens.

    def chosen(
        self, path: str, row: Format | None, split: str | None, skip: Sequence[str]
    ) -> tuple[str, Format | None]:
        """What to open, and by which format, as far as it is known: `path` and `row`, or those of
        the split.

        Raises InvalidArgumentError: there are several splits and none is asked for; no such one.
        """
        if split is not None and not isinstance(cast(object, split), str):
            raise InvalidArgumentError(f"split: got {shown(split)}, must be a name, as 'train'")
        where, row = self._opened(path, row, split, skip)
        for note in self._warnings:
            warnings.warn(
                f"headrace: opening dataset {note}", RuntimeWarning, stacklevel=callers_level()
            )
        return where, row

    def _opened(
        self, path: str, row: Format | None, split: str | None, skip: Sequence[str]
    ) -> tuple[str, Format | None]:
        """The same, whose warnings are those of `_warnings`."""
        try:
            original = path
            path, row = self._chosen(path, row, split, skip)
            look = self._look(path, skip) if row is None else self._look_below(path, row, skip)
            if look is not None:
                raise InvalidArgumentError(f"opening dataset {path}: {look}")
            self._check_sets(original, path, row)
            return self._files_of(path, row) or path, row
        except OSError as error:
            if isinstance(error, HeadraceError):
                raise
            raise FailedPreconditionError(
                f"opening dataset {path}: {unread_reason(error)}"
            ) from error

    def _chosen(
        self, path: str, row: Format | None, split: str | None, skip: Sequence[str]
    ) -> tuple[str, Format | None]:
        own = self._with_own(path, row, split)
        if own is not None:
            return path, own
        if row is None and split is None:
            self._refuse_coco(path, skip)
        wanted = split if row is None or split is not None else _own_split(row)
        splits = self._splits(path, row, skip, wanted)
        if wanted is None:
            if len(splits) > 1:
                raise self._several(path, row, splits)
            return path, row
        part = splits.chosen(wanted)
        if part is None and split is None:
            return path, row  # The format looks for it in what is there.
        if part is None:
            raise _no_such(path, row, wanted, splits)
        names = splits.parts[part]
        if names[0].endswith(UNLIKE) and not are_numbered(names):
            raise _unlike(splits, part, row)
        if row is not None and split is None:
            row = with_split(row, None)  # It was that of the folder.
        return splits.path_of(part), row

    def _check_sets(self, original: str, path: str, row: Format | None) -> None:
        """Refuses files of a folder that are not all of a set; of a pattern it warns of them."""
        known = row or self.recognise(path)
        if known is not None and known.file_a_sample:
            return
        if not _places.is_folder(original):
            self._warnings += words_of_incomplete(path)
            return
        if not _places.is_folder(path):
            here = (file for file in expand(path) if os.path.dirname(file) == original)
            refuse_incomplete(original, list(map(os.path.basename, here)), row)
            return
        names = [name for name in self._entries_of(path)[0] if not name.startswith((".", "_"))]
        if _LISTS_OF_FILES.intersection(names):
            return
        wanted = None if known is None else _own_split(known)
        taken = [name for name in names if taker(name, self._formats if known is None else [known])]
        parts = splits_of_files(path, taken, lambda name: True)
        part = parts.chosen(wanted) if wanted is not None else None
        refuse_incomplete(path, taken if part is None else parts.parts[part], row)

    def _with_own(self, path: str, row: Format | None, split: str | None) -> Format | None:
        """The format with its own option `split`, where it knows the splits of what is there."""
        if row is None and split is None:
            return None
        known = row or self.recognise(path)
        if known is None or "split" not in known.options():
            return None
        if _places.is_folder(path) and not known.recognises(path):
            return None
        if split is None:
            return row
        if _own_split(known) not in (None, split):
            raise InvalidArgumentError(
                f"opening dataset {path}: got split={split!r} and format={known.name!r} with "
                f"split={_own_split(known)!r}; give one of them"
            )
        return with_split(known, split)

    def _splits(
        self, path: str, row: Format | None, skip: Sequence[str], wanted: str | None
    ) -> Splits:
        """The splits at a path; none if it is one dataset as its format has it."""
        if not _places.is_folder(path):
            return _of_pattern(path) if wanted is not None else Splits(path, {})
        files, folders = self._entries(path, skip)
        known = row or self.recognise(path)
        if not folders and _has_classes(known) and _takes_all(path, row, known):
            media = [file for file in files if is_media(file) and not file.startswith(".")]
            return splits_of_samples(path, media, any_other=wanted is not None)
        if known is None or (row is None and _has_classes(known)):
            return self._unnamed(path, files, folders, wanted)
        if "split" in known.options() and _takes_all(path, row, known):
            return Splits(path, {})  # It says itself which there are.
        splits = splits_of_files(path, files, known.takes)
        splits = splits or self._of_partitions(path, known, wanted)
        if splits or (wanted is None and (_has_classes(known) or _takes_all(path, row, known))):
            return splits  # With format="folder" each folder is a class, whatever its name.
        return splits_of_folders(path, folders, any_other=wanted is not None)

    def _unnamed(
        self, path: str, files: Sequence[str], folders: Sequence[str], wanted: str | None
    ) -> Splits:
        """The same where no format but that of class folders knows the folder."""
        below = splits_of_folders(path, folders, any_other=wanted is not None)
        if below or len(folders) < 2:
            for row in reversed(self._formats):
                splits = splits_of_files(path, files, row.takes)
                enough = len(splits) > 1 or (splits and wanted is not None)
                if enough and (not folders or row.name != "manifest" or self._opens(splits)):
                    return splits
        return below

    def _refuse_coco(self, path: str, skip: Sequence[str]) -> None:
        """Raises for a folder of COCO, whose folders have names of splits."""
        if _places.is_folder(path) and _is_folder(self.recognise(path)):
            look = coco_look(path, self._entries(path, skip)[1], self.recognise)
            if look is not None:
                raise InvalidArgumentError(f"opening dataset {path}: {look}")

    def _look(self, path: str, skip: Sequence[str]) -> str | None:
        """What to type for a folder that is taken for one of classes and looks like another."""
        known = self.recognise(path) if _places.is_folder(path) else None
        if not _is_folder(known):
            folders = self._entries(path, skip)[1] if _has_classes(known) else ()
            return self._one_split(path, [x for x in folders if not x.startswith(".")], skip)
        refuse_other_partitions(path)
        files, folders = self._entries(path, skip)
        folders = [folder for folder in folders if not folder.startswith(".")]
        return (
            pair_look(path, folders, self.recognise)
            or table_look(path, files, folders)
            or self._splits_below(path, folders)
            or nested_look(path, folders, self._would_open, self._formats)
            or self._one_split(path, folders, skip)
        )

    def _one_split(self, path: str, folders: Sequence[str], skip: Sequence[str]) -> str | None:
        """What to type where the one folder of images is that of a split, no class."""
        if len(folders) != 1 or not is_split(folders[0]):
            return None
        above = self._entries_of(path)[1]
        others = [pattern for pattern in skip if not any(_is_left(x, [pattern]) for x in above)]
        are_many = len(others) > _PATTERNS_MAX
        call = open_call(os.path.join(path, folders[0]), skip=() if are_many else others)
        rest = f" with the {len(others):,} other patterns of skip=" if are_many else ""
        return (
            f"its one folder, {folders[0]!r}, is that of a split: {call}{rest}; format='folder' "
            "takes it as a class"
        )

    def _look_below(self, path: str, row: Format, skip: Sequence[str]) -> str | None:
        """What to type for a folder that has no files of the given format itself."""
        if not _places.is_folder(path) or row.has_class_folders or row.recognises(path):
            return None
        files, folders = self._entries(path, skip)
        return None if any(map(row.takes, files)) else below_look(path, folders, row)

    def _splits_below(self, path: str, folders: Sequence[str]) -> str | None:
        """What to type where the one folder has several splits."""
        below = os.path.join(path, folders[0]) if len(folders) == 1 else path
        with self._silent():
            splits = Splits(path, {}) if below == path else self._splits(below, None, (), None)
        if len(splits) < 2:
            return None
        return str(self._several(below, None, splits)).removeprefix("opening dataset ")

    def _would_open(self, path: str) -> Format | None:
        """The format by which `hr.open` takes a path, if it does without more arguments."""
        try:
            with self._silent():
                where, _ = self._opened(path, None, None, ())
        except HeadraceError:
            return None
        return self.recognise(where)

    @contextmanager
    def _silent(self) -> Iterator[None]:
        """No warnings of paths that are looked at, and not opened."""
        count = len(self._warnings)
        try:
            yield
        finally:
            del self._warnings[count:]

    def _entries(self, folder: str, skip: Sequence[str]) -> tuple[list[str], list[str]]:
        """The files and the folders in it, without folders that `skip=` leaves out."""
        files, folders = self._entries_of(folder)
        return files, [folder for folder in folders if not _is_left(folder, skip)]

    def _of_partitions(self, path: str, row: Format, split: str | None) -> Splits:
        """The splits of partitions split=train, split=test; where none is asked for, a warning says
        so, as they are one table with a column, as for pyarrow."""
        if not row.has_partitions or not row.recognises(path):
            return Splits(path, {})
        column, paths = values_of_splits(path, is_split)
        splits = Splits(path, {path: (path,) for path in paths}, paths)
        if split is not None:
            return splits
        if len(splits) > 1:
            self._warnings.append(
                f"{path}: it holds several splits: {splits.names}, as one table with the column "
                f"{column!r}, as pyarrow and pandas have it; one of them: "
                f"{open_call(path, split=splits.first)}"
            )
        return Splits(path, {})

    def _opens(self, splits: Splits) -> bool:
        """Whether a part is of a known format, or is files of one."""
        return bool(splits) and self._opens_as_it_is(splits.path_of(splits.first))

    def _opens_as_it_is(self, path: str) -> bool:
        return self.recognise(path) is not None or self._would_open(path) is not None

    def _files_of(self, path: str, row: Format | None) -> str | None:
        """The files of a folder that no format takes as a whole; None: it is to be taken so.

        They are all of one kind, with nothing beside them but notes; or what a given format takes.
        """
        known = row or self.recognise(path)
        if not _places.is_folder(path) or _takes_all(path, row, known):
            return None
        contents = contents_of(
            path, self._entries_of(path)[0], (row,) if row is not None else self._formats
        )
        if contents.unfinished and contents.kinds:
            raise _unfinished(contents, row)
        if len(contents.kinds) != 1 or (row is None and contents.others):
            return None
        ((suffix, names),) = contents.kinds.items()
        own = row or taker(names[0], self._formats)
        if own is None or own.hint({suffix}):
            return None  # Something is missing.
        if len(names) > 1 and not are_numbered(names) and not _takes_any(row, suffix):
            return None
        return path_of_files(path, names, suffix=suffix)

    def _several(self, path: str, row: Format | None, splits: Splits) -> InvalidArgumentError:
        first = splits.first
        part = splits.path_of(first)
        names = splits.parts[first]
        if names[0].endswith(UNLIKE) and not are_numbered(names):
            return _unlike(splits, first, row)
        look = self._look_at_part(part) if row is None and _places.is_folder(part) else None
        if look is not None:
            return InvalidArgumentError(
                f"opening dataset {path}: it holds several splits: {splits.names}; {part}: {look}"
            )
        named = row or self._to_name(part, splits.parts[first][0])
        call = open_call(path, named, first)
        other = "" if lists_many(part) else f", which is {open_call(part, named)}"
        split = f"{call} (in commands --split {first}){other}"
        known = self.recognise(path) if row is None and _places.is_folder(part) else None
        of_part = None if known is None else self.recognise(part)
        if known is None or of_part is None or of_part.name not in (_FOLDER, "media"):
            known = None
        elif not splits.are_sure:
            return InvalidArgumentError(
                f"opening dataset {path}: its folders may be classes or splits, by their names: "
                f"{splits.names}; as classes: hr.open({path!r}, format={known.name!r}); one split: "
                f"{split}"
            )
        together = self._all_as_one(path, row, splits)
        classes = "" if known is None else f"; format={known.name!r} takes them as classes"
        return InvalidArgumentError(
            f"opening dataset {path}: it holds several splits: {splits.names}; open one: "
            f"{split}{together}{classes}"
        )

    def _all_as_one(self, path: str, row: Format | None, splits: Splits) -> str:
        """The words for all files as one dataset, where nothing says that they are splits but
        parts of their names."""
        first = splits.parts[splits.first][0]
        are_samples = is_media(first)
        if not _places.is_file(os.path.join(path, first)):
            return ""
        if splits.has_usual_name and not are_samples:
            return ""
        whole = splits.path_of_all
        if are_samples:  # Also those that are of no split.
            media = [x for x in self._entries_of(path)[0] if is_media(x) and not x.startswith(".")]
            whole = path_of_files(path, media, suffix=os.path.splitext(media[0])[1])
        if whole is None or lists_many(whole):
            return ""
        return f"; all as one: {open_call(whole, row)}"

    def _look_at_part(self, path: str) -> str | None:
        """What to type for a folder of a split that does not open as it is."""
        look = self._look(path, ())
        if look is not None or self._opens_as_it_is(path):
            return look
        advice = advice_on_files(path, self._entries_of(path)[0], self._formats, self.recognise)
        return advice or "no format opens this folder; name one that has data"

    def _to_name(self, part: str, file: str) -> Format | None:
        """The format that has to be given, as nothing tells it."""
        if self.recognise(part) is not None:
            return None
        own = taker(file, self._formats)
        return None if own is None else own.example()


def _takes_any(row: Format | None, suffix: str) -> bool:
    """Whether a given format takes all such files of a folder as one dataset, by any names."""
    return row is not None and suffix in (".tar", ".parquet", ".h5", ".hdf5")


def _unfinished(contents: Contents, row: Format | None) -> InvalidArgumentError:
    (names, *_) = contents.kinds.values()
    path = path_of_files(contents.folder, names)
    call = "the others by a pattern" if path is None else open_call(path, row)
    return InvalidArgumentError(
        f"opening dataset {contents.folder}: {contents.unfinished[0]} is a download that has not "
        f"ended; finish it, or open the files that are there: {call}"
    )


def _unlike(splits: Splits, part: str, row: Format | None) -> InvalidArgumentError:
    """The error for arrays of one split, which may be parts of a sample, or rows of one array."""
    names = splits.parts[part]
    path = os.path.join(splits.folder, names[0])
    return InvalidArgumentError(
        f"opening dataset {splits.folder}: its split {part!r} is several files, "
        f"{', '.join(names[:5])}, which are not joined, as they may be the parts of a sample; open "
        f"one, {open_call(path, row)}, save them as the arrays of one .npz (numpy.savez), or join "
        "them by a pattern or a list of files"
    )


def _is_folder(row: Format | None) -> bool:
    return row is not None and row.name == _FOLDER


def _takes_all(path: str, row: Format | None, known: Format | None) -> bool:
    """Whether a format takes a folder as a whole: the one that is given, or that was recognised."""
    return known is not None and (row is None or known.recognises(path))


def _has_classes(row: Format | None) -> bool:
    return row is not None and row.has_class_folders


def _own_split(row: Format) -> str | None:
    return cast(str | None, row.options().get("split"))


def with_split(row: Format, split: str | None) -> Format:
    """The format with this value of its own option `split`."""
    made: Format = replace(cast(Any, row), split=split)
    return made


def _of_pattern(path: str) -> Splits:
    """The splits of the files of a pattern, if these lie in one folder."""
    if not is_pattern(path):
        return Splits(path, {})
    files = expand(path)
    (folder, *others) = {os.path.dirname(file) for file in files}
    if others:
        return Splits(path, {})
    return splits_of_files(folder, map(os.path.basename, files), lambda name: True)


def _is_left(name: str, skip: Sequence[str]) -> bool:
    """Whether `skip=` leaves out a folder that lies directly below the dataset's."""
    return any(fnmatchcase(name, pattern) or fnmatchcase(f"/{name}", pattern) for pattern in skip)


def _no_such(path: str, row: Format | None, split: str, splits: Splits) -> InvalidArgumentError:
    asked = f"opening dataset {path}: split={split!r} was given, "
    if not splits:
        why = "but no names of files or folders there are those of splits"
        if _places.has_magic(path) or not _places.is_folder(path):
            why = "but it is one dataset, not a folder of several"
        return InvalidArgumentError(f"{asked}{why}; leave split out: {open_call(path, row)}")
    meant = splits.like(split)
    calls = [open_call(path, row, part) for part in ([meant] if meant else splits.parts)]
    one = "it may be" if meant else "choose one:"
    return InvalidArgumentError(
        f"{asked}and it has the splits {splits.names}; {one} {' or '.join(calls[:_CALLS_SHOWN])}"
    )
