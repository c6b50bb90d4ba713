"""Which field a column of each Arrow type becomes, in each format that reads such columns."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from headrace.formats._arrow_types.fields import (  # noqa: E402
    ARROW_FILE,
    LITDATA,
    PARQUET,
    NoField,
    TypeRules,
    field_of,
    field_of_lists,
    number_of,
)
from headrace.formats._arrow_types.tensors import Tensor  # noqa: E402

_MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_VIEWS = pa.struct([("bytes", pa.binary_view()), ("path", pa.string())])


class Extension(pa.ExtensionType):  # type: ignore[misc]
    """A type that nobody knows."""

    def __init__(self, storage: Any) -> None:
        super().__init__(storage, "tests.extension")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Extension:
        return cls(storage)


def _tensor(*shape: int, permutation: list[int] | None = None, of: Any = None) -> Any:
    return pa.fixed_shape_tensor(of or pa.float32(), list(shape), permutation=permutation)


TYPES: list[tuple[Any, str, str, str]] = [
    # type, Arrow files, Parquet, LitData
    (pa.bool_(), "bool", "bool", "bool"),
    (pa.int8(), "int8", "int8", "int8"),
    (pa.int64(), "int64", "int64", "int64"),
    (pa.uint8(), "uint8", "uint8", "uint8"),
    (pa.uint32(), "uint32", "uint32", "uint32"),
    (pa.uint64(), "int64", "-", "-"),
    (pa.float16(), "float16", "float16", "float16"),
    (pa.float32(), "float32", "float32", "float32"),
    (pa.float64(), "float64", "float64", "float64"),
    (pa.date32(), "int32", "int32", "-"),
    (pa.date64(), "int64", "int64", "-"),
    (pa.time32("s"), "int32", "int32", "-"),
    (pa.time64("us"), "int64", "int64", "-"),
    (pa.timestamp("ns", "UTC"), "int64", "int64", "-"),
    (pa.duration("ms"), "int64", "int64", "-"),
    (pa.month_day_nano_interval(), "-", "-", "-"),
    (pa.decimal128(5, 2), "-", "-", "-"),
    (pa.null(), "-", "-", "-"),
    (pa.string(), "text", "text", "text"),
    (pa.large_string(), "text", "text", "text"),
    (pa.string_view(), "text", "text", "-"),
    (pa.binary(), "bytes", "bytes", "bytes"),
    (pa.large_binary(), "bytes", "bytes", "bytes"),
    (pa.binary_view(), "bytes", "bytes", "-"),
    (pa.binary(4), "bytes", "bytes", "-"),
    (pa.binary(0), "-", "bytes", "-"),
    (pa.dictionary(pa.int32(), pa.string()), "text", "text", "-"),
    (pa.dictionary(pa.int32(), pa.string_view()), "-", "text", "-"),
    (pa.dictionary(pa.int32(), pa.int16()), "-", "int16", "-"),
    (Extension(pa.int16()), "int16", "int16", "-"),
    (Extension(pa.string()), "text", "text", "-"),
    (_MEDIA, "bytes", "bytes", "-"),
    (_VIEWS, "-", "bytes", "-"),
    (pa.struct([("a", pa.int32())]), "-", "-", "-"),
    (pa.map_(pa.string(), pa.int32()), "-", "-", "-"),
    (pa.list_(pa.float32(), 3), "float32[3]", "float32[3]", "-"),
    (pa.list_(pa.list_(pa.bool_(), 3), 2), "bool[2, 3]", "bool[2, 3]", "-"),
    (pa.list_(pa.float32(), 0), "-", "-", "-"),
    (pa.list_(pa.uint64(), 3), "-", "-", "-"),
    (pa.list_(Extension(pa.float32()), 3), "-", "float32[3]", "-"),
    (pa.list_(pa.string(), 3), "text[None]", "-", "-"),
    (pa.list_(_MEDIA, 3), "bytes[None]", "-", "-"),
    (pa.list_(pa.list_(pa.int8()), 3), "int8[None, None]", "-", "-"),
    (pa.list_(pa.int64()), "int64[None]", "int64[None]", "int64[None]"),
    (pa.large_list(pa.int64()), "int64[None]", "int64[None]", "int64[None]"),
    (pa.list_(pa.bool_()), "bool[None]", "bool[None]", "-"),
    (pa.list_(pa.date32()), "int32[None]", "int32[None]", "-"),
    (pa.list_(pa.uint64()), "-", "-", "-"),
    (pa.list_(Extension(pa.int64())), "-", "int64[None]", "-"),
    (pa.list_(pa.list_(pa.float32(), 4)), "float32[None, 4]", "float32[None, 4]", "-"),
    (pa.list_(pa.list_(pa.int8())), "int8[None, None]", "int8[None, None]", "-"),
    (pa.list_(Extension(pa.list_(pa.int8()))), "int8[None, None]", "int8[None, None]", "-"),
    (
        pa.list_(pa.list_(pa.list_(pa.int8(), 2))),
        "int8[None, None, 2]",
        "int8[None, None, 2]",
        "-",
    ),
    (pa.list_(pa.list_(pa.list_(pa.int8()))), "-", "-", "-"),
    (pa.list_(pa.list_(pa.list_(pa.int8()), 2)), "-", "-", "-"),
    (pa.list_(pa.string()), "text[None]", "text[None]", "-"),
    (pa.list_(pa.large_binary()), "bytes[None]", "bytes[None]", "-"),
    (pa.list_(pa.string_view()), "-", "text[None]", "-"),
    (pa.list_(pa.binary(4)), "-", "bytes[None]", "-"),
    (pa.list_(pa.dictionary(pa.int32(), pa.string())), "-", "text[None]", "-"),
    (pa.list_(_MEDIA), "bytes[None]", "bytes[None]", "-"),
    (pa.list_(_VIEWS), "-", "bytes[None]", "-"),
    (pa.list_(pa.list_(pa.string())), "-", "-", "-"),
    (pa.list_(pa.struct([("a", pa.int32())])), "-", "-", "-"),
    (_tensor(2, 3), "float32[2, 3]", "float32[2, 3]", "-"),
    (_tensor(2, 3, permutation=[0, 1]), "float32[2, 3]", "float32[2, 3]", "-"),
    (_tensor(2, 3, permutation=[1, 0]), "-", "float32[3, 2]", "-"),
    (_tensor(2, 3, 4, permutation=[1, 2, 0]), "-", "-", "-"),
    (_tensor(2, 3, of=pa.uint64()), "-", "-", "-"),
    (pa.list_(_tensor(2, 3)), "-", "float32[None, 2, 3]", "-"),
]


def _described(field: Any) -> str:
    if isinstance(field, NoField):
        assert field.why
        return "-"
    return f"{field.dtype or field.kind}{list(field.shape) if field.shape else ''}"


@pytest.mark.parametrize("types", TYPES, ids=lambda types: str(types[0]))
def test_each_type_is_the_same_field_as_ever(types: tuple[Any, str, str, str]) -> None:
    arrow_type, *expected = types
    rules = (ARROW_FILE, PARQUET, LITDATA)
    assert [_described(field_of(arrow_type, of_format)) for of_format in rules] == expected


@pytest.mark.parametrize(
    ("arrow_type", "shape", "arrow_file", "parquet"),
    [
        (pa.list_(pa.list_(pa.int8())), (2, 3), "int8[2, 3]", "int8[2, 3]"),
        (pa.list_(pa.list_(pa.int8())), (None, 3), "int8[None, 3]", "int8[None, 3]"),
        (pa.list_(pa.list_(pa.bool_())), (2, 3), "bool[2, 3]", "bool[2, 3]"),
        (pa.list_(pa.list_(pa.bool_())), (None, 3), "-", "bool[None, 3]"),
        (pa.list_(pa.list_(pa.uint64())), (2, 3), "-", "-"),
        (pa.list_(pa.int8()), (2, 3), "-", "-"),
        (pa.list_(pa.list_(pa.int8(), 3)), (2, 3), "-", "-"),
        (pa.list_(pa.list_(Extension(pa.int8()))), (2, 3), "-", "int8[2, 3]"),
        (pa.list_(pa.list_(pa.int8())), (0, 3), "-", "-"),
        (pa.list_(pa.list_(pa.int8())), (2, -1), "-", "-"),
        (pa.list_(pa.list_(pa.int8())), ("2", 3), "-", "-"),
    ],
    ids=str,
)
def test_lists_of_a_tensor_have_its_shape(
    arrow_type: Any, shape: tuple[Any, ...], arrow_file: str, parquet: str
) -> None:
    tensor = Tensor(shape, shape)

    def described(rules: TypeRules) -> str:
        return _described(field_of_lists(arrow_type, tensor, rules))

    assert (described(ARROW_FILE), described(PARQUET)) == (arrow_file, parquet)


def test_numbers_of_a_manifest_are_no_times() -> None:
    assert [number_of(pa.date32(), times=times) for times in (True, False)] == ["int32", None]
    assert number_of(pa.uint64()) == "uint64"
    assert number_of(pa.string()) is None
