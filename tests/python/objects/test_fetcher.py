"""A fetcher with the real client, over the server with faults."""

from __future__ import annotations

import os
import random
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fetcher_process import Fetcher
from served_objects.object_server import ObjectServer

from headrace._objects.clients.failures import Result
from headrace._process.helpers import command_of

pytest.importorskip("obstore")

DATA = random.Random(5).randbytes(3_000_000)
KEYS = ["a key", "a+b", "hash#?.bin", "per%20cent%", "ünï/çødé/日本", "deep/er/x", "\"<&>'"]


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as made:
        yield made


@pytest.fixture
def objects(server: ObjectServer) -> ObjectServer:
    server.no_faults()
    server.put("x", DATA)
    server.clear_log()
    return server


@pytest.fixture
def fetcher(objects: ObjectServer) -> Iterator[Fetcher]:
    with Fetcher(objects.environment()) as made:
        yield made


def of_x(url: str = "s3://data/x", **fields: Any) -> dict[str, Any]:
    return {"url": url, "offset": 1000, "size": 200_000, "object_bytes": len(DATA), **fields}


def test_ranges_of_all_sizes_arrive_in_their_cells(fetcher: Fetcher) -> None:
    sizes = [1, 4096, 65536, 65537, 300_000, 1 << 20, len(DATA)]
    ranges = [of_x(offset=min(size % 977, len(DATA) - size), size=size) for size in sizes]
    for number, one in zip(fetcher.start(*ranges), ranges, strict=True):
        end = fetcher.end(number)
        assert (end.result, end.received, end.cause) == (Result.OK, one["size"], "")
        assert fetcher.cell(number, end.received) == DATA[one["offset"] :][: one["size"]]
        assert end.reports == sorted(set(end.reports))
        assert all(count < one["size"] for count in end.reports)
        assert len(end.reports) <= one["size"] // (256 << 10) + 3


@pytest.mark.parametrize("scheme", ["s3", "gs", "http"])
@pytest.mark.parametrize("key", KEYS)
def test_keys_of_any_characters_are_read(
    fetcher: Fetcher, objects: ObjectServer, scheme: str, key: str
) -> None:
    from urllib.parse import quote

    objects.put(key, key.encode() * 1000)
    size = len(key.encode()) * 1000
    url = f"{scheme}://data/{key}" if scheme != "http" else f"{objects.url}/data/{quote(key)}"
    end, got = fetcher.read(url=url, offset=5, size=size - 5, object_bytes=size)
    assert (end.cause, got) == ("", (key.encode() * 1000)[5:])


def test_a_packet_may_have_many_ranges(objects: ObjectServer) -> None:
    with Fetcher(objects.environment(), cells=400) as fetcher:
        ranges = [of_x(offset=number * 7, size=5000 + number) for number in range(400)]
        numbers = fetcher.start(*ranges)
        for number, one in zip(reversed(numbers), reversed(ranges), strict=True):
            assert fetcher.end(number).result is Result.OK
            want = DATA[one["offset"] :][: one["size"]]
            assert fetcher.cell(number, one["size"]) == want


def test_a_cancelled_attempt_ends_at_once_and_writes_no_more(
    fetcher: Fetcher, objects: ObjectServer
) -> None:
    objects.fault("stall", key="x", bytes=1 << 20)
    objects.fault("late", key="late")
    objects.put("late", DATA)
    (number,) = fetcher.start(of_x(size=2 << 20))
    (late,) = fetcher.start(of_x(url="s3://data/late"))
    before = fetcher.reported(number)
    objects.wait_held(2)
    for cancelled in (number, late):
        fetcher.cancel(cancelled)
        fetcher.cancel(cancelled)
        assert fetcher.end(cancelled).result is Result.BROKEN
    fetcher.memory[:] = bytes(len(fetcher.memory))
    objects.release()
    # A connection whose body has come is kept, one with bytes to come is closed: at once.
    ended = {one["key"]: one["end"] for one in objects.wait(2)}
    assert set(ended) == {"x", "late"}
    # A later attempt shares the process with threads that have seen their bytes.
    end, got = fetcher.read(**of_x(offset=0, size=100))
    assert (end.result, got) == (Result.OK, DATA[:100])
    assert fetcher.cell(number, 2 << 20) == bytes(2 << 20)
    assert before >= 65536


def test_an_attempt_that_has_ended_may_be_cancelled(fetcher: Fetcher) -> None:
    (number,) = fetcher.start(of_x())
    assert fetcher.end(number).result is Result.OK
    fetcher.cancel(number)
    assert fetcher.read(**of_x())[0].result is Result.OK


def test_more_attempts_than_threads_all_end(objects: ObjectServer) -> None:
    objects.fault("late", key="x", times=None)
    objects.put("y", DATA)
    with Fetcher(objects.environment(), cells=300) as fetcher:
        held = fetcher.start(*[of_x(size=100)] * 256)
        objects.wait_held(256)
        numbers = fetcher.start(*[of_x(url="s3://data/y", size=100)] * 10)
        fetcher.cancel(numbers[0])
        assert fetcher.end(numbers[0]).result is Result.BROKEN
        objects.no_faults()
        objects.release()
        for number in held + numbers[1:]:
            assert fetcher.end(number).result is Result.OK
        assert len(objects.log()) == 256 + 9


def test_it_ends_with_its_socket(objects: ObjectServer) -> None:
    objects.fault("late", times=None)
    with Fetcher(objects.environment()) as fetcher:
        fetcher.start(*[of_x()] * 4)
        objects.wait(4, ended=False)
    # The end of the block waits for the process.


PARENT = """
import os, sys
from fetcher_process import Fetcher
fetcher = Fetcher({})
fetcher.start(dict(url="s3://data/x", size=100, object_bytes=int(sys.argv[1])))
print(fetcher.process.pid, flush=True)
os.fork()  # a process that keeps the socket open
os.close(1)
sys.stdin.read()
os._exit(0)
"""


@pytest.mark.parametrize("early", [True, False])
def test_it_ends_with_its_parent_though_a_fork_has_the_socket(
    objects: ObjectServer, early: bool
) -> None:
    objects.fault("late", times=None)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(len(DATA))],
        env={**os.environ, **objects.environment(), "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        watch = os.pidfd_open(int(parent.stdout.readline()))
        if not early:
            objects.wait(1, ended=False)
        parent.kill()
        ends = select.poll()
        ends.register(watch, select.POLLIN)
        assert ends.poll(20_000)
        os.close(watch)


def test_a_packet_of_another_protocol_ends_it(objects: ObjectServer) -> None:
    with Fetcher(objects.environment()) as fetcher:
        fetcher.send(b"\x07" + bytes(8))
        fetcher.code = 1
        fetcher.process.wait(20)


def test_an_address_that_cannot_be_read_is_refused_without_a_request(
    fetcher: Fetcher, objects: ObjectServer
) -> None:
    for url, cause in (
        ("s3://data/a//b", 'the key "a//b" has an empty part'),
        (b"s3://data/\xff", "the object's name is not UTF-8"),
        (f"{objects.url}/data/x?versionId=1", "has a part behind ?"),
    ):
        end, _ = fetcher.read(**of_x(url=url))
        assert end.result is Result.REFUSED
        assert cause in end.cause
    assert objects.log() == []


_MODULES = (
    "from headrace._objects.clients import client; from headrace._objects.fetching import fetcher; "
)


def patched(change: str) -> list[str]:
    """The command of a fetcher with another constant."""
    *python, program, name = command_of("fetcher")
    lines = program.splitlines()
    return [*python, "\n".join([*lines[:-1], _MODULES + change, lines[-1]]), name]


def test_without_obstore_all_is_refused_with_the_remedy(objects: ObjectServer) -> None:
    *python, program, name = command_of("fetcher")
    program = "import sys; sys.modules['obstore'] = None\n" + program
    with Fetcher(objects.environment(), command=[*python, program, name]) as fetcher:
        end, _ = fetcher.read(**of_x())
        assert end.result is Result.REFUSED
        assert end.cause.endswith("pip install 'headrace[objects]'")


def test_without_more_threads_attempts_wait_for_those_there_are(objects: ObjectServer) -> None:
    with Fetcher(objects.environment(), command=patched("fetcher.THREADS_MAX = 2")) as fetcher:
        for number in fetcher.start(*[of_x(size=100)] * 10):
            assert fetcher.end(number).result is Result.OK


def test_the_client_ends_what_is_silent_for_long(objects: ObjectServer) -> None:
    objects.put("late", DATA)
    objects.fault("late", key="late")
    objects.fault("stall", key="x")
    with Fetcher(objects.environment(), command=patched("client.READ_S = 1")) as fetcher:
        for number in fetcher.start(of_x(), of_x(url="s3://data/late")):
            end = fetcher.end(number)
            assert end.result is Result.BROKEN
            assert end.cause.endswith(" did not answer in time")


def test_it_loads_neither_the_core_nor_numpy(objects: ObjectServer) -> None:
    *python, program, name = command_of("fetcher")
    lines = [*program.splitlines()[:-1], _MODULES + "print(*sys.modules)"]  # without main()
    done = subprocess.run(
        [*python, "\n".join(lines), name], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "obstore" in loaded
    assert not {"numpy", "headrace._core", "asyncio", "torch"} & set(loaded)


def test_a_store_of_another_network_family_is_read() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with ObjectServer(host="::1") as server:
        server.put("x", DATA)
        with Fetcher(server.environment()) as fetcher:
            assert fetcher.read(**of_x())[0].result is Result.OK


def test_a_certificate_is_trusted_by_its_authoritys_file(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    file = str(tmp_path / "certificate.pem")
    own = str(tmp_path / "own.pem")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
    ]
    command += ["subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    command += ["-keyout", file, "-out", own]
    subprocess.run(command, check=True, capture_output=True)
    with open(file, "a") as both:
        both.write(Path(own).read_text())
    with ObjectServer(certificate=file) as server:
        server.put("x", DATA)
        urls = {"AWS_CA_BUNDLE": "s3://data/x", "SSL_CERT_FILE": f"{server.url}/data/x"}
        for variable, url in urls.items():
            without = {**server.environment(), "AWS_CA_BUNDLE": "", "SSL_CERT_FILE": ""}
            with Fetcher(without) as fetcher:
                end, _ = fetcher.read(**of_x(url=url))
                assert end.result is Result.REFUSED
                assert end.cause.endswith(f"is not trusted; set {variable} to its authority's file")
            with Fetcher({**without, variable: own}) as fetcher:
                assert fetcher.read(**of_x(url=url))[0].result is Result.OK
