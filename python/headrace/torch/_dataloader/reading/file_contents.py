"""Bytes of files that were read ahead, for the `__getitem__` that asks for them next."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, NamedTuple


class FileContent(NamedTuple):
    """What a file holds."""

    path: str
    data: Any
    """Of uint8, as a buffer."""


_here = threading.local()


@contextlib.contextmanager
def offered(content: FileContent | None) -> Iterator[None]:
    """Meanwhile an `ImageLoader` that this thread asks for this file has its content."""
    _here.content = content
    try:
        yield
    finally:
        _here.content = None


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
        content: FileContent | None = getattr(_here, "content", None)
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
