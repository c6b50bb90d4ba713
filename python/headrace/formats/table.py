"""The table of dataset formats. A new format is one file and one row here."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import threading
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, cast

from headrace import _core, _places
from headrace._arguments import shown
from headrace._text import unread_reason
from headrace._units import format_bytes
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from headrace.formats._base.format import Format, Given, option_words
from headrace.formats._coco.coco import Coco
from headrace.formats._files.patterns import expand
from headrace.formats._folders.advice import advice_on_file, advice_on_files
from headrace.formats._folders.chooser import Chooser, with_split
from headrace.formats._folders.media import Media
from headrace.formats._hdf5.hdf5 import Hdf5
from headrace.formats._huggingface.huggingface import HuggingFace
from headrace.formats._litdata.litdata import LitData
from headrace.formats._mds.mds import MDS
from headrace.formats._parquet.parquet import Parquet
from headrace.formats._tables.manifest import Manifest
from headrace.formats._tfrecord.tfrecord import TFRecord
from headrace.formats.arrays import Arrays, Records
from headrace.formats.folder import Folder
from headrace.formats.index_file import IndexFile
from headrace.formats.pack_format import Pack
from headrace.formats.tokens import Tokens
from headrace.formats.webdataset import WebDataset

OTHER = IndexFile()

FORMATS: tuple[Format, ...] = (
    Folder(),
    Media(),
    Tokens(),
    Arrays(),
    Records(),
    WebDataset(),
    Parquet(),
    Manifest(),
    Coco(),
    Hdf5(),
    HuggingFace(),
    MDS(),
    LitData(),
    TFRecord(),
    Pack(),
    OTHER,
)
"""The last one that recognises a path is used, so the most specific comes last."""


_ADVICE = re.compile(r"format=(hr\.formats\.\w+\()")
_BUILT_IN = FORMATS
_registering = threading.Lock()


def register(format: Format) -> None:
    """Makes `headrace.open` and the commands know a format.

    A path that several formats recognise is opened by the one registered last. Register a
    format in every process that opens paths; a pickled dataset brings its format along. Commands
    import the modules that the environment variable HEADRACE_FORMATS names, separated by commas.

    Raises:
        InvalidArgumentError: not a `Format`, no name, or the name of another class.
    """
    global FORMATS
    candidate: object = format
    if not isinstance(candidate, Format):
        raise InvalidArgumentError(
            f"register: got {shown(format)}, must be an instance of a class derived from "
            "headrace.formats.Format"
        )
    for attribute in ("name", "opens"):
        if not isinstance(getattr(format, attribute, None), str):
            raise InvalidArgumentError(
                f"register: {type(format).__name__}.{attribute} must be a str"
            )
    with _registering:
        same = [row for row in FORMATS if row.name == format.name]
        if any(type(row).__qualname__ != type(format).__qualname__ for row in same):
            raise InvalidArgumentError(
                f"register: the name {format.name!r} is that of another format, "
                f"{same[0].opens}; take another name"
            )
        FORMATS = (*(row for row in FORMATS if row not in same), format)


def is_built_in(format: Format) -> bool:
    """Whether every process has this format in its table, with these parameters."""
    return any(row is format for row in _BUILT_IN)


def named(name: str) -> Format:
    """The format of that name, as registered."""
    for row in FORMATS:
        if row.name == name:
            return row
    names = ", ".join(row.name for row in FORMATS)
    raise InvalidArgumentError(f"format {name!r}: there are {names}")


def with_options(name: str | None, texts: Sequence[str], path: str | None = None) -> Format:
    """The format of that name with these options, each "NAME=VALUE"; without a name that of `path`.

    VALUE is JSON or a text; of an option that is a list also names with commas between them.
    """
    row = _recognised_or_none(path) if name is None else named(name)
    if row is None:
        names = ", ".join(row.name for row in FORMATS)
        raise InvalidArgumentError(f"--option: say the format, too, --format NAME, of {names}")
    options: Any = row
    kinds = {
        field.name: str(field.type) for field in (fields(options) if row.option_names() else ())
    }
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or key not in kinds:
            known = ", ".join(row.option_names()) or "none"
            raise InvalidArgumentError(
                f"--option {text}: format {row.name!r} has these options: {known}; write NAME=VALUE"
            )
        values[key] = _option_value(text, kinds[key], value)
    made: Format = replace(cast(Any, row), **values) if values else row
    return made


def _recognised_or_none(path: str | None) -> Format | None:
    try:
        return recognise(_places.absolute(os.path.expanduser(path))) if path else None
    except OSError:
        return None  # Opening it says why.


def _option_value(option: str, kind: str, text: str) -> Any:
    """The value of an option of this type, as the format declares it."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if kind.startswith("tuple[str"):
        if isinstance(value, list):
            return tuple(value)
        names = value if isinstance(value, str) else text
        return None if value is None else tuple(name.strip() for name in names.split(","))
    if kind.startswith("str") and not isinstance(value, (str, list)) and value is not None:
        return text  # A name of digits.
    if kind == "bool" and text in ("True", "False"):
        return text == "True"
    if kind.startswith("Mapping") and not isinstance(value, dict) and value is not None:
        name = option.partition("=")[0]
        first, _, rest = text.partition("=")
        example = json.dumps({first or "NAME": rest or "VALUE"})
        raise InvalidArgumentError(
            f"--option {option}: {name} is a JSON object: --option '{name}={example}'"
        )
    return value


def for_commands(message: str) -> str:
    """A message, whose advice "format=hr.formats.NAME(...)" becomes options of a command."""
    made, at = "", 0
    for match in _ADVICE.finditer(message):
        ends = (
            bracket.end()
            for bracket in re.finditer(r"\)", message)
            if bracket.start() >= match.end()
        )
        call = next(filter(None, (_call(message[match.start(1) : end]) for end in ends)), None)
        row = next((x for x in FORMATS if call and type(x).__name__ == call[0]), None)
        if call is None or row is None or match.start() < at:
            continue
        words = ["--format", row.name, *option_words(call[1], _option_text)]
        made += message[at : match.start()] + shlex.join(words)
        at = match.start(1) + call[2]
    return made + message[at:]


def _call(text: str) -> tuple[str, dict[str, Any], int] | None:
    """The name of a class, the options that it is called with, and the size of the text."""
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            arguments = {
                str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords
            }
            json.dumps(arguments)  # Else it is no value to type: "window=...".
            return call.func.attr, arguments, len(text)
    except (SyntaxError, ValueError, TypeError):
        pass
    return None


def _option_text(value: Any) -> str:
    """What `_option_value` takes for the value."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple) and value and not any("," in item for item in value):
        return ",".join(value)
    return json.dumps(value)


def import_named(modules: str) -> None:
    """Imports modules, separated by commas, that register formats."""
    for name in filter(None, map(str.strip, modules.split(","))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InvalidArgumentError(
                f"HEADRACE_FORMATS={modules}: importing {name}: {error}; set PYTHONPATH to the "
                "folder that it lies in"
            ) from error


def recognise(path: str) -> Format | None:
    """The format of `path`; None if no format recognises it. Raises OSError."""
    return next((row for row in reversed(FORMATS) if row.recognises(path)), None)


def chosen(
    path: str, row: Format | None, split: str | None, skip: Sequence[str] | None
) -> tuple[str, Format]:
    """What to open at `path`, and by which format: all of it, or the split that is asked for."""
    chooser = Chooser(FORMATS, recognise)
    path, row = chooser.chosen(path, row, split, skip or ())
    return path, row or chooser.recognise(path) or recognised(path)


def of_object(
    source: object, row: Format | None = None, split: str | None = None
) -> tuple[Format, Given] | None:
    """The format of an object that is no path, and how it is indexed; `row`: by this format.

    None if no format knows it.
    """
    for candidate in (row,) if row is not None else reversed(FORMATS):
        if split is not None and "split" in candidate.options():
            candidate = with_split(candidate, split)
        described = candidate.of_object(source)
        if described is not None:
            if split is not None and "split" not in candidate.options():
                raise InvalidArgumentError(
                    f"opening {described.title}: split={split!r} was given, but it is one dataset; "
                    "leave split out"
                )
            return candidate, described
    return None


def format_of(index: _core.Index) -> Format:
    """The format of the dataset that the index describes."""
    name = index.attributes.get("format", OTHER.name)
    return next((row for row in FORMATS if row.name == name), OTHER)


def described() -> str:
    """A list of what headrace opens, for errors."""
    return "headrace opens: " + ", ".join(row.opens for row in FORMATS)


def recognised(path: str) -> Format:
    """The format of what is at `path`; else an error that says what was found there."""
    try:
        row = recognise(path)
        if row is not None:
            return row
        names = sorted(_places.names(path)) if _places.is_folder(path) else None
    except OSError as error:
        raise FailedPreconditionError(f"opening dataset {path}: {unread_reason(error)}") from error
    if not _places.exists(path):
        first = expand(path)[0]
        there = "" if _places.exists(first) else ", which is not there"
        raise NotFoundError(
            f"opening dataset {path}: no format opens this pattern; its first file is "
            f"{first}{there}; {described()}"
        )
    if names is None:
        advice = advice_on_file(path, FORMATS) or described()
        raise InvalidArgumentError(
            f"opening dataset {path}: this is a file of {format_bytes(_places.stat(path).st_size)}"
            f", no dataset; {advice}"
        )
    if not names:
        raise InvalidArgumentError(
            f"opening dataset {path}: the folder is empty; name one that has the data "
            "(`headrace docs data` has the formats)"
        )
    kinds: dict[str, int] = {}
    for name in names:
        suffix = os.path.splitext(name)[1] or "other"
        kinds[suffix] = kinds.get(suffix, 0) + 1
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())[:5])
    hints = "".join(row.hint(kinds.keys()) for row in FORMATS)
    advice = advice_on_files(path, names, FORMATS, recognise) or described()
    raise InvalidArgumentError(
        f"opening dataset {path}: not a dataset: it holds no folders, only files ({counts}); "
        f"{advice}{hints}"
    )
