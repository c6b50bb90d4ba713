"""The node process against clients that are wrong, strangers, or many; and as a service."""

from __future__ import annotations

import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from loader_data import FLAT, epoch_ids
from node_ranks import PATIENCE_S, is_running, wait_for_end

import headrace as hr
from headrace import _core, errors
from headrace._nodes import process as node
from headrace._units import format_bytes

_names = iter(range(10**6))


@contextmanager
def service(*arguments: str) -> Iterator[tuple[str, int]]:
    """`headrace node`: its name and process."""
    name = f"test-{os.getpid()}-{next(_names)}"
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "node", "--name", name, *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert name in process.stderr.readline()
        yield name, process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`headrace node` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", "node", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def address(name: str) -> bytes:
    return b"\0" + node.service_socket(name).encode()


def connected(where: bytes) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(PATIENCE_S)
    for _ in range(1000):
        try:
            client.connect(where)
            return client
        except ConnectionRefusedError:
            select.select([], [], [], 0.01)
    raise AssertionError("nobody serves it")


def packet(payload: bytes) -> bytes:
    """As ipc/ sends it: payload bytes, descriptors, kind."""
    return struct.pack("<IHH", len(payload), 0, 0) + payload


def hello(protocol: int = 1, library: bytes = b"0") -> bytes:
    return packet(struct.pack("<BII", 0, protocol, len(library)) + library + bytes(13))


def tried(source: Path, name: str, start_timeout: int = 600, **arguments: object) -> hr.Loader:
    return hr.Loader(
        source,
        8,
        transform=FLAT,
        output=hr.Output("numpy", ids=True),
        job=hr.Job(node=hr.Node(name=name, start_timeout=start_timeout)),
        **arguments,
    )


def test_what_is_no_message_ends_its_sender_and_nobody_else(numbered: Path) -> None:
    seed = random.Random(7)
    with service() as (name, pid):
        with tried(numbered, name) as loader:
            iteration = iter(loader)
            next(iteration)
            for attempt in range(60):
                with connected(address(name)) as client:
                    junk = seed.randbytes(seed.randrange(1, 400))
                    wrong = [
                        junk,
                        packet(junk),
                        packet(bytes([seed.randrange(10)]) + junk),
                        packet(bytes([5]) + b"\xff" * 12),  # a count of 2**32 - 1
                        packet(bytes([1]) + struct.pack("<I", 2**31) + junk),
                        struct.pack("<IHH", 2**32 - 1, 8, 0) + junk,
                    ][attempt % 6]
                    client.send(wrong)
                    while client.recv(1 << 16):  # Why, and then the end.
                        pass
            assert sum(1 for _ in iteration) == len(loader) - 1
        assert is_running(pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_refused_before_a_byte_is_read() -> None:
    with service() as (name, _):
        connected(address(name)).close()
        where = address(name)  # As whom it is served.
        child = os.fork()
        if child == 0:
            code = 2
            try:
                os.setuid(65534)
                with connected(where) as client:
                    try:
                        client.send(hello(99))
                        code = int(client.recv(1 << 16) != b"")
                    except (BrokenPipeError, ConnectionResetError):
                        code = 0
            except BaseException as error:
                print(repr(error), flush=True)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_node_process_without_clients_ends_when_asked() -> None:
    process = subprocess.Popen([node.executable(), "--name", f"headrace-test-{os.getpid()}"])
    process.send_signal(signal.SIGTERM)
    wait_for_end(process.pid)
    process.wait()


def test_what_is_wrong_on_its_command_line_is_said() -> None:
    for arguments, what in (([], "--name"), (["--nam"], "--nam"), (["--memory", "x"], "memory")):
        done = subprocess.run([node.executable(), *arguments], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert what in done.stderr


def test_a_second_service_of_a_name_says_who_has_it() -> None:
    with service() as (name, pid):
        connected(address(name)).close()
        told = (
            rf"user {os.geteuid()} \(process {pid}, since \d+-\d+-\d+ \d+:\d+:\d+\) serves it; "
            "end that, or choose another name"
        )
        second = command("--name", name)
        assert (second.returncode, second.stdout) == (3, "")
        assert re.search(told, second.stderr), second.stderr


def test_a_path_is_no_name_of_a_service() -> None:
    refused = command("--name", "../x")
    assert refused.returncode == 2
    told = " ".join(refused.stderr.split())
    assert "name of a node process: got '../x', must have no '/': it is a name" in told, told


def test_a_service_is_not_given_more_memory_than_there_is() -> None:
    usable = _core.memory_limit_bytes()
    refused = command("--name", "x", "--memory", f"{usable + 2**40}")
    assert refused.returncode == 2
    told = " ".join(refused.stderr.split())
    assert f"--memory: got {format_bytes(usable + 2**40)}, but the machine" in told
    assert f"has {format_bytes(usable)}; give less" in told
    with service("--memory", f"{usable}") as (name, _):
        connected(address(name)).close()


def test_a_service_keeps_tiers_in_memory_for_the_next_job(numbered: Path) -> None:
    tiers = [hr.tiers.Ram("64MiB")]
    with service() as (name, _):
        with tried(numbered, name, tiers=tiers, seed=1) as loader:
            epoch_ids(loader)
            first = loader.stats()
        with tried(numbered, name, tiers=tiers, seed=2) as loader:
            with hr.Loader(
                numbered, 8, transform=FLAT, output=hr.Output("numpy", ids=True), seed=2
            ) as expected:
                assert epoch_ids(loader) == epoch_ids(expected)
            second = loader.stats()
        with tried(numbered, name, tiers=[hr.tiers.Ram("32MiB")]) as loader:  # another one
            epoch_ids(loader)
            other = loader.stats()
    assert first["sources"] is not None
    assert second["sources"] is not None
    assert first["sources"]["storage"] > 0
    assert second["sources"]["storage"] == 0
    assert other["sources"] is not None
    assert other["sources"]["storage"] > 0


def test_jobs_of_a_service_stay_within_its_memory_together(numbered: Path) -> None:
    tiers = [hr.tiers.Ram("60MiB")]
    with service("--memory", "100MiB") as (name, _):
        with tried(numbered, name, memory="62MiB", tiers=tiers) as one:
            with pytest.raises(errors.ResourceExhaustedError, match=r"has 100\.0 MiB"):
                tried(numbered, name, memory="62MiB", tiers=tiers)
            with tried(numbered, name, memory="30MiB") as two:
                assert epoch_ids(one) == epoch_ids(two)
        # What is kept gives way.
        with tried(numbered, name, memory="95MiB", tiers=[hr.tiers.Ram("90MiB")]) as alone:
            assert len(epoch_ids(alone)) == len(alone)
