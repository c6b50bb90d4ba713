"""A fetcher: a process that reads ranges of objects into memory of a store, as long as it is there.

The store is src/store/objects/; `docs/design/objects.md` has the protocol. A fetcher decides
nothing and tries nothing twice.

Each attempt has a thread, in which obstore waits without Python's lock: this takes half the
processor time of a coroutine. Such a wait cannot be ended. So a cancelled attempt is ended at once
here, and its thread, when its next bytes come, drops them and the connection; until then another
thread takes its place.
"""

from __future__ import annotations

import collections
import functools
import mmap
import os
import queue
import socket
import struct
import sys
import threading
import time
from typing import Any

from headrace._objects.clients.addresses import Address, object_address
from headrace._objects.clients.failures import Failure, Result
from headrace._objects.clients.version import version_of
from headrace._objects.fetching import fetch_packets as packets
from headrace._process.parent import wait_for_end

THREADS_MAX = 256
"""With those whose attempt was cancelled. Attempts beyond wait for a thread."""
WHOLE_BYTES = 128 << 10
"""Ranges up to this are taken at once, which costs less."""
CHUNK_BYTES = 64 << 10
"""Of larger ones at a time. What a connection breaks off behind the last chunk is lost."""
REPORT_BYTES = 256 << 10
REPORT_S = 0.05
"""Bytes are reported when so many are new, or new ones are older than this."""
ETAGS_MAX = 16 << 10


def main() -> None:
    """Serves the socket that the arguments name, and its store in the process of that number."""
    store = socket.socket(fileno=int(sys.argv[-2]))
    store.setblocking(True)
    threading.Thread(target=_end_with, args=(int(sys.argv[-1]),), daemon=True).start()
    code = 1
    try:
        Fetcher(store).serve()
        code = 0
    except OSError:
        code = 0  # the store is gone
    except (ValueError, struct.error) as error:
        print(f"headrace: a fetcher ends: {error}", file=sys.stderr)
    finally:
        os._exit(code)  # without waiting for threads


class Attempt:
    """One request. `lock` guards what follows: nothing is written to the cell after the end."""

    def __init__(self, start: packets.Start) -> None:
        self.start = start
        self.lock = threading.Lock()
        self.received = 0
        self.ended = False


class Fetcher:
    def __init__(self, store: socket.socket) -> None:
        self._reports = Reports(store)
        self._store = store
        self._memory = memoryview(b"")
        self._attempts: dict[int, Attempt] = {}  # that have not ended
        self._waiting: queue.SimpleQueue[Attempt] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0  # threads that wait, less the attempts that wait
        self._requests = _requests()

    def serve(self) -> None:
        """Returns when the store has closed the socket."""
        size = packets.HEADER.size + packets.PACKET_BYTES_MAX
        while True:
            packet, descriptors, _, _ = socket.recv_fds(self._store, size, 1)
            if not packet:
                return
            for record in packets.records_of(packet):
                if isinstance(record, packets.Start):
                    self._start(record)
                elif isinstance(record, packets.Cancel):
                    self._cancel(record.attempt)
                else:
                    self._map(descriptors, record.bytes)

    def _map(self, descriptors: list[int], count: int) -> None:
        if len(descriptors) != 1:
            raise ValueError(f"memory of {count} bytes with {len(descriptors)} descriptors")
        self._memory = memoryview(mmap.mmap(descriptors[0], count))
        os.close(descriptors[0])

    def _start(self, start: packets.Start) -> None:
        attempt = Attempt(start)
        if isinstance(self._requests, str):
            self._end(attempt, Failure(Result.REFUSED, self._requests))
            return
        if start.cell + start.size > len(self._memory):
            raise ValueError(
                f"a cell of bytes [{start.cell}, {start.cell + start.size}), of memory that has "
                f"{len(self._memory)}"
            )
        self._attempts[start.attempt] = attempt
        with self._lock:
            self._idle -= 1
            more = self._idle < 0 and self._threads < THREADS_MAX
            if more:
                self._threads += 1
                self._idle += 1
        self._waiting.put(attempt)
        if more:
            self._add_thread()

    def _add_thread(self) -> None:
        try:
            threading.Thread(target=self._work, daemon=True).start()
        except RuntimeError:  # the system has no more: the others take the attempt
            with self._lock:
                self._threads -= 1
                self._idle -= 1
                if self._threads == 0:
                    raise

    def _cancel(self, number: int) -> None:
        attempt = self._attempts.get(number)
        if attempt is not None:  # else its end is on the way
            self._end(attempt, Failure(Result.BROKEN, "cancelled"))

    def _work(self) -> None:
        assert not isinstance(self._requests, str)
        while True:
            attempt = self._waiting.get()
            if not attempt.ended:
                self._end(attempt, self._requests.carry_out(attempt, self._memory, self._reports))
            with self._lock:
                self._idle += 1

    def _end(self, attempt: Attempt, failed: Failure | None) -> None:
        """Once an attempt; later calls do nothing. None: it has all bytes."""
        with attempt.lock:
            if attempt.ended:
                return
            attempt.ended = True
            number = attempt.start.attempt
            self._attempts.pop(number, None)
            result, cause = (failed.result, failed.cause) if failed else (Result.OK, "")
            self._reports.add(packets.ended(number, result, attempt.received, cause))
        self._reports.send()


class Requests:
    """Attempts, as requests of obstore. Thread safety: any thread."""

    def __init__(self) -> None:
        import obstore

        from headrace._objects.clients import client

        self._get: Any = obstore.get
        self._clients = client.Clients()
        self._failure = client.failure
        self._etags: dict[bytes, tuple[int, str]] = {}  # versions, and their ETags, by URL

    def carry_out(self, attempt: Attempt, memory: memoryview, reports: Reports) -> Failure | None:
        """None: the cell has all bytes, or the attempt was ended meanwhile."""
        made = address = None
        try:
            address = _address_of(attempt.start.url)
            made = self._clients.of(address)
            return self._read(attempt, address, made, memory, reports)
        except (PermissionError, ValueError) as error:
            return Failure(Result.REFUSED, str(error))
        except BaseException as error:  # a panic of obstore, too
            assert address is not None
            failed = self._failure(error, address)
            if failed.renew:
                self._clients.renew(address, made)
            return failed

    def _read(
        self, attempt: Attempt, address: Address, made: Any, memory: memoryview, reports: Reports
    ) -> Failure | None:
        start = attempt.start
        options: dict[str, Any] = {"range": (start.offset, start.offset + start.size)}
        known = self._etags.get(start.url)
        if known is not None and known[0] == start.version:
            options["if_match"] = known[1]
        answer = self._get(made, address.key, options=options)
        changed = self._changed(start, answer.meta)
        if changed:
            return changed
        last_report, reported = time.monotonic(), 0
        whole = start.size <= WHOLE_BYTES
        chunks = (answer.bytes(),) if whole else answer.stream(min_chunk_size=CHUNK_BYTES)
        for chunk in chunks:
            with attempt.lock:
                if attempt.ended:
                    return None
                at = attempt.received
                if at + len(chunk) > start.size:
                    return Failure(Result.REFUSED, f"the server sent more than {start.size} bytes")
                memory[start.cell + at : start.cell + at + len(chunk)] = chunk
                attempt.received = at = at + len(chunk)
                if at == start.size:
                    return None
                now = time.monotonic()
                if at < reported + REPORT_BYTES and now < last_report + REPORT_S:
                    continue
                last_report, reported = now, at
                reports.add(packets.received(start.attempt, at))
            reports.send()
        return Failure(Result.BROKEN, f"the body ended {start.size - attempt.received} bytes early")

    def _changed(self, start: packets.Start, meta: Any) -> Failure | None:
        etag = meta["e_tag"]
        if meta["size"] != start.object_bytes:
            return Failure(
                Result.CHANGED,
                f"the object has {meta['size']} bytes, and had {start.object_bytes} when it was "
                "indexed",
            )
        if not start.version or (start.version, etag) == self._etags.get(start.url):
            return None
        version = version_of(etag, meta["last_modified"])
        if version and version != start.version:
            return Failure(Result.CHANGED, "the object has changed since it was indexed")
        # A weak one matches nothing.
        if etag and not etag.startswith("W/"):
            if len(self._etags) >= ETAGS_MAX:
                self._etags.clear()
            self._etags[start.url] = (start.version, etag)
        return None


class Reports:
    """Records for the store. A thread that sends also sends what others add meanwhile.

    Thread safety: any thread.
    """

    def __init__(self, store: socket.socket) -> None:
        self._store = store
        self._records: collections.deque[bytes] = collections.deque()
        self._sending = threading.Lock()

    def add(self, record: bytes) -> None:
        self._records.append(record)

    def send(self) -> None:
        """Until what was added before is sent, or another thread sends it."""
        while self._records and self._sending.acquire(blocking=False):
            try:
                parts: list[bytes] = []
                room = packets.PACKET_BYTES_MAX
                while self._records and len(self._records[0]) <= room:
                    parts.append(self._records.popleft())
                    room -= len(parts[-1])
                self._store.send(packets.packet_of(b"".join(parts)))
            except OSError:
                os._exit(0)  # the store is gone
            finally:
                self._sending.release()


def _requests() -> Requests | str:
    """A text: why no request can be made."""
    try:
        return Requests()
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "obstore"
        why = "is not installed" if missing else f"cannot be loaded ({error})"
        return f"obstore, which reads object stores, {why}: pip install 'headrace[objects]'"


@functools.lru_cache(maxsize=ETAGS_MAX)
def _address_of(url: bytes) -> Address:
    try:
        return object_address(url.decode())
    except UnicodeDecodeError as error:
        raise ValueError("the object's name is not UTF-8, as keys of object stores are") from error


def _end_with(process: int) -> None:
    if wait_for_end(process):
        os._exit(0)
