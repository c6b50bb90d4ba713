"""The order `redox` reads any storage through the kernel's file systems, with the same samples."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fuse_server
import numpy as np
import pytest
from fuse_server import mounted
from loader_data import COUNT, write_numbered

import headrace as hr
from headrace.pack import PackParameters, write_pack

pytestmark = [
    pytest.mark.skipif(fuse_server.why_not() is not None, reason=f"FUSE: {fuse_server.why_not()}"),
    pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="tmpfs: there is no /dev/shm"),
]

SAMPLES = 120
LATE_MS = 5
Delivered = list[tuple[list[int], bytes]]


def rows() -> np.ndarray:
    """Sample i: 700 bytes of its own."""
    return np.random.default_rng(8).integers(0, 256, (SAMPLES, 700), np.uint8)


def file_system(path: Path) -> str:
    """The type of the mount that `path` lies in."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [(root, kind) for root, kind in mounts if path.is_relative_to(root)]
    return max(inside, key=lambda found: len(found[0]))[1]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """The same files on a disk, in memory, and behind a server that answers late."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    disk = tmp_path / "disk"
    write_numbered(disk / "images")
    np.save(tmp_path / "rows.npy", rows())
    write_pack(hr.open(tmp_path / "rows.npy"), disk / "pack", PackParameters(block_samples=8))
    with contextlib.ExitStack() as stack:
        memory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        shutil.copytree(disk, memory / "data")
        served = stack.enter_context(mounted(disk, tmp_path / "served"))
        assert served.tell(f"slow {LATE_MS}") == "ok\n"
        found = {"disk": disk, "tmpfs": memory / "data", "fuse": served.root}
        assert file_system(found["tmpfs"]) == "tmpfs"
        assert file_system(found["fuse"]).startswith("fuse")
        assert len({os.stat(place).st_dev for place in found.values()}) >= 2
        yield found


def delivered(source: Path, order: hr.orders.Redox) -> Delivered:
    """Two epochs: numbers and bytes of each batch."""
    transform = hr.image.train(8, dtype="uint8") if source.name == "images" else None
    output = hr.Output("numpy", ids=True)
    with hr.Loader(
        source, 16, order=order, seed=5, epochs=2, output=output, transform=transform
    ) as loader:
        return [
            (batch.sample_id.tolist(), batch[0].tobytes()) for _ in range(2) for batch in loader
        ]


@pytest.mark.parametrize("read", ["kept", "chunk"])
@pytest.mark.parametrize(("kind", "samples"), [("pack", SAMPLES), ("images", COUNT)])
def test_redox_gives_the_same_samples_from_a_disk_from_memory_and_from_a_slow_mount(
    places: dict[str, Path], kind: str, samples: int, read: str
) -> None:
    order = hr.orders.Redox(chunks_per_virtual=3, block_samples=8, read=read)
    found = {name: delivered(place / kind, order) for name, place in places.items()}
    assert found["tmpfs"] == found["disk"]
    assert found["fuse"] == found["disk"]
    numbers = [number for batch, _ in found["disk"] for number in batch]
    for epoch in (numbers[:samples], numbers[samples:]):
        assert sorted(epoch) == list(range(samples))
    if kind == "pack":
        size = rows().shape[1]
        epoch = b"".join(payload for _, payload in found["disk"])[: SAMPLES * size]
        got = [epoch[at : at + size] for at in range(0, len(epoch), size)]
        assert sorted(got) == sorted(row.tobytes() for row in rows())
