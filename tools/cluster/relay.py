"""Limits links in user space: relays of TCP connections that share a bucket a direction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from cluster.network import Place

_CHUNK_BYTES = 2**16
_BURST_S = 0.01


class Bucket:
    """How long bytes have to wait, so that no more than `bytes_per_s` pass."""

    def __init__(self, bytes_per_s: float, now_s: float = 0.0) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = now_s  # when what was taken so far has passed

    def take(self, size: int, now_s: float) -> float:
        """Takes `size` bytes; returns the seconds from now until they have passed."""
        # What was not used for a while is lost, but for a burst.
        self._free_s = max(self._free_s, now_s - _BURST_S) + size / self._bytes_per_s
        return max(0.0, self._free_s - now_s)


class Relays:
    """Listens where others reach each node, and passes on to where it listens.

    Only of connections to the node: what it asks of another one passes that one's relay. A
    connection has at most a chunk a direction in work, so TCP holds its sender back.
    """

    def __init__(
        self, places: list[Place], bits_per_s: int, clock: Callable[[], float] | None = None
    ) -> None:
        self._places = places
        self._bytes_per_s = bits_per_s / 8
        self._clock = clock
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for place in self._places:
            host, port = place.reached.split(":")
            buckets = [Bucket(self._bytes_per_s, self._now()) for _ in range(2)]

            def accept(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                place: Place = place,
                buckets: list[Bucket] = buckets,
            ) -> None:
                task = asyncio.ensure_future(self._relay(reader, writer, place, buckets))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

            self._servers.append(await asyncio.start_server(accept, host, int(port)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        place: Place,
        buckets: list[Bucket],
    ) -> None:
        host, port = place.listen.split(":")
        try:
            there, onward = await asyncio.open_connection(host, int(port))
        except OSError:  # As if the relay were not there.
            writer.transport.abort()
            return
        try:
            # An error of one direction ends both.
            await asyncio.gather(
                self._pass(reader, onward, buckets[0]), self._pass(there, writer, buckets[1])
            )
        except OSError:
            pass
        finally:
            for each in (writer, onward):
                each.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bucket: Bucket
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if (wait_s := bucket.take(len(data), self._now())) > 0:
                await asyncio.sleep(wait_s)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
