"""What a store that is late, or busy for a while, costs an epoch.

    python benchmarks/objects/faults.py [--rounds 5] [--samples 12000] [--busy-s 30]

The server is tests/python/served_objects/object_server.py (S3 over http, one process, no TLS), of a
stated rate and latency, well below what a core can serve. Single objects in `exact`, a request
each. In turn, in each round, an epoch undisturbed and one in which every hundredth request is
answered a second late: the rates are compared, and the requests counted. Then one epoch in which
the store answers 503 to all requests for `--busy-s` seconds. Each epoch must give every sample
once, with its bytes. Nothing else may run beside it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / "tests/python"), str(_ROOT / "benchmarks")]

import _harness  # noqa: E402
from served_objects.object_server import ObjectServer  # noqa: E402

import headrace as hr  # noqa: E402

_SIZE = 40_000  # bytes of a sample
_URL = "s3://data/objects"
_LATE = {"seconds": 1.0, "times": None, "every": 100}
_BEFORE_S = 3.0  # of an epoch, before the store is busy


def sample_of(number: int) -> bytes:
    return number.to_bytes(8, "little") * (_SIZE // 8)


def epoch(samples: int) -> float:
    """Reads one; the seconds that it took."""
    seen = bytearray(samples)
    output = hr.Output("numpy", fields=["image"])
    began = time.perf_counter()
    with hr.Loader(hr.open(_URL), 64, order="exact", seed=1, epochs=1, output=output) as loader:
        for batch in loader:
            for image in batch.image:
                number = int.from_bytes(bytes(image[:8]), "little")
                assert bytes(image) == sample_of(number)
                seen[number] += 1
    assert set(seen) == {1}, "a sample is missing, or came twice"
    return time.perf_counter() - began


def compare(server: ObjectServer, options: argparse.Namespace) -> dict[str, Any]:
    rates: dict[str, list[float]] = {"undisturbed": [], "late": []}
    more: list[float] = []
    for _ in range(options.rounds):
        for name, of_name in rates.items():
            server.no_faults()
            server.clear_log()
            if name == "late":
                server.fault("late", **_LATE)
            of_name.append(options.samples * _SIZE / epoch(options.samples))
            if name == "late":
                more.append(len(server.log("GET")) / options.samples - 1)
    server.no_faults()
    ratios = [late / usual for usual, late in zip(*rates.values(), strict=True)]
    for name, of_name in rates.items():
        print(f"{name:12} {statistics.median(of_name) / 1e6:6.1f} MB/s of {options.mbps:g}")
    print(f"late/undisturbed {statistics.median(ratios):.2f} (least {min(ratios):.2f})  >= 0.8")
    print(f"more requests {100 * max(more):.1f} % at most  <= 5 %")
    return {"rates": rates, "ratios": ratios, "more_requests": more}


def busy(server: ObjectServer, options: argparse.Namespace) -> dict[str, Any]:
    """An epoch with 503 in it."""
    server.clear_log()
    disturb = threading.Timer(
        _BEFORE_S, server.fault, ("slow-down",), {"times": None, "within": options.busy_s}
    )
    disturb.start()
    took = epoch(options.samples)
    gets = server.log("GET")
    refused = [one["at"] for one in gets if one["status"] == 503]
    begin, end = refused[0], refused[0] + options.busy_s
    before = [one for one in gets if begin - 1 <= one["at"] < begin]
    late = [at for at in refused if at >= begin + options.busy_s / 3]
    after = [one for one in gets if end + 8 <= one["at"] < end + 9]
    rate = len(late) / (options.busy_s * 2 / 3)
    print(
        f"503 for {options.busy_s:g} s: an epoch in {took:.1f} s, no error; requests a second "
        f"{len(before)} before, {rate:.1f} in the last two thirds, {len(after)} from 8 s after; "
        f"{len(refused)} answers of 503"
    )
    return {"before": len(before), "busy": rate, "after": len(after), "answers": len(refused)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbps", type=float, default=40, help="the rate, in 10^6 bytes a second")
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--busy-s", type=float, default=30)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "headrace: a batch of .* as stored")
    pace, latency = options.mbps * 1e6, options.latency_ms / 1e3
    with ObjectServer(pace=pace, latency=latency) as server, tempfile.TemporaryDirectory() as cache:
        os.environ.update(server.environment(), XDG_CACHE_HOME=cache)
        for number in range(options.samples):
            server.put(f"objects/{number:06}.jpg", sample_of(number))
        found = compare(server, options) | {"busy": busy(server, options)}
    _harness.record("object_faults", vars(options) | found)


if __name__ == "__main__":
    main()
