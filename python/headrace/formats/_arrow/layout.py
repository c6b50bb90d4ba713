"""The fields that an Arrow table gives: a reader for each column, by its type and its feature."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from headrace.errors import DataLossError, InvalidArgumentError
from headrace.formats._arrow.inner import InnerLists, Offsets
from headrace.formats._arrow.readers import (
    Binary,
    Dictionary,
    FixedBinary,
    Lists,
    Media,
    Nested,
    Numbers,
    Reader,
    Views,
)
from headrace.formats._arrow.tables import reading
from headrace.formats._base.builder import Builder
from headrace.formats._base.field import Kind
from headrace.formats._base.format import Format
from headrace.formats._base.sounds import check_sounds
from headrace.formats._fields.column_names import check_column_names
from headrace.formats._parquet.tensors import IN_ORDER, Tensor, permutation_of, tensor_of
from headrace.formats._tables.absent import (
    NOT_GIVEN,
    check_absent,
    check_known,
    left_out,
    valid_field,
    ways_out,
)

_METADATA = b"huggingface"
_NUMBERS = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32)},
    "int64": "int64",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    "uint64": "uint64",
    "date32[day]": "int32",
    "date64[ms]": "int64",
}
_TIMES = ("timestamp[", "time64[", "duration[")
_ARRAYS = ("Array2D", "Array3D", "Array4D", "Array5D")
_CAST = "cast it to float64 or int64"

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
        found = _stored(batch.column(batch.schema.get_field_index(self.column)))
        for part in self.inside:
            found = _stored(found.field(part))
        return found

    def structs(self, batch: Any) -> Iterator[Any]:
        """The structs around it."""
        found = _stored(batch.column(batch.schema.get_field_index(self.column)))
        for part in self.inside:
            yield found
            found = _stored(found.field(part))


def features_in(schema: Any, path: str) -> Feature:
    """The features that `datasets` wrote into a schema; None without."""
    text = (schema.metadata or {}).get(_METADATA)
    if text is None:
        return None
    try:
        found = json.loads(text)["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataLossError(
            f"indexing {path}: the features in its schema cannot be read "
            f"({type(error).__name__}); copy or write the file again"
        ) from error
    return found if isinstance(found, dict) else None


def leaves_of(
    schema: Any, features: Feature, columns: Sequence[str] | None, what: str
) -> list[Leaf]:
    """The fields of a table, or those that `columns` name, in that order."""
    found: list[Leaf] = []
    with reading(what, "its columns"):
        for field in schema:
            of = features.get(field.name) if isinstance(features, dict) else None
            tensor = tensor_of(field, of)
            if tensor is None:
                found.extend(_leaves(field.name, field.name, (), field.type, of))
            else:
                reader = _nested(_storage(field.type), tensor)
                found.append(Leaf(field.name, field.name, (), reader))
    names = [each.name for each in found]
    if not names:
        raise InvalidArgumentError(f"indexing {what}: it has no columns; open files that have some")
    if columns is not None:
        found = [leaf for name in columns for leaf in _named(found, name, what)]
    check_column_names(what, [each.name for each in found], names, "HuggingFace")
    for leaf in found:
        if isinstance(leaf.reader, str):
            good = ", ".join(repr(e.name) for e in found if not isinstance(e.reader, str))
            raise InvalidArgumentError(
                f"indexing {what}: column {leaf.name!r}: {leaf.reader}, or leave it out: "
                f"columns=({good or '...'},)"
            )
    return found


def _named(leaves: list[Leaf], name: str, what: str) -> list[Leaf]:
    found = [each for each in leaves if each.name == name or each.name.startswith(name + ".")]
    if not found:
        raise InvalidArgumentError(
            f"indexing {what}: columns: got {name!r}; there are "
            f"{', '.join(each.name for each in leaves)}"
        )
    return found


def with_sounds(leaves: Sequence[Leaf], sounds: Sequence[str], what: str) -> list[Leaf]:
    """The fields, of which those that `sounds` names are sounds."""
    kinds = {
        each.name: "lists" if each.reader.shape else each.reader.kind
        for each in leaves
        if isinstance(each.reader, Reader)
    }
    check_sounds(what, sounds, kinds)
    return [replace(each, is_sound=each.name in sounds) for each in leaves]


def with_stand_ins(leaves: Sequence[Leaf], row: Any, what: str) -> list[Leaf]:
    """The fields, of which some may be null, as the options of `row` say."""
    zeros = {each.name: zero_of(each.reader) for each in leaves}
    fill = row.fill or {}
    check_absent("huggingface", row.fill, row.optional)
    typed = {name: None if each is NOT_GIVEN else each for name, each in zeros.items()}
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
    return ways_out(row, {each: zeros[each] for each in (name, *others)}, list(zeros))


def zero_of(reader: Reader | str) -> Any:
    """What may stand for a null row; NOT_GIVEN: nothing, as rows lie in the file as they are."""
    if isinstance(reader, Numbers):
        return np.zeros((), reader.dtype).item()
    if isinstance(reader, (Binary, Views, FixedBinary, Dictionary)):
        return ""
    if isinstance(reader, Lists) and reader.offsets is not None:
        return []
    is_list = isinstance(reader, InnerLists) and isinstance(reader.outer, str)
    return [] if is_list else NOT_GIVEN


def _no_stand_in(reader: Reader | str, stand_in: Any, zero: Any) -> str:
    """Why a value cannot stand for null rows of a column; empty: it can."""
    if zero is NOT_GIVEN:
        return "its rows have bytes of the file, so nothing stands for those that are null"
    if isinstance(reader, Numbers):
        kind = np.dtype(reader.dtype).kind
        types = {"b": (bool,), "f": (int, float)}.get(kind, (int,))
        fits = type(stand_in) in types
        if fits and kind in "iu":
            limits = np.iinfo(str(reader.dtype))
            fits = limits.min <= stand_in <= limits.max
        return "" if fits else f"fill: got {stand_in!r:.80}, it holds {reader.dtype}"
    if isinstance(reader, Dictionary):
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
    labels = [each for each in leaves if each.classes]
    usual = [each for each in labels if each.name in ("label", "labels")]
    for leaf in (usual or labels)[:1]:
        builder.set_classes(leaf.classes)


def _leaves(
    name: str, column: str, inside: tuple[int, ...], type: Any, feature: Feature
) -> Iterator[Leaf]:
    import pyarrow as pa

    stored = _storage(type)
    if not pa.types.is_struct(stored):
        yield Leaf(name, column, inside, _reader(type, feature), _classes(feature))
        return
    media = _media(stored, feature)
    if media is not None:
        yield Leaf(name, column, inside, media)
        return
    if stored.num_fields == 0:
        yield Leaf(name, column, inside, "a struct without parts; fill it")
    for number in range(stored.num_fields):
        part = stored.field(number)
        of = feature.get(part.name) if isinstance(feature, dict) else None
        yield from _leaves(f"{name}.{part.name}", column, (*inside, number), part.type, of)


def _media(type: Any, feature: Feature) -> Media | None:
    """The reader of a struct of bytes and path."""
    names = {type.field(number).name: number for number in range(type.num_fields)}
    if names.keys() != {"bytes", "path"} or type.num_fields != 2:
        return None
    parts = [_reader(type.field(names[each]).type, None) for each in ("bytes", "path")]
    content, paths = parts
    if not isinstance(content, Binary) or not isinstance(paths, Binary):
        return None
    kind: Kind = "image" if _kind_of(feature) == "Image" else "bytes"
    return Media(kind=kind, content=content, paths=paths, places=(names["bytes"], names["path"]))


def _reader(type: Any, feature: Feature) -> Reader | str:
    import pyarrow as pa

    if isinstance(type, pa.FixedShapeTensorType):
        permutation = permutation_of(type)
        if permutation is not None:
            return f"its dimensions are permuted in memory as {list(permutation)}; {IN_ORDER}"
        return _listed(type.storage_type, tuple(type.shape))
    stored = _storage(type)
    number = _number(stored)
    if number is not None:
        return Numbers(stored=number, dtype="int64" if number == "uint64" else number)
    types = pa.types
    texts: tuple[tuple[Any, str, Kind], ...] = (
        (types.is_string, "int32", "text"),
        (types.is_large_string, "int64", "text"),
        (types.is_binary, "int32", "bytes"),
        (types.is_large_binary, "int64", "bytes"),
    )
    for check, offsets, kind in texts:
        if check(stored):
            return Binary(kind=kind, offsets=offsets)
    if types.is_string_view(stored) or types.is_binary_view(stored):
        return Views(kind="text" if types.is_string_view(stored) else "bytes")
    if types.is_fixed_size_binary(stored) and not types.is_decimal(stored):
        width = stored.byte_width
        return FixedBinary(kind="bytes", width=width) if width > 0 else _no(type)
    if types.is_dictionary(stored):
        return Dictionary() if _is_text(stored.value_type) else _no(type)
    if _kind_of(feature) in _ARRAYS and isinstance(feature.get("shape"), (list, tuple)):
        shape = tuple(feature["shape"])
        return _nested(stored, Tensor(shape, shape))
    return _inner_lists(stored) or _listed(stored, None)


def _listed(type: Any, shape: tuple[int, ...] | None) -> Reader | str:
    """The reader of a list of numbers. `shape`: of a fixed list, if it has several dimensions."""
    import pyarrow as pa

    offsets: str | None = None
    inner = type
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        offsets = "int32" if pa.types.is_list(type) else "int64"
        inner = type.value_type
    widths: tuple[int, ...] = ()
    while pa.types.is_fixed_size_list(inner):
        widths, inner = (*widths, inner.list_size), inner.value_type
    number = _number(inner)
    if not widths and offsets is None:
        return _no(type)
    if pa.types.is_list(inner) or pa.types.is_large_list(inner):
        return (
            f"{_short(type)}: lists of lists hold numbers and bools, no uint64, and are two deep; "
            "save them flat with their lengths"
        )
    if number is None or number == "uint64":
        return (
            f"{_short(type)}: a field holds lists of numbers, bools, texts and bytes; save one "
            f"text or bytes a row ({_CAST}, if they are numbers)"
        )
    if any(each <= 0 for each in widths):
        return f"{_short(type)}: a row has no bytes; fill it"
    dims: tuple[int | None, ...] = shape if shape is not None else widths
    if offsets is not None:
        dims = (None, *dims)
    return Lists(
        dtype=number,
        shape=dims,
        stored=number,
        offsets=offsets,
        widths=widths,
        inline=number == "bool",
    )


def _inner_lists(type: Any) -> Reader | None:
    """The reader of a list of lists of numbers, of texts, of bytes, of media; None: it is none."""
    import pyarrow as pa

    types = pa.types
    outer: Offsets | int
    if types.is_fixed_size_list(type):
        outer = type.list_size
    elif types.is_list(type) or types.is_large_list(type):
        outer = "int32" if types.is_list(type) else "int64"
    else:
        return None
    inner = _storage(type.value_type)
    if outer == 0:
        return None
    if types.is_struct(inner):
        media = _media(inner, None)
        if media is None:
            return None
        offsets: Any = media.content.offsets
        part, _ = media.places
        return InnerLists(kind="bytes", shape=(None,), outer=outer, offsets=offsets, part=part)
    if types.is_list(inner) or types.is_large_list(inner):
        offsets = "int32" if types.is_list(inner) else "int64"
        widths, number = _widths(inner.value_type)
        if number is None or number == "uint64" or any(each <= 0 for each in widths):
            return None
        return InnerLists(
            dtype=number,
            shape=(None, None, *widths),
            outer=outer,
            offsets=offsets,
            stored=number,
            widths=widths,
            inline=number == "bool",
        )
    content = _reader(inner, None)
    if not isinstance(content, Binary):
        return None
    offsets = content.offsets
    return InnerLists(kind=content.kind, shape=(None,), outer=outer, offsets=offsets)


def _widths(type: Any) -> tuple[tuple[int, ...], str | None]:
    """The lengths of fixed lists, from the outside, and the dtype of the numbers in them."""
    import pyarrow as pa

    widths: tuple[int, ...] = ()
    while pa.types.is_fixed_size_list(type):
        widths, type = (*widths, type.list_size), type.value_type
    return widths, _number(type)


def _nested(type: Any, tensor: Tensor) -> Reader | str:
    import pyarrow as pa

    inner, shape = type, tensor.shape
    for _ in tensor.lists:
        if not pa.types.is_list(inner) and not pa.types.is_large_list(inner):
            return (
                f"{_short(type)}: not stored as lists of {len(tensor.lists)} dimensions; save it "
                "again"
            )
        inner = inner.value_type
    number = _number(inner)
    is_shape = all(isinstance(each, int) and each > 0 for each in shape[1:])
    first = shape[0] if shape else 0
    if number is None or number == "uint64" or not is_shape or first == 0:
        return f"an array of {_short(inner)} {list(shape)} is no field; {_CAST}"
    if first is None and number == "bool":
        return f"bools of shape {list(shape)} are no field; cast them to int8"
    if first is not None and not isinstance(first, int):
        return f"its shape is {list(shape)!r}; save it again"
    return Nested(
        dtype=number, shape=shape, stored=number, inline=number == "bool", lists=tensor.lists
    )


def _no(type: Any) -> str:
    import pyarrow as pa

    if pa.types.is_null(type):
        return "it holds nulls only; fill it"
    return f"a field cannot hold {_short(type)}; {_CAST}, or to a string"


def _number(type: Any) -> str | None:
    """The dtype of a column of numbers; times are whole numbers of their unit."""
    text = str(type)
    if text.startswith(_TIMES):
        return "int64"
    return "int32" if text.startswith("time32[") else _NUMBERS.get(text)


def _classes(feature: Feature) -> tuple[str, ...]:
    names = feature.get("names") if _kind_of(feature) == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()


def _kind_of(feature: Feature) -> Any:
    return feature.get("_type") if isinstance(feature, dict) else None


def _is_text(type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def _storage(type: Any) -> Any:
    import pyarrow as pa

    while isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    return type


def _stored(array: Any) -> Any:
    import pyarrow as pa

    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _short(type: Any) -> str:
    text = str(type)
    return text if len(text) <= 100 else text[:100] + "..."
