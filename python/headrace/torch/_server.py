"""Distributes the batches of a Loader to the workers of torch's DataLoader.

DataLoader asks its workers in turn, so batch k of an iteration belongs to worker k mod N. A worker
connects when its iteration begins, and asks for its batches one by one:

1. worker: ``{"iteration", "started", "worker": i, "workers": N}``. The first worker to connect
   begins the iteration.
2. worker: ``next``. Answered by ``{"epoch", "step", "rows"}`` with the descriptor of its memory
   (`_parcel`), by ``{"end": true}``, or by ``{"error", "text"}``.
3. The worker closes the connection. If it did not receive the end, the iteration is over; other
   workers still get the batches before its newest one. Either the user left DataLoader's loop, or
   DataLoader reports the worker's error.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from headrace import _core
from headrace._descriptors import Acceptor
from headrace._loading.cursor import Place
from headrace._loading.sampling import EpochPlan
from headrace._text import printable
from headrace._workers._protocol import InputField
from headrace.errors import FailedPreconditionError, UnavailableError
from headrace.torch._accelerate import checked_reader
from headrace.torch._feed import BatchFeed
from headrace.torch._parcel import close_parcel, write_parcel

NEXT = b"next"
MESSAGE_BYTES_MAX = 16384
WORKERS_MAX = 1024
_TEXT_MAX = 2000  # characters of an error: they fit into a message in any encoding
_READY_MAX = 2  # batches that wait for one worker
_PAST_MAX = 16
_STOP_SECONDS = 0.05  # seconds between attempts to end the thread's wait
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class _Lane:
    """One worker's part of an iteration."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.connection: socket.socket | None = None  # None: not connected yet, or gone
        self.begun = False
        self.asks = False
        self.given = 0  # batches
        self.told_end = False
        self.ready: deque[tuple[bytes, int]] = deque()  # messages, with the descriptors sent along

    @property
    def gone(self) -> bool:
        return self.begun and self.connection is None

    def say(self, message: bytes, memory: list[int]) -> None:
        """Sends a message. Never waits: a worker that asks has read all messages before."""
        assert self.connection is not None
        self.asks = False
        try:
            socket.send_fds(self.connection, [message], memory)
        except OSError:  # The worker is gone, or must see that no more batches come.
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def drop_ready(self) -> None:
        while self.ready:
            close_parcel(self.ready.popleft()[1])


class _Deal:
    """An iteration of the loader, distributed to the workers in turn."""

    def __init__(self, name: object, started: object, workers: int) -> None:
        self.name = name  # of the iteration: equal in two iterations only if a seed repeats
        self.started = started  # usually equal for workers that were started together
        self.lanes = [_Lane(number) for number in range(workers)]
        self.batches: Iterator[Any] | None = None  # None: no more batches are taken
        self.pulled = 0  # batches
        self.end = b""  # the message after the last batch, once it is known
        self.is_over = False  # set by another thread that ends the wait and reports the reason
        self.left_at: int | None = None  # no batches from this one on, because a worker has left
        self.why_left = b""

    @property
    def next_lane(self) -> _Lane:
        return self.lanes[self.pulled % len(self.lanes)]

    def has(self, name: object, started: object, number: int, workers: int) -> bool:
        """Whether a worker with these values is one of the expected workers."""
        if name != self.name or workers != len(self.lanes) or self.lanes[number].begun:
            return False
        return self.left_at is None or started == self.started

    def wants_one(self) -> bool:
        lane = self.next_lane
        return self.batches is not None and (lane.gone or len(lane.ready) < _READY_MAX)

    def pull(self, fields: tuple[InputField, ...]) -> None:
        """Takes one batch from the loader for the next worker in turn."""
        assert self.batches is not None
        lane = self.next_lane
        try:
            batch = next(self.batches)
            if not lane.gone:
                told = {"epoch": batch.epoch, "step": batch.step, "rows": len(batch.samples())}
                lane.ready.append((_message(told), write_parcel(fields, batch)))
        except StopIteration:
            self.stop(_message({"end": True}))
        except Exception as error:  # Any error: the workers raise it.
            self.stop(_failure(_over() if self.is_over else error))
        else:
            self.pulled += 1
            self._stop_if_left()
        self.answer()

    def stop(self, end: bytes) -> None:
        self.batches = None
        self.end = end

    def answer(self) -> None:
        """Sends waiting workers the messages that are ready for them."""
        for lane in self.lanes:
            if not lane.asks:
                continue
            turn = lane.number + lane.given * len(self.lanes)
            if self.left_at is not None and turn >= self.left_at:
                lane.told_end = True
                lane.say(self.why_left, [])
            elif lane.ready:
                message, memory = lane.ready.popleft()
                lane.given += 1
                lane.say(message, [memory])
                close_parcel(memory)
            elif self.end:
                lane.told_end = True
                lane.say(self.end, [])

    def leave(self, lane: _Lane) -> None:
        """Its worker has gone."""
        lane.connection, lane.asks = None, False
        lane.drop_ready()
        if not lane.told_end:
            # Others get the batches before its newest one: DataLoader returns those first.
            turn = lane.number + max(0, lane.given - 1) * len(self.lanes)
            self.leave_at(
                turn,
                UnavailableError(
                    f"worker {lane.number} of {len(self.lanes)} left this iteration of the "
                    f"DataLoader at its batch {turn}: it ended, or raised an error; begin another"
                ),
            )
        if all(each.gone for each in self.lanes):
            self.batches = None

    def leave_at(self, turn: int, why: Exception) -> None:
        """Gives no batches from this one on."""
        if self.left_at is None or turn < self.left_at:
            self.left_at, self.why_left = turn, _failure(why)
        self._stop_if_left()
        self.answer()

    def _stop_if_left(self) -> None:
        if self.left_at is not None and self.pulled >= self.left_at:
            self.batches = None


def _over() -> FailedPreconditionError:
    return FailedPreconditionError(
        "this iteration is over: a newer one was begun, or the stream's position was set; a "
        "stream has one iteration at a time; iterate it again"
    )


class Server:
    """Thread safety: hold `lock` for every use of the feed."""

    def __init__(self, feed: BatchFeed) -> None:
        self.feed = feed
        self.lock = threading.RLock()
        self.newest: Place[EpochPlan] | None = None
        """Where the newest iteration began; None if none began since the feed's position was
        set."""
        self.process = os.getpid()
        self.fields = tuple(InputField(*field) for field in feed.delivers.schema)
        # In the abstract namespace: it disappears with the last process that has it.
        self.address = f"\0headrace-{os.geteuid()}-samples-{os.urandom(8).hex()}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.address)
        self._listener.listen(WORKERS_MAX)
        self._listener.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._lanes: dict[socket.socket, tuple[_Deal, _Lane] | None] = {}
        self._deal: _Deal | None = None
        self._past: deque[object] = deque(maxlen=_PAST_MAX)  # earlier iterations
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="headrace-samples", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def anew(self) -> Iterator[None]:
        """Takes the lock in order to end the iteration. Ends the thread's wait for a batch, which
        may depend on other ranks."""
        stopped = False
        while not self.lock.acquire(timeout=_STOP_SECONDS):
            deal = self._deal
            if deal is not None and deal.batches is not None:
                deal.is_over = stopped = True
                self.feed.interrupt()
        try:
            if stopped:
                self.feed.cursor.lose_supply()
            self.forget()
            yield
        finally:
            self.lock.release()

    def begin(self) -> Iterator[Any]:
        """Begins an iteration of the loader and ends the previous one."""
        self.forget()
        checked_reader(self, self.feed)
        batches = self.feed.iterate(lambda batch: batch, base_seed=False)
        self.newest = self.feed.cursor.at
        return batches

    def forget(self) -> None:
        """Ends the previous iteration."""
        self.newest = None
        if self._deal is not None:
            deal, self._deal = self._deal, None
            self._past.append((deal.name, deal.started))
            deal.leave_at(
                0,
                _over(),
            )
            for lane in deal.lanes:
                lane.drop_ready()

    def close(self) -> None:
        """Ends the connections of waiting workers. The loader stays open."""
        if os.getpid() != self.process or self._closing:
            return
        self._closing = True
        self._wake.send(b"!")
        while threading.current_thread() is not self._thread and self._thread.is_alive():
            deal = self._deal
            if deal is not None and deal.batches is not None:
                self.feed.interrupt()  # The thread may wait for it, now or soon.
            self._thread.join(_STOP_SECONDS)
        self._wake.close()
        self._woken.close()

    def _serve(self) -> None:
        _core.exempt_thread()  # close() waits for the thread, also at the interpreter's exit.
        with selectors.PollSelector() as selector:  # Needs no descriptor: there may be none left.
            selector.register(self._woken, selectors.EVENT_READ)
            acceptor = Acceptor(selector, self._listener, "giving batches to DataLoader's workers")
            try:
                while not self._closing:
                    with self._locked() as locked:
                        if not locked:
                            break
                        self._work(selector, acceptor)
                        wanted = self._deal is not None and self._deal.wants_one()
                    if not wanted:
                        acceptor.select()
            finally:
                with self._locked():
                    for connection in list(self._lanes):
                        self._hang_up(selector, connection)
                    self.forget()
                self._refuse()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Takes the lock. False: the stream is being closed, and a thread keeps the lock that may
        have stopped for good, inside the core, as daemon threads do at the interpreter's end."""
        while not (locked := self.lock.acquire(timeout=_STOP_SECONDS)) and not self._closing:
            pass
        try:
            yield locked
        finally:
            if locked:
                self.lock.release()

    def _work(self, selector: selectors.BaseSelector, acceptor: Acceptor) -> None:
        """Receives requests, then takes a batch if one is requested."""
        ready = acceptor.select(0)
        said = [(each, _received(each)) for each in ready if each in self._lanes]
        for connection, message in sorted(said, key=lambda each: bool(each[1])):  # Ends first.
            if not message or not self._hear(connection, message):
                self._hang_up(selector, connection)
        if self._listener in ready:
            self._accept(selector, acceptor)
        if self._deal is not None and self._deal.wants_one() and not self._closing:
            self._deal.pull(self.fields)

    def _accept(self, selector: selectors.BaseSelector, acceptor: Acceptor) -> None:
        connection = acceptor.accept()
        if connection is None:
            return
        connection.setblocking(False)
        if peer(connection)[1] != os.geteuid() or len(self._lanes) >= WORKERS_MAX:
            _end(connection)
            return
        self._lanes[connection] = None
        selector.register(connection, selectors.EVENT_READ)

    def _refuse(self) -> None:
        """Also ends connections that wait to be accepted: if a forked process has the listener,
        close() alone would leave them waiting."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
            while True:
                _end(self._listener.accept()[0])
        self._listener.close()

    def _hang_up(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        selector.unregister(connection)
        joined = self._lanes.pop(connection)
        _end(connection)
        if joined is not None:
            deal, lane = joined
            deal.leave(lane)

    def _hear(self, connection: socket.socket, message: bytes) -> bool:
        """Handles a worker's message. Returns False if it is not one."""
        joined = self._lanes[connection]
        if joined is None:
            try:
                said = json.loads(message)
                number, workers = said["worker"], said["workers"]
                name, started = said["iteration"], said["started"]
            except (ValueError, TypeError, KeyError, RecursionError):
                return False
            if type(number) is not int or type(workers) is not int:
                return False
            if not 0 <= number < workers <= WORKERS_MAX:
                return False
            self._join(connection, _Deal(name, started, workers), number)
            return True
        deal, lane = joined
        if message != NEXT or lane.asks:
            return False
        lane.asks = True
        deal.answer()
        return True

    def _join(self, connection: socket.socket, fresh: _Deal, number: int) -> None:
        deal = self._deal
        if deal is None or not deal.has(fresh.name, fresh.started, number, len(fresh.lanes)):
            deal = fresh
            if (deal.name, deal.started) in self._past:
                over = "this iteration is over; iterate the DataLoader again"
                deal.leave_at(0, FailedPreconditionError(over))
            else:
                self._begin(deal)
        lane = deal.lanes[number]
        lane.connection, lane.begun = connection, True
        self._lanes[connection] = deal, lane

    def _begin(self, deal: _Deal) -> None:
        try:
            batches = self.begin()
        except Exception as error:  # The workers raise it.
            deal.stop(_failure(error))
        else:
            deal.batches = batches
        self._deal = deal


def peer(connection: socket.socket) -> tuple[int, int]:
    """The process at the other end and its user."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(found)
    return process, user


def _received(connection: Any) -> bytes:
    """Receives a message; empty if the connection has ended."""
    try:
        return bytes(connection.recv(MESSAGE_BYTES_MAX))
    except OSError:
        return b""


def _end(connection: socket.socket) -> None:
    """Closes the connection for the other end, too, even if a forked process has this end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _message(told: dict[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode(errors="replace")


def _failure(error: Exception) -> bytes:
    return _message({"error": type(error).__name__, "text": printable(str(error))[:_TEXT_MAX]})
