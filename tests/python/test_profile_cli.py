"""`headrace profile` over tiny datasets: its output, its file, and how it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import _core, errors
from headrace._measure import machine as _measure

SECONDS = ("--seconds", "0.2")


def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "headrace", "profile", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_pack_is_profiled_into_a_file_json_and_a_chart(source_pack: Path, tmp_path: Path) -> None:
    output, chart, tier = tmp_path / "machine.toml", tmp_path / "chart.png", tmp_path / "tier"
    tier.mkdir()
    options = ("--output", output, "--plot", chart, "--tier", tier, "--json")
    found: dict[str, Any] = json.loads(run(source_pack, *SECONDS, *options).stdout)
    machine = hr.profile.load(output)
    plain = machine.to_plain()
    for key in ("host", "dataset", "storage", "copy", "decode", "tier", "schema", "headrace"):
        assert found[key] == plain[key]
    assert found["output"] == str(output)
    assert machine.dataset.samples == 60
    assert machine.storage.reads == "ranges"
    assert [size.read_bytes for size in machine.storage.rates] == [4096, 16384, 65536]
    assert machine.storage.rates[0].rates.users == (1, 4, 16, 64)
    assert machine.decode.what == "image.train(224)"
    assert machine.decode.rates.users[0] == 1
    (measured,) = machine.tiers
    assert measured.folder == str(tier)
    assert [size.read_bytes for size in measured.write] == [65536, 2**20]
    assert list(tier.iterdir()) == []
    assert "advice" not in found
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_a_folder_is_read_file_by_file(folder: Path) -> None:
    shown = run(folder, *SECONDS).stdout
    for part in ("storage (threads), cold whole files", "memory copy", "decode (image.train(224))"):
        assert part in shown
    for part in ("in flight", "±", "--output machine.toml keeps these rates"):
        assert part in shown
    assert f"headrace advise {folder} --profile machine.toml" in shown
    machine = _measure.measure(hr.open(folder), seconds=0.05, raw=True)
    assert machine.storage.reads == "files"
    (files,) = machine.storage.rates
    sizes = [path.stat().st_size for path in folder.rglob("*.jpg")]
    assert min(sizes) <= files.read_bytes <= max(sizes)
    assert machine.decode.what == "copy"


def test_it_says_where_it_was(source_pack: Path) -> None:
    machine = _measure.measure(hr.open(source_pack), seconds=0.05)
    assert machine.host.cpus >= 1
    assert machine.dataset.file_system == _measure.file_system(source_pack)
    assert machine.dataset.fingerprint == hr.open(source_pack).fingerprint
    assert machine.storage.store in ("io_uring", "threads")


def test_progress_counts_slices(source_pack: Path) -> None:
    told: list[tuple[int, int]] = []
    _measure.measure(
        hr.open(source_pack), seconds=0.05, progress=lambda *counts: told.append(counts)
    )
    totals = {total for _, total in told}
    assert len(totals) == 1
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert len(told) >= totals.pop() / 3  # a round at least


def test_wrong_arguments_are_told_before_anything_is_measured(
    source_pack: Path, tmp_path: Path
) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    for options, message in (
        (("--output", other), "is not a machine profile"),
        (("--output", tmp_path / "none" / "m.toml"), "no such folder"),
        (("--plot", tmp_path / "none" / "m.png"), "no such folder"),
        (("--plot", tmp_path / "m.zzz"), "no format '.zzz'"),
        (("--tier", tmp_path / "none"), "no such folder; make it first"),
        (("--seconds", "0"), "seconds: got 0"),
    ):
        done = run(source_pack, "--seconds", "3600", *options, code=2)
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert other.read_text() == "mine"


def test_samples_that_are_no_images_are_told_with_a_way_out(numbered_copy: Path) -> None:
    for path in numbered_copy.rglob("*.jpg"):
        path.write_bytes(b"no image at all")
    done = run(numbered_copy, *SECONDS, code=1)
    assert "no sample of field 'image' is good" in done.stderr
    assert "--raw" in done.stderr
    assert '"what": "copy"' in run(numbered_copy, *SECONDS, "--raw", "--json").stdout


STOPPED = """
import os, signal, sys
from headrace.cli import _profile_commands, main

def told(done, total):
    if done == 5:
        os.kill(os.getpid(), signal.SIGINT)

measure = _profile_commands.measure
_profile_commands.measure = lambda *a, **k: measure(*a, **(k | {"progress": told}))
main()
"""


def test_ctrl_c_leaves_no_file(source_pack: Path, tmp_path: Path) -> None:
    tier, output = tmp_path / "tier", tmp_path / "machine.toml"
    tier.mkdir()
    arguments = ("profile", source_pack, "--output", output, "--tier", tier, "--seconds", "1")
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 130
    assert done.stderr == "headrace: stopped by Ctrl-C\n"
    assert [path.name for path in tmp_path.iterdir()] == ["tier"]
    assert list(tier.iterdir()) == []


def test_ctrl_c_ends_a_slice(source_pack: Path, tmp_path: Path) -> None:
    index = hr.open(source_pack).index
    storage = _core.StorageProbe(index)
    decode = _core.DecodeProbe(storage, None)
    folder = _core.FolderProbe(str(tmp_path), 8 * 2**20, 5)
    hour = 3600.0
    for slice_of_an_hour in (
        lambda: storage.read(4096, 4, hour, hour),
        lambda: decode.run(2, hour, hour),
        lambda: folder.write(4096, 1, hour, hour),
        lambda: _core.measure_copy(1, hour, hour),
    ):
        with pytest.raises(KeyboardInterrupt):
            interrupt(slice_of_an_hour)


def interrupt(call: Callable[[], object]) -> None:
    """Presses Ctrl-C as soon as `call` gives up the GIL."""
    begun = threading.Event()

    def press() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(press)
        begun.set()
        call()


def test_probes_refuse_what_they_cannot_do(source_pack: Path, tmp_path: Path) -> None:
    storage = _core.StorageProbe(hr.open(source_pack).index)
    with pytest.raises(errors.InvalidArgumentError, match="the largest file"):
        storage.read(2**40, 1, 0.01, 1)
    for seconds in (0.0, -1.0, float("nan"), 4000.0):
        with pytest.raises(errors.InvalidArgumentError, match="seconds: got"):
            storage.read(4096, 1, seconds, 1)
    with pytest.raises(errors.NotFoundError, match="measuring folder"):
        _core.FolderProbe(str(tmp_path / "none"), 8 * 2**20, 1)
    with pytest.raises(errors.InvalidArgumentError, match=r"at least 8\.0 MiB"):
        _core.FolderProbe(str(tmp_path), 4096, 1)
