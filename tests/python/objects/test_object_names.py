"""Names of servers: several addresses, and other ones later. In a mount namespace with its own
/etc/hosts, so for root, or where users may have namespaces."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fetcher_process import Fetcher
from served_objects.object_server import ObjectServer

from headrace._objects.clients.failures import Result
from headrace._process.helpers import command_of

pytest.importorskip("obstore")

FIRST, SECOND = "127.0.0.2", "127.0.0.3"
DATA = bytes(range(256)) * 10
OF_X: dict[str, Any] = {"url": "s3://data/x", "size": len(DATA), "object_bytes": len(DATA)}


def with_hosts(file: Path, command: list[str]) -> list[str]:
    """The command, in a namespace where this file is /etc/hosts."""
    enter = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return [*enter, "sh", "-c", script, str(file), *command]


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    file = tmp_path / "hosts"
    file.write_text("")
    try:
        command = with_hosts(file, ["cmp", "/etc/hosts", str(file)])
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no program unshare")
    if tried.returncode != 0:
        pytest.skip(f"no namespaces: {tried.stderr.strip()}")
    return file


@pytest.fixture
def named() -> Iterator[ObjectServer]:
    with ObjectServer(host=f"{FIRST},{SECOND}") as made:
        made.put("x", DATA)
        yield made


def fetcher(server: ObjectServer, hosts: Path) -> Fetcher:
    environment = server.environment() | {"AWS_ENDPOINT_URL": f"http://store.test:{server.port}"}
    return Fetcher(environment, command=with_hosts(hosts, command_of("fetcher")))


def test_a_name_that_moves_is_asked_at_its_new_address(named: ObjectServer, hosts: Path) -> None:
    hosts.write_text(f"{FIRST} store.test\n")
    with fetcher(named, hosts) as made:
        assert made.read(**OF_X)[0].result is Result.OK
        hosts.write_text(f"{SECOND} store.test\n")
        named.fault("close")
        named.fault("close", after=1)
        ends = [made.read(**OF_X)[0].result for _ in range(3)]
    assert ends == [Result.BROKEN, Result.BROKEN, Result.OK]
    assert named.log()[0]["to"] == FIRST
    assert named.log()[-1]["to"] == SECOND


def test_a_name_that_is_gone_for_a_while_is_no_loss(named: ObjectServer, hosts: Path) -> None:
    with fetcher(named, hosts) as made:
        end, _ = made.read(**OF_X)
        assert end.result is Result.BROKEN
        assert "store.test" in end.cause
        assert "its name is not known" in end.cause
        hosts.write_text(f"{SECOND} store.test\n")
        assert made.read(**OF_X)[1] == DATA


def test_all_addresses_of_a_name_are_asked(named: ObjectServer, hosts: Path) -> None:
    """object_store asked one only: issue 19."""
    hosts.write_text(f"{FIRST} store.test\n{SECOND} store.test\n")
    named.fault("late", times=None)
    with fetcher(named, hosts) as made:
        numbers = made.start(*[OF_X] * 16)
        named.wait_held(16)
        named.release()
        assert all(made.end(number).result is Result.OK for number in numbers)
    assert {one["to"] for one in named.log()} == {FIRST, SECOND}
