"""The command line as a user meets it: output, JSON, exit codes, messages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import shared_server

import headrace as hr
from headrace._process.command import is_command

COMMANDS = ("index", "pack", "inspect", "verify", "order", "profile", "advise")


def run(*arguments: object, code: int = 0, fork: bool = True) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own; `fork`: of one that has imported the packages."""
    words = ["-m", "headrace", *map(str, arguments)]
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    if fork:
        done = shared_server("commands").run(words, environment)
    else:
        whole = [sys.executable, "-W", "error", *words]
        done = subprocess.run(whole, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == code, done.stderr
    return done


def run_json(*arguments: object, code: int = 0, fork: bool = True) -> dict[str, Any]:
    loaded = json.loads(run(*arguments, "--json", code=code, fork=fork).stdout)
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("order", "--help"),
        ("docs",),
        ("docs", "cli"),
        ("simulate", "--list"),
        ("order", "DATA"),
        ("order", "DATA", "--print", "20000"),
        ("order", "DATA", "--hash", "--json"),
        ("inspect", "DATA"),
        ("plan", "DATA", "--memory", "64MiB"),
        ("verify", "DATA"),
    ],
)
def test_a_reader_that_goes_away_ends_a_command_quietly(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    data = tmp_path / "data.npy"
    np.save(data, np.arange(20_000))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "headrace"]
            + [str(data) if word == "DATA" else word for word in words],
            stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_help_of_the_node_service_teaches_with_an_example() -> None:
    text = run("node", "--help").stdout
    assert "Example: headrace node --name train --memory 64GiB" in " ".join(text.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_an_example(command: str) -> None:
    text = run(command, "--help").stdout
    assert f"Example: headrace {command} /data/images" in " ".join(text.split())


@pytest.mark.parametrize(
    "arguments", [["-m", "headrace"], [str(Path(sys.prefix) / "bin/headrace")]]
)
@pytest.mark.parametrize("at", ["numpy", "headrace._core", "typer", "headrace.cli.main"])
def test_ctrl_c_while_a_command_is_imported_ends_it_quietly(
    arguments: list[str], at: str, tmp_path: Path
) -> None:
    """A finder of modules interrupts the process when it is asked for this one."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {at!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    if not arguments[0].startswith("-") and not Path(arguments[0]).exists():
        pytest.skip("the command is not installed")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *arguments, "--version"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_of_other_programs_that_import_headrace_is_theirs() -> None:
    assert is_command(["python", "-X", "dev", "-m", "headrace", "inspect"])
    assert is_command(["/usr/bin/python3", "-P", "/usr/local/bin/headrace"])
    for words in (["python", "/bin/pytest", "-m", "headrace"], ["python", "train.py"], ["python"]):
        assert not is_command(words)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_folder_is_indexed_packed_inspected_and_verified(folder: Path, tmp_path: Path) -> None:
    indexed = run_json("index", folder, fork=False)
    assert indexed["samples"] == 60
    assert Path(indexed["path"]).exists()
    target = tmp_path / "pack"
    packed = run_json(
        "pack", folder, target, "--block-size", "30kB", "--shard-size", "100kB", fork=False
    )
    assert packed["samples"] == 60
    assert packed["fingerprint"] == hr.open(target).fingerprint
    shown = run_json("inspect", target, fork=False)
    assert shown["format"] == "pack"
    assert shown["classes"] == ["ant", "bee", "cat"]
    assert shown["pack"]["block_bytes"] == 30_000
    (image, label) = shown["fields"]
    assert sum(bar["samples"] for bar in image["bytes"]["histogram"]) == 60
    assert image["bytes"]["total"] == packed["data_bytes"]
    assert label["type"] == "int64"
    assert shown["blocks"]["count"] == packed["blocks"]
    assert 1 / 3 < shown["blocks"]["label_share"] < 0.9
    assert run_json("verify", target, fork=False) == {
        "path": str(target),
        "ok": True,
        "samples": 60,
        "samples_compared": 60,
        "files": packed["shards"],
        "bytes": packed["data_bytes"],
        "problems": [],
        "report": [],
    }


def test_blocks_in_source_order_are_shown_to_be_of_one_class(folder: Path, tmp_path: Path) -> None:
    run("pack", folder, tmp_path / "pack", "--order", "source", "--block-samples", "10")
    blocks = run_json("inspect", tmp_path / "pack")["blocks"]
    assert blocks["label_share"] == 1.0
    assert blocks["label_share_random"] < 0.8


def test_without_json_it_says_it_in_words(folder: Path, tmp_path: Path) -> None:
    assert "60 samples of 3 classes" in run("index", folder).stdout
    done = run("pack", folder, tmp_path / "pack", "--threads", 1)
    assert "packed 60 samples" in done.stdout
    assert done.stderr == ""  # no progress bar but on a terminal
    shown = run("inspect", tmp_path / "pack").stdout
    for part in ("samples", "3: ant, bee, cat", "shuffled, seed 0", "most frequent label", "█"):
        assert part in shown
    assert "good: 60 samples in 1 file;" in run("verify", tmp_path / "pack").stdout
    assert "no checksums" in run("verify", folder).stdout


def test_jobs_are_of_ray_and_threads_of_packing_without_it(folder: Path, tmp_path: Path) -> None:
    refused = run("pack", folder, tmp_path / "pack", "--jobs", 2, code=2).stderr
    assert "--jobs: is for packing with --on ray; give --threads" in refused
    wrong = ("--on", "ray", "--threads", 2)
    refused = run("pack", folder, tmp_path / "pack", *wrong, code=2).stderr
    assert "--threads: is for packing without --on ray; give --jobs" in refused


def test_bad_data_exits_1_and_is_named(folder: Path, tmp_path: Path) -> None:
    run("pack", folder, tmp_path / "pack")
    (path,) = (tmp_path / "pack").glob("*.arrow")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    done = run("verify", tmp_path / "pack", code=1, fork=False)
    assert done.stderr.startswith("bad: sample ")
    assert "BAD: 60 samples" in done.stdout
    found = run_json("verify", tmp_path / "pack", code=1)
    assert found["ok"] is False
    assert len(found["problems"]) == 1
    (folder / "ant" / "000.jpg").write_bytes(b"other")
    told = run("pack", folder, tmp_path / "p2", code=1).stderr
    assert re.search(r"ant/000\.jpg bytes .*: file changed", told)


def test_wrong_usage_exits_2_in_one_line_without_a_traceback(folder: Path, tmp_path: Path) -> None:
    done = run("inspect", tmp_path / "nothing", code=2, fork=False)
    assert done.stderr.startswith("headrace: opening dataset ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" in run("--debug", "inspect", tmp_path / "nothing", code=2).stderr
    assert "--block-size" in run("pack", folder, tmp_path / "p", "--block-size", "x", code=2).stderr
    run("pack", folder, code=2)
    run("unpack", code=2)
    assert "exists" in run("pack", folder, folder, code=2).stderr


@pytest.mark.parametrize(
    "command",
    [
        ["index", ""],
        ["index", ".", "-o", ""],
        ["pack", "", "pack"],
        ["pack", ".", ""],
        ["inspect", ""],
        ["verify", ""],
        ["profile", ""],
        ["profile", ".", "--tier", ""],
        ["plan", ""],
        ["order", ""],
    ],
)
def test_an_empty_path_is_not_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert (
        "'': the path is empty; the current folder is written '.'" in run(*command, code=2).stderr
    )
    assert sorted(folder.iterdir()) == before


def test_a_fault_of_the_environment_exits_3(folder: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        target = Path("/proc/pack")  # where nobody can make a folder
    else:
        target = tmp_path / "locked" / "pack"
        target.parent.mkdir(mode=0o500)
    run("pack", folder, target, code=3, fork=False)


def test_commands_write_nothing_into_the_folders_of_a_dataset(folder: Path) -> None:
    inside = "lies in the dataset"
    assert inside in run("pack", folder, folder / "p", code=2).stderr
    assert inside in run("index", folder, "-o", folder / "ant" / "x.hri", code=2).stderr
    profiled = ("profile", folder, "--seconds", "0.1")
    assert inside in run(*profiled, "-o", folder / "ant" / "m.toml", code=2).stderr
    assert inside in run(*profiled, "--plot", folder / "ant" / "m.png", code=2).stderr
    assert inside in run(*profiled, "--tier", folder / "ant", code=2).stderr
    assert inside in run("order", folder, "--plot", folder / "ant" / "q.png", code=2).stderr
    assert inside in run("inspect", folder, "--show", folder / "ant" / "s.png", code=2).stderr
    assert inside in run("plan", folder, "--tier", f"{folder}/t=1MB", code=2).stderr
    assert inside in run("plan", folder, "--schedule", folder / "ant" / "s", code=2).stderr
    assert {each.name for each in folder.iterdir()} == {"ant", "bee", "cat"}
    assert {each.suffix for each in (folder / "ant").iterdir()} == {".jpg"}
