"""Which columns of a file become fields, and of what kind, by the schema of the file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.formats._builder import Builder
from headrace.formats._fields.column_names import check_column_names
from headrace.formats._parquet.files import arrow
from headrace.formats._parquet.tensors import (
    IN_ORDER,
    Tensor,
    is_swap,
    permutation_of,
    tensor_of,
)
from headrace.formats._tables.absent import NOT_GIVEN, valid_field

if TYPE_CHECKING:
    import pyarrow as pa

INLINE_BYTES_MAX = 16  # of a scalar that the index holds


@dataclass(frozen=True)
class Column:
    """A column of the file that is a field of each sample."""

    name: str
    kind: Literal["bytes", "image", "text", "array"]
    dtype: str | None = None  # of an array
    shape: tuple[int | None, ...] = ()  # its first dimension is None if it varies, the second too
    child: str | None = None  # the value is that of this child of a struct
    is_media: bool = False  # Hugging Face's Image
    stand_in: Any = NOT_GIVEN
    """The value of rows that have none, as JSON."""
    is_optional: bool = False
    """Whether another field says which rows have a value."""
    lists: tuple[int | None, ...] = ()
    """Of an array that is stored as lists, their lengths from the outside; None: any."""
    permutation: tuple[int, ...] | None = None
    """The stored dimension of each of an array's; None: the same."""

    @property
    def path(self) -> str:
        """As pyarrow selects it."""
        whole = self.child is None or self.is_nested
        return self.name if whole else f"{self.name}.{self.child}"

    @property
    def is_nested(self) -> bool:
        """Whether a value is a list of lists, of texts or of bytes."""
        return self.shape[:1] == (None,) and (self.kind != "array" or self.shape[1:2] == (None,))

    @property
    def is_variable(self) -> bool:
        """Whether values differ in length."""
        return self.kind != "array" or (bool(self.shape) and self.shape[0] is None)

    @property
    def entry_bytes(self) -> int:
        """Bytes of a value, or of an entry of one whose length varies."""
        if self.dtype is None:
            return 1
        inner = [each for each in self.shape if each is not None]
        return np.dtype(self.dtype).itemsize * int(np.prod(inner, dtype=object))

    @property
    def is_inline(self) -> bool:
        """Whether the index holds the values."""
        return self.kind == "array" and not self.shape and self.entry_bytes <= INLINE_BYTES_MAX

    @property
    def has_stand_in(self) -> bool:
        """Whether rows may have no value."""
        return self.stand_in is not NOT_GIVEN

    @property
    def zero(self) -> Any:
        """What may stand for a value, as JSON."""
        if self.is_variable:
            return [] if self.shape else ""
        zeros = np.zeros([each or 0 for each in self.shape], self.dtype)
        return zeros.tolist()

    def described(self) -> str:
        """For errors: "label: int64"."""
        dimensions = ["?" if each is None else str(each) for each in self.shape]
        shape = f"[{', '.join(dimensions)}]" if dimensions else ""
        return f"{self.name}: {self.dtype or self.kind}{shape}"

    def add_field(self, builder: Builder) -> None:
        """Adds it to the builder."""
        builder.add_field(self.name, self.kind, self.dtype, self.shape, inline=self.is_inline)
        if self.is_optional:
            builder.add_field(valid_field(self.name), "array", "bool", inline=True)


def columns_of(
    path: str, schema: pa.Schema, wanted: Sequence[str] | None, beside: Sequence[str] = ()
) -> list[Column]:
    """The columns that `wanted` names, or all. `beside`: others, of folders, for advice."""
    if isinstance(wanted, str):
        raise InvalidArgumentError(
            f"parquet columns: got {wanted!r}, must be a list of names, as [{wanted!r}]"
        )
    names = list(schema.names)
    features = _features(schema)
    columns = []
    for name in names if wanted is None else wanted:
        if name not in names:
            raise InvalidArgumentError(
                f"indexing {path}: column {name!r}: it has no such column; its columns are "
                f"{', '.join(names)}: choose with columns=(...)"
            )
        check_column_names(path, [name], names, "Parquet")
        try:
            columns.append(_column(path, schema.field(name), features.get(name)))
        except InvalidArgumentError as error:
            fitting = [each for each in names if _fits(schema, each, features.get(each))]
            others = tuple(dict.fromkeys([*fitting, *(x for x in beside if x not in names)]))
            way = f"; leave it out, format=hr.formats.Parquet(columns={others!r})" if others else ""
            raise InvalidArgumentError(f"{error}{way}") from error
    if not columns:
        raise InvalidArgumentError(f"indexing {path}: it has no columns")
    return columns


def with_stand_ins(
    columns: Sequence[Column], fill: Mapping[str, Any], optional: Sequence[str]
) -> list[Column]:
    """The columns, of which some have a value for rows that have none."""
    made = []
    for each in columns:
        if each.name in optional or each.name in fill:
            stand_in = fill.get(each.name, each.zero)
            each = replace(each, stand_in=stand_in, is_optional=each.name in optional)
        made.append(each)
    return made


def classes_of(schema: pa.Schema, columns: Sequence[Column]) -> list[str] | None:
    """The names of Hugging Face's ClassLabel, if one column is such, or one named "label"."""
    features = _features(schema)
    found = {}
    for column in columns:
        feature = features.get(column.name)
        names = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(names, list) and all(isinstance(each, str) for each in names):
            found[column.name] = names
    if len(found) > 1:
        found = {name: names for name, names in found.items() if name == "label"}
    return next(iter(found.values()), None)


def _column(path: str, field: pa.Field, feature: Any) -> Column:
    name, found, is_image = field.name, field.type, _is_image(feature)
    tensor = tensor_of(field, feature)
    if tensor is not None:
        return _tensor(path, name, plain_type(found), tensor)
    if isinstance(found, arrow().FixedShapeTensorType):
        return _fixed_tensor(path, name, found)
    types = arrow().types
    found = plain_type(found)
    if types.is_struct(found):
        children = {found.field(i).name: found.field(i).type for i in range(found.num_fields)}
        if children.keys() == {"bytes", "path"} and _is_binary(plain_type(children["bytes"])):
            return Column(name, "bytes", child="bytes", is_media=is_image)
    elif _is_text(found):
        return Column(name, "text")
    elif _is_binary(found):
        return Column(name, "bytes", is_media=is_image)
    elif _is_list(found):
        inner = _inner(found.value_type)
        if inner is not None:
            return Column(name, "array", inner[0], (None, *inner[1]))
        lists = _inner_lists(name, plain_type(found.value_type))
        if lists is not None:
            return lists
    else:
        inner = _inner(found)
        if inner is not None:
            return Column(name, "array", inner[0], inner[1])
    raise _refused(path, name, found)


def _refused(path: str, name: str, found: pa.DataType) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"indexing {path}: column {name!r} is of type {found}, which samples cannot hold; "
        "write the file with another type"
    )


def _fits(schema: pa.Schema, name: str, feature: Any) -> bool:
    """Whether the column can be a field."""
    if not name or schema.names.count(name) != 1:
        return False
    try:
        _column("", schema.field(name), feature)
    except InvalidArgumentError:
        return False
    return True


def _tensor(path: str, name: str, found: pa.DataType, tensor: Tensor) -> Column:
    """An array that is stored as lists, of which a row has a shape that it does not say."""
    inner = found
    for _ in tensor.lists:
        if not _is_list(inner):
            raise _refused(path, name, found)
        inner = plain_type(inner.value_type)
    of = _inner(inner)
    are_sizes = all(type(each) is int and each > 0 for each in tensor.shape[1:])
    first = tensor.shape[0] if tensor.shape else 0
    if (
        of is None
        or of[1]
        or not are_sizes
        or not (first is None or (type(first) is int and first))
    ):
        raise _refused(path, name, found)
    return Column(name, "array", of[0], tensor.shape, lists=tensor.lists)


def _fixed_tensor(path: str, name: str, found: Any) -> Column:
    of = _inner(found.value_type)
    permutation = permutation_of(found)
    if of is None or 0 in found.shape:
        raise _refused(path, name, found)
    if permutation is not None and not is_swap(permutation):
        raise InvalidArgumentError(
            f"indexing {path}: column {name!r}: its dimensions are permuted as "
            f"{list(permutation)}, of which writers and readers disagree what it means; "
            f"{IN_ORDER}"
        )
    shape = tuple(found.shape[each] for each in permutation or range(len(found.shape)))
    return Column(name, "array", of[0], shape, permutation=permutation)


def _inner_lists(name: str, lists: pa.DataType) -> Column | None:
    """The column of lists of such lists, of texts, of bytes; None if samples cannot hold them."""
    types = arrow().types
    if types.is_struct(lists):
        children = {lists.field(i).name: lists.field(i).type for i in range(lists.num_fields)}
        is_media = children.keys() == {"bytes", "path"} and _is_binary(
            plain_type(children["bytes"])
        )
        return Column(name, "bytes", shape=(None,), child="bytes") if is_media else None
    if _is_text(lists) or _is_binary(lists):
        return Column(name, "text" if _is_text(lists) else "bytes", shape=(None,))
    if not _is_list(lists):
        return None
    inner = _inner(lists.value_type)
    return None if inner is None else Column(name, "array", inner[0], (None, None, *inner[1]))


def plain_type(found: pa.DataType) -> pa.DataType:
    """The type of the values of an extension or of a dictionary."""
    pa = arrow()
    while True:
        if isinstance(found, pa.BaseExtensionType):
            found = found.storage_type
        elif pa.types.is_dictionary(found):
            found = found.value_type
        else:
            return found


def _inner(found: pa.DataType) -> tuple[str, tuple[int, ...]] | None:
    """dtype and shape of values of one length; None if they are no numbers."""
    pa = arrow()
    types = pa.types
    shape: list[int] = []
    while True:
        if isinstance(found, pa.FixedShapeTensorType):
            if permutation_of(found) is not None:
                return None
            shape.extend(found.shape)
            found = found.value_type
        elif types.is_fixed_size_list(plain := plain_type(found)):
            shape.append(plain.list_size)
            found = plain.value_type
        else:
            found = plain
            break
    if 0 in shape:
        return None
    if types.is_uint64(found):  # Batches have no such type.
        return None
    if types.is_boolean(found) or types.is_integer(found) or types.is_floating(found):
        return np.dtype(found.to_pandas_dtype()).name, tuple(shape)
    if types.is_temporal(found) and not types.is_interval(found):  # as stored: a number
        return f"int{found.bit_width}", tuple(shape)
    return None


def _is_list(found: pa.DataType) -> bool:
    types = arrow().types
    return bool(types.is_list(found) or types.is_large_list(found))


def _is_text(found: pa.DataType) -> bool:
    types = arrow().types
    return bool(types.is_string(found) or types.is_large_string(found)) or str(found) in (
        "string_view",
    )


def _is_binary(found: pa.DataType) -> bool:
    types = arrow().types
    return bool(
        types.is_binary(found) or types.is_large_binary(found) or types.is_fixed_size_binary(found)
    ) or str(found) in ("binary_view",)


def _features(schema: pa.Schema) -> dict[str, Any]:
    """What Hugging Face's `datasets` says of the columns, if it wrote the file."""
    try:
        found = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = found["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _is_image(feature: Any) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == "Image"
