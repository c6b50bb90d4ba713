"""The batches that an iteration is to read, and what their files hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.torch._dataloader.epochs.drawing import Drawn
from headrace.torch._dataloader.reading.file_contents import FileContent


class Supply:
    """The batches of an epoch that are to be read: here none of their files was read ahead."""

    waits = False
    """Whether `contents` may wait for files."""

    def __init__(self, draw: Callable[[], Drawn | None]) -> None:
        self._draw = draw

    def draw(self) -> Drawn | None:
        """The next batch; None at the end."""
        return self._draw()

    def contents(self, batch: int, first: int, count: int) -> Sequence[FileContent | None] | None:
        """What the files of these slots of a batch hold; None: their dataset reads them. Waits for
        the files. Each is given once."""
        return None

    def forget(self, batch: int) -> None:
        """Nobody asks for this batch's files any more."""

    def close(self) -> None:
        """Nobody asks for any."""
