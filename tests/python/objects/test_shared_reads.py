"""Jobs of one service that read the same data at the same time: one read for all of them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from open_checks import put_folder
from served_objects.object_server import ObjectServer
from test_node_server import command, service

import headrace as hr
from headrace.pack import PackParameters, write_pack

SAMPLES, SIZE, BATCH = 512, 20_000, 16
SHARED = "64MiB"  # more than the data

Batches = list[tuple[list[int], bytes]]


@pytest.fixture
def pack(tmp_path: Path, server: ObjectServer) -> str:
    """The URL of a pack."""
    return put_folder(server, written(tmp_path, 1)) + "/pack"


def written(at: Path, seed: int) -> Path:
    source = at / f"source-{seed}"
    source.mkdir()
    with tarfile.open(source / "samples.tar", "w") as tar:
        for number in range(SAMPLES):
            member = tarfile.TarInfo(f"{number:04}.x")
            member.size = SIZE
            tar.addfile(member, io.BytesIO(bytes([seed, number % 256]) * (SIZE // 2)))
    dataset = hr.open(source, format=hr.formats.WebDataset(), index=str(at / f"{seed}.hri"))
    root = at / f"out-{seed}"
    root.mkdir()
    write_pack(dataset, root / "pack", PackParameters(block_samples=32))
    return root


def loader(url: str, seed: int, order: str = "epoch", name: str | None = None) -> hr.Loader:
    job = hr.Job(node=hr.Node(name=name) if name else None)
    output = hr.Output("numpy", ids=True)
    return hr.Loader(url, BATCH, seed=seed, order=order, epochs=1, output=output, job=job)


def taken(batch: Any) -> tuple[list[int], bytes]:
    return [int(one) for one in batch.sample_id], b"".join(bytes(row) for row in batch[0])


def alone(url: str, seed: int, order: str = "epoch") -> Batches:
    with loader(url, seed, order) as batches:
        return [taken(batch) for batch in batches]


def both(*loaders: hr.Loader) -> list[Batches]:
    """An epoch of each, at one pace."""
    found: list[Batches] = [[] for _ in loaders]
    for together in zip(*loaders, strict=True):
        for number, batch in enumerate(together):
            found[number].append(taken(batch))
    return found


def data_bytes(server: ObjectServer) -> int:
    """Bytes of data that the server has sent since its log was cleared."""
    return sum(one["sent"] for one in server.log("GET") if one["range"] and "hri" not in one["key"])


@pytest.mark.parametrize("orders", [("epoch", "epoch"), ("epoch", "exact"), ("exact", "exact")])
def test_jobs_of_different_orders_read_the_data_once(
    server: ObjectServer, pack: str, orders: tuple[str, str]
) -> None:
    expected = [alone(pack, seed, order) for seed, order in enumerate(orders)]
    assert expected[0] != expected[1]
    with service("--share", SHARED) as (name, _):
        server.clear_log()
        with loader(pack, 0, orders[0], name) as one, loader(pack, 1, orders[1], name) as other:
            assert both(one, other) == expected
            stats = [each.stats()["io"] for each in (one, other)]
    size = SAMPLES * SIZE
    assert size <= data_bytes(server) <= 1.05 * size
    assert sum(each["shared_bytes"] for each in stats) >= 0.95 * size


def test_a_full_share_and_other_data_change_no_batch(
    tmp_path: Path, server: ObjectServer, pack: str
) -> None:
    others = written(tmp_path, 2) / "pack"
    expected = [alone(pack, 0), alone(pack, 1), alone(str(others), 0)]
    with service("--share", "2MiB", "--memory", "8GiB") as (name, _):
        server.clear_log()
        jobs = [loader(pack, 0, name=name), loader(pack, 1, name=name)]
        jobs.append(loader(str(others), 0, name=name))
        assert both(*jobs) == expected
        for job in jobs:
            job.close()
    assert data_bytes(server) <= 2 * SAMPLES * SIZE


def test_the_next_job_has_what_one_that_ended_read(server: ObjectServer, pack: str) -> None:
    expected = [alone(pack, 0), alone(pack, 1)]
    with service("--share", SHARED) as (name, _):
        with loader(pack, 0, name=name) as job:
            assert [taken(batch) for batch in job] == expected[0]
        server.clear_log()
        with loader(pack, 1, name=name) as job:
            assert [taken(batch) for batch in job] == expected[1]
    assert data_bytes(server) == 0


PROGRAM = """
import sys
sys.path[:0] = {paths!r}
from test_shared_reads import loader
job = iter(loader({url!r}, 0, name={name!r}))
print("reads", flush=True)
next(job)
"""


def test_a_job_that_is_killed_while_another_waits_for_its_read_loses_it_nothing(
    server: ObjectServer, pack: str
) -> None:
    expected = alone(pack, 0)
    with service("--share", SHARED) as (name, _):
        server.clear_log()
        server.fault("late", key="*.arrow", times=None)
        here = str(Path(__file__).parent)
        program = PROGRAM.format(paths=[here, str(Path(here).parent)], url=pack, name=name)
        killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"reads\n"
        server.wait_held(1)
        with loader(pack, 0, name=name) as job:
            found: Batches = []
            reads = threading.Thread(target=lambda: found.extend(taken(batch) for batch in job))
            reads.start()
            while not job.stats()["io"]["reads"]:
                pass
            server.no_faults()
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()
            killed.stdout.close()
            server.wait(1)  # Its requests end with it.
            server.release()
            reads.join(60)
            assert not reads.is_alive()
    assert found == expected


def test_a_share_is_part_of_the_memory() -> None:
    for arguments, message in (
        (("--memory", "1GiB", "--share", "1GiB"), "--share: got 1.0 GiB, must be below 1.0 GiB"),
        (("--share", "0"), "--share: got 0 bytes; leave it out for none"),
        (("--share", "most"), "--share"),
    ):
        done = command("--name", "never", *arguments)
        assert done.returncode != 0
        assert message in done.stderr


def test_a_share_without_a_service_is_refused() -> None:
    program = [str(hr._nodes.process.executable()), "--name", "x", "--share", "1000"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "only jobs of a service share" in done.stderr
