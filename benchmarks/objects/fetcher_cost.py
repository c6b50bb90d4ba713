"""What a fetcher costs: processor time a GB and a range, beside a bare obstore loop.

    python benchmarks/objects/fetcher_cost.py [--rounds 5] [--seconds 10] [--in-flight 16]

nginx, in a process of its own on loopback over HTTP, serves one object of 256 MiB from the page
cache; it has to be installed, and needs no root. Random ranges of each size, with If-Match, `16` in
flight. In turn, in each round: the fetcher, which tests/python/objects/fetcher_process.py drives as
the store does, and a process with as many threads, each of which calls obstore.get() and takes the
bytes, and does nothing else. Medians of rounds. Processor time is of the fetcher or the loop alone,
user and system; the driver's and nginx's share the same cores, so the rates are what is left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "python" / "objects")]

import _harness  # noqa: E402
from fetcher_process import CELL_BYTES, Fetcher  # noqa: E402

from headrace._objects.clients.failures import Result  # noqa: E402

OBJECT_BYTES = 256 << 20
SIZES = (4 << 10, 100 << 10, 1 << 20, 4 << 20)
GOALS = {1 << 20: "<= 1.3 s a GB", 4 << 10: "<= 140 us a range"}
_CONFIG = """
worker_processes 1; daemon off; pid {root}/pid; error_log {root}/errors;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000000;
  client_body_temp_path {root}/a; proxy_temp_path {root}/b; fastcgi_temp_path {root}/c;
  uwsgi_temp_path {root}/d; scgi_temp_path {root}/e;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


@contextlib.contextmanager
def nginx() -> Iterator[dict[str, str]]:
    """The environment that leads s3://data/x to it."""
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        sys.exit("needs nginx: apt-get install nginx-light")
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        root = Path(folder)
        root.chmod(0o755)  # a root's nginx reads as another user
        (root / "data").mkdir()
        (root / "data" / "x").write_bytes(random.Random(1).randbytes(1 << 20) * 256)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        (root / "config").write_text(_CONFIG.format(root=root, port=port))
        free.close()
        command = [program, "-p", folder, "-c", str(root / "config"), "-e", str(root / "errors")]
        server = subprocess.Popen(command)
        try:
            until = time.monotonic() + 10
            while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < until:
                time.sleep(0.05)
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "id",
                "AWS_SECRET_ACCESS_KEY": "of nobody",
                "AWS_REGION": "us-east-1",
            }
        finally:
            server.terminate()
            server.wait()


def cost(ranges: int, size: int, seconds: float, cpu_s: float) -> dict[str, float]:
    return {
        "ranges_per_s": ranges / seconds,
        "bytes_per_s": ranges * size / seconds,
        "us_per_range": cpu_s / ranges * 1e6,
        "s_per_gb": cpu_s / (ranges * size) * 1e9,
    }


def of_fetcher(
    environment: dict[str, str], size: int, in_flight: int, seconds: float, etag: str
) -> dict[str, float]:
    with Fetcher(environment, cells=in_flight) as fetcher:
        cells: dict[int, int] = {}  # by attempt

        def start(cell: int) -> None:
            at = random.randrange(OBJECT_BYTES - size)
            common = {"url": "s3://data/x", "object_bytes": OBJECT_BYTES, "version": etag}
            (number,) = fetcher.start({"offset": at, "size": size, "cell": cell, **common})
            cells[number] = cell

        def finish() -> int:
            number, end = fetcher.next_end()
            assert end.result is Result.OK, end
            return cells.pop(number)

        for cell in range(in_flight):
            start(cell)
        for _ in range(in_flight * 4):
            start(finish())
        before, ranges, began = cpu_seconds_of(fetcher.process.pid), 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            start(finish())
            ranges += 1
        used = cpu_seconds_of(fetcher.process.pid) - before
        while cells:
            finish()
        return cost(ranges, size, took, used)


def cpu_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def of_bare_loop(size: int, in_flight: int, seconds: float) -> dict[str, float]:
    """In a process of its own, with the environment of nginx()."""
    import obstore

    from headrace._objects.clients import client

    address = client.object_address("s3://data/x")
    store: Any = client.Clients().of(address)
    etag = obstore.head(store, "x")["e_tag"]
    until = time.perf_counter() + seconds
    counts = [0] * in_flight

    def loop(number: int) -> None:
        while time.perf_counter() < until:
            at = random.randrange(OBJECT_BYTES - size)
            options = {"range": (at, at + size), "if_match": etag}
            assert len(obstore.get(store, "x", options=options).bytes()) == size
            counts[number] += 1

    before, began = _cpu_seconds(), time.perf_counter()
    threads = [threading.Thread(target=loop, args=(number,)) for number in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return cost(sum(counts), size, time.perf_counter() - began, _cpu_seconds() - before)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def in_process(environment: dict[str, str], *arguments: Any) -> dict[str, float]:
    command = [sys.executable, __file__, "--bare", *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, float] = {
        name: float(value) for name, value in (one.split("=") for one in done.stdout.split())
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="what a fetcher costs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--bare", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        size, in_flight, seconds = options.bare
        found = of_bare_loop(int(size), int(in_flight), float(seconds))
        print(*(f"{name}={value}" for name, value in found.items()))
        os._exit(0)
    assert max(SIZES) <= CELL_BYTES
    runs: dict[int, dict[str, list[dict[str, float]]]] = {}
    with nginx() as environment:
        etag = etag_of(environment)
        for _ in range(options.rounds):
            for size in SIZES:
                of_size = runs.setdefault(size, {"fetcher": [], "bare": []})
                arguments = (size, options.in_flight, options.seconds)
                of_size["fetcher"].append(of_fetcher(environment, *arguments, etag))
                of_size["bare"].append(in_process(environment, *arguments))
    for size, of_size in runs.items():
        for name, several in of_size.items():
            middle = {key: statistics.median(one[key] for one in several) for key in several[0]}
            goal = GOALS.get(size, "") if name == "fetcher" else ""
            print(
                f"{size >> 10:6} KiB {name:8} {middle['us_per_range']:7.0f} us a range, "
                f"{middle['s_per_gb']:6.2f} s a GB; {middle['ranges_per_s']:6.0f} ranges/s, "
                f"{middle['bytes_per_s'] / 1e6:5.0f} MB/s  {goal}"
            )
    found = {"in_flight": options.in_flight, "runs": {str(k): v for k, v in runs.items()}}
    _harness.record("fetcher_cost", found)


def etag_of(environment: dict[str, str]) -> str:
    import http.client

    host = environment["AWS_ENDPOINT_URL"].removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(host)) as connection:
        connection.request("HEAD", "/data/x")
        return str(connection.getresponse().headers["ETag"])


if __name__ == "__main__":
    main()
