"""Datasets on servers that others wrote: SeaweedFS and Ceph, which have S3, and nginx."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from open_checks import FOLDER
from real_servers import KEY, SECRET, nginx, rgw, seaweedfs
from small_datasets import BATCH, Written
from test_open_read import batches, same

import headrace as hr
from headrace import errors
from headrace._places import table

pytestmark = pytest.mark.foreign

STRANGE = "a+b #%é?.npy"
_PUT = """\
import pathlib, sys
import obstore
from obstore.store import S3Store
store = S3Store("data", virtual_hosted_style_request=False, client_options={"allow_http": True})
for path in pathlib.Path(sys.argv[1]).rglob("*"):
    if path.is_file():
        obstore.put(store, f"{sys.argv[2]}/{path.relative_to(sys.argv[1])}", path.read_bytes())
"""


def put(folder: Path, to: str) -> None:
    subprocess.run([sys.executable, "-c", _PUT, str(folder), to], check=True)


SERVERS = {"seaweedfs": seaweedfs, "ceph": rgw}


@pytest.fixture(scope="module", params=SERVERS)
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with SERVERS[request.param](tmp_path_factory.mktemp("served")) as started:
        yield started


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    settings = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_REGION": "us-east-1"}
    settings |= {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield endpoint
    table.LISTER.close()


@pytest.mark.parametrize("name", ["folder", "tars", "mds", "pack"])
def test_a_store_gives_what_a_disk_gives(tmp_path: Path, store: str, name: str) -> None:
    data = Written(name, tmp_path)
    put(data.root, f"{FOLDER}/{name}")
    path = str(data.path).removeprefix(str(data.root))
    ds = hr.open(f"s3://data/{FOLDER}/{name}{path}", format=data.format)
    assert same(batches(ds), batches(hr.open(data.path, format=data.format)))


def test_changed_objects_strange_keys_and_wrong_keys(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Written("npy", tmp_path)
    folder = tmp_path / "strange"
    folder.mkdir()
    shutil.copy(data.path, folder / STRANGE)
    put(folder, "strange")
    ds = hr.open(f"s3://data/strange/{STRANGE}")
    assert same(ds[0], hr.open(data.path)[0])
    changed = bytearray((folder / STRANGE).read_bytes())
    changed[-1] ^= 1
    (folder / STRANGE).write_bytes(changed)
    put(folder, "strange")
    with pytest.raises(errors.HeadraceError, match="changed since it was indexed"):
        list(hr.Loader(ds, BATCH, output=hr.Output("numpy")))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not the secret")
    with pytest.raises(errors.HeadraceError, match="AWS_SECRET_ACCESS_KEY") as refused:
        hr.open("s3://data/another")
    assert "not the secret" not in str(refused.value)


def test_a_pack_is_written_to_a_store(tmp_path: Path, store: str) -> None:
    data = Written("tars", tmp_path)
    for target in ("s3://data/written", str(tmp_path / "written")):
        command = [sys.executable, "-m", "headrace", "pack", str(data.path), target]
        subprocess.run(command, check=True, capture_output=True)
    assert same(batches(hr.open("s3://data/written")), batches(hr.open(tmp_path / "written")))


def test_nginx_gives_what_a_disk_gives(tmp_path: Path) -> None:
    data = Written("tars", tmp_path)
    (tmp_path / "nginx").mkdir()
    with nginx(tmp_path / "nginx", data.root) as address:
        names = sorted(path.name for path in data.root.glob("*.tar"))
        begin = names[0].partition("0")[0]
        ds = hr.open(f"{address}/{begin}{{0..{len(names) - 1}}}.tar")
        assert same(batches(ds), batches(hr.open(data.path)))
        table.LISTER.close()
