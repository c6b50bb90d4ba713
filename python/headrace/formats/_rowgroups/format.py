"""The base of formats whose samples lie in parts of files that have to be decoded."""

from __future__ import annotations

from abc import abstractmethod

from headrace.formats._base.builder import Decodes
from headrace.formats._base.format import Format


class GroupFormat(Format):
    """A format whose builder gets row groups: `add_group` in place of `add_file`.

    A store decodes them in a process of its own, which has the formats of the table and those of
    the modules that HEADRACE_FORMATS names.
    """

    def decodes(self, path: str) -> Decodes:
        return "groups"

    @abstractmethod
    def decode_group(self, path: str, part: str, into: memoryview) -> int:
        """Writes what a part of the file at `path` decodes to; `part` is that of `add_group`.

        Returns the number of bytes; reading fails unless it is that of `add_group`. Writes none
        beyond the end of `into`.
        """
