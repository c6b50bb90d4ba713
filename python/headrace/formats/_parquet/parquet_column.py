"""Which columns of a file become fields, and of what kind, by the schema of the file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import InvalidArgumentError
from headrace.formats._arrow_types.fields import (
    PARQUET,
    NoField,
    field_of,
    field_of_lists,
    plain_type,
)
from headrace.formats._arrow_types.tensors import kind_of_feature, tensor_of
from headrace.formats._base.absent import NOT_GIVEN, valid_field
from headrace.formats._base.builder import Builder
from headrace.formats._base.field import Kind
from headrace.formats._fields.column_names import check_column_names
from headrace.formats._parquet.files import arrow

if TYPE_CHECKING:
    import pyarrow as pa

INLINE_BYTES_MAX = 16  # of a scalar that the index holds


@dataclass(frozen=True)
class ParquetColumn:
    """A column of the file that is a field of each sample."""

    name: str
    kind: Kind
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
        inner = [size for size in self.shape if size is not None]
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
        zeros = np.zeros([size or 0 for size in self.shape], self.dtype)
        return zeros.tolist()

    def described(self) -> str:
        """For errors: "label: int64"."""
        dimensions = ["?" if size is None else str(size) for size in self.shape]
        shape = f"[{', '.join(dimensions)}]" if dimensions else ""
        return f"{self.name}: {self.dtype or self.kind}{shape}"

    def add_field(self, builder: Builder) -> None:
        """Adds it to the builder."""
        builder.add_field(self.name, self.kind, self.dtype, self.shape, inline=self.is_inline)
        if self.is_optional:
            builder.add_field(valid_field(self.name), "array", "bool", inline=True)


def columns_of(
    path: str, schema: pa.Schema, wanted: Sequence[str] | None, beside: Sequence[str] = ()
) -> list[ParquetColumn]:
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
            fitting = [other for other in names if _fits(schema, other, features.get(other))]
            others = tuple(dict.fromkeys([*fitting, *(x for x in beside if x not in names)]))
            way = f"; leave it out, format=hr.formats.Parquet(columns={others!r})" if others else ""
            raise InvalidArgumentError(f"{error}{way}") from error
    if not columns:
        raise InvalidArgumentError(f"indexing {path}: it has no columns")
    return columns


def with_stand_ins(
    columns: Sequence[ParquetColumn], fill: Mapping[str, Any], optional: Sequence[str]
) -> list[ParquetColumn]:
    """The columns, of which some have a value for rows that have none."""
    made = []
    for column in columns:
        if column.name in optional or column.name in fill:
            stand_in = fill.get(column.name, column.zero)
            column = replace(column, stand_in=stand_in, is_optional=column.name in optional)
        made.append(column)
    return made


def classes_of(schema: pa.Schema, columns: Sequence[ParquetColumn]) -> list[str] | None:
    """The names of Hugging Face's ClassLabel, if one column is such, or one named "label"."""
    features = _features(schema)
    by_column = {}
    for column in columns:
        feature = features.get(column.name)
        names = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(names, list) and all(isinstance(class_name, str) for class_name in names):
            by_column[column.name] = names
    if len(by_column) > 1:
        by_column = {name: names for name, names in by_column.items() if name == "label"}
    return next(iter(by_column.values()), None)


def _column(path: str, field: pa.Field, feature: Any) -> ParquetColumn:
    name, tensor = field.name, tensor_of(field, feature)
    if tensor is None:
        arrow_field = field_of(field.type, PARQUET)
    else:
        arrow_field = field_of_lists(field.type, tensor, PARQUET)
    if isinstance(arrow_field, NoField):
        if arrow_field.is_permuted:
            raise InvalidArgumentError(f"indexing {path}: column {name!r}: {arrow_field.why}")
        is_own = tensor is None and isinstance(field.type, arrow().FixedShapeTensorType)
        shown = field.type if is_own else plain_type(field.type)
        raise InvalidArgumentError(
            f"indexing {path}: column {name!r} is of type {shown}, which samples cannot hold; "
            "write the file with another type"
        )
    is_image = kind_of_feature(feature) == "Image"
    return ParquetColumn(
        name,
        arrow_field.kind,
        arrow_field.dtype,
        arrow_field.shape,
        child=None if arrow_field.media is None else "bytes",
        is_media=arrow_field.kind == "bytes" and not arrow_field.shape and is_image,
        lists=() if tensor is None else tensor.lists,
        permutation=arrow_field.permutation,
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


def _features(schema: pa.Schema) -> dict[str, Any]:
    """What Hugging Face's `datasets` says of the columns, if it wrote the file."""
    try:
        metadata = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = metadata["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}
