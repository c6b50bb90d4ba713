"""Loaders over a server that is late or busy, and processes that are killed or forked."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from open_checks import fetchers, put_pictures, put_rows
from served_objects.object_server import ObjectServer
from test_open_read import same

import headrace as hr
from headrace import errors

pytest.importorskip("obstore")

BATCH = 32
WINDOW = 32  # requests in flight at first


def loader(data: hr.Dataset | Path | str) -> hr.Loader[Any]:
    return hr.Loader(data, BATCH, seed=3, epochs=1, output=hr.Output("numpy", ids=True))


def batches(data: Path | str) -> list[Any]:
    with loader(data) as made:
        return list(made)


class Reading:
    """A loader whose first requests the server holds: they are in flight."""

    def __init__(self, server: ObjectServer, data: hr.Dataset) -> None:
        server.fault("late", most=WINDOW)  # A second try is answered.
        self._server = server
        self.loader = loader(data)
        self._batches: Iterator[Any] = iter(self.loader)
        server.wait_held(WINDOW)

    def rest(self) -> list[Any]:
        self._server.no_faults()
        self._server.release()
        with self.loader:
            return list(self._batches)


def test_one_request_of_a_hundred_that_gets_no_answer_costs_a_second_one(
    tmp_path: Path, server: ObjectServer
) -> None:
    """None of them is answered: they end with the loader."""
    samples = 1000
    ds = hr.open(put_pictures(server, tmp_path / "data", samples))
    server.clear_log()
    server.fault("late", skip=300, every=100)  # Until then the usual wait is learned.
    with loader(ds) as made:
        got = list(made)
        hedges = made.stats()["io"]["hedges"]
    assert Counter(int(i) for batch in got for i in batch.sample_id) == Counter(range(samples))
    assert same(got, batches(tmp_path / "data"))
    assert 7 <= hedges <= 0.05 * samples
    assert len(server.log("GET")) <= 1.05 * samples


def test_a_store_that_is_busy_gets_fewer_requests_and_then_all_batches(
    tmp_path: Path, server: ObjectServer
) -> None:
    ds = hr.open(put_pictures(server, tmp_path / "data", 200))
    server.clear_log()
    busy = WINDOW + WINDOW // 2 + WINDOW // 4
    server.fault("slow-down", times=None, most=busy)
    server.fault("late", times=None, skip=busy)
    reading = Reading(server, ds)
    server.release()
    server.wait(busy)
    server.wait_held(1)
    held = [one for one in server.log("GET") if one["held"]]
    assert 1 <= len(held) <= WINDOW // 8, "half, each time that it asked for fewer"
    assert same(reading.rest(), batches(tmp_path / "data"))
    assert reading.loader.stats()["io"]["slow_downs"] == busy


def test_fetchers_that_are_killed_are_replaced(tmp_path: Path, server: ObjectServer) -> None:
    reading = Reading(server, hr.open(put_pictures(server, tmp_path / "data", 200)))
    killed = fetchers(os.getpid())
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert same(reading.rest(), batches(tmp_path / "data"))


PROGRAM = """
import sys
import headrace as hr
for _ in hr.Loader(sys.argv[1], 32):
    pass
"""


def test_fetchers_end_with_a_loader_that_is_killed(tmp_path: Path, server: ObjectServer) -> None:
    url = put_pictures(server, tmp_path / "data", 200)
    server.fault("late", key="?*", times=None)  # Not the lists.
    command = [sys.executable, "-c", PROGRAM, url]
    with subprocess.Popen(command) as program:
        try:
            server.wait_held(WINDOW)
            watched = [os.pidfd_open(pid) for pid in fetchers(program.pid)]
        finally:
            program.kill()
    assert watched
    ends = select.poll()
    for one in watched:
        ends.register(one, select.POLLIN)
        assert ends.poll(30_000)
        ends.unregister(one)
        os.close(one)


def test_a_fork_while_it_reads_reads_by_fetchers_of_its_own(
    tmp_path: Path, server: ObjectServer
) -> None:
    url = put_pictures(server, tmp_path / "data", 200)
    wanted = batches(tmp_path / "data")
    reading = Reading(server, hr.open(url))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if same(batches(url), wanted) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len([one for one in server.log("GET") if one["held"]]) == WINDOW
    assert same(reading.rest(), wanted)


def test_an_object_that_changes_between_ranges_is_an_error_that_names_it(
    tmp_path: Path, server: ObjectServer
) -> None:
    url = put_rows(server, tmp_path / "data", 200, 5000)
    server.fault("changed", times=None, skip=1)
    with pytest.raises(errors.HeadraceError, match=r"rows\.npy.* has changed since it was indexed"):
        batches(url)
