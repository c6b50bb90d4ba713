"""Object servers that others wrote, on loopback: SeaweedFS (S3) and nginx (http)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
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
        with _running(command, folder / "weed.log", endpoint):
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
    with _running(command, folder / "nginx.log", address):
        yield address


@contextlib.contextmanager
def _running(command: Sequence[str], log: Path, address: str) -> Iterator[None]:
    """Runs a server, from when it answers."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _READY_S
        while not _answers(address):
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
