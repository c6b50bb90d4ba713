"""`headrace stage`: what it put into the folder is what the job then finds."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run, run_json
from open_checks import put, requests
from served_objects.object_server import ObjectServer
from small_datasets import BATCH, ROWS, Written

import headrace as hr
from headrace.cli._ahead import staging

UNIT = 4096
JOB = ("--seed", 3, "--batch", BATCH)


def job(path: object, tier: hr.tiers.Ssd, order: Any, **options: Any) -> tuple[list[int], Any]:
    """The samples of a job's first epoch, and its statistics."""
    output = hr.Output("numpy", ids=True)
    options = {"epochs": 1, "seed": 3, "output": output} | options
    with hr.Loader(path, BATCH, order=order, tiers=tier, **options) as loader:
        ids = [int(i) for batch in loader for i in np.asarray(batch.sample_id)]
        return ids, loader.stats()


@pytest.mark.parametrize("order", ["exact", "epoch", "batch"])
@pytest.mark.parametrize("name", ["folder", "pack", "tars"])
def test_the_job_finds_everything_from_its_first_step(
    tmp_path: Path, server: ObjectServer, name: str, order: str
) -> None:
    url = put(server, Written(name, tmp_path))
    staged = run_json("stage", url, "--tier", f"{tmp_path / 'tier'}=16MiB", "--order", order, *JOB)
    assert (staged["samples"], staged["found"], staged["share"]) == (ROWS, 0, 1.0)
    assert staged["ended"] == "epoch"
    assert 0 < staged["read_bytes"] <= staged["bytes"]
    requests(server)
    ids, stats = job(url, hr.tiers.Ssd(tmp_path / "tier", "16MiB"), order)
    assert requests(server)["get"] == 0
    assert sorted(ids) == list(range(ROWS))
    assert stats["tiers"][0]["inherited"] == ROWS


def test_a_folder_that_is_too_small_gets_what_the_job_uses_first(
    tmp_path: Path, server: ObjectServer
) -> None:
    url = put(server, Written("folder", tmp_path))
    tier = hr.tiers.Ssd(tmp_path / "tier", 10 * UNIT)
    staged = run_json("stage", url, "--tier", f"{tier.path}={10 * UNIT}", *JOB)
    assert staged["samples"] == 10
    assert staged["share"] == pytest.approx(10 / ROWS)
    server.clear_log()
    with hr.Loader(hr.open(url), BATCH, seed=3, epochs=1, tiers=tier) as loader:
        for _ in loader:
            pass
        epoch = loader.stats()["epochs"][0]
    assert epoch["tiers"] == [10]
    ids, _ = job(url, hr.tiers.Ssd(tmp_path / "other", 10 * UNIT), "exact")
    read = {log["key"] for log in server.log("GET") if log["key"]}
    assert len(read) == ROWS  # By the second job; by the first those that were not first.
    assert len(ids) == ROWS


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    at = tmp_path / "rows.npy"
    np.save(at, np.random.default_rng(1).integers(0, 256, (40_000, 500), np.uint8))
    return at


@pytest.mark.parametrize("order", ["exact", "epoch"])
def test_it_ends_when_the_tier_is_full(
    tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(staging, "_LOOK_EVERY_S", 0)
    words = ["--tier", f"{tmp_path / 'tier'}={1000 * UNIT}", "--order", order, "--batch", 4]
    words += ["--memory", "8MiB"] + ["--block-samples", 10] * (order == "epoch")
    staged = run_json("stage", rows, *words)
    # A block of which two pools have a part is read by each of them.
    least = 1000 if order == "exact" else 900
    assert least <= staged["samples"] <= 1000
    assert staged["ended"] == "full"
    assert staged["read_bytes"] < 40_000 * 500
    again = run_json("stage", rows, *words)
    assert least <= again["found"] <= again["samples"] <= 1000
    assert again["ended"] == "full"


def test_every_rank_has_a_folder(tmp_path: Path, server: ObjectServer) -> None:
    url = put(server, Written("folder", tmp_path))
    tier = hr.tiers.Ssd(tmp_path / "tier", "1MiB")
    staged = run_json("stage", url, "--tier", f"{tier.path}=1MiB", "--ranks", 2, *JOB)
    assert (staged["samples"], staged["share"]) == (ROWS, 1.0)
    assert sorted(os.listdir(tier.path)) == ["rank-0", "rank-1"]
    requests(server)
    seen = []
    for rank in range(2):
        ids, _ = job(url, tier, "exact", job=hr.Job(rank=rank, world_size=2))
        seen += ids
    assert requests(server)["get"] == 0
    assert sorted(seen) == list(range(ROWS))
    one = f"{tmp_path / 'one'}=1MiB"
    run_json("stage", url, "--tier", one, "--ranks", 2, "--rank", 1, *JOB)
    assert os.listdir(tmp_path / "one") == ["rank-1"]


def test_the_same_command_goes_on_and_reads_no_more(tmp_path: Path, server: ObjectServer) -> None:
    url = put(server, Written("folder", tmp_path))
    tier = ("--tier", f"{tmp_path / 'tier'}=1MiB")
    run_json("stage", url, *tier, *JOB)
    requests(server)
    again = run_json("stage", url, *tier, *JOB)
    assert (again["samples"], again["found"], again["read_bytes"]) == (ROWS, ROWS, 0)
    assert requests(server)["get"] == 0


def wait_for_entries(folder: Path) -> None:
    """Until the tier's journal has some."""
    until = time.monotonic() + 60
    journal = folder / "headrace-tier.journal"
    while not (journal.exists() and journal.stat().st_size > 64):
        assert time.monotonic() < until
        select.select((), (), (), 0.01)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_what_is_there_stays_when_it_is_stopped(
    tmp_path: Path, server: ObjectServer, sign: signal.Signals
) -> None:
    url = put(server, Written("folder", tmp_path))
    hr.open(url)
    # It waits for this one, until it is stopped.
    server.fault("late", key="*class2/23.png", times=None)
    tier = hr.tiers.Ssd(tmp_path / "tier", "1MiB")
    command = [sys.executable, "-m", "headrace", "stage", url, "--tier", f"{tier.path}=1MiB"]
    command += [*map(str, JOB), "--no-shuffle", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_for_entries(Path(tier.path) / "rank-0")
        process.send_signal(sign)
        out, _ = process.communicate(timeout=60)
    if sign == signal.SIGINT:
        said = json.loads(out)
        assert (process.returncode, said["ended"]) == (130, "interrupt")
    server.no_faults()
    requests(server)
    again = run_json("stage", url, "--tier", f"{tier.path}=1MiB", "--no-shuffle", *JOB)
    assert again["samples"] == ROWS
    assert again["found"] > 0
    assert requests(server)["get"] == ROWS - again["found"]


def test_the_time_ends_it(tmp_path: Path, rows: Path) -> None:
    options: tuple[object, ...] = ("--tier", f"{tmp_path / 'tier'}=1GiB", "--for", "0.1s")
    staged = run_json("stage", rows, *options, "--batch", 1)
    assert staged["ended"] == "time"
    assert 0 < staged["samples"] < 40_000


Words = tuple[object, ...]
REFUSED: dict[str, tuple[Words, str]] = {
    "memory": (("--tier", "ram=1MiB"), "a tier in memory ends with this command; name a folder"),
    "time": (("--tier", "TIER=1MiB", "--for", "4 weeks"), "--for: .* is not a time; write it as"),
    "rank": (("--tier", "TIER=1MiB", "--rank", "1"), r"--rank: got 1, must be in \[0, 0\]"),
    "no disk": (("--tier", "TIER/no/t=1MiB"), "the disk may not be mounted"),
    "field": (("--tier", "TIER=1MiB", "--field", "sound"), "sound"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_refuses_it_says(tmp_path: Path, name: str) -> None:
    words, said = REFUSED[name]
    data = Written("folder", tmp_path)
    typed = [str(word).replace("TIER", str(tmp_path / "tier")) for word in words]
    assert re.search(said, run("stage", data.path, *typed, code=2).stderr)


def test_the_report_says_what_was_done(tmp_path: Path) -> None:
    data = Written("folder", tmp_path)
    said = run("stage", data.path, "--tier", f"{tmp_path / 'tier'}=1MiB", *JOB).stdout
    assert f"{tmp_path / 'tier'}: {ROWS} samples, in " in said
    assert "100.0% of the first epoch; read " in said
    assert said.endswith("MB/s); the first epoch is over\n")
