"""What the nodes of benchmarks share: a meeting, torch's DataLoader with a cache, what was used."""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr

_BLOCK = 4096
_BLKIO = Path("/sys/fs/cgroup/blkio")
_CONNECTING_S = 120.0


class Cache:
    """Samples as files in memory, for all workers of a node: the first that come, until it is full.

    What a user could give to a DataLoader. It keeps what it has: in a random order that is better
    than taking turns.
    """

    def __init__(self, folder: Path, capacity: int) -> None:
        self._folder = folder
        self._capacity = capacity

    def get(self, sample: int) -> bytes | None:
        try:
            return (self._folder / str(sample)).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, sample: int, data: bytes) -> None:
        """A little more than fits may come in, if workers put at the same time."""
        with open(self._folder / "used", "ab") as used:  # A byte a KiB, in the size of a file.
            if used.tell() * 1024 + len(data) <= self._capacity:
                used.write(bytes(-(-len(data) // 1024)))
                (self._folder / str(sample)).write_bytes(data)


class Samples:
    """A torch dataset: raw samples of a pack, read past the page cache, which nodes would share."""

    def __init__(self, pack: str, field: str, cache: Cache) -> None:
        index = hr.open(pack).index
        names = [field.name for field in index.fields]
        self._objects, self._offsets, self._sizes = index.extents(names.index(field))
        paths = [index.object(i)[0] for i in range(self._objects.max() + 1)]
        self._paths = [os.path.join(index.root, path) for path in paths]
        self._cache = cache
        self._fds: list[int] = []

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, sample: int) -> Any:
        import torch

        data = self._cache.get(sample)
        if data is None:
            data = self._read(sample)
            self._cache.put(sample, data)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def _read(self, sample: int) -> bytes:
        if not self._fds:
            self._fds = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in self._paths]
        begin, size = int(self._offsets[sample]), int(self._sizes[sample])
        first = begin // _BLOCK * _BLOCK
        length = -(-(begin + size - first) // _BLOCK) * _BLOCK
        with mmap.mmap(-1, length) as buffer:  # Aligned, as O_DIRECT wants it.
            os.preadv(self._fds[self._objects[sample]], [buffer], first)
            return buffer[begin - first : begin - first + size]


def _as_it_is(batch: Any) -> Any:
    return batch


class Shares:
    """A node's share of each epoch's permutation, as DistributedSampler makes it.

    Epoch 0 has `first` samples only, which fill the cache: what follows finds them there.
    """

    def __init__(self, samples: int, node: int, nodes: int, first: int) -> None:
        self._samples, self._node, self._nodes, self._first = samples, node, nodes, first
        self._epoch = 0

    def __len__(self) -> int:
        return self._samples // self._nodes

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng(self._epoch).permutation(self._samples)
        self._epoch += 1
        count = len(self) if self._epoch > 1 else self._first
        own: list[int] = order[self._node :: self._nodes][:count].tolist()
        return iter(own)


def cluster_node(meets: bool, **more: Any) -> hr.Node:
    """A node of one rank; if it `meets` the others, at the addresses that tools/cluster chose."""
    if not meets:
        return hr.Node(local_rank=0, local_world_size=1)
    return hr.Node(
        local_rank=0,
        local_world_size=1,
        addresses=os.environ["HEADRACE_CLUSTER_ADDRESSES"].split(","),
        listen=os.environ["HEADRACE_CLUSTER_LISTEN"],
        open_network=True,
        **more,
    )


def torch_batches(spec: dict[str, Any], node: int, nodes: int) -> Iterator[Sequence[Any]]:
    from torch.utils.data import DataLoader

    folder = Path(spec["cache_folder"]) / f"node-{node}"
    folder.mkdir()
    samples = Samples(spec["pack"], spec["field"], Cache(folder, spec["tier_bytes"]))
    loader = DataLoader(
        samples,  # type: ignore[arg-type]
        batch_size=spec["batch"],
        sampler=Shares(len(samples), node, nodes, spec["fill_steps"] * spec["batch"]),
        num_workers=spec["workers"],
        collate_fn=_as_it_is,
        persistent_workers=True,
        prefetch_factor=spec["ahead"] // spec["workers"],
        drop_last=True,
    )
    while True:
        yield from loader


class Meeting:
    """Of all nodes, at node 0: each waits there until all have come."""

    def __init__(self, node: int, nodes: int) -> None:
        self._node = node
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if node == 0:
            with socket.create_server(address) as server:
                server.settimeout(_CONNECTING_S)
                self._peers = [server.accept()[0] for _ in range(nodes - 1)]
        else:
            self._peers = [_connected(address)]

    def wait(self) -> None:
        if self._node == 0:
            for peer in self._peers:
                _heard(peer)
            for peer in self._peers:
                peer.sendall(b"x")
        else:
            self._peers[0].sendall(b"x")
            _heard(self._peers[0])


def _connected(address: tuple[str, int]) -> socket.socket:
    until = time.monotonic() + _CONNECTING_S
    while True:
        try:
            return socket.create_connection(address, timeout=None)
        except ConnectionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _heard(peer: socket.socket) -> None:
    peer.settimeout(None)
    if peer.recv(1) != b"x":
        raise ConnectionError("another node ended")


def cpu_s() -> float:
    """Of this process and its children: workers, a node process."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(folder.name) == os.getpid() or int(fields[1]) == os.getpid():
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def used() -> dict[str, int]:
    """What the node has read from its storage, and received from the network, so far.

    The kernel's own counts, equal for all loaders: of the node's control group, and of its link.
    """
    group = next(
        line.rstrip().partition("blkio:")[2]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if ":blkio:" in line
    )
    folder = _BLKIO / group.lstrip("/")
    return {
        "storage_bytes": _reads_in(folder / "blkio.throttle.io_service_bytes"),
        "storage_reads": _reads_in(folder / "blkio.throttle.io_serviced"),
        "received_bytes": _received(),
    }


def _received() -> int:
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "eth0":
            return int(counts.split()[0])
    raise ValueError("/proc/self/net/dev: no eth0, the link that tools/cluster makes")


def _reads_in(counts: Path) -> int:
    lines = [line.split() for line in counts.read_text().splitlines()]
    return sum(int(line[2]) for line in lines if len(line) == 3 and line[1] == "Read")
