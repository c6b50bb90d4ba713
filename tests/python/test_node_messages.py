"""A client that says what it likes to a service: it is answered or ended, and nobody else."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loader_data import COUNT, FLAT, epoch_ids
from node_ranks import PATIENCE_S, Ranks, is_running
from test_node_server import address, connected, packet, service, tried

import headrace as hr
from headrace import errors

SESSIONS = 120
EDGES = [0, 1, 2, 255, 65536, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
HEADER = 8  # bytes of a packet before its payload
LIBRARY_AT = HEADER + 1 + 4 + 4  # kind, protocol, length


@pytest.fixture
def spoken(numbered: Path) -> tuple[bytes, bytes]:
    """What a loader sends first: its hello, and which job it wants."""
    hr.open(numbered)
    name = f"listener-{os.getpid()}"
    heard: list[bytes] = []

    def listen() -> None:
        peer, _ = listener.accept()
        with peer:
            heard.extend(peer.recv(1 << 16) for _ in range(2))

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address(name))
        listener.listen()
        thread = threading.Thread(target=listen)
        thread.start()
        with pytest.raises(errors.HeadraceError):
            tried(numbered, name, start_timeout=1)
        thread.join()
    hello, opening = heard
    return hello, opening


def changed(message: bytes, chance: random.Random) -> bytes:
    """The payload with a few of its bytes others; its kind stays."""
    payload = bytearray(message)
    for _ in range(chance.choice([1, 1, 2, 3])):
        width = chance.choice([1, 4, 8])
        at = chance.randrange(HEADER + 1, len(payload) - width)
        how = chance.random()
        if how < 0.4:
            value = chance.choice(EDGES) % (1 << 8 * width)
            payload[at : at + width] = value.to_bytes(width, "little")
        elif how < 0.6:
            payload[at : at + width] = chance.randbytes(width)
        elif how < 0.8:
            payload[at] ^= 1 << chance.randrange(8)
        else:
            number = chance.choice([float("nan"), float("inf"), -1.0, 1e308])
            payload[at : at + 8] = struct.pack("<d", number)[: len(payload) - at]
    return bytes(payload[: chance.choice([len(payload)] * 9 + [at])])


def anything(chance: random.Random) -> bytes:
    """A message of some kind, with numbers that may be numbers of something."""
    numbers = [chance.choice([0, 1, 1, 2, 3, *EDGES]) for _ in range(chance.randrange(6))]
    counted = struct.pack("<I", len(numbers)) if chance.random() < 0.5 else b""
    body = counted + b"".join(struct.pack("<Q", number) for number in numbers)
    return packet(bytes([chance.randrange(14)]) + body)


def descriptors(pid: int) -> list[str]:
    """What the process has open, so that a failure names the one too many."""
    folder = f"/proc/{pid}/fd"
    found = []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed since
            found.append(os.readlink(f"{folder}/{name}"))
    return sorted(found)


def of_clients(found: list[str]) -> list[str]:
    """What sessions may leave: not files, nor memory of batches, of which a rank in mid-epoch may
    have more at any time."""
    return [each for each in found if each.startswith(("socket:", "anon_inode:", "pipe:"))]


def serves_nobody(found: list[str]) -> bool:
    """It has its own socket, and no client's socket or process."""
    return sum("socket:" in each for each in found) == 1 and "anon_inode:[pidfd]" not in found


def descriptors_once(pid: int, wanted: Callable[[list[str]], bool]) -> list[str]:
    """They, once they are as wanted, or when patience has ended: clients are let go of later."""
    until = time.monotonic() + PATIENCE_S
    while not wanted(found := descriptors(pid)) and time.monotonic() < until:
        select.select([], [], [], 0.01)
    return found


def heard(client: socket.socket) -> Iterator[bytes]:
    while message := client.recv(1 << 16):
        yield message


@pytest.mark.parametrize("seed", range(3))
def test_changed_messages_end_their_sender_at_most(
    numbered: Path, spoken: tuple[bytes, bytes], seed: int
) -> None:
    hello, opening = spoken
    with service() as (name, pid), Ranks(1) as ranks:
        with connected(address(name)) as client:
            client.send(hello)  # It serves.
            client.send(bytes(HEADER))
            assert client.recv(1 << 16)
        idle = descriptors_once(pid, serves_nobody)
        assert serves_nobody(idle)
        ranks.ask("open_", str(numbered), node={"name": name}, batch_size=8)
        ids = ranks[0].ask("steps", 2)  # It is in the middle of an epoch all the while.
        before = of_clients(descriptors(pid))
        for session in range(SESSIONS):
            # Its own: where a client is ended early does not change what later ones say.
            chance = random.Random(f"{seed} {session}")
            with connected(address(name)) as client:
                try:
                    client.send(hello)
                    opens = session % 3 == 0
                    client.send(opening if opens else changed(opening, chance))
                    if opens:  # Until there is a job, nothing else means anything.
                        assert client.recv(1 << 16)
                    for _ in range(chance.randrange(4)):
                        client.send(anything(chance))
                except (BrokenPipeError, ConnectionResetError):
                    continue  # It was ended: with reason.
            assert is_running(pid)
        after = descriptors_once(pid, lambda found: of_clients(found) == before)
        assert of_clients(after) == before
        ids += ranks[0].ask("steps", COUNT)
        ranks.ask("close")
        left = descriptors_once(pid, lambda found: found == idle)
        assert left == idle
    with hr.Loader(numbered, 8, transform=FLAT, output="numpy") as plain:
        assert ids == epoch_ids(plain)


def test_another_version_is_told_so(spoken: tuple[bytes, bytes]) -> None:
    hello, _ = spoken
    other_protocol = bytearray(hello)
    other_protocol[HEADER + 1] ^= 64
    other_library = bytearray(hello)
    other_library[LIBRARY_AT] ^= 1
    protocol = b"(protocol %d)" % other_protocol[HEADER + 1]
    with service() as (name, _):
        for greeting, what in ((other_protocol, protocol), (other_library, b"headrace 1.")):
            with connected(address(name)) as client:
                client.send(greeting)
                answer = b"".join(heard(client))
                assert b"use one version for both" in answer
                assert what in answer
