"""The cells that are measured, and the loaders that can do each."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import _data
import environments


@dataclass(frozen=True)
class Peer:
    """A loader: one of Headrace's orders, or another package."""

    name: str
    module: str  # in loaders/
    package: str
    env: str | None  # of envs/; None: the environment that bench.py runs in
    writer: str | None = None  # the peer whose module writes the format; None: its own

    @property
    def python(self) -> Path:
        """The interpreter that has its package."""
        return Path(sys.executable) if self.env is None else environments.python_of(self.env)


ORDERS = ("exact", "epoch")
HEADRACE = {order: Peer(f"headrace {order}", "headrace_pack", "headrace", None) for order in ORDERS}
_PEERS = (
    Peer("torch", "torch_dataloader", "torch", "torch"),
    Peer("webdataset", "webdataset_tars", "webdataset", "webdataset"),
    Peer("streaming", "mosaicml_streaming", "mosaicml-streaming", "streaming"),
    Peer("litdata", "lit_data", "litdata", "litdata"),
    Peer("grain", "google_grain", "grain", "grain"),
    Peer("tf.data", "tf_data", "tensorflow-cpu", "tensorflow"),
    Peer("dali", "nvidia_dali", "nvidia-dali-cuda120", "dali", writer="webdataset"),
    Peer("spdl", "meta_spdl", "spdl", "spdl"),
    Peer("lance", "lance_table", "pylance", "lance"),
)
PEERS = {peer.name: peer for peer in _PEERS}
ABSENT = {
    "ffcv 1.0.2": "no wheel; building it ends with `RuntimeError: Could not find required package: "
    "opencv.`"
}
"""Loaders that cannot be installed by pip alone, and why."""


@dataclass(frozen=True)
class Stored:
    """One data set: the generated files, and Headrace's pack of them."""

    name: str
    source: Path
    pack: Path


@dataclass(frozen=True)
class Cell:
    """A kind of samples, and the state of the page cache."""

    name: str
    title: str
    cold: bool
    images: bool
    record_bytes: int  # 0: files of about 100 KB
    batch: int
    window: int  # samples in shuffle buffers
    seconds: float  # of a warm run, at least
    seconds_max: float
    peers: tuple[str, ...] = tuple(PEERS)

    def stored(self, root: Path, quick: bool) -> Stored:
        """Makes the data set if it is not there."""
        if self.record_bytes:
            count = 16_384 if quick else 262_144
            records, pack = _data.record_data(root, count, self.record_bytes)
            return Stored(f"records-{count}x{self.record_bytes}", records, pack)
        if self.images:
            total = 10 if quick else 300
            images = _data.image_data(root, total * 10**6)
            return Stored(f"images-{total}MB", images.folder, images.pack)
        total = 60 if quick else 2500  # as versus_torch.py has it
        raw = _data.raw_data(root, total * 10**6)
        return Stored(f"raw-{total}MB", raw.folder, raw.pack)


_CELLS = (
    Cell("raw100k-cold", "raw samples of 100 KB, cold", True, False, 0, 64, 1000, 0, 12),
    Cell("raw4k-cold", "raw records of 4 KB, cold", True, False, 4096, 256, 10_000, 0, 8),
    Cell("raw4k-warm", "raw records of 4 KB, warm", False, False, 4096, 256, 10_000, 3, 8),
    Cell("jpeg-warm", "JPEG images to 224 x 224, warm", False, True, 0, 64, 1000, 5, 12),
)
CELLS = {cell.name: cell for cell in _CELLS}
