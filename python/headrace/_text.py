"""Text that may contain the name of a file, which may be any bytes.

Inside Python such a name is a str as os.fsdecode() makes it, and opens the file; its bytes that are
not UTF-8 are surrogates, which terminals, files and logs refuse. Text for people is printable: a
byte is written as \\xNN, any other surrogate as \\uNNNN. bindings/convert/text.h does the same.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import unicodedata

from headrace import _core

PRINTABLE = "headrace.printable"
"""An `errors=` handler for text for people: escapes what cannot be encoded."""


def printable(text: str) -> str:
    """`text` with unprintable characters escaped."""
    return text if text.isascii() else text.encode("utf-8", PRINTABLE).decode()


def one_line(text: str) -> str:
    """`text` with invisible characters escaped: a file name may contain any.

    These are control characters such as the line feed, line separators, and direction marks.
    `printable` escapes surrogates.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or not _is_unseen(c) else _numbered(c) for c in text)


def _is_unseen(character: str) -> bool:
    category = unicodedata.category(character)
    return category in ("Zl", "Zp") or (category[0] == "C" and category != "Cs")


def _numbered(character: str) -> str:
    number = ord(character)
    if number < 0x80:
        return f"\\x{number:02x}"  # Above it would be a byte that is no UTF-8.
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def os_reason(error: OSError) -> str:
    """The cause of an error of the system, without the path; with a remedy for EACCES only, as the
    caller knows a better one for the others."""
    if error.errno is None or error.errno == errno.EACCES:
        return _reason(error)
    return os.strerror(error.errno)


def unread_reason(error: OSError) -> str:
    """As `os_reason`, of what cannot be read: always with a remedy."""
    reason = _reason(error)
    if error.errno == errno.EACCES or ";" in reason:
        return reason
    return f"{reason}; see what is there with `namei -l PATH`; if its disk fails, copy it again"


def _reason(error: OSError) -> str:
    return _core.errno_text(error.errno) if isinstance(error.errno, int) else str(error)


def print_any_text() -> None:
    """From now on print() accepts any text."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=PRINTABLE)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_escaped, error.object[error.start : error.end])), error.end


def _escaped(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    return character.encode("ascii", "backslashreplace").decode()


codecs.register_error(PRINTABLE, _escape)
