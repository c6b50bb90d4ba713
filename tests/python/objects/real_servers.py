"""Object servers that others wrote, on loopback: SeaweedFS and Ceph's RGW (S3), nginx (http)."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from rank_scripts import real_packages

from cluster.network import free_ports

KEY, SECRET = "test", "testtest"
_READY_S = 60.0


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    """SeaweedFS with its files below `folder`; its endpoint. A bucket is there once it is used."""
    weed = real_packages("seaweedfs") / "bin" / "weed"
    actions = ["Admin", "Read", "Write", "List"]
    user = {"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [user | {"actions": actions}]}))
    master, volume, filer, s3, *others = free_ports(["127.0.0.1"] * 8)
    command = [
        *(
            str(weed),
            f"-logdir={folder}",
            "server",
            f"-dir={folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
        ),
        *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *(f"-master.port.grpc={others[0]}", f"-volume.port.grpc={others[1]}"),
        *(f"-filer.port.grpc={others[2]}", f"-s3.port.grpc={others[3]}"),
        *(
            "-s3",
            f"-s3.port={s3}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={config}",
        ),
        *("-volume.max=20", "-master.volumeSizeLimitMB=128"),
    ]
    endpoint = f"http://127.0.0.1:{s3}"
    try:
        with _running(command, folder / "weed.log", lambda: _answers(endpoint)):
            yield endpoint
    finally:  # It was killed, and no option moves all of them.
        for port in (master, volume, filer, s3, *others):
            for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket.unlink()


@contextlib.contextmanager
def nginx(folder: Path, served: Path) -> Iterator[str]:
    """nginx, which serves the files of a folder; its address. Skips the test without nginx."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx is not installed (apt install nginx-light)")
    (port,) = free_ports(["127.0.0.1"])
    config = folder / "nginx.conf"
    temporary = "".join(
        f"  {name}_temp_path {folder};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\n"
        f"error_log {folder}/error.log;\n"
        "events { worker_connections 512; }\n"
        f"http {{\n{temporary}  access_log {folder}/access.log;\n  sendfile on;\n"
        "  keepalive_requests 1000000;\n"
        f"  server {{ listen 127.0.0.1:{port}; root {served}; }}\n}}\n"
    )
    if os.getuid() == 0:  # Else its workers are of a user who may not read the folder.
        config.write_text("user root;\n" + config.read_text())
    address = f"http://127.0.0.1:{port}"
    command = [program, "-c", str(config), "-e", str(folder / "error.log")]
    with _running(command, folder / "nginx.log", lambda: _answers(address)):
        yield address


_CEPH = """\
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{mon}
ms bind ipv4 = true
ms bind ipv6 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
mon allow pool size one = true
mon max pg per osd = 2000
osd crush chooseleaf type = 0
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
log file = {folder}/$name.log
pid file = {folder}/run/$name.pid
keyring = {folder}/keyring
setuser match path =
[mon.a]
mon data = {folder}/mon
mon initial members = a
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
[client.rgw]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{rgw} tcp_nodelay=1
rgw enable usage log = false
"""
"""Of a monitor, a disk in memory and a gateway, with no path outside the folder. Without
tcp_nodelay a small answer may wait for 40 ms."""
_DISK_TRIES = 10
_CEPH_PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")


@contextlib.contextmanager
def rgw(folder: Path) -> Iterator[str]:
    """Ceph's gateway with a bucket "data"; its endpoint. Skips the test without Ceph."""
    missing = [name for name in _CEPH_PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {missing[0]} (apt install radosgw ceph-mon ceph-osd)")
    mon, port = free_ports(["127.0.0.1"] * 2)
    fsid, config = str(uuid.uuid4()), folder / "ceph.conf"
    config.write_text(_CEPH.format(fsid=fsid, mon=mon, rgw=port, folder=folder))
    for name in ("mon", "osd", "run", "rgw"):
        (folder / name).mkdir()
    environment = os.environ | {"CEPH_CONF": str(config)}  # Some programs have another option -c.
    said = {"capture_output": True, "check": True, "timeout": _READY_S}

    def run(program: str, *words: str) -> bytes:
        done = subprocess.run([program, *words], env=environment, **said)  # type: ignore[call-overload]
        return bytes(done.stdout)

    def serves(*words: str) -> Callable[[], bool]:
        """Whether the monitor says this of the disk."""

        def asked() -> bool:
            with contextlib.suppress(subprocess.SubprocessError):
                return all(word.encode() in run("ceph", "osd", "stat") for word in words)
            return False

        return asked

    at = f"[v1:127.0.0.1:{mon}]"
    run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", at, str(folder / "monmap"))
    keys = ("--create-keyring", str(folder / "keyring"), "--gen-key", "-n", "mon.")
    run("ceph-authtool", *keys, "--cap", "mon", "allow *")
    run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(folder / "monmap"))
    with contextlib.ExitStack() as servers:

        def serve(ready: Callable[[], bool], program: str, *words: str) -> None:
            command = [program, "-c", str(config), *words, "-f"]
            servers.enter_context(_running(command, folder / f"{program}.out", ready))

        serve(serves("osds"), "ceph-mon", "-i", "a")
        disk = str(uuid.uuid4())
        run("ceph", "osd", "new", disk)
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        run("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=localhost")
        for left in reversed(range(_DISK_TRIES)):
            try:
                serve(serves("1 up"), "ceph-osd", "-i", "0")
                break
            except RuntimeError:  # It asked the monitor before it knew the cluster's number.
                if not left:
                    raise
        endpoint = f"http://127.0.0.1:{port}"
        serve(lambda: _answers(endpoint), "radosgw", "-n", "client.rgw")
        keys = (f"--access-key={KEY}", f"--secret-key={SECRET}")
        run("radosgw-admin", "user", "create", "--uid=t", "--display-name=t", *keys)
        _make_bucket(endpoint, "data")
        yield endpoint


def _make_bucket(endpoint: str, bucket: str) -> None:
    """By a request of S3's second signature, which takes few lines."""
    date = email.utils.formatdate(usegmt=True)
    text = f"PUT\n\n\n{date}\n/{bucket}"
    signed = base64.b64encode(hmac.new(SECRET.encode(), text.encode(), hashlib.sha1).digest())
    headers = {"Date": date, "Authorization": f"AWS {KEY}:{signed.decode()}"}
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT", headers=headers)
    with urllib.request.urlopen(request, timeout=_READY_S):
        pass


@contextlib.contextmanager
def _running(command: Sequence[str], log: Path, ready: Callable[[], bool]) -> Iterator[None]:
    """Runs a server, from when it is ready."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _READY_S
        while not ready():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
            if process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not serve: {log.read_text()[-2000:]}")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
