"""URLs, answers and copies at the edges: what would be another key, a secret, a half, or a hang."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_checks import put_folder
from served_objects.object_server import ObjectServer
from small_datasets import Written

import headrace as hr
from headrace import _places, errors
from headrace._objects import memory
from headrace._objects.clients.failures import failure
from headrace._objects.listing import Listing, Object
from headrace._objects.memory import Memory
from headrace._objects.uploading.uploads import Uploads
from headrace.formats._base import index_copy
from headrace.pack import write_pack


def npy(tmp_path: Path, rows: int = 8) -> bytes:
    np.save(tmp_path / "a.npy", np.arange(rows))
    return (tmp_path / "a.npy").read_bytes()


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("s3://data/a//b.npy", "it has an empty part"),
        ("s3://data//a/b.npy", "it has an empty part"),
        ("s3://data/../other/b.npy", "leads above its bucket"),
        ("s3://data/a/../../../other/b.npy", "leads above its bucket"),
    ],
)
def test_a_url_never_becomes_that_of_another_object(
    tmp_path: Path, server: ObjectServer, url: str, cause: str
) -> None:
    for key in ("a/b.npy", "b.npy"):
        for bucket in ("data", "other"):
            server.put(key, npy(tmp_path), bucket=bucket)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        hr.open(url)
    assert url in str(caught.value)
    assert cause in str(caught.value)


def test_what_a_path_may_have_a_url_may_have(tmp_path: Path, server: ObjectServer) -> None:
    server.put("a/b.npy", npy(tmp_path))
    for url in ("s3://data/./a/b.npy", "s3://data/c/../a/b.npy", "s3://data/a/b.npy/"):
        assert len(hr.open(url)) == 8


def test_a_password_in_the_endpoint_is_not_shown(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:of-nobody@127.0.0.1:1")
    with pytest.raises(errors.HeadraceError) as caught:
        hr.open("s3://data/a.npy")
    assert "of-nobody" not in str(caught.value)
    assert "http://127.0.0.1:1 refused the connection" in str(caught.value)
    odd = "odd: Error performing GET http://me:of-nobody@host:9000/data/x in 1ms"
    address: Any = memory  # Any object: it is not looked at for such a text.
    assert "of-nobody" not in failure(RuntimeError(odd), address).cause


def test_a_head_that_says_no_more_than_400_is_asked_why(
    tmp_path: Path, server: ObjectServer
) -> None:
    server.put("a.npy", npy(tmp_path))
    server.fault("expired", method="HEAD", times=1)
    server.fault("expired", method="GET", times=1)
    assert len(hr.open("s3://data/a.npy")) == 8
    server.fault("denied", method="*", times=None)
    with pytest.raises(errors.FailedPreconditionError, match="403 AccessDenied: these credentials"):
        hr.open("s3://data/b.npy")


def test_a_web_server_as_endpoint_is_no_empty_store(server: ObjectServer) -> None:
    server.fault("missing", times=None)
    with pytest.raises(errors.FailedPreconditionError, match=r"404 to a list.*correct the endp"):
        hr.open("s3://data/folder")


def test_a_store_that_fails_while_many_are_asked_names_the_object(
    tmp_path: Path, server: ObjectServer
) -> None:
    names = [f"{number}.bin" for number in range(3)]
    for name in names:
        server.put(f"b/{name}", b"abc")
    (tmp_path / "t.csv").write_text("\n".join(["file,n", *(f"{name},1" for name in names)]))
    server.put("b/t.csv", (tmp_path / "t.csv").read_bytes())
    server.fault("other-region", key="b/*.bin", method="HEAD", times=None)
    with pytest.raises(errors.HeadraceError, match="s3://data/b/"):
        hr.open("s3://data/b/t.csv")


def test_an_index_that_is_copied_by_many_at_a_time_is_whole(
    tmp_path: Path, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save(tmp_path / "a.npy", np.arange(5000))
    write_pack(hr.open(tmp_path / "a.npy"), tmp_path / "pack")
    url = put_folder(server, tmp_path / "pack")
    begin, meet = threading.Barrier(4), index_copy._moved

    def moved(*arguments: Any) -> Any:
        begin.wait()
        return meet(*arguments)

    monkeypatch.setattr(index_copy, "_moved", moved)
    found: list[object] = []

    def opened() -> None:
        try:
            found.append(len(hr.open(url)))
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=opened) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [5000] * 4
    assert not list((tmp_path / "cache").rglob("*.partial"))


@pytest.mark.parametrize("kept", [40, 128, 200, 300])
def test_an_index_that_is_none_is_refused_by_name(
    tmp_path: Path, server: ObjectServer, kept: int
) -> None:
    np.save(tmp_path / "a.npy", np.arange(50))
    write_pack(hr.open(tmp_path / "a.npy"), tmp_path / "pack")
    index = (tmp_path / "pack" / "pack.hri").read_bytes()
    for data in (index[:kept], b"A" * (kept * 25)):
        server.put("p/pack.hri", data)
        with pytest.raises(errors.HeadraceError, match=r"pack\.hri"):
            hr.open("s3://data/p")


def test_a_pack_inside_its_own_class_folders_is_refused(
    tmp_path: Path, server: ObjectServer
) -> None:
    data = Written("folder", tmp_path)
    url = put_folder(server, data.root)
    for target in (f"{url}/pack", f"{url}/a/b", url):
        with pytest.raises(errors.InvalidArgumentError, match="each folder is a class; name a"):
            write_pack(hr.open(url), target)


def listing(count: int) -> Listing:
    return Listing(frozenset(), {str(number): Object(1, 1) for number in range(count)})


def test_lists_that_were_read_go_first_and_those_to_be_read_soon_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_ENTRIES_MAX", 100)
    kept = Memory()
    for number in range(20):
        kept.keep_listing(f"s3://b/{number}", listing(10))
    there = [number for number in range(20) if kept.listing(f"s3://b/{number}") is not None]
    assert there == [*range(9), 19]
    assert kept.use_listing("s3://b/0") is not None
    kept.keep_listing("s3://b/20", listing(10))
    there = [number for number in range(21) if kept.listing(f"s3://b/{number}") is not None]
    assert there == [*range(1, 9), 19, 20]
    kept.keep_listing("s3://b/21", listing(1000))
    assert kept.listing("s3://b/21") is not None


def test_of_bytes_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_BYTES_MAX", 100)
    kept = Memory()
    for number in range(20):
        kept.keep_data(f"s3://b/{number}", 0, bytes(10))
    there = [number for number in range(20) if kept.data(f"s3://b/{number}", 0, 10) is not None]
    assert there == list(range(10, 20))


def test_an_upload_that_ends_as_its_wait_does_has_ended() -> None:
    uploads = Uploads()

    class Answers:
        """Of a future whose answer comes just after the wait for it has ended."""

        waits = 0

        def result(self, timeout: float | None = None) -> str:
            self.waits += 1
            if self.waits == 1:
                raise TimeoutError
            return "there"

        def done(self) -> bool:
            return True

    assert uploads._wait(Answers(), lambda _count: None) == "there"  # type: ignore[arg-type]


def test_absolute_is_stable() -> None:
    for url in ("s3://", "s3://b", "s3://b/a", "https://host:80/a%20b/c.tar"):
        assert _places.absolute(url) == url
        assert _places.absolute(url + "/") == url
