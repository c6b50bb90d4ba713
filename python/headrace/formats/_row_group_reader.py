"""A reader process: decodes row groups into the memory of a store, until the store is gone.

The store is src/store/rowgroups/; `docs/design/row-groups.md` has the protocol.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import Any

from headrace import _core, _places, errors
from headrace._text import printable
from headrace.formats import table
from headrace.formats._indexing.recorded import file_state
from headrace.formats._rowgroups.format import GroupFormat

_OK = 0
_NUMBERS = _core.status_codes()
_CODES: dict[type[Exception], int] = {
    **{getattr(errors, name): code for name, code in _NUMBERS.items()},
    ImportError: _NUMBERS["FailedPreconditionError"],
    MemoryError: _NUMBERS["ResourceExhaustedError"],
}
"""The status codes of the core, by the errors that formats raise."""
_INTERNAL = _CODES[errors.InternalError]
_TEXT_BYTES_MAX = 65536


def main() -> None:
    """Serves the socket that the arguments name, and the process at its other end."""
    table.import_named(os.environ.get("HEADRACE_FORMATS", ""))
    channel = _core.WorkerChannel.open(int(sys.argv[1]), int(sys.argv[2]))
    while (received := channel.receive()) is not None:
        fresh, _, body = received
        (_, memory) = fresh.pop()
        view: Any = memory
        answer = answered(body, memoryview(view))
        del memory, view  # unmapped, so that nothing changes what the store has
        if not channel.send(answer):
            return


def answered(body: bytes, memory: memoryview) -> bytes:
    """Carries out a request; the answer."""
    path = ""
    try:
        (name, path, part), size, version = _request(body)
        with _places.remembering():
            if not _places.is_local(path):
                if not part:
                    return _compared(path, size, version)
                _places.expect(path, size, version)
            row = table.named(name)
            if not isinstance(row, GroupFormat):
                raise errors.InvalidArgumentError(
                    f"decoding {path}: format {name!r} has no row groups; make the index again"
                )
            written = row.decode_group(path, part, memory)
    except Exception as error:
        code = next((_CODES[base] for base in type(error).__mro__ if base in _CODES), _INTERNAL)
        if code == _INTERNAL:
            return _answer(0, code, f"{type(error).__name__}: {error}")
        # The store names the file, too.
        return _answer(0, code, str(error).replace(f"decoding {path}: ", "decoding: ", 1))
    finally:
        memory.release()
    return _answer(written, _OK, "")


def _compared(path: str, size: int, version: int) -> bytes:
    """The answer to the question whether an object is as it was indexed."""
    _, size_now, version_now = file_state(path)
    if size_now != size or (0 not in (version, version_now) and version_now != version):
        raise errors.FailedPreconditionError(
            "the object has changed since it was indexed; index the dataset again"
        )
    return _answer(1, _OK, "")


def _request(body: bytes) -> tuple[list[str], int, int]:
    """Its three strings, and the size and the version of the file."""
    strings = []
    at = 0
    for _ in range(3):
        (size,) = struct.unpack_from("<I", body, at)
        strings.append(os.fsdecode(body[at + 4 : at + 4 + size]))
        at += 4 + size
    return strings, *struct.unpack_from("<Qq", body, at)


def _answer(written: int, code: int, text: str) -> bytes:
    data = printable(text).encode()[:_TEXT_BYTES_MAX]
    return struct.pack("<QBI", written, code, len(data)) + data
