"""Small samples in blocks, beside a request each: an epoch from Ceph's RGW.

    python benchmarks/objects/blocks.py [--rounds 5] [--seconds 10] [--in-flight 16]

Ceph (a monitor, a disk in memory, RGW over http; on Debian apt install --no-install-recommends
radosgw ceph-mon ceph-osd) serves samples of 10 KiB: as objects, and in one with blocks of 1 MiB. In
turn, in each round, as many seconds each: random GETs of single objects, and random ranges of 1
MiB, by a bare obstore loop of `--in-flight` threads in a process of its own. Medians of samples a
second. Client and server share the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / each) for each in ("tests/python/objects", "tests/python", "tools")]
sys.path.insert(0, str(_ROOT / "benchmarks"))

import _harness  # noqa: E402

_SAMPLE, _BLOCK = 10 << 10, 1 << 20
_OBJECTS, _BLOCKS = 2000, 64
_GOAL = 20


def client() -> Any:
    from obstore.store import S3Store

    return S3Store("data", virtual_hosted_style_request=False, client_options={"allow_http": True})


def fill() -> None:
    import obstore

    store, draw = client(), random.Random(1)
    for number in range(_OBJECTS):
        obstore.put(store, f"single/{number:05}", draw.randbytes(_SAMPLE))
    obstore.put(store, "shard", draw.randbytes(_BLOCK) * _BLOCKS)


def rate(what: str, seconds: float, in_flight: int) -> float:
    """Samples a second."""
    import obstore

    store, end = client(), time.perf_counter() + seconds
    counts = [0] * in_flight

    def loop(thread: int) -> None:
        draw = random.Random(thread)
        while time.perf_counter() < end:
            if what == "single":
                key, at, size = f"single/{draw.randrange(_OBJECTS):05}", 0, _SAMPLE
            else:
                key, at, size = "shard", draw.randrange(_BLOCKS) * _BLOCK, _BLOCK
            answer = obstore.get(store, key, options={"range": (at, at + size)})
            assert len(answer.bytes()) == size
            counts[thread] += size // _SAMPLE

    began = time.perf_counter()
    threads = [threading.Thread(target=loop, args=(number,)) for number in range(in_flight)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def apart(env: dict[str, str], *words: object) -> Any:
    """Runs this program in a process of its own, which has obstore."""
    command = [sys.executable, __file__, "--run", *map(str, words)]
    done = subprocess.run(command, env=os.environ | env, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        what, *numbers = options.run
        if what == "fill":
            print(json.dumps(fill()))
        else:
            print(json.dumps(rate(what, float(numbers[0]), int(numbers[1]))))
        return
    from real_servers import KEY, SECRET, rgw

    rates: dict[str, list[float]] = {"single": [], "blocks": []}
    with tempfile.TemporaryDirectory() as folder, rgw(Path(folder)) as endpoint:
        env = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }
        apart(env, "fill")
        for _ in range(options.rounds):
            for what, of_what in rates.items():
                of_what.append(apart(env, what, options.seconds, options.in_flight))
    ratio = statistics.median(b / s for s, b in zip(*rates.values(), strict=True))
    for what, of_what in rates.items():
        print(f"{what:7} {statistics.median(of_what):8.0f} samples of 10 KiB a second")
    print(f"blocks/single {ratio:.1f}  >= {_GOAL}")
    _harness.record("object_blocks", {"in_flight": options.in_flight, "rates": rates})


if __name__ == "__main__":
    main()
