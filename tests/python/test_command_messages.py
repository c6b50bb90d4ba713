"""What commands say of arguments, of loaders that they look for and of their own ends, and the way
out that each message names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer
from commands import run

from headrace._observe.monitor import Address
from headrace._process.former import COMMANDS, OPTIONS
from headrace.cli._jobs import machines
from headrace.cli._jobs.nodes import OtherNodes
from headrace.cli._parts.naming import OptionNames
from headrace.cli.main import _guarded, app

LABELS = np.arange(12, dtype=np.int64)


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset without images."""
    path = tmp_path_factory.mktemp("labels") / "label.npy"
    np.save(path, LABELS)
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("verify", "DATA", "--failures", "bad.txt"),
            "--failures: what fails is found by --decode; add it",
        ),
        (
            ("verify", "DATA", "--decode", "--home", "1"),
            "--home: --decode reads all samples; run it where all files are, or leave it out",
        ),
        (
            ("order", "DATA", "--order", "epoch", "--memory", "50%", "--set", "pool_bytes=9"),
            "--memory: pool_bytes is given, too; give one of the two",
        ),
        (("order", "DATA", "--print", "3", "--hash"), "--print with --hash: choose one"),
        (("order", "DATA", "--dump", "3", "--plot", "a.png"), "--plot with --dump: choose one"),
        (
            ("order", "DATA", "--rank", "0"),
            "--rank: selects samples; give --print N, --hash or --uses, too",
        ),
        (
            ("top", "--after", "9"),
            "--after: is for --watch; give it, too, or leave --after out",
        ),
        (("top", "--watch", "--prometheus"), "--watch with --prometheus: choose one"),
        (
            ("report", "1", "2"),
            "headrace report 1 2: must be the number of one process; to merge traces give --merge, "
            "too",
        ),
        (("report", "--merge", "a.json", "--loader", "1"), "--loader with --merge: choose one"),
        (
            ("inspect", "DATA", "--show", "sheet.png"),
            "drawing images of DATA: it has no field of images; its fields are value",
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_named(
    labels: Path, arguments: tuple[str, ...], says: str
) -> None:
    words = [word.replace("DATA", str(labels)) for word in arguments]
    done = run(*words, code=2)
    assert done.stderr == f"headrace: {says.replace('DATA', str(labels))}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("plan", "DATA", "--memory", "much"),
            '--memory: "much" is not a number of bytes; write it',
        ),
        (("plan", "DATA", "--seed", "-1"), "--seed: got -1, must be in [0, "),
        (("plan", "DATA", "--ranks", "0"), "--ranks: got 0, must be in [1, "),
        (("plan", "DATA", "--batch", "0"), "--batch: got 0, must be in [1, "),
        (
            ("plan", "DATA", "--ram", "1MB", "--placement", "any"),
            "--placement: got 'any', must be ",
        ),
        (
            ("plan", "DATA", "--memory", "1.5Gb"),
            '--memory: "1.5Gb" may be bits; write bytes: "0.1875GB" if it is bits, else "1.5GB"',
        ),
        (("plan", "DATA", "--ram", "x"), '--ram capacity: "x" is not a number of bytes; write it'),
        (("plan", "DATA", "--tier", "/tmp=0"), "--tier /tmp=0 capacity: got 0, must be in ["),
        (
            ("plan", "DATA", "--ram", "1MB", "--tier", "/tmp=1MB", "--tier", "/var=x"),
            '--tier /var=x capacity: "x" is not a number of bytes; write it',
        ),
        (("pack", "DATA", "TARGET", "--threads", "99"), "--threads: got 99, must be in [1, 64]"),
        (("pack", "DATA", "TARGET", "--shard-size", "0"), "--shard-size: got "),
        (("order", "DATA", "--order", "any"), "--order: got 'any', must be one of 'exact', "),
        (("order", "DATA", "--seed", "-1"), "--seed: got -1, must be in [0, "),
    ],
)
def test_an_argument_of_a_loader_is_named_as_the_option_that_gives_it(
    labels: Path, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    paths = {"DATA": str(labels), "TARGET": str(tmp_path / "pack")}
    words = [paths.get(word, word) for word in arguments]
    assert run(*words, code=2).stderr.startswith(f"headrace: {says}")


@pytest.mark.parametrize(
    ("arguments", "write"),
    [
        (("plan", "--batch-size", "16"), "--batch 16"),
        (("plan", "--batch_size=16"), "--batch 16"),
        (("plan", "--batchsize", "16"), "--batch 16"),
        (("order", "--world-size", "2"), "--ranks 2"),
        (("order", "--seeds", "3"), "--seed 3"),
    ],
)
def test_an_option_by_another_name_is_said_as_the_command_has_it(
    labels: Path, arguments: tuple[str, ...], write: str
) -> None:
    command, *words = arguments
    option = words[0].partition("=")[0]
    said = run(command, labels, *words, code=2).stderr
    assert said == f"headrace: option {option}: not understood; write {write}; see --help\n"
    run(command, labels, *write.split())


@pytest.mark.parametrize("command", [info.name for info in app.registered_commands])
def test_every_command_takes_debug_as_headrace_does(command: str) -> None:
    assert "--debug" in run(command, "--help").stdout


def test_a_traceback_is_shown_wherever_debug_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "nothing"
    for words, shown in ((("--debug", "inspect", missing), True), (("inspect", missing), False)):
        monkeypatch.setenv("HEADRACE_DEBUG", "")
        assert run(*words, code=2).stderr.startswith("Traceback") == shown
        monkeypatch.setenv("HEADRACE_DEBUG", "")
        assert run(*words, "--debug", code=2).stderr.startswith("Traceback")


def test_no_threads_are_refused(labels: Path, tmp_path: Path) -> None:
    for words in (("verify", labels), ("pack", labels, tmp_path / "pack")):
        assert "'--threads'" in run(*words, "--threads", "0", code=2).stderr


def test_other_beginnings_of_messages_stay() -> None:
    def command(
        seed: Annotated[int, typer.Option("--seed", "-s")], order: str = "", ram: str = ""
    ) -> None: ...

    names = OptionNames(command)
    for message in (
        "a file seed: got 1",
        "seed is 1",
        "order redox: no",
        "tiers[0] is 1",
        "io: got 3",
        "EngineOptions.io: got 3",
        "",
    ):
        assert names.said(message) == message
    assert names.said("seed: got 1") == "--seed: got 1"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_former_command_says_what_to_write_now(name: str) -> None:
    said = run(name, "DATA", code=2).stderr
    assert said == f"headrace: command {name!r}: no such command; write `{COMMANDS[name]}`\n"
    words = re.findall(r"[a-z]+|--[a-z]+", COMMANDS[name])
    usage = run(words[1], "--help").stdout
    assert all(option in usage for option in words[2:])


@pytest.mark.parametrize(
    ("command", "option"), [(command, option) for command in OPTIONS for option in OPTIONS[command]]
)
def test_a_former_option_says_what_to_write_now(command: str, option: str) -> None:
    now = OPTIONS[command][option]
    for words in ((option, "3"), (f"{option}=3",)):
        said = run(command, "DATA", *words, code=2).stderr
        assert said == f"headrace: option {option}: no such option; write {now}\n"
    usage = run(command, "--help").stdout
    assert all(word in usage for word in re.findall(r"--\w+", now))
    assert option not in usage


HERE = Address(pid=os.getpid(), ordinal=7)
OTHER = Address(pid=os.getpid(), ordinal=8)


@pytest.mark.parametrize(
    ("loaders", "arguments", "says"),
    [
        (
            [],
            [],
            "no loader of yours is monitored: make it with EngineOptions(monitor=True), or set "
            "HEADRACE_MONITOR=1",
        ),
        (
            [HERE],
            ["--loader", "9"],
            "--loader 9: no loader of yours that is monitored has this number; see 'headrace top'",
        ),
        (
            [HERE, OTHER],
            [],
            "2 loaders are monitored, choose one: PID --loader 7, PID --loader 8",
        ),
        (
            [HERE],
            [],
            "process PID: its loader was closed, or does not answer; `headrace top` lists those "
            "there are",
        ),
    ],
)
def test_a_report_of_no_loader_says_which_there_are(
    loaders: list[Address], arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "find_loaders", lambda: loaders)
    says = says.replace("PID", str(os.getpid()))
    assert run("report", *arguments, code=2).stderr == f"headrace: {says}\n"


def test_a_report_of_a_process_that_has_ended_says_so() -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    says = f"process {ended.pid} has ended, and its loaders with it; `headrace top` lists those"
    assert says in run("report", ended.pid, code=2).stderr


@pytest.mark.parametrize(
    ("via", "says"),
    [
        ("echo {node}", "its answer is no JSON of 'headrace top': 'far headrace top --json'"),
        (
            "sh -c 'echo no route; exit 7' {node}",
            "sh -c 'echo no route; exit 7' far headrace top --json: ended with 7: no route",
        ),
    ],
)
def test_a_machine_that_answers_otherwise_is_quoted(via: str, says: str) -> None:
    assert OtherNodes(["far"], via).ask() == ({}, {"far": says})


@pytest.mark.parametrize(
    ("raised", "code", "says"),
    [
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
        (MemoryError(), 3, "the system has no memory for that"),
        (
            RuntimeError("wheels came off"),
            4,
            "a defect of headrace: RuntimeError: wheels came off; run it again with --debug and "
            "report what it says",
        ),
    ],
)
def test_ends_that_no_command_expects_are_one_line(
    raised: BaseException, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise raised

    with pytest.raises(typer.Exit) as ended:
        _guarded(command)()
    assert ended.value.exit_code == code
    assert capsys.readouterr().err == f"headrace: {says}\n"


def test_debug_shows_where_a_defect_is(
    labels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the message of a defect says to type."""
    monkeypatch.setenv("HEADRACE_DEBUG", "1")
    with pytest.raises(typer.Exit):
        _guarded(wheels_come_off)()
    assert "in wheels_come_off" in capsys.readouterr().err


def wheels_come_off() -> None:
    raise RuntimeError("wheels came off")
