"""Samples of a dataset as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import _core
from headrace.errors import DataLossError
from headrace.formats._files.nested import NestedField, Nesting
from headrace.formats._files.objects import object_path
from headrace.formats._files.stored import decompressed, value_of

if TYPE_CHECKING:
    from headrace.formats._base.format import Format


class StoredSamples:
    """Reads values and checks them: bytes for images, `str` for text, NumPy values for arrays.

    Thread safety: every method may be called from any thread.
    """

    def __init__(self, index: _core.Index, path: str, row: Format, nesting: Nesting) -> None:
        """`path`: what was opened. `row`: the format that knows what to do about damage."""
        self._index, self._path, self._row, self._nesting = index, path, row, nesting
        self._fields = index.fields

    def read(self, reader: _core.StoredReader, number: int) -> dict[str, Any]:
        """A sample by field; see `Dataset.read`. Raises: as the reader; DataLossError: damage."""
        sample = {}
        for position in self._nesting.visible:
            field, nested = self._fields[position], self._nesting.field_at(position)
            try:
                value = self._read_field(reader, position, field, number)
                if nested is not None:
                    hidden = self._fields[nested.lengths]
                    lengths = self._read_field(reader, nested.lengths, hidden, number)
                    value = self._inner(nested, value, lengths, number)
                sample[field.name] = value
            except UnicodeDecodeError as error:
                raise DataLossError(
                    f"{self.reading(field.name, number)}: its text is not UTF-8 ({error}); write "
                    "it as UTF-8"
                ) from error
        return sample

    def reading(self, name: str, number: int) -> str:
        """What is read of a sample, and where from, for messages."""
        position = next(at for at, field in enumerate(self._fields) if field.name == name)
        where = f"dataset {self._path}"
        if not self._fields[position].is_inline:
            where = object_path(self._index, self._index.extents(position, number, 1)[0][0])
        return f"reading {where}: sample {number} field {name}"

    def _inner(self, nested: NestedField, values: Any, lengths: Any, sample: int) -> list[Any]:
        try:
            return nested.row(values, lengths)
        except DataLossError as error:
            raise DataLossError(
                f"reading dataset {self._path}: sample {sample}: {error}"
            ) from error

    def _read_field(
        self, reader: _core.StoredReader, position: int, field: _core.Field, sample: int
    ) -> Any:
        if field.is_inline:
            if field.kind == "array":
                return self._index.inline_values(position, sample, 1)[0]
            return value_of(field, self._index.inline_ragged(position, sample, 1)[0])
        extent = self._index.extents(position, sample, 1)
        data = bytearray(int(extent[2][0]))
        reader.read_into(*extent, data)
        checksums = self._index.checksums(position, sample, 1)
        if checksums is not None and _core.hash64(data) != int(checksums[0]):
            raise DataLossError(
                f"{self._reading(sample, field, extent)}: its bytes are not those that were "
                f"indexed; {self._row.remedy(self._index)}"
            )
        if field.coding == "stored":
            return value_of(field, data)
        sizes = self._index.decoded_sizes(position, sample, 1)
        assert sizes is not None
        try:
            return value_of(field, decompressed(field, data, int(sizes[0])))
        except DataLossError as error:
            raise DataLossError(
                f"{self._reading(sample, field, extent)}: {field.coding}: {error}; copy or write "
                "the file again"
            ) from error

    def _reading(self, sample: int, field: _core.Field, extent: tuple[Any, Any, Any]) -> str:
        object_id, offset, size = (int(column[0]) for column in extent)
        return (
            f"reading sample {sample} ({field.name}) from {object_path(self._index, object_id)} "
            f"bytes [{offset}, {offset + size})"
        )
