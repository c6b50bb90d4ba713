"""Several jobs that index the same data at once into one cache folder: all succeed, alike."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr

PROGRAM = """
import json, sys, warnings
import headrace as hr
warnings.simplefilter("error")
row = hr.formats.Tokens(window=4, dtype="uint16") if sys.argv[1].endswith(".bin") else None
stops = sys.argv[2] == "stops"

def progress(found):
    if stops:
        print("indexing", flush=True)
        sys.stdin.readline()

print("ready", flush=True)
sys.stdin.readline()
dataset = hr.open(sys.argv[1], format=row, progress=progress if stops else None)
options = {"order": "exact", "seed": 1, "output": hr.Output("numpy", ids=True), "memory": "64MiB"}
with hr.Loader(dataset, 5, **options) as loader:
    ids = [int(number) for batch in loader for number in batch.sample_id]
print(json.dumps([dataset.fingerprint, len(dataset), ids]), flush=True)
"""


def tars(folder: Path) -> str:
    for number in range(4):
        with tarfile.open(folder / f"s{number}.tar", "w") as tar:
            for i in range(20):
                info = tarfile.TarInfo(f"{i:03}.txt")
                info.size = 9
                tar.addfile(info, io.BytesIO(b"%09d" % (100 * number + i)))
    return str(folder / "s*.tar")


def tables(folder: Path) -> str:
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    for number in range(4):
        table = pa.table({"x": list(range(20)), "s": [f"{number} {i}" for i in range(20)]})
        pq.write_table(table, folder / f"{number}.parquet", **plain)
    return str(folder)


def images(folder: Path) -> str:
    for name in ("ant", "bee"):
        (folder / name).mkdir()
        for number in range(20):
            (folder / name / f"{number}.png").write_bytes(b"\x89PNG" + bytes(number))
    return str(folder)


def manifest(folder: Path) -> str:
    rows = []
    for number in range(20):
        (folder / f"{number}.png").write_bytes(b"\x89PNG" + bytes(number))
        rows.append(json.dumps({"image": f"{number}.png", "x": number}))
    (folder / "a.jsonl").write_text("\n".join(rows) + "\n")
    return str(folder / "a.jsonl")


def tokens(folder: Path) -> str:
    np.arange(400, dtype=np.uint16).tofile(folder / "a.bin")
    return str(folder / "a.bin")


KINDS: dict[str, Callable[[Path], str]] = {
    each.__name__: each for each in (tars, tables, images, manifest, tokens)
}


class Jobs:
    """Processes that wait for a line of their own before they open the dataset."""

    def __init__(self, cache: Path) -> None:
        self._env = os.environ | {"XDG_CACHE_HOME": str(cache)}
        self.running: list[subprocess.Popen[str]] = []

    def begin(self, path: str, kind: str = "runs") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, path, kind]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        job = subprocess.Popen(command, text=True, env=self._env, **pipes)
        self.running.append(job)
        return job

    def end(self) -> None:
        for job in self.running:
            job.kill()
            job.communicate()


def go(*jobs: subprocess.Popen[str]) -> None:
    """Lets jobs open the dataset together, when all have started."""
    for job in jobs:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
    for job in jobs:
        assert job.stdin is not None
        job.stdin.write("\n")
        job.stdin.flush()


def result(job: subprocess.Popen[str]) -> Any:
    out, err = job.communicate(timeout=60)
    assert job.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture
def jobs(cache: Path) -> Any:
    made = Jobs(cache)
    yield made
    made.end()


def truth(path: str) -> tuple[str, int]:
    """The dataset as one process opens it."""
    row = hr.formats.Tokens(window=4, dtype="uint16") if path.endswith(".bin") else None
    dataset = hr.open(path, format=row)
    return dataset.fingerprint, len(dataset)


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_that_begin_together_get_the_same(
    tmp_path: Path, cache: Path, jobs: Jobs, kind: str
) -> None:
    (tmp_path / "data").mkdir()
    path = KINDS[kind](tmp_path / "data")
    waiting = [jobs.begin(path) for _ in range(2)]
    go(*waiting)
    results = [result(each) for each in waiting]
    assert results[0] == results[1]
    assert tuple(results[0][:2]) == truth(path)
    assert sorted(results[0][2]) == list(range(results[0][1]))
    left = [each for each in os.listdir(cache / "headrace") if not each.endswith(".hri")]
    assert left == []


@pytest.mark.parametrize("kind", ["tars", "tables"])
def test_a_job_that_is_killed_leaves_the_other_alone(
    tmp_path: Path, cache: Path, jobs: Jobs, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are in the midst of indexing when one is killed."""
    (tmp_path / "data").mkdir()
    path = KINDS[kind](tmp_path / "data")
    killed, other = jobs.begin(path, "stops"), jobs.begin(path, "stops")
    go(killed, other)
    for each in (killed, other):
        assert each.stdout is not None
        assert each.stdout.readline() == "indexing\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    found = other.communicate("\n" * 1000, timeout=60)
    assert other.returncode == 0, found[1]
    fingerprint, count, ids = json.loads(found[0].splitlines()[-1])
    assert (fingerprint, count) == truth(path)
    assert sorted(ids) == list(range(count))
    third = jobs.begin(path)
    go(third)
    assert result(third) == [fingerprint, count, ids]
    left = [each for each in os.listdir(cache / "headrace") if not each.endswith(".hri")]
    assert left == []
