"""The record batches of Arrow files, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.errors import DataLossError, HeadraceError
from headrace.formats._arrow.mapped_files import MappedFile, Places
from headrace.formats._arrow.messages import (
    Message,
    file_messages,
    is_file_format,
    schema_end,
    stream_messages,
)

_BEGIN_BYTES = 8
_FORGET_EVERY = 256  # record batches: memory of the pages that were read does not grow


class ArrowFile:
    """An IPC file or stream. Reads the headers of its messages; bodies only where they are used.

    Raises:
        DataLossError: it is damaged or cut short.
        InvalidArgumentError: its record batches are compressed.
        NotFoundError, FailedPreconditionError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = MappedFile(path)
        self.places = Places()
        self.places.add(self.file.base, self.file.bytes.size, 0, self.file)
        self.file.fill(0, _BEGIN_BYTES)
        self._is_file = is_file_format(self.file.map, path)
        # Where messages are is found before pyarrow reads them: it would decompress a body.
        self._messages: Iterator[Message] = (
            iter(file_messages(self.file.map, path, self.file.read_ahead))
            if self._is_file
            else stream_messages(self.file.map, path, self.file.read_ahead)
        )
        if not self._is_file:
            self.file.fill(0, schema_end(self.file.map))
        pa = pyarrow()
        source = pa.BufferReader(pa.py_buffer(self.file.map))
        with reading(path, "its schema"):
            self._reader = pa.ipc.open_file(source) if self._is_file else pa.ipc.open_stream(source)
            self.schema = self._reader.schema
        # Where pyarrow itself reads values, they are read before; others when they are used.
        self._is_coded = any("dictionary<" in str(field.type) for field in self.schema)

    def batches(self) -> Iterator[tuple[Any, str]]:
        """Each record batch, and what it is for messages; once."""
        number = 0
        for message in self._messages:
            if self._is_coded:
                self.file.fill(message.offset, message.end - message.offset)
            if not message.is_records:
                continue
            what = f"record batch {number} (byte {message.offset})"
            with reading(self.path, what):
                reader = self._reader
                batch = reader.get_batch(number) if self._is_file else reader.read_next_batch()
            yield batch, f"{self.path}: {what}"
            number += 1
            if number % _FORGET_EVERY == 0:
                self.file.forget()


def pyarrow() -> Any:
    """The package; an ImportError says how to get it."""
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError as error:
        raise ImportError(
            "reading Arrow files needs pyarrow: pip install 'headrace[pack]'"
        ) from error
    assert pyarrow.ipc is not None
    return pa


@contextmanager
def reading(path: str, what: str) -> Iterator[None]:
    """pyarrow's errors become those of headrace."""
    try:
        yield
    except HeadraceError:
        raise
    except StopIteration:
        raise DataLossError(
            f"indexing {path}: {what}: the stream ends before it; copy or write the file again"
        ) from None
    except (ValueError, TypeError, LookupError, OSError, NotImplementedError, MemoryError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise DataLossError(
            f"indexing {path}: {what}: {reason}; copy or write the file again"
        ) from error
