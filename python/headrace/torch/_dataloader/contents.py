"""Bytes of files that were read ahead, for the `__getitem__` that asks for them next."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from headrace.torch._dataloader.epochs.drawing import Drawn


class Content(NamedTuple):
    """What a file holds."""

    path: str
    data: Any
    """Of uint8, as a buffer."""


_here = threading.local()


@contextlib.contextmanager
def offered(content: Content | None) -> Iterator[None]:
    """Meanwhile an `ImageLoader` that this thread asks for this file has its content."""
    _here.content = content
    try:
        yield
    finally:
        _here.content = None


class Supply:
    """The batches of an epoch that are to be read: here none of their files was read ahead."""

    def __init__(self, draw: Callable[[], Drawn | None]) -> None:
        self._draw = draw

    def draw(self) -> Drawn | None:
        """The next batch; None at the end."""
        return self._draw()

    def contents(self, batch: int, first: int, count: int) -> Sequence[Content | None] | None:
        """What the files of these slots of a batch hold; None: their dataset reads them. Waits for
        the files. Each is given once."""
        return None

    def forget(self, batch: int) -> None:
        """Nobody asks for this batch's files any more."""

    def close(self) -> None:
        """Nobody asks for any."""


class ImageLoader:
    """Takes the place of torchvision's `pil_loader`: decodes content that is offered, as that
    decodes the file; has any other file read.

    Thread safety: any thread may call.
    """

    def __init__(self, loader: Callable[[str], Any]) -> None:
        self.loader = loader

    def __call__(self, path: str) -> Any:
        content: Content | None = getattr(_here, "content", None)
        if content is None or content.path != path:
            return self.loader(path)
        from PIL import Image  # torchvision needs it; others may not have it.

        with contextlib.suppress(Exception):
            return Image.open(BytesIO(content.data)).convert("RGB")
        return self.loader(path)  # The error of a damaged file names it.


class _First:
    """The first base of a class that is made here: hides it from the user's class."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """In place of that of the user's class."""


def taking_contents(dataset: Any) -> Any:
    """`dataset` once more, with an `ImageLoader` of its loader. All other attributes are the same
    ones: what the user sets in one is set in the other, now and later."""
    kind, given = type(dataset), dataset.loader
    taking = ImageLoader(given)

    def loader(self: Any) -> Any:
        now = vars(self)["loader"]
        return taking if now is given else now

    def set_loader(self: Any, new: Any) -> None:
        vars(self)["loader"] = new

    def reduced(self: Any, protocol: int) -> Any:  # Another process cannot import this class.
        sent = object.__new__(kind)
        vars(sent).update(vars(self), loader=self.loader)
        return _itself, (sent,)

    names = {
        "__class__": property(lambda self: kind),  # for super(self.__class__, self)
        "__module__": kind.__module__,
        "__reduce_ex__": reduced,
        "loader": property(loader, set_loader),
    }
    shared: type[Any] = types.new_class(
        kind.__name__, (_First, kind), {}, lambda at: at.update(names)
    )
    made = object.__new__(shared)
    object.__setattr__(made, "__dict__", vars(dataset))
    return made


def _itself(dataset: Any) -> Any:
    return dataset
