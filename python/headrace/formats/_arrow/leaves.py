"""The fields that an Arrow table gives: a reader for each column, by its type and its feature."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._arrow.arrow_file import reading
from headrace.formats._arrow.nested_lists import NestedListReader
from headrace.formats._arrow.readers import (
    BinaryReader,
    DictionaryReader,
    FixedBinaryReader,
    ListReader,
    MediaReader,
    NumberReader,
    Reader,
    TensorReader,
    ViewReader,
)
from headrace.formats._arrow_types.fields import (
    ARROW_FILE,
    ArrowField,
    MediaParts,
    NoField,
    Offsets,
    bytes_of,
    field_of,
    field_of_lists,
    number_of,
    offsets_of,
    storage_of,
)
from headrace.formats._arrow_types.tensors import kind_of_feature, tensor_of, tensor_of_feature
from headrace.formats._base.absent import (
    NOT_GIVEN,
    check_absent,
    check_known,
    left_out,
    valid_field,
    ways_out,
)
from headrace.formats._base.builder import Builder
from headrace.formats._base.format import Format
from headrace.formats._base.sounds import check_sounds
from headrace.formats._fields.column_names import check_column_names

_METADATA = b"huggingface"

Feature = Any
"""A feature as JSON: {"_type": "Value", "dtype": "int64"}; None if unknown."""


@dataclass(frozen=True)
class Leaf:
    """A field: a column, or a part of a column of structs."""

    name: str
    column: str
    inside: tuple[int, ...]
    """The numbers of the struct's parts that lead to it."""
    reader: Reader | str
    """Or why there is none, and the remedy."""
    classes: tuple[str, ...] = ()
    is_sound: bool = False
    """Whether the index is to know what its sounds decode to."""
    stand_in: Any = NOT_GIVEN
    """The value of rows that are null."""
    is_optional: bool = False
    """Whether another field says which rows have a value."""
    advice: Callable[[Sequence[str], bool], str] = lambda others, inside: "fill or filter them"
    """What to do about nulls of rows, of `others` too, or of values inside of rows."""

    @property
    def has_stand_in(self) -> bool:
        """Whether rows may be null."""
        return self.stand_in is not NOT_GIVEN

    def array(self, batch: Any) -> Any:
        """The values of a record batch, without the type's extension."""
        array = _stored(batch.column(batch.schema.get_field_index(self.column)))
        for part in self.inside:
            array = _stored(array.field(part))
        return array

    def structs(self, batch: Any) -> Iterator[Any]:
        """The structs around it."""
        struct = _stored(batch.column(batch.schema.get_field_index(self.column)))
        for part in self.inside:
            yield struct
            struct = _stored(struct.field(part))


def features_in(schema: Any, path: str) -> Feature:
    """The features that `datasets` wrote into a schema; None without."""
    text = (schema.metadata or {}).get(_METADATA)
    if text is None:
        return None
    try:
        features = json.loads(text)["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataLossError(
            f"indexing {path}: the features in its schema cannot be read "
            f"({type(error).__name__}); copy or write the file again"
        ) from error
    return features if isinstance(features, dict) else None


def leaves_of(
    schema: Any, features: Feature, columns: Sequence[str] | None, what: str
) -> list[Leaf]:
    """The fields of a table, or those that `columns` name, in that order."""
    leaves: list[Leaf] = []
    with reading(what, "its columns"):
        for field in schema:
            feature = features.get(field.name) if isinstance(features, dict) else None
            tensor = tensor_of(field, feature)
            if tensor is None:
                leaves.extend(_leaves(field.name, field.name, (), field.type, feature))
            else:
                reader = _reader(field_of_lists(field.type, tensor, ARROW_FILE))
                leaves.append(Leaf(field.name, field.name, (), reader))
    names = [leaf.name for leaf in leaves]
    if not names:
        raise InvalidArgumentError(f"indexing {what}: it has no columns; open files that have some")
    if columns is not None:
        leaves = [leaf for column in columns for leaf in _of_column(leaves, column, what)]
    check_column_names(what, [leaf.name for leaf in leaves], names, "HuggingFace")
    for leaf in leaves:
        if isinstance(leaf.reader, str):
            fitting = [other.name for other in leaves if not isinstance(other.reader, str)]
            raise InvalidArgumentError(
                f"indexing {what}: column {leaf.name!r}: {leaf.reader}, or leave it out: "
                f"columns=({', '.join(map(repr, fitting)) or '...'},)"
            )
    return leaves


def _of_column(leaves: list[Leaf], column: str, what: str) -> list[Leaf]:
    """The fields that a name of `columns` means: one, or the parts of a struct."""
    chosen = [leaf for leaf in leaves if leaf.name == column or leaf.name.startswith(column + ".")]
    if not chosen:
        raise InvalidArgumentError(
            f"indexing {what}: columns: got {column!r}; there are "
            f"{', '.join(leaf.name for leaf in leaves)}"
        )
    return chosen


def with_sounds(leaves: Sequence[Leaf], sounds: Sequence[str], what: str) -> list[Leaf]:
    """The fields, of which those that `sounds` names are sounds."""
    kinds = {
        leaf.name: "lists" if leaf.reader.shape else leaf.reader.kind
        for leaf in leaves
        if isinstance(leaf.reader, Reader)
    }
    check_sounds(what, sounds, kinds)
    return [replace(leaf, is_sound=leaf.name in sounds) for leaf in leaves]


def with_stand_ins(leaves: Sequence[Leaf], row: Any, what: str) -> list[Leaf]:
    """The fields, of which some may be null, as the options of `row` say."""
    zeros = {leaf.name: zero_of(leaf.reader) for leaf in leaves}
    fill = row.fill or {}
    check_absent("huggingface", row.fill, row.optional)
    typed = {name: None if zero is NOT_GIVEN else zero for name, zero in zeros.items()}
    check_known(what, row, typed)
    made = []
    for leaf in leaves:
        zero = zeros[leaf.name]
        leaf = replace(leaf, advice=partial(_advice, row, zeros, leaf.name))
        if leaf.name in fill or leaf.name in row.optional:
            stand_in = fill.get(leaf.name, zero)
            why = _no_stand_in(leaf.reader, stand_in, zero)
            if why:
                raise InvalidArgumentError(
                    f"indexing {what}: column {leaf.name!r}: {why}; {leaf.advice([], False)}"
                )
            leaf = replace(leaf, stand_in=stand_in, is_optional=leaf.name in row.optional)
        made.append(leaf)
    return made


def _advice(
    row: Format, zeros: Mapping[str, Any], name: str, others: Sequence[str], inside: bool
) -> str:
    if inside or zeros[name] is NOT_GIVEN:
        return f"fill or filter them{left_out(row, [name], list(zeros))}"
    return ways_out(row, {column: zeros[column] for column in (name, *others)}, list(zeros))


def zero_of(reader: Reader | str) -> Any:
    """What may stand for a null row; NOT_GIVEN: nothing, as rows lie in the file as they are."""
    if isinstance(reader, NumberReader):
        return np.zeros((), reader.dtype).item()
    if isinstance(reader, (BinaryReader, ViewReader, FixedBinaryReader, DictionaryReader)):
        return ""
    if isinstance(reader, ListReader) and reader.offsets is not None:
        return []
    is_list = isinstance(reader, NestedListReader) and isinstance(reader.outer, str)
    return [] if is_list else NOT_GIVEN


def _no_stand_in(reader: Reader | str, stand_in: Any, zero: Any) -> str:
    """Why a value cannot stand for null rows of a column; empty: it can."""
    if zero is NOT_GIVEN:
        return "its rows have bytes of the file, so nothing stands for those that are null"
    if isinstance(reader, NumberReader):
        kind = np.dtype(reader.dtype).kind
        types = {"b": (bool,), "f": (int, float)}.get(kind, (int,))
        fits = type(stand_in) in types
        if fits and kind in "iu":
            limits = np.iinfo(str(reader.dtype))
            fits = limits.min <= stand_in <= limits.max
        return "" if fits else f"fill: got {stand_in!r:.80}, it holds {reader.dtype}"
    if isinstance(reader, DictionaryReader):
        return "" if isinstance(stand_in, str) else f"fill: got {stand_in!r:.80}, it holds text"
    if stand_in != zero or type(stand_in) is not type(zero):
        return f"fill: got {stand_in!r:.80}, but its bytes lie in the file: only {zero!r} can be"
    return ""


def add_fields(leaves: Sequence[Leaf], builder: Builder, what: str) -> None:
    """Describes the fields, and the classes of the label."""
    for leaf in leaves:
        reader = leaf.reader
        assert isinstance(reader, Reader)
        try:
            builder.add_field(
                leaf.name,
                reader.kind,
                reader.dtype,
                reader.shape,
                inline=reader.inline,
                decoded_sizes=leaf.is_sound,
            )
            if leaf.is_optional:
                builder.add_field(valid_field(leaf.name), "array", "bool", inline=True)
        except InvalidArgumentError as error:  # For example, a name with a NUL.
            raise InvalidArgumentError(f"indexing {what}: column {leaf.name!r}: {error}") from error
    labels = [leaf for leaf in leaves if leaf.classes]
    usual = [label for label in labels if label.name in ("label", "labels")]
    for leaf in (usual or labels)[:1]:
        builder.set_classes(leaf.classes)


def _leaves(
    name: str, column: str, inside: tuple[int, ...], type: Any, feature: Feature
) -> Iterator[Leaf]:
    import pyarrow as pa

    stored = storage_of(type)
    if not pa.types.is_struct(stored):
        field = field_of(type, ARROW_FILE, tensor_of_feature(feature))
        yield Leaf(name, column, inside, _reader(field, feature), _classes(feature))
        return
    media = field_of(stored, ARROW_FILE)
    if isinstance(media, ArrowField):
        yield Leaf(name, column, inside, _reader(media, feature))
        return
    if stored.num_fields == 0:
        yield Leaf(name, column, inside, "a struct without parts; fill it")
    for number in range(stored.num_fields):
        part = stored.field(number)
        of_part = feature.get(part.name) if isinstance(feature, dict) else None
        yield from _leaves(f"{name}.{part.name}", column, (*inside, number), part.type, of_part)


def _reader(field: ArrowField | NoField, feature: Feature = None) -> Reader | str:
    """What reads the values of a field; why there is no field."""
    if isinstance(field, NoField):
        return field.why
    if field.media is not None:
        return _media_reader(field, field.media, feature)
    if field.kind == "array":
        return _array_reader(field)
    of_bytes = bytes_of(field.inside)
    if of_bytes is None:
        return DictionaryReader()
    _, form = of_bytes
    if field.lists:
        return NestedListReader(
            kind=field.kind,
            shape=field.shape,
            outer=field.lists[0],
            offsets=offsets_of(field.inside),
        )
    if form == "view":
        return ViewReader(kind=field.kind)
    if form == "sized":
        return FixedBinaryReader(kind=field.kind, width=field.inside.byte_width)
    return BinaryReader(kind=field.kind, offsets=offsets_of(field.inside))


def _media_reader(field: ArrowField, media: MediaParts, feature: Feature) -> Reader:
    offsets = offsets_of(media.content)
    if field.lists:
        return NestedListReader(
            kind=field.kind,
            shape=field.shape,
            outer=field.lists[0],
            offsets=offsets,
            part=media.positions[0],
        )
    return MediaReader(
        kind="image" if kind_of_feature(feature) == "Image" else "bytes",
        content=BinaryReader(kind="bytes", offsets=offsets),
        paths=BinaryReader(kind="bytes", offsets=offsets_of(media.path)),
        places=media.positions,
    )


def _array_reader(field: ArrowField) -> Reader:
    dtype, shape, lists = field.dtype, field.shape, field.lists
    stored = str(number_of(field.inside))
    is_bool = stored == "bool"
    if field.tensor is not None:
        return TensorReader(
            dtype=dtype, shape=shape, stored=stored, inline=is_bool, lists=field.tensor.lists
        )
    if not lists:
        return NumberReader(stored=stored, dtype=dtype)
    offsets = lists[0]
    if shape[:2] == (None, None):
        return NestedListReader(
            dtype=dtype,
            shape=shape,
            outer=offsets,
            offsets=cast(Offsets, lists[1]),
            stored=stored,
            widths=cast(tuple[int, ...], lists[2:]),
            inline=is_bool,
        )
    return ListReader(
        dtype=dtype,
        shape=shape,
        stored=stored,
        offsets=offsets if isinstance(offsets, str) else None,
        widths=cast(tuple[int, ...], lists[1:] if shape[:1] == (None,) else lists),
        inline=is_bool,
    )


def _classes(feature: Feature) -> tuple[str, ...]:
    names = feature.get("names") if kind_of_feature(feature) == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()


def _stored(array: Any) -> Any:
    import pyarrow as pa

    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array
