"""The field that a column of an Arrow type becomes. Only this module decides it.

| type | Arrow files | Parquet | LitData |
|---|---|---|---|
| bool, floats, ints but uint64 | a number | a number | a number |
| uint64 | int64 | - | - |
| dates, times, durations | a whole number | a whole number | - |
| string, binary and their large forms | text, bytes | text, bytes | text, bytes |
| string_view, binary_view | text, bytes | text, bytes | - |
| fixed_size_binary | bytes, not of length 0 | bytes | - |
| dictionary | text, of string and large_string | as its values | - |
| struct of bytes and path | bytes | bytes | - |
| other structs | each part is a field | - | - |
| fixed lists of numbers | an array | an array | - |
| list of numbers | an array of any length | the same | the same, but no bools |
| list of fixed lists of numbers | an array of any length | the same | - |
| list of such lists, of texts, bytes, media | nested lists | nested lists | - |
| fixed list of these | nested lists | - | - |
| fixed_shape_tensor | an array | an array | - |
| fixed_shape_tensor with two dimensions swapped | - | an array | - |
| Array2D to Array5D of datasets, tensors of Ray | an array | an array | - |

pyarrow is imported in functions: who has a type has imported it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from headrace.formats._arrow_types.tensors import IN_ORDER, Tensor, is_swap, permutation_of
from headrace.formats._base.field import Kind

Offsets = Literal["int32", "int64"]
Lists = tuple[Offsets | int, ...]
"""From the outside: the type of a list's offsets, or the length of a fixed list."""
BytesForm = Literal["plain", "view", "sized"]
"""How text and bytes are stored: with offsets, as views, or all of one size."""

_CAST = "cast it to float64 or int64"
_SHOWN = 100  # characters of a type


@dataclass(frozen=True, kw_only=True)
class TypeRules:
    """Where formats differ. Kept indexes have the fields of these rules: leave them as they are."""

    decodes: bool = False
    """Whether pyarrow decodes the values; else they are read as the file has them. Then bytes of a
    type may be 0 long, the numbers of lists in an extension or a dictionary, tensors of bools of
    any length, and two dimensions of a tensor swapped in memory."""
    uint64_as: str | None = None
    """The dtype of a column of uint64; None: it is no field."""
    times: bool = True
    bytes_alone: frozenset[BytesForm] = frozenset({"plain", "view", "sized"})
    """The forms of text and bytes, one a row."""
    bytes_in_lists: frozenset[BytesForm] = frozenset({"plain"})
    dictionaries: Literal["text", "all"] | None = None
    """Which are read: of text, one a row, or all; None: none."""
    extension_levels: int = 0
    """In how many lists, and outside of them, a type may be an extension."""
    media: Literal["plain", "bytes"] | None = None
    """Which structs of bytes and path are read: both plain, or the first bytes; None: none."""
    fixed_lists: bool = True
    fixed_outside: bool = False
    """Whether fixed lists may hold lists of any length, texts, bytes or media."""
    nested_lists: bool = True
    bools_in_lists: bool = True


ARROW_FILE = TypeRules(
    uint64_as="int64",
    dictionaries="text",
    extension_levels=2,
    media="plain",
    fixed_outside=True,
)
"""The file has the values as they are, or the index holds them."""
PARQUET = TypeRules(
    decodes=True,
    bytes_in_lists=frozenset({"plain", "view", "sized"}),
    dictionaries="all",
    extension_levels=64,
    media="bytes",
)
LITDATA = TypeRules(
    times=False,
    bytes_alone=frozenset({"plain"}),
    bytes_in_lists=frozenset(),
    fixed_lists=False,
    nested_lists=False,
    bools_in_lists=False,
)
"""The chunk has the values as they are."""


class MediaParts(NamedTuple):
    """The parts of a struct of bytes and path."""

    content: Any
    """The type of the bytes."""
    path: Any
    positions: tuple[int, int]
    """Of both in the struct."""


@dataclass(frozen=True, kw_only=True)
class ArrowField:
    """A field, and how its values are stored."""

    kind: Kind
    dtype: str | None = None
    shape: tuple[int | None, ...] = ()
    lists: Lists = ()
    """Around the values."""
    inside: Any
    """The type of what is in the lists."""
    media: MediaParts | None = None
    tensor: Tensor | None = None
    permutation: tuple[int, ...] | None = None
    """The stored dimension of each of an array's; None: the same."""


class NoField(NamedTuple):
    """A type that is no field."""

    why: str
    """With a remedy."""
    is_permuted: bool = False
    """Whether the reason is that its dimensions are permuted: in order it would be a field."""


def field_of(
    arrow_type: Any, rules: TypeRules, array: Tensor | None = None
) -> ArrowField | NoField:
    """The field of a type. `array`: what its lists are, if a feature says so."""
    import pyarrow as pa

    if isinstance(arrow_type, pa.FixedShapeTensorType) and rules.extension_levels:
        return _of_tensor(arrow_type, rules)
    lists, inside, is_wrapped = _taken_apart(arrow_type, rules)
    field = _in_lists(lists, inside, is_wrapped, rules) if lists else _alone(inside, rules)
    if array is not None and (lists or field is None):
        return field_of_lists(arrow_type, array, rules)
    if field is not None:
        return field
    if lists:
        return NoField(_why_no_lists(_unwrapped(arrow_type, rules, 0), lists, inside))
    if pa.types.is_null(inside):
        return NoField("it holds nulls only; fill it")
    return NoField(f"a field cannot hold {_short(inside)}; {_CAST}, or to a string")


def field_of_lists(arrow_type: Any, tensor: Tensor, rules: TypeRules) -> ArrowField | NoField:
    """The field of arrays that are stored as lists."""
    import pyarrow as pa

    stored = inside = _unwrapped(arrow_type, rules, 0)
    for _ in tensor.lists:
        if not pa.types.is_list(inside) and not pa.types.is_large_list(inside):
            return NoField(
                f"{_short(stored)}: not stored as lists of {len(tensor.lists)} dimensions; save it "
                "again"
            )
        inside = plain_type(inside.value_type) if rules.decodes else inside.value_type
    number, shape = number_of(inside), tensor.shape
    are_sizes = all(type(size) is int and size > 0 for size in shape[1:])
    first = shape[0] if shape else 0
    if number is None or number == "uint64" or not are_sizes or first == 0:
        return NoField(f"an array of {_short(inside)} {list(shape)} is no field; {_CAST}")
    if first is None and number == "bool" and not rules.decodes:
        return NoField(f"bools of shape {list(shape)} are no field; cast them to int8")
    if first is not None and type(first) is not int:
        return NoField(f"its shape is {list(shape)!r}; save it again")
    return ArrowField(kind="array", dtype=number, shape=shape, inside=inside, tensor=tensor)


def number_of(arrow_type: Any, *, times: bool = True) -> str | None:
    """The dtype of numbers; times are whole numbers of their unit. None: it has no numbers."""
    import pyarrow as pa

    types = pa.types
    if (
        types.is_boolean(arrow_type)
        or types.is_integer(arrow_type)
        or types.is_floating(arrow_type)
    ):
        return str(np.dtype(arrow_type.to_pandas_dtype()).name)
    if times and types.is_temporal(arrow_type) and not types.is_interval(arrow_type):
        return f"int{arrow_type.bit_width}"
    return None


def bytes_of(arrow_type: Any) -> tuple[Literal["text", "bytes"], BytesForm] | None:
    """Whether a type is of text or bytes, and in which form; None: of neither."""
    import pyarrow as pa

    types = pa.types
    if types.is_string(arrow_type) or types.is_large_string(arrow_type):
        return "text", "plain"
    if types.is_binary(arrow_type) or types.is_large_binary(arrow_type):
        return "bytes", "plain"
    if types.is_fixed_size_binary(arrow_type):
        return "bytes", "sized"
    if types.is_string_view(arrow_type):
        return "text", "view"
    return ("bytes", "view") if types.is_binary_view(arrow_type) else None


def entries_of(arrow_type: Any) -> Any | None:
    """The type of the entries of lists, of fixed ones, too; None: it is no type of lists."""
    import pyarrow as pa

    types = pa.types
    is_list = (
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
    )
    return arrow_type.value_type if is_list else None


def offsets_of(arrow_type: Any) -> Offsets:
    """The type of the offsets of lists, of plain text, of plain bytes."""
    return "int64" if str(arrow_type).startswith("large_") else "int32"


def storage_of(arrow_type: Any) -> Any:
    """The type without its extensions."""
    import pyarrow as pa

    while isinstance(arrow_type, pa.BaseExtensionType):
        arrow_type = arrow_type.storage_type
    return arrow_type


def plain_type(arrow_type: Any) -> Any:
    """The type of the values of an extension or of a dictionary."""
    import pyarrow as pa

    while pa.types.is_dictionary(arrow_type := storage_of(arrow_type)):
        arrow_type = arrow_type.value_type
    return arrow_type


def _unwrapped(arrow_type: Any, rules: TypeRules, level: int) -> Any:
    """The type without the extensions that it may have there; `level`: how many lists it is in."""
    if level >= rules.extension_levels:
        return arrow_type
    return plain_type(arrow_type) if rules.dictionaries == "all" else storage_of(arrow_type)


def _taken_apart(arrow_type: Any, rules: TypeRules) -> tuple[Lists, Any, bool]:
    """The lists, what is in them, and whether a type in them is an extension or a dictionary."""
    import pyarrow as pa

    lists: list[Offsets | int] = []
    inside, is_wrapped = _unwrapped(arrow_type, rules, 0), False
    while (entry := entries_of(inside)) is not None:
        is_fixed = pa.types.is_fixed_size_list(inside)
        lists.append(inside.list_size if is_fixed else offsets_of(inside))
        while isinstance(entry, pa.FixedShapeTensorType) and rules.decodes:
            if permutation_of(entry) is not None:
                return tuple(lists), entry, True
            lists.extend(entry.shape)
            entry = entry.value_type
        inside = _unwrapped(entry, rules, len(lists))
        is_wrapped = is_wrapped or inside is not entry
    return tuple(lists), inside, is_wrapped


def _alone(inside: Any, rules: TypeRules) -> ArrowField | None:
    """One number, text, bytes or media a row."""
    import pyarrow as pa

    number, of_bytes = number_of(inside, times=rules.times), bytes_of(inside)
    if number is not None:
        dtype = rules.uint64_as if number == "uint64" else number
        return None if dtype is None else ArrowField(kind="array", dtype=dtype, inside=inside)
    if pa.types.is_dictionary(inside):
        is_text = bytes_of(inside.value_type) == ("text", "plain")
        is_read = is_text and rules.dictionaries == "text"
        return ArrowField(kind="text", inside=inside) if is_read else None
    if of_bytes is not None:
        kind, form = of_bytes
        is_read = form in rules.bytes_alone and _has_bytes(inside, form, rules)
        return ArrowField(kind=kind, inside=inside) if is_read else None
    media = _media_of(inside, rules)
    return None if media is None else ArrowField(kind="bytes", inside=inside, media=media)


def _has_bytes(inside: Any, form: BytesForm, rules: TypeRules) -> bool:
    return form != "sized" or inside.byte_width > 0 or rules.decodes


def _media_of(inside: Any, rules: TypeRules) -> MediaParts | None:
    """The parts of a struct of bytes and path; None: it is no such struct."""
    import pyarrow as pa

    if rules.media is None or not pa.types.is_struct(inside) or inside.num_fields != 2:
        return None
    positions = {inside.field(position).name: position for position in range(2)}
    if positions.keys() != {"bytes", "path"}:
        return None
    of_bytes, of_path = positions["bytes"], positions["path"]
    content, path = (_unwrapped(inside.field(at).type, rules, 0) for at in (of_bytes, of_path))
    is_media = (bytes_of(content) or ("", ""))[0] == "bytes"
    if rules.media == "plain":
        is_media = all((bytes_of(part) or ("", ""))[1] == "plain" for part in (content, path))
    return MediaParts(content, path, (of_bytes, of_path)) if is_media else None


def _in_lists(lists: Lists, inside: Any, is_wrapped: bool, rules: TypeRules) -> ArrowField | None:
    """Lists of numbers, of texts, of bytes, of media; lists of lists of numbers."""
    fixed = [size for size in lists if isinstance(size, int)]
    if 0 in fixed or (fixed and not rules.fixed_lists):
        return None
    number = number_of(inside, times=rules.times)
    if number is None:
        return _in_list(lists, inside, rules)
    if number == "uint64" or (number == "bool" and not rules.bools_in_lists):
        return None
    shape: tuple[int | None, ...]
    ragged = [level for level, size in enumerate(lists) if isinstance(size, str)]
    if ragged in ([], [0]):
        if is_wrapped and not rules.decodes:
            return None
        shape = (*(None for _ in ragged), *fixed)
    elif rules.nested_lists and (ragged == [0, 1] or (ragged == [1] and rules.fixed_outside)):
        shape = (None, None, *fixed[2 - len(ragged) :])
    else:
        return None
    return ArrowField(kind="array", dtype=number, shape=shape, lists=lists, inside=inside)


def _in_list(lists: Lists, inside: Any, rules: TypeRules) -> ArrowField | None:
    """A list of texts, of bytes, of media."""
    is_fixed = isinstance(lists[0], int)
    if len(lists) > 1 or (is_fixed and not rules.fixed_outside):
        return None
    kind: Kind = "bytes"
    media, of_bytes = _media_of(inside, rules), bytes_of(inside)
    if of_bytes is not None:
        kind, form = of_bytes
        if form not in rules.bytes_in_lists or not _has_bytes(inside, form, rules):
            return None
    elif media is None:
        return None
    return ArrowField(kind=kind, shape=(None,), lists=lists, inside=inside, media=media)


def _why_no_lists(stored: Any, lists: Lists, inside: Any) -> str:
    if any(isinstance(size, str) for size in lists[1:]):
        return (
            f"{_short(stored)}: lists of lists hold numbers and bools, no uint64, and are two "
            "deep; save them flat with their lengths"
        )
    if number_of(inside) in (None, "uint64") or 0 not in lists:
        return (
            f"{_short(stored)}: a field holds lists of numbers, bools, texts and bytes; save one "
            f"text or bytes a row ({_CAST}, if they are numbers)"
        )
    return f"{_short(stored)}: a row has no bytes; fill it"


def _of_tensor(tensor: Any, rules: TypeRules) -> ArrowField | NoField:
    """Of a fixed_shape_tensor."""
    permutation, sizes = permutation_of(tensor), tuple(tensor.shape)
    if permutation is not None and not rules.decodes:
        return NoField(f"its dimensions are permuted in memory as {list(permutation)}; {IN_ORDER}")
    stored, lists = tensor.storage_type, (tensor.storage_type.list_size,)
    inside = plain_type(tensor.value_type) if rules.decodes else tensor.value_type
    number = number_of(inside)
    if number is None or number == "uint64" or 0 in sizes:
        return NoField(_why_no_lists(stored, lists, inside))
    if permutation is not None and not is_swap(permutation):
        return NoField(
            f"its dimensions are permuted as {list(permutation)}, of which writers and readers "
            f"disagree what it means; {IN_ORDER}",
            is_permuted=True,
        )
    return ArrowField(
        kind="array",
        dtype=number,
        shape=tuple(sizes[dimension] for dimension in permutation or range(len(sizes))),
        lists=lists,
        inside=inside,
        permutation=permutation,
    )


def _short(arrow_type: Any) -> str:
    text = str(arrow_type)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
