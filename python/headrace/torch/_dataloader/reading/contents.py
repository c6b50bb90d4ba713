"""Bytes of files that were read ahead, for the `__getitem__` that asks for them next."""

from __future__ import annotations

import contextlib
import threading
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

    waits = False
    """Whether `contents` may wait for files."""

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
        self.takers: set[int] = set()

    def __reduce__(self) -> Any:
        return ImageLoader, (self.loader,)  # A copy's dataset is another one, which nobody reads.

    def __call__(self, path: str) -> Any:
        content: Content | None = getattr(_here, "content", None)
        if content is None or content.path != path:
            return self.loader(path)
        from PIL import Image  # torchvision needs it; others may not have it.

        with contextlib.suppress(Exception):
            return Image.open(BytesIO(content.data)).convert("RGB")
        return self.loader(path)  # The error of a damaged file names it.


_taking = threading.RLock()  # The collector may end a taker in a thread that holds it.


def take_contents(dataset: Any, taker: int) -> None:
    """Has a dataset take offered content: puts an `ImageLoader` in the place of its loader, until
    each `taker` has given it back."""
    with _taking:
        loader = vars(dataset)["loader"]
        taken = loader if isinstance(loader, ImageLoader) else ImageLoader(loader)
        taken.takers.add(taker)
        vars(dataset)["loader"] = taken


def own_loader(dataset: Any) -> Any:
    """The loader that a dataset has, or had before; None if it has none."""
    loader = vars(dataset).get("loader")
    return loader.loader if isinstance(loader, ImageLoader) else loader


def give_back_loader(dataset: Any, taker: int) -> None:
    """Ends `take_contents` of this taker."""
    with _taking:
        loader = vars(dataset).get("loader")
        if not isinstance(loader, ImageLoader):
            return
        loader.takers.discard(taker)
        if not loader.takers:
            vars(dataset)["loader"] = loader.loader
