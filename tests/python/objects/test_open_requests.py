"""What the place asks a store: pages, strange keys, faults, and the process that asks."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from listed_keys import ListedKeys
from open_checks import put, put_folder, requests
from served_objects.object_server import ObjectServer
from small_datasets import Written

import headrace as hr
from headrace import _places, errors
from headrace._objects import connection
from headrace._places import table


def npy(tmp_path: Path, rows: int = 8) -> bytes:
    np.save(tmp_path / "a.npy", np.arange(rows))
    return (tmp_path / "a.npy").read_bytes()


def opened_in_a_child(url: str) -> int:
    """The length of the dataset, as a forked child opens it; 255: an error."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(len(hr.open(url)))
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lister() -> int:
    """The number of the process that asks."""
    started: Any = table.LISTER._lister
    return int(started.process.pid)


def test_a_child_that_was_forked_asks_by_a_process_of_its_own(
    tmp_path: Path, server: ObjectServer
) -> None:
    server.put("a.npy", npy(tmp_path))
    server.put("b.npy", npy(tmp_path, 5))
    assert len(hr.open("s3://data/a.npy")) == 8
    before = lister()
    assert opened_in_a_child("s3://data/b.npy") == 5
    assert opened_in_a_child("s3://data/a.npy") == 8
    server.put("a.npy", npy(tmp_path, 3))
    assert len(hr.open("s3://data/a.npy")) == 3
    assert lister() == before


def test_a_process_that_was_killed_is_replaced(tmp_path: Path, server: ObjectServer) -> None:
    server.put("a.npy", npy(tmp_path))
    assert _places.stat("s3://data/a.npy").st_size
    killed = lister()
    os.kill(killed, signal.SIGKILL)
    assert len(hr.open("s3://data/a.npy")) == 8
    assert lister() != killed


PROGRAM = """
import os, sys
import headrace as hr
from headrace._places import table
hr.open(sys.argv[1])
print(table.LISTER._lister.process.pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_the_process_ends_with_its_user(tmp_path: Path, server: ObjectServer, end: str) -> None:
    server.put("a.npy", npy(tmp_path))
    command = [sys.executable, "-c", PROGRAM, "s3://data/a.npy"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as program:
        assert program.stdout is not None
        watched = os.pidfd_open(int(program.stdout.readline()))
        if end == "kill":
            program.kill()
        program.communicate("\n")
    try:
        assert select.select([watched], [], [], 30)[0]
    finally:
        os.close(watched)


def test_settings_of_now_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ObjectServer() as first, ObjectServer() as second:
        first.put("a.npy", npy(tmp_path))
        second.put("a.npy", npy(tmp_path, 3))
        for started, rows in ((first, 8), (second, 3), (first, 8)):
            for name, value in started.environment().items():
                monkeypatch.setenv(name, value)
            assert len(hr.open("s3://data/a.npy")) == rows
        table.LISTER.close()


@pytest.mark.parametrize("kind", ["slow-down", "error", "close", "rst"])
def test_what_passes_is_tried_again(tmp_path: Path, server: ObjectServer, kind: str) -> None:
    url = put(server, Written("tars", tmp_path))
    server.fault(kind, times=2)
    assert len(hr.open(url)) == 24


REFUSALS: dict[str, str] = {
    "denied": "403 AccessDenied: these credentials may not do this; ask the bucket's owner for",
    "other-region": "the bucket data is in another region; set AWS_REGION=",
    "skewed": "403 RequestTimeTooSkewed: the clock of this machine is off; set it",
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_what_does_not_pass_says_what_to_do(
    tmp_path: Path, server: ObjectServer, kind: str
) -> None:
    server.put("a.npy", npy(tmp_path))
    server.fault(kind)
    with pytest.raises(errors.FailedPreconditionError, match=r"s3://data/a\.npy") as caught:
        hr.open("s3://data/a.npy")
    assert REFUSALS[kind] in str(caught.value)
    assert "secret-of-test" not in str(caught.value)


def test_no_bucket_and_no_key(server: ObjectServer) -> None:
    server.put("a/b", b"")
    with pytest.raises(errors.FailedPreconditionError, match="there is no bucket other; correct"):
        hr.open("s3://other/a.npy")
    with pytest.raises(errors.NotFoundError, match="there is no such object, and no key begins"):
        hr.open("s3://data/a.npy")
    with pytest.raises(errors.FailedPreconditionError, match="names no bucket; write s3://BUCKET"):
        hr.open("s3://")


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with ObjectServer() as server:
        gone = server.environment()
    for name, value in gone.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(errors.FailedPreconditionError, match="refused the connection; start it"):
        hr.open("s3://data/a.npy")
    table.LISTER.close()


def test_without_obstore_the_way_to_install_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "obstore.py").write_text("raise ImportError('there is none')")
    monkeypatch.syspath_prepend(tmp_path)
    table.LISTER.close()
    with pytest.raises(errors.FailedPreconditionError, match=r"pip install 'headrace\[objects\]'"):
        hr.open("s3://data/a.npy")
    table.LISTER.close()


def test_an_object_that_changes_while_it_is_indexed_is_named(
    tmp_path: Path, server: ObjectServer
) -> None:
    url = put(server, Written("tars", tmp_path))
    server.fault("changed", key="*part-1.tar", method="GET")
    with pytest.raises(
        errors.HeadraceError, match=r"part-1\.tar.* has changed since it was listed"
    ):
        hr.open(url)


CHANGES: dict[str, Callable[[ObjectServer, bytes], None]] = {
    "changed": lambda server, data: server.put("a b/part-1.tar", data),
    "new": lambda server, data: server.put("a b/part-3.tar", data),
}


@pytest.mark.parametrize("change", CHANGES)
def test_objects_that_change_or_come_are_noticed(
    tmp_path: Path, server: ObjectServer, change: str
) -> None:
    url = put(server, Written("tars", tmp_path)) + "/*.tar"
    first = hr.open(url)
    CHANGES[change](server, server.get("a b/part-0.tar"))
    assert hr.open(url).fingerprint != first.fingerprint


STRANGE = ("a b.npy", "a+b.npy", "a#b.npy", "a?b.npy", "a%20b.npy", "ä€😀.npy", "a&b='\"<.npy")


def test_strange_keys_are_listed_and_read(tmp_path: Path, server: ObjectServer) -> None:
    for rows, name in enumerate(STRANGE, 1):
        server.put(f"st+r %2F/{name}", npy(tmp_path, rows))
    assert sorted(_places.names("s3://data/st+r %2F")) == sorted(STRANGE)
    for rows, name in enumerate(STRANGE, 1):
        url = f"s3://data/st+r %2F/{name}"
        assert _places.is_file(url)
        with _places.open(url) as file:
            assert file.read() == npy(tmp_path, rows)


@pytest.mark.parametrize("key", ["p//a.npy", "p/../a.npy", "p/./a.npy"])
def test_keys_that_no_file_can_have_are_named(
    tmp_path: Path, server: ObjectServer, key: str
) -> None:
    server.put(key, npy(tmp_path))
    folder = f"s3://data/{os.path.dirname(key).rstrip('./')}"
    with pytest.raises(OSError, match=f"keys that begin with '{folder[10:]}/"):
        _places.names(folder)


@pytest.mark.parametrize(("keys", "pages"), [(2_500, 3), (100_000, 100)])
def test_lists_of_many_pages(monkeypatch: pytest.MonkeyPatch, keys: int, pages: int) -> None:
    with ListedKeys(keys) as listed:
        for name, value in listed.environment().items():
            monkeypatch.setenv(name, value)
        with _places.remembering():
            names = _places.names("s3://data/many")
            assert len(set(names)) == keys
            assert _places.stat(f"s3://data/many/{names[-1]}").st_size == 3
            _places.look_ahead(f"s3://data/many/{name}" for name in names)
        assert listed.requests == pages
        table.LISTER.close()


def test_more_threads_than_connections_wait(tmp_path: Path, server: ObjectServer) -> None:
    url = put_folder(server, Written("folder", tmp_path).root)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2 * connection._AT_ONCE) as threads:
        sizes = list(threads.map(lambda _: len(_places.names(f"{url}/class0")), range(200)))
    assert set(sizes) == {8}


@pytest.mark.parametrize(("size", "gets"), [(20_000, 5), (3_000_000, 12)])
def test_headers_of_a_tar_are_read_together_where_members_are_small(
    tmp_path: Path, server: ObjectServer, size: int, gets: int
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(10 if size > 2**20 else 120):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size)))
    server.put("a.tar", (tmp_path / "a.tar").read_bytes())
    assert len(hr.open("s3://data/a.tar")) >= 10
    read = [log for log in server.log("GET") if log["key"]]
    assert len(read) <= gets


def put_mds(server: ObjectServer, rows: Sequence[Sequence[bytes]]) -> None:
    """A shard of columns of bytes, x and y."""
    cells = [b"".join([*(np.uint32(len(each)).tobytes() for each in row), *row]) for row in rows]
    ends = np.cumsum([4 + 4 * (len(rows) + 1), *map(len, cells)]).astype("<u4").tobytes()
    data = np.uint32(len(rows)).tobytes() + ends + b"".join(cells)
    server.put("mds/shard.00000.mds", data)
    columns = len(rows[0])
    shard = {
        "column_names": ["x", "y"][:columns],
        "column_encodings": ["bytes"] * columns,
        "column_sizes": [None] * columns,
        "compression": None,
        "format": "mds",
        "samples": len(rows),
        "zip_data": None,
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
    }
    server.put("mds/index.json", json.dumps({"shards": [shard], "version": 2}).encode())


def test_mds_of_large_samples_is_indexed_without_a_request_a_sample(
    tmp_path: Path, server: ObjectServer
) -> None:
    values = [np.random.default_rng(i).bytes(100_000 + i) for i in range(20)]
    put_mds(server, [[each] for each in values])
    ds = hr.open("s3://data/mds")
    assert requests(server)["get"] <= 3
    assert [bytes(ds[i]["x"]) for i in range(20)] == values


@pytest.mark.parametrize("suffix", ["stream", "file"])
def test_of_an_arrow_file_the_images_are_not_read(
    tmp_path: Path, server: ObjectServer, suffix: str
) -> None:
    images = [np.random.default_rng(i).bytes(500_000) for i in range(24)]
    rows = pa.table({"image": images, "text": ["a", "bc", "def"] * 8})
    opened = pa.ipc.new_stream if suffix == "stream" else pa.ipc.new_file
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, opened(sink, rows.schema) as out:
        out.write_table(rows, max_chunksize=8)
    server.put("a.arrow", (tmp_path / "a.arrow").read_bytes())
    ds = hr.open("s3://data/a.arrow")
    read = [log for log in server.log("GET") if log["key"]]
    assert len(read) <= 12
    assert sum(log["sent"] for log in read) <= 4_000_000
    assert [ds[i]["image"] for i in range(24)] == images


def test_mds_of_several_lengths_a_sample_is_read_in_large_ranges(
    tmp_path: Path, server: ObjectServer
) -> None:
    values = [(np.random.default_rng(i).bytes(90_000 + i), b"t" * i) for i in range(60)]
    put_mds(server, values)
    ds = hr.open("s3://data/mds")
    assert requests(server)["get"] <= 6
    assert [(bytes(ds[i]["x"]), bytes(ds[i]["y"])) for i in range(60)] == values
