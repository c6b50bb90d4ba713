"""Packs that are written to an object store: the local pack's bytes, whole or not at all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served_objects.object_server import ObjectServer

import headrace as hr
from headrace import errors
from headrace.pack import PackParameters, write_pack

TARGET = "s3://data/packs/a"
SMALL = PackParameters(block_bytes=30_000, shard_bytes=100_000)

# Kills itself when so many bytes are done, of all that are to be done: PATH URL PART.
PACK_AND_DIE = """
import os, signal, sys
import headrace as hr
from headrace.pack import PackParameters, write_pack

def progress(done, total):
    if done >= total * float(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

small = PackParameters(block_bytes=30_000, shard_bytes=100_000)
write_pack(hr.open(sys.argv[1]), sys.argv[2], small, workers=1, progress=progress)
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectServer]:
    with ObjectServer() as started:
        started.put("other", b"an object beside the packs")
        for name, value in started.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield started


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 MB: a shard of three parts."""
    path = tmp_path_factory.mktemp("large") / "rows.npy"
    random = np.random.Generator(np.random.PCG64(7))
    np.save(path, random.integers(0, 255, (10_000, 4096), dtype=np.uint8))
    return path


def below(server: ObjectServer, key: str = "packs/a/") -> dict[str, bytes]:
    """The objects of a pack."""
    url = f"{server.url}/data?list-type=2&prefix={key}"
    with urllib.request.urlopen(url) as answer:
        names = re.findall(r"<Key>([^<]*)</Key>", answer.read().decode())
    return {name.removeprefix(key): server.get(name) for name in names}


def local(source: Path, folder: Path, parameters: PackParameters) -> dict[str, bytes]:
    write_pack(hr.open(source), folder, parameters)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(("homes", "scheme"), [(1, "s3"), (2, "s3"), (1, "gs")])
def test_the_objects_are_the_files_of_a_local_pack(
    original: Path, tmp_path: Path, server: ObjectServer, homes: int, scheme: str
) -> None:
    target = TARGET.replace("s3", scheme)
    parameters = PackParameters(block_bytes=30_000, shard_bytes=100_000, shards_over=homes)
    expected = write_pack(hr.open(original), tmp_path / "local", parameters)
    seen: list[tuple[int, int]] = []
    result = write_pack(
        hr.open(original),
        target + "/",
        parameters,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert below(server) == local(original, tmp_path / "again", parameters)
    assert (result.path, result.fingerprint) == (target, expected.fingerprint)
    assert (result.shards, result.homes) == (expected.shards, homes)
    assert result.file_bytes == expected.file_bytes
    assert seen[-1] == (2 * result.data_bytes, 2 * result.data_bytes), "written, and uploaded"
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert not list((tmp_path / "cache" / "headrace" / "packs").iterdir())
    assert [e["key"] for e in server.log("PUT")][-1] == "packs/a/pack.hri", "the index is last"


def test_large_shards_go_in_parts(large: Path, tmp_path: Path, server: ObjectServer) -> None:
    """Two at a time."""
    halves = PackParameters(shard_bytes=21 * 2**20)
    write_pack(hr.open(large), TARGET, halves)
    posts = [entry["key"] for entry in server.log("POST")]
    shards = set(posts)
    assert sorted(posts) == sorted([*shards, *shards]), "an upload was begun, and completed"
    parts = [entry["key"] for entry in server.log("PUT") if entry["key"] in shards]
    assert len(shards) == 2
    assert sorted(parts) == sorted([*shards, *shards]), "of 16 MiB, and of the rest"
    assert server.uploads() == {}
    assert below(server) == local(large, tmp_path / "local", halves)


def test_the_users_process_never_loads_obstore(original: Path, server: ObjectServer) -> None:
    program = (
        "import sys, headrace as hr; from headrace.pack import write_pack\n"
        "write_pack(hr.open(sys.argv[1]), sys.argv[2])\n"
        "assert 'obstore' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, original, TARGET], check=True)


@pytest.mark.parametrize("kind", ["error", "slow-down", "close"])
def test_parts_that_fail_are_sent_again(
    large: Path, tmp_path: Path, server: ObjectServer, kind: str
) -> None:
    server.fault(kind, method="PUT", key="packs/a/shard*", times=2)
    write_pack(hr.open(large), TARGET)
    assert below(server) == local(large, tmp_path / "local", PackParameters())
    failed = [e for e in server.log("PUT") if e["status"] != 200 and "/shard" in e["key"]]
    assert len(failed) >= 2
    assert server.uploads() == {}


@pytest.mark.parametrize("kind", ["error", "slow-down"])
def test_the_index_is_sent_again_and_is_not_taken_for_anothers(
    original: Path, tmp_path: Path, server: ObjectServer, kind: str
) -> None:
    server.fault(kind, method="PUT", key="packs/a/pack.hri", times=2)
    write_pack(hr.open(original), TARGET, SMALL)
    assert below(server) == local(original, tmp_path / "local", SMALL)


def test_killed_at_any_point_and_run_again_the_bytes_are_the_same(
    original: Path, tmp_path: Path, server: ObjectServer
) -> None:
    for part in (0.3, 0.6):
        done = subprocess.run(  # Waits for the writer, too, which has the same output.
            [sys.executable, "-c", PACK_AND_DIE, original, TARGET, str(part)],
            check=False,
            stdout=subprocess.PIPE,
        )
        assert done.returncode == -signal.SIGKILL
        assert "pack.hri" not in below(server)
    uploaded = {entry["key"] for entry in server.log("PUT") if "/shard" in entry["key"]}
    server.clear_log()
    result = write_pack(hr.open(original), TARGET, SMALL)
    assert 0 < result.shards_continued < result.shards
    again = {entry["key"] for entry in server.log("PUT") if "/shard" in entry["key"]}
    assert len(again) == result.shards - result.shards_continued
    expected = local(original, tmp_path / "local", SMALL)
    names = {f"packs/a/{name}" for name in expected}
    assert uploaded | again | {"packs/a/pack.hri"} == names
    assert {name: server.get(f"packs/a/{name}") for name in expected} == expected


def test_killed_in_the_middle_of_a_shard_no_part_is_left(
    large: Path, tmp_path: Path, server: ObjectServer
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PACK_AND_DIE.replace("100_000", "10**9"), large, TARGET, "0.6"],
        check=False,
        stdout=subprocess.PIPE,
    )
    assert done.returncode == -signal.SIGKILL
    assert server.log("POST"), "an upload was begun"
    assert server.uploads() == {}, "and aborted"
    write_pack(hr.open(large), TARGET, restart=True)
    assert below(server) == local(large, tmp_path / "local", PackParameters())


def test_killed_after_the_index_was_written_the_next_run_knows_it(
    original: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.pack._remote import RemotePack

    def stop(_self: RemotePack) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RemotePack, "remove", stop)
        with pytest.raises(KeyboardInterrupt):
            write_pack(hr.open(original), TARGET, SMALL)
    assert "pack.hri" in below(server)
    server.clear_log()
    result = write_pack(hr.open(original), TARGET, SMALL)
    assert result.path == TARGET
    assert not server.log("PUT")
    with pytest.raises(errors.InvalidArgumentError, match="it exists already"):
        write_pack(hr.open(original), TARGET, SMALL)


def test_an_index_whose_answer_was_lost_is_this_packs_own(
    original: Path, server: ObjectServer
) -> None:
    server.fault("rst", method="PUT", key="packs/a/pack.hri", times=1)
    write_pack(hr.open(original), TARGET, SMALL)
    assert "pack.hri" in below(server)


def test_killed_after_an_overwrite_the_next_run_deletes_the_older_shards(
    original: Path, tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.pack._remote import RemotePack

    def stop(*_arguments: object) -> None:
        raise KeyboardInterrupt

    write_pack(hr.open(original), TARGET, PackParameters(seed=9))
    with monkeypatch.context() as patched:
        patched.setattr(RemotePack, "_delete_others", stop)
        with pytest.raises(KeyboardInterrupt) as caught:
            write_pack(hr.open(original), TARGET, SMALL, overwrite=True)
    assert f"finished shards are kept in {TARGET}: run the same" in caught.value.__notes__[0]
    write_pack(hr.open(original), TARGET, SMALL, overwrite=True)
    assert below(server) == local(original, tmp_path / "local", SMALL)


def test_a_store_that_does_not_answer_is_left_at_once(
    original: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace._objects.uploading.uploads._LOOK_S", 0.01)
    monkeypatch.setattr("headrace._objects.uploading.uploads._END_S", 0.01)
    server.fault("late", method="PUT", times=None)
    last = 0, 0

    def progress(*now: int) -> None:
        nonlocal last
        if now == last:
            raise KeyboardInterrupt
        last = now[0], now[1]

    with pytest.raises(KeyboardInterrupt):
        write_pack(hr.open(original), TARGET, workers=1, progress=progress)
    server.release()


def test_a_writer_that_is_killed_is_an_error_and_the_next_run_continues(
    original: Path, tmp_path: Path, server: ObjectServer
) -> None:
    from headrace._objects.uploading.uploads import Uploads

    killed: list[int] = []
    start = Uploads.start

    def started(self: Uploads) -> None:
        start(self)
        assert self._process is not None
        killed.append(self._process.pid)

    def progress(done: int, total: int) -> None:
        if done > total / 2:
            os.kill(killed[0], signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Uploads, "start", started)
        with pytest.raises(errors.UnavailableError, match="the process that writes objects ended"):
            write_pack(hr.open(original), TARGET, SMALL, workers=1, progress=progress)
    assert write_pack(hr.open(original), TARGET, SMALL).shards_continued > 0
    assert below(server) == local(original, tmp_path / "local", SMALL)


def test_without_obstore_the_message_has_the_command(
    original: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ImportError, match=r"pip install 'headrace\[objects\]'"):
        write_pack(hr.open(original), TARGET)


def test_a_pack_that_appears_meanwhile_is_not_replaced(
    original: Path, tmp_path: Path, server: ObjectServer
) -> None:
    write_pack(hr.open(original), tmp_path / "other", PackParameters(seed=9))
    theirs = (tmp_path / "other" / "pack.hri").read_bytes()

    def progress(done: int, total: int) -> None:
        if done == total:
            server.put("packs/a/pack.hri", theirs)

    with pytest.raises(errors.InvalidArgumentError, match=r"exists already.*--overwrite"):
        write_pack(hr.open(original), TARGET, SMALL, workers=1, progress=progress)
    assert server.get("packs/a/pack.hri") == theirs


def test_overwriting_leaves_no_shard_of_the_older_pack(
    original: Path, tmp_path: Path, server: ObjectServer
) -> None:
    write_pack(hr.open(original), TARGET, PackParameters(seed=9))
    with pytest.raises(errors.InvalidArgumentError, match=f"packing to {TARGET}: it exists"):
        write_pack(hr.open(original), TARGET, SMALL)
    write_pack(hr.open(original), TARGET, SMALL, overwrite=True)
    assert below(server) == local(original, tmp_path / "local", SMALL)
    assert server.get("other") == b"an object beside the packs"


def test_a_place_with_other_objects_is_refused(original: Path, server: ObjectServer) -> None:
    server.put("packs/a/notes.txt", b"not of a pack")
    with pytest.raises(errors.InvalidArgumentError, match=r"there is notes.txt, which is not of a"):
        write_pack(hr.open(original), TARGET, SMALL, overwrite=True)


def test_a_bucket_that_is_not_there_is_told_before_any_work(
    original: Path, server: ObjectServer
) -> None:
    seen: list[int] = []
    with pytest.raises(
        errors.NotFoundError,
        match="packing to s3://nowhere/a: there is no bucket nowhere; correct the name",
    ):
        write_pack(
            hr.open(original), "s3://nowhere/a", progress=lambda done, _total: seen.append(done)
        )
    assert not seen


def test_without_the_right_to_write_the_message_says_so(
    original: Path, server: ObjectServer
) -> None:
    server.fault("denied", method="PUT", times=None)
    with pytest.raises(
        errors.UnavailableError, match=r"403 AccessDenied.*owner for the right to read, write and"
    ) as caught:
        write_pack(hr.open(original), TARGET, SMALL)
    assert "secret-of-test" not in str(caught.value)
    assert server.uploads() == {}


def test_a_url_that_cannot_be_written_names_a_way(original: Path, server: ObjectServer) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="headrace writes to local paths"):
        write_pack(hr.open(original), "https://example.org/pack")
    with pytest.raises(errors.InvalidArgumentError, match="leave --on"):
        write_pack(hr.open(original), TARGET, on=lambda _work: {})


def test_the_command_packs_and_a_second_one_is_refused(
    original: Path, server: ObjectServer
) -> None:
    command = [sys.executable, "-m", "headrace", "pack", str(original), TARGET]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    assert done.stdout.rstrip().endswith(f": {TARGET}")
    again = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
    assert again.returncode != 0
    assert "it exists already" in again.stderr
