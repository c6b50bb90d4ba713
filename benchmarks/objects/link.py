"""One epoch from an object store whose link has a stated rate and latency: Headrace and its peers.

    python link.py [--mbps 100] [--latency-ms 20] [--rounds 5] [--samples 12000] [--only WHO ...]
    python link.py --unpaced [--rounds 5] [--samples 12000]

The server is tests/python/served_objects/object_server.py (S3 over http, one process, no TLS),
paced well below what a core can serve. A round runs each row once, in another order, with an empty
cache in --work. The figure of a row is its bytes a second over the pace, the median of the rounds:
from when its loader is made, and with imports and opening. Each peer has a grid of settings, all
printed; its best is compared. Rows are processes of their own; `cpu_s` is what they and their
children took. With --unpaced the server is SeaweedFS (environment `seaweedfs`), which shares the
cores with its client: there, bytes a second of the client's processor time count. A row that misses
or repeats samples, or fails, says so. Nothing else may run beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_ROOT / folder) for folder in ("tests/python", "tests/python/objects", "tools")]

from served_objects.object_server import ObjectServer  # noqa: E402

from package_env import package_env  # noqa: E402

READERS = Path(__file__).with_name("object_readers.py")
_SIZE = 100_000  # bytes of a sample
_LIMIT_S = 600

ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("headrace", {"data": "pack", "order": "epoch"}),
    ("headrace", {"data": "mds", "order": "epoch"}),
    ("headrace", {"data": "objects", "order": "exact"}),
    *(
        ("mosaicml", {"workers": workers, "predownload": predownload})
        for workers in (2, 4)
        for predownload in (512, 4096)
    ),
    *(
        ("litdata", {"workers": workers, "max_pre_download": ahead})
        for workers in (2, 4)
        for ahead in (2, 8)
    ),
    *(("s3-map", {"workers": workers}) for workers in (4, 8, 16)),
)
_NEEDS = {"mosaicml": "mds", "litdata": "litdata", "s3-map": "objects"}


def packages() -> dict[str, str]:
    folders = [str(package_env(name)) for name in ("objects", "loaders", "trainers")]
    own = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*([own] if own else []), *folders])}


def _run(arguments: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, str(READERS), *arguments],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
    return done.stdout


def _cpu_s() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def _epoch(
    who: str, settings: dict[str, Any], samples: int, env: dict[str, str], work: Path
) -> dict[str, Any]:
    cache = work / f"cache-{random.randrange(1 << 40):x}"  # Streaming knows caches by their names.
    before = _cpu_s()
    said = _run(["read", who, json.dumps(settings), str(samples), str(cache)], env)
    shutil.rmtree(cache, ignore_errors=True)
    return json.loads(said.splitlines()[-1]) | {"cpu_s": _cpu_s() - before}


Put = Callable[[str, bytes], object]
Served = tuple[ObjectServer | None, Put, dict[str, str]]


@contextlib.contextmanager
def _paced(options: argparse.Namespace) -> Iterator[Served]:
    with ObjectServer(pace=options.mbps * 1e6, latency=options.latency_ms / 1e3) as server:
        yield server, server.put, server.environment()


@contextlib.contextmanager
def _seaweedfs() -> Iterator[Served]:
    import obstore
    import real_servers

    with tempfile.TemporaryDirectory() as folder, real_servers.seaweedfs(Path(folder)) as endpoint:
        environment = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": real_servers.KEY,
            "AWS_SECRET_ACCESS_KEY": real_servers.SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        config = {name.lower(): value for name, value in environment.items()}
        del config["aws_ec2_metadata_disabled"]
        store = obstore.store.S3Store("data", config=config)
        yield None, lambda key, data: obstore.put(store, key, data), environment


def fill(put: Put, kind: str, samples: int, work: Path) -> None:
    folder = work / kind
    _run(["write", kind, str(folder), str(samples), str(_SIZE)], packages())
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            put(f"{kind}/{file.relative_to(folder).as_posix()}", file.read_bytes())
    for made in work.iterdir():
        shutil.rmtree(made) if made.is_dir() else made.unlink()


def measure(options: argparse.Namespace) -> None:
    rows = [row for row in ROWS if not options.only or row[0] in options.only]
    work = Path(tempfile.mkdtemp(prefix="headrace-link-", dir=options.work))
    results: dict[int, list[dict[str, Any]]] = {number: [] for number in range(len(rows))}
    try:
        with _seaweedfs() if options.unpaced else _paced(options) as (server, put, environment):
            kinds = {settings.get("data") or _NEEDS[who] for who, settings in rows}
            for kind in sorted(kinds):
                fill(put, kind, options.samples, work)
            env = packages() | environment
            for number in range(options.rounds):
                order = list(enumerate(rows))
                random.Random(number).shuffle(order)
                for row, (who, settings) in order:
                    if server:
                        server.clear_log()
                    try:
                        found = _epoch(who, settings, options.samples, env, work)
                    except RuntimeError as error:  # One of the others': said in the table.
                        if who == "headrace":
                            raise
                        print(f"failed: {error}", file=sys.stderr, flush=True)
                        continue
                    found["requests"] = len(server.log("GET")) if server else 0
                    results[row].append(found)
                    print(json.dumps([number, who, settings, found]), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _report(rows, results, None if options.unpaced else options.mbps * 1e6)


def _report(
    rows: list[tuple[str, dict[str, Any]]],
    results: dict[int, list[dict[str, Any]]],
    pace: float | None,
) -> None:
    rounds = max(len(found) for found in results.values())
    unit = "of the pace" if pace else "MB/s"
    print(f"| loader | settings | {unit} | with imports | s | first batch, s ", end="")
    print("| CPU s | MB a CPU s | requests | wrong |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---|")
    for number, (who, settings) in enumerate(rows):
        found = results[number]
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        if not found:
            print(f"| {who} | {words} | failed in each round |")
            continue

        def middle(key: str, found: list[dict[str, Any]] = found) -> float:
            return statistics.median(one[key] for one in found)

        ideal = [one["bytes"] / (pace or 1e6) for one in found]
        share = statistics.median(
            least / (one["s"] - one["made_s"]) for least, one in zip(ideal, found, strict=True)
        )
        whole = statistics.median(least / one["s"] for least, one in zip(ideal, found, strict=True))
        wrong = sum(one["missing"] + one["repeated"] + one["foreign"] for one in found)
        print(
            f"| {who} | {words} | {share:.2f} | {whole:.2f} "
            f"| {middle('s'):.1f} | {middle('first_s'):.2f} "
            f"| {middle('cpu_s'):.1f} | {middle('bytes') / middle('cpu_s') / 1e6:.0f} "
            f"| {middle('requests'):.0f} | {wrong or ''}"
            + (f", failed in {rounds - len(found)} rounds |" if len(found) < rounds else " |")
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbps", type=float, default=100, help="the pace, in 10^6 bytes a second")
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--unpaced", action="store_true", help="SeaweedFS, as fast as it is")
    parser.add_argument("--only", nargs="*", help="the loaders to run")
    parser.add_argument("--work", help="a folder for data and caches; the usual one for such files")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
