"""The interface of a dataset format: a row of the table in `headrace.formats.table`."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shlex
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import _core, _places
from headrace._arguments import shown
from headrace._signature import named_arguments
from headrace._text import unread_reason
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.formats._base.cache import (
    built,
    cache_path,
    cache_target,
    index_target,
    make_folder_of,
    open_current,
)
from headrace.formats._files.patterns import folder_above, searched_folders
from headrace.formats._indexing.recorded import is_current

if TYPE_CHECKING:
    from headrace.formats._base.builder import Builder, Decodes, Progress
    from headrace.formats._base.findings import Finding
    from headrace.formats._fields.order import FieldType
    from headrace.formats._indexing.elsewhere import Elsewhere

FORMAT, SOURCE, OPTIONS, KEY = "format", "source", "options", "object"
"""Attributes of an index: the format's name, the path that was indexed, the format's options; the
key of an object that was indexed."""

Sample = dict[str, Any]
"""By field: the bytes as they are stored, or a NumPy value."""

_OWN_MODULES = "headrace.formats."

_log = logging.getLogger("headrace.dataset")


@dataclass(frozen=True)
class Opened:
    """An index, and where it comes from."""

    index: _core.Index
    named: str | None = None  # the index file, if the user named it
    is_new: bool = False  # built by this call


@dataclass(frozen=True)
class Wanted:
    """The arguments of `headrace.open` beside the path."""

    index: str | os.PathLike[str] | None = None  # path of the index; None: chosen by the format
    skip: tuple[str, ...] | None = None  # patterns, sorted; None: not given
    progress: Progress | None = None
    jobs: int | None = None  # files that are read at a time; None: the builder's default
    elsewhere: Elsewhere | None = None  # describes files in other processes


@dataclass(frozen=True)
class Given:
    """An object of another package whose samples lie in files: what `Format.of_object` returns."""

    title: str
    """What it is, for messages and as the source of the index."""
    key: str
    """Objects of one title and key have the same samples."""
    root: str
    """The folder that contains all files."""
    fill: Callable[[Builder], None]
    """Describes its samples to the builder, as `Format.fill` does."""


_LATER = "later"


def later_option(default: Any, *, hash: bool | None = None) -> Any:
    """The default of an option that was added to a format later.

    An index omits it if it has its default, so that older indexes stay current.
    """
    return dataclasses.field(default=default, hash=hash, metadata={_LATER: True})


def written(row: Format, **changes: Any) -> str:
    """A format with other options, as Python: "hr.formats.Manifest(fill={'age': 0})"."""
    made: Any = dataclasses.replace(row, **changes)  # type: ignore[type-var]
    values = {
        option.name: (getattr(made, option.name), option.default) for option in _options_of(made)
    }
    options = [f"{name}={value!r}" for name, (value, usual) in values.items() if value != usual]
    return f"hr.formats.{type(row).__name__}({', '.join(options)})"


def _options_of(row: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(row) if dataclasses.is_dataclass(row) else ()


def option_words(options: Mapping[str, Any], text: Callable[[Any], str] = json.dumps) -> list[str]:
    """The options in a command. `text` writes a value."""
    words = []
    for name, value in options.items():
        words += ["--option", f"{name}={text(value)}"]
    return words


class _NamedOptions(ABCMeta):
    """Of classes whose options are the fields of a dataclass: others are refused by an error that
    helps, as `named_arguments` says."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        own = vars(cls).get("__init__")
        if dataclasses.is_dataclass(cls) and own is not None and not hasattr(own, "__wrapped__"):
            type.__setattr__(cls, "__init__", named_arguments(own))
        has_options = any("__init__" in vars(base) for base in cls.__mro__[:-1])
        if not has_options and (args or kwargs):
            arguments = ", ".join([*map(shown, args), *kwargs])
            raise InvalidArgumentError(
                f"{cls.__name__}: got {arguments}: this format has no options; leave them out"
            )
        return super().__call__(*args, **kwargs)


class Format(metaclass=_NamedOptions):
    """Recognises, indexes and checks the datasets of one format.

    A format of your own defines `name`, `opens`, `recognises()` and `fill()`; `register()` then
    makes `headrace.open` and the commands know it. Parameters are the fields of a frozen dataclass:
    two datasets with different parameters are different datasets.

    Large: it is all that the rest of headrace asks of a format; a user's format has four of these.

    Thread safety: stateless; every method may be called from any thread.
    """

    name: ClassVar[str]
    """The format's name, as in `Dataset.format`; unique."""

    opens: ClassVar[str]
    """A noun phrase with its article, for the list of what headrace opens."""

    file_a_sample: ClassVar[bool] = False
    """Whether each sample is a file of its own."""

    follows_skip: ClassVar[bool] = False
    """Whether `skip=` leaves files out."""

    has_class_folders: ClassVar[bool] = False
    """Whether the folders in a folder are its classes."""

    has_partitions: ClassVar[bool] = False
    """Whether folders COLUMN=VALUE of a folder are columns of its samples."""

    chooses: ClassVar[tuple[str, ...]] = ("columns",)
    """The options that name fields in the order in which they are wanted."""

    @abstractmethod
    def recognises(self, path: str) -> bool:
        """Whether `path` (absolute) is a dataset of this format. OSError: it cannot be read.

        It exists, or it is a pattern, such as "a-{000..099}.tar" or "a-*.tar".
        """

    def takes(self, name: str) -> bool:
        """Whether a file of this name in a folder belongs to a dataset of this format."""
        return False

    def example(self) -> Format:
        """The format with example options, for messages that advise to give it."""
        return self

    def fill(self, path: str, builder: Builder) -> None:
        """Describes the dataset at `path` to the builder: fields, files, samples.

        An exception stops indexing and leaves no file.
        """
        raise InvalidArgumentError(
            f"indexing {path}: {self.opens} cannot be indexed: format {self.name!r} needs a method "
            "fill(path, builder)"
        )

    def of_object(self, source: object) -> Given | None:
        """How to index an object that is given instead of a path; None: it is not of this format.

        Must not import the object's package. Raises an error of headrace for an object of this
        format whose samples lie in no files.
        """
        return None

    def root(self, path: str) -> str:
        """The folder that contains all files of the dataset at `path`, for the builder."""
        if _places.is_folder(path):
            return path
        return os.path.dirname(path) if _places.exists(path) else folder_above(path)

    def decodes(self, path: str) -> Decodes:
        """Whether files of the dataset at `path` are decoded, for the builder.

        True: they are compressed as a whole. "groups": a `GroupFormat` decodes parts of them.
        """
        return False

    def remedy(self, index: _core.Index) -> str:
        """What to do when a file is gone or is not as it was indexed."""
        path = index.attributes.get(SOURCE, index.root)
        words = ["headrace", "index", path, "--format", self.name]
        words += option_words(options_of(index))
        return f"run `{shlex.join(words)}` to index the data as it is now"

    def command_words(self, path: str) -> str:
        """What names the dataset at `path` in a command: the format, too, if it has options."""
        usual = {option.name: option.default for option in _options_of(self)}
        changed = {key: value for key, value in self.options().items() if value != usual.get(key)}
        words = [path, *(["--format", self.name, *option_words(changed)] if changed else [])]
        return shlex.join(words)

    def own_samples(self, path: str) -> Iterator[Sample]:
        """Yields each sample, read by the format's own library. Tests compare it with headrace."""
        raise InvalidArgumentError(
            f"reading {path}: {self.opens} has no reader of its own; read hr.open({path!r})"
        )

    def options(self) -> Mapping[str, Any]:
        """The parameters, as JSON values, by name: the fields of a dataclass.

        Without those of `later_option()` that have their default.
        """
        values = {option: getattr(self, option.name) for option in _options_of(self)}
        return {
            option.name: value
            for option, value in values.items()
            if not option.metadata.get(_LATER) or value != option.default
        }

    def option_names(self) -> tuple[str, ...]:
        """The names of all parameters."""
        return tuple(option.name for option in _options_of(self))

    # The rest serves formats with another way than an index that headrace builds and keeps.

    def open(self, path: str, wanted: Wanted) -> Opened:
        """Returns the index of the dataset at `path`; builds it if there is none or it is stale."""
        refuse_skip(f"opening {path}", wanted.skip)
        target = self._target(path, wanted)
        index = open_current(target, lambda index: self._describes(path, index))
        if index is not None:
            return Opened(index, named=None if wanted.index is None else target)
        if wanted.index is not None and _places.exists(target):
            self._check_replaceable(path, target)
        index, _ = self._build(self._at_path(path), target, wanted)
        return Opened(index, named=None if wanted.index is None else target, is_new=True)

    def open_object(self, source: Given, wanted: Wanted) -> tuple[str, Opened]:
        """As `open`, of an object; also the path of its index, which stands for it from now on."""
        refuse_skip(f"opening {source.title}", wanted.skip)

        def describes(index: _core.Index) -> bool:
            return self._describes(source.title, index) and index.attributes.get(KEY) == source.key

        if wanted.index is not None:
            target = index_target(wanted.index)
        else:
            kept = cache_path(source.title, f":object={source.key}", self._options_text())
            target = cache_target(source.title, kept, describes)
        index = open_current(target, describes)
        is_new = index is None
        if index is None:
            if wanted.index is not None and _places.exists(target):
                self._check_replaceable(source.title, target)
            index, target = self._build(source, target, wanted)
        return target, Opened(index, None if wanted.index is None else target, is_new)

    def build(self, path: str, wanted: Wanted) -> tuple[_core.Index, str]:
        """Builds the index even if there is one. Returns it and the path of its file."""
        refuse_skip(f"indexing {path}", wanted.skip)
        target = self._target(path, wanted)
        return self._build(self._at_path(path), target, wanted)

    def is_current(self, index: _core.Index) -> bool:
        """Whether the index still lists the files that exist. Stores check each file they open."""
        return is_current(index)

    def leave_out(self, index: _core.Index, kind: str) -> str:
        """What to do about an unreadable file of a kind of `skip=`, such as ":special"."""
        return self.remedy(index)

    def source_folder(self, index: _core.Index) -> str | None:
        """The folder in which every added file becomes a sample; None if there is none."""
        return None

    def field_order(self, index: _core.Index, fields: Sequence[FieldType]) -> Sequence[str]:
        """The names of the fields in the order in which samples are to have them.

        `fields`: in the order of the index. That is the order of a schema, or the one that the
        user chose. A format that has neither returns `data_first(fields)`.
        """
        return [field.name for field in fields]

    def chose_fields(self, index: _core.Index) -> bool:
        """Whether the user named the fields, and so chose their order."""
        options = options_of(index)
        return any(options.get(name) is not None for name in self.chooses)

    def file_fault(
        self, index: _core.Index, number: int, read: Callable[[int, int], bytes | bytearray]
    ) -> str | None:
        """A fault of a file whose samples are valid; None if there is none.

        `read(offset, size)` reads the file.
        """
        return None

    def also_found(self, index: _core.Index) -> tuple[Finding, ...]:
        """Findings about the present files, besides those in the index."""
        return ()

    def hint(self, suffixes: Set[str]) -> str:
        """Advice for a folder that is not a dataset and has files with these suffixes."""
        return ""

    @property
    def comes_with_headrace(self) -> bool:
        """Whether its code comes with headrace."""
        return type(self).__module__.startswith(_OWN_MODULES)

    def _index_into(self, path: str, builder: Builder) -> None:
        """As `fill()`; of formats that have an option of that name."""
        self.fill(path, builder)

    def _options_text(self) -> str:
        try:
            return json.dumps(dict(self.options()), sort_keys=True)
        except TypeError as error:
            raise InvalidArgumentError(
                f"format {self.name}: its options must be JSON values: {error}{_as_json(self)}"
            ) from error

    def _target(self, path: str, wanted: Wanted) -> str:
        if wanted.index is not None:
            return index_target(wanted.index)
        kept = cache_path(path, f":format={self.name}", self._options_text())
        return cache_target(path, kept, lambda index: self._describes(path, index))

    def _describes(self, path: str, index: _core.Index) -> bool:
        return self._is_of(path, index) and self.is_current(index)

    def _is_of(self, path: str, index: _core.Index) -> bool:
        expected = {FORMAT: self.name, SOURCE: path, OPTIONS: self._options_text()}
        return all(index.attributes.get(key) == value for key, value in expected.items())

    def _check_replaceable(self, path: str, target: str) -> None:
        """An index that the user named is replaced only if it is of the same dataset."""
        index = _core.Index.open(target)
        if not self._is_of(path, index):
            of = index.attributes.get(SOURCE, index.root)
            raise InvalidArgumentError(
                f"opening dataset {path}: the index {target} is one of {of}, or was made with "
                "other options; name another file"
            )

    def _at_path(self, path: str) -> Given:
        with _naming_objects(path):
            root = self.root(path)
        return Given(path, "", root, lambda builder: self._index_into(path, builder))

    def _build(self, source: Given, target: str, wanted: Wanted) -> tuple[_core.Index, str]:
        """The index, and where it is: `target`, unless that is in the cache and has no room."""
        target = built(
            source.title,
            target,
            lambda path: self._build_at(source, path, wanted),
            named=wanted.index is not None,
        )
        index = _core.Index.open(target)
        _log.info("indexed %s: %d samples, into %s", source.title, index.sample_count, target)
        return index, target

    def _build_at(self, source: Given, target: str, wanted: Wanted) -> None:
        from headrace.formats._base.builder import Builder  # With all that indexing takes.

        title = source.title
        make_folder_of(target, f"indexing {title}")
        decodes = not source.key and self.decodes(title)
        with Builder(
            target,
            source.root,
            decodes=decodes,
            progress=wanted.progress,
            jobs=wanted.jobs,
            continues=self._continues(source),
            elsewhere=wanted.elsewhere,
        ) as builder:
            builder.set_attribute(FORMAT, self.name)
            builder.set_attribute(SOURCE, title)
            builder.set_attribute(OPTIONS, self._options_text())
            if source.key:
                builder.set_attribute(KEY, source.key)
            _filled(source, builder, target)
            for folder in () if source.key else searched_folders(title):
                builder.depends_on(folder)

    def _continues(self, source: Given) -> str | None:
        """What the parts of an index that was not finished must be of, to be used."""
        if not self.comes_with_headrace:
            return None  # The code of a format of the user's may have changed since.
        parts = [_core.version, self.name, source.title, source.key, self._options_text()]
        return json.dumps(parts)


_ADVICE = {
    "the name is taken": "; each part of a sample has a name of its own: leave one of the two out",
    "is not a wider type than": "; choose a wider batch_dtype, or leave it out",
}
"""What to do, by what the core says."""


@contextmanager
def _naming_objects(title: str) -> Iterator[None]:
    """Errors of object stores name the object that could not be read."""
    try:
        yield
    except _places.StoreError as error:
        what = error.path or title
        raise FailedPreconditionError(f"indexing {what}: {unread_reason(error)}") from error


def _filled(source: Given, builder: Builder, target: str) -> None:
    """Describes the samples; errors name the data, not the index file."""
    try:
        with _naming_objects(source.title):
            source.fill(builder)
    except InvalidArgumentError as error:
        what = str(error).removeprefix(f"writing index {target!r}: ")
        if what == str(error):
            raise
        advice = next((way for end, way in _ADVICE.items() if end in what), "")
        raise InvalidArgumentError(f"indexing {source.title}: {what}{advice}") from error


def _as_json(row: Format) -> str:
    """What to give for the first value of `fill=` that is no JSON."""
    fill = row.options().get("fill")
    for name, value in fill.items() if isinstance(fill, Mapping) else ():
        try:
            json.dumps(value)
        except TypeError:
            with suppress(AttributeError, UnicodeDecodeError):
                plain = value.decode() if isinstance(value, bytes) else value.tolist()
                return f"; give fill={{{name!r}: {plain!r:.200}}}"
            if isinstance(value, bytes):
                return (
                    f"; {name!r} is no text in UTF-8: give fill={{{name!r}: ''}}, or "
                    f"optional=({name!r},)"
                )
    return ""


def options_of(index: _core.Index) -> dict[str, Any]:
    """The options with which the dataset was indexed."""
    try:
        options = json.loads(index.attributes.get(OPTIONS, "{}"))
    except ValueError:
        return {}
    return options if isinstance(options, dict) else {}


def refuse_skip(doing: str, skip: tuple[str, ...] | None) -> None:
    """Raises if there are patterns, for datasets whose samples are fixed."""
    if skip:
        raise InvalidArgumentError(
            f"{doing}: skip={list(skip)!r} was given, but its samples are fixed; leave skip "
            "out, or open the folder of images with it"
        )


def remedies(row: Format, index: _core.Index) -> tuple[str, str, str]:
    """Advice for the core's errors: a changed file, a broken link, a file that is not regular."""
    return (
        row.remedy(index),
        row.leave_out(index, ":broken_link"),
        row.leave_out(index, ":special"),
    )
