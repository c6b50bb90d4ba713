"""What readers of object stores were reported to do wrong, and what Headrace does.

docs/design/objects.md has the reports. Where the client makes the difference, it is the client of a
fetcher; where more does, a loader.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fetcher_process import Fetcher
from loader_data import batch_digests
from open_checks import put_pictures, put_rows
from served_objects.object_server import ObjectServer
from test_open_read import batches, same

import headrace as hr
from headrace import _places, errors
from headrace._objects.clients.failures import Result

pytest.importorskip("obstore")

DATA = np.random.default_rng(9).bytes(1_000_000)


def of_x(offset: int = 0, size: int = len(DATA)) -> dict[str, Any]:
    return {"url": "s3://data/x", "offset": offset, "size": size, "object_bytes": len(DATA)}


@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_a_body_that_breaks_is_continued_where_it_broke(
    tmp_path: Path, server: ObjectServer, kind: str
) -> None:
    """object_store gave an error for it: issue 15."""
    size, cut = 3_000_000, 1_000_000
    ds = hr.open(put_rows(server, tmp_path / "data", 1, size))
    server.clear_log()
    server.fault(kind, bytes=cut)
    with hr.Loader(ds, 1, epochs=1, output=hr.Output("numpy")) as loader:
        (batch,) = loader
    assert np.array_equal(batch.value, np.load(tmp_path / "data/rows.npy"))
    (first, last), (again, end) = (one["range"] for one in server.log("GET"))
    assert last == end == first + size - 1
    # What a broken connection had behind the last chunk was taken by nobody.
    assert first + cut - 128 * 1024 <= again <= first + cut


@pytest.mark.parametrize("kind", ["stall", "fin", "rst"])
def test_a_body_that_has_come_needs_no_end_of_the_connection(
    server: ObjectServer, kind: str
) -> None:
    """object_store asked for bytes N to N - 1: issue 654; some servers then send the whole object,
    which it appended: pull request 609."""
    server.put("x", DATA)
    server.fault(kind, bytes=len(DATA))
    with Fetcher(server.environment()) as fetcher:
        end, got = fetcher.read(**of_x())
    assert (end.result, got) == (Result.OK, DATA)
    assert len(server.log()) == 1


def test_a_whole_object_in_place_of_the_rest_is_refused(server: ObjectServer) -> None:
    """As above."""
    server.put("x", DATA)
    server.fault("fin", bytes=600_000)
    server.fault("whole", after=1)
    with Fetcher(server.environment()) as fetcher:
        end, got = fetcher.read(**of_x())
        assert end.result is Result.BROKEN
        rest, _ = fetcher.read(**of_x(end.received, len(DATA) - end.received))
    assert (rest.result, rest.received) == (Result.REFUSED, 0)
    assert got == DATA[: end.received]


def test_an_error_that_is_longer_than_the_range_is_told(server: ObjectServer) -> None:
    """The connector of PyTorch for S3 said that its buffer was too small: issue 194."""
    server.put("x", DATA)
    server.fault("expired")
    with Fetcher(server.environment()) as fetcher:
        end, _ = fetcher.read(**of_x(size=5))
    assert "400 ExpiredToken: the credentials have expired" in end.cause


def test_credentials_that_end_in_a_job_are_read_again(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LitData failed after an hour: issue 458."""
    profile = tmp_path / "credentials"
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = secret-of-test\n"
    profile.write_text(text.format("FIRST"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    ds = hr.open(put_pictures(server, tmp_path / "data", 200))
    given: dict[str, Any] = {"output": hr.Output("numpy", ids=True), "seed": 3, "epochs": 2}
    with hr.Loader(ds, 4, engine=hr.EngineOptions(prefetch=2), **given) as loader:
        got = [batch_digests(batch) for batch in loader]
        profile.write_text(text.format("SECOND"))
        server.fault("expired", access_key="FIRST", times=None)
        got += [batch_digests(batch) for batch in loader]
    with hr.Loader(tmp_path / "data", 4, **given) as loader:
        assert got == [batch_digests(batch) for each in (loader, loader) for batch in each]
    keys = [one["access_key"] for one in server.log("GET")]
    assert (keys[0], keys[-1]) == ("FIRST", "SECOND")


def test_samples_are_right_in_many_forks_at_once(tmp_path: Path, server: ObjectServer) -> None:
    """The connector of PyTorch for S3 gave workers bytes that were no images: issue 293."""
    ds = hr.open(put_pictures(server, tmp_path / "data", 40))
    wanted = [ds[number] for number in range(40)]
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if all(same(ds[i], wanted[i]) for i in range(40)) else 2
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in children] == [0] * 4


def test_another_region_is_said_with_the_remedy(tmp_path: Path, server: ObjectServer) -> None:
    """Mountpoint said that an answer had an invalid status: issue 1."""
    url = put_rows(server, tmp_path / "data", 4, 100)
    server.fault("other-region", method="*", times=None)
    with pytest.raises(errors.HeadraceError, match=r"in another region; set AWS_REGION="):
        hr.open(url)


@pytest.mark.parametrize("small", [False, True])
def test_a_server_that_needs_no_proxy_is_asked_without(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """Mountpoint did not read NO_PROXY: issue 322."""
    for name, value in (("HTTP_PROXY", "http://127.0.0.1:9"), ("NO_PROXY", "127.0.0.1")):
        monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv(name.lower() if small else name, value)
    url = put_rows(server, tmp_path / "data", 20, 100)
    assert same(batches(hr.open(url)), batches(hr.open(tmp_path / "data/rows.npy")))


def test_empty_objects_and_members_are_read_as_nothing(
    tmp_path: Path, server: ObjectServer
) -> None:
    """smart_open gave an error for an empty object: issue 548."""
    server.put("empty.bin", b"")
    with _places.open("s3://data/empty.bin") as file:
        assert file.read() == b""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number, value in enumerate((b"", b"one", b"")):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = len(value)
            tar.addfile(info, io.BytesIO(value))
    server.put("a.tar", (tmp_path / "a.tar").read_bytes())
    ds = hr.open("s3://data/a.tar")
    assert [bytes(ds[number]["bin"]) for number in range(3)] == [b"", b"one", b""]


def test_a_range_that_the_object_has_not_is_an_error_at_once(
    tmp_path: Path, server: ObjectServer
) -> None:
    """AutoMQ asked again for ever, and did not end: issue 1482."""
    ds = hr.open(put_pictures(server, tmp_path / "data", 40))
    server.clear_log()
    server.fault("range", times=None)
    with (
        pytest.raises(errors.HeadraceError, match="416 InvalidRange: the object is shorter"),
        hr.Loader(ds, 4, epochs=1) as loader,
    ):
        list(loader)
    assert max(Counter(one["key"] for one in server.log("GET")).values()) == 1
