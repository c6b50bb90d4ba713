"""Loaders that answer other processes, and the commands that ask them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_observe import parse

import headrace as hr
from headrace._observe import monitor
from headrace._observe.monitor import Address, find_loaders
from headrace.cli._parts import top as _top
from headrace.errors import InvalidArgumentError, UnavailableError

COMMAND = (sys.executable, "-W", "error", "-m", "headrace")
ENVIRONMENT = os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "xterm"}


def here(loader: hr.Loader) -> Address:
    assert loader._monitor is not None
    return Address(os.getpid(), loader._monitor.ordinal)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine who asks, and who answers, may take long."""
    monkeypatch.setattr(monitor, "_SECONDS_MAX", 50.0)


@pytest.fixture
def watched(numbered: Path) -> Iterator[hr.Loader]:
    with hr.Loader(
        numbered,
        batch_size=10,
        job=hr.Job(rank=1, world_size=2),
        engine=hr.EngineOptions(monitor=True),
    ) as loader:
        assert len(list(loader)) == len(loader)
        yield loader


def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_loader_answers_while_it_is_open(watched: hr.Loader) -> None:
    address = here(watched)
    assert address in find_loaders()
    answer = address.ask()
    assert answer is not None
    assert (answer["version"], answer["pid"], answer["rank"]) == (1, os.getpid(), 1)
    told, stats = answer["stats"], watched.stats()
    assert (told["batches"], told["step_times"]) == (stats["batches"], stats["step_times"])
    report = address.ask("report")
    assert report is not None
    assert len(report["steps"]["taken_ns"]) == len(watched)
    assert report["reuse"]["first"] > 0
    assert address.ask("secrets") is None
    watched.close()
    assert address not in find_loaders()
    assert address.ask() is None


def test_it_is_asked_for_by_argument_or_environment(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, monitored in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("HEADRACE_MONITOR", value)
        with hr.Loader(numbered) as loader:
            assert (loader._monitor is not None) == monitored
    for value in ("true", "off", "2"):
        monkeypatch.setenv("HEADRACE_MONITOR", value)
        with pytest.raises(InvalidArgumentError, match=f"HEADRACE_MONITOR='{value}': must be 1, "):
            hr.Loader(numbered)
    with hr.Loader(numbered, engine=hr.EngineOptions(monitor=False)):
        pass  # The argument decides: the environment is not asked.
    monkeypatch.setenv("HEADRACE_MONITOR", "1")
    with hr.Loader(numbered, engine=hr.EngineOptions(monitor=False)) as loader:
        assert loader._monitor is None
    with pytest.raises(InvalidArgumentError, match="monitor: got 3"):
        hr.Loader(numbered, engine=hr.EngineOptions(monitor=3))  # type: ignore[arg-type]


def test_a_loader_that_is_dropped_leaves_no_thread_and_no_name(numbered: Path) -> None:
    loader = hr.Loader(numbered, engine=hr.EngineOptions(monitor=True))
    address = here(loader)
    assert address.ask() is not None
    del loader
    assert address not in find_loaders()
    assert not [each for each in threading.enumerate() if each.name == "headrace-monitor"]


def test_loaders_of_a_process_have_names_of_their_own(numbered: Path) -> None:
    with (
        hr.Loader(numbered, engine=hr.EngineOptions(monitor=True)) as one,
        hr.Loader(numbered, engine=hr.EngineOptions(monitor=True)) as other,
    ):
        assert here(one) != here(other)
        assert {here(one), here(other)} <= set(find_loaders())


def test_other_users_are_not_answered_and_not_asked(
    watched: hr.Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_credentials_of", lambda peer: (1, os.getuid() + 1))
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(f"\0headrace-{os.getuid()}-{os.getpid()}-{here(watched).ordinal}")
        with contextlib.suppress(OSError):  # It is closed already.
            peer.sendall(b"stats\n")
            assert peer.recv(1) == b""
    assert here(watched).ask() is None


def test_who_asks_and_says_nothing_keeps_nobody(
    watched: hr.Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_SECONDS_MAX", 3600.0)
    assert watched._monitor is not None
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(f"\0headrace-{os.getuid()}-{os.getpid()}-{here(watched).ordinal}")
        while not watched._monitor._peers:
            os.sched_yield()
        watched.stats()
        answer = here(watched).ask()  # Others are answered meanwhile.
        assert answer is not None
        assert answer["pid"] == os.getpid()
        closing = threading.Thread(target=watched.close)
        closing.start()
        closing.join(60)
        assert not closing.is_alive()


def connected(loader: hr.Loader) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(f"\0headrace-{os.getuid()}-{os.getpid()}-{here(loader).ordinal}")
    return peer


def test_a_process_has_so_many_conversations_at_a_time(
    watched: hr.Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "_SECONDS_MAX", 3600.0)
    assert watched._monitor is not None
    with contextlib.ExitStack() as peers:
        silent = [peers.enter_context(connected(watched)) for _ in range(20)]
        # In the order in which they came: those beyond the limit are let go, unheard.
        for each in silent[monitor._PEERS_OF_PID_MAX :]:
            assert each.recv(1) == b""
        assert len(watched._monitor._peers) == monitor._PEERS_OF_PID_MAX
        # They do not count as those of another process.
        asked = run("top", "--json")
        assert os.getpid() in [each["pid"] for each in json.loads(asked.stdout)["loaders"]]
        silent[0].sendall(b"sta")
        silent[0].sendall(b"ts\n")
        with silent[0].makefile() as told:
            assert json.loads(told.read())["pid"] == os.getpid()
        late = peers.enter_context(connected(watched))  # One has gone: there is room again.
        late.sendall(b"stats\n")
        with late.makefile() as told:
            assert json.loads(told.read())["stats"]["batches"] == watched.stats()["batches"]


def test_who_takes_too_long_is_let_go(watched: hr.Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_SECONDS_MAX", 0.0)
    with connected(watched) as peer:
        assert peer.recv(1) == b""


FLOOD = """
import os, socket, sys, threading
name = sys.argv[1].replace("@", chr(0))
os.setgid(65534)
os.setuid(65534)

def flood(blocking):
    for number in range(10**9):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.setblocking(blocking)
            try:
                peer.connect(name)
                peer.send(b"stats")
            except OSError:
                pass
        if number == 500:
            print("flooding", flush=True)

for number in range(4):
    threading.Thread(target=flood, args=(number % 2 == 0,)).start()
"""


def test_it_keeps_answering_while_another_user_floods_its_socket(watched: hr.Loader) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    name = f"@headrace-{os.getuid()}-{os.getpid()}-{here(watched).ordinal}"
    flood = subprocess.Popen(
        [sys.executable, "-I", "-c", FLOOD, name], cwd="/", stdout=subprocess.PIPE, text=True
    )
    assert flood.stdout is not None
    try:
        assert flood.stdout.readline() == "flooding\n"
        for _ in range(20):
            answer = here(watched).ask()
            assert answer is not None
            assert (answer["pid"], answer["rank"]) == (os.getpid(), 1)
        asked = run("top", "--json")
        assert os.getpid() in [each["pid"] for each in json.loads(asked.stdout)["loaders"]]
        assert flood.poll() is None
    finally:
        flood.kill()
        flood.wait()
        flood.stdout.close()


def test_a_forked_child_does_not_keep_the_name(numbered: Path) -> None:
    loader = hr.Loader(numbered, engine=hr.EngineOptions(monitor=True))
    address = here(loader)
    wait, go = os.pipe()
    hear, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.write(say, b"x")
        os.read(wait, 1)
        os._exit(0)
    os.close(wait)
    assert os.read(hear, 1) == b"x"
    assert address.ask() is not None  # by the parent
    loader.close()
    assert address not in find_loaders()
    for end in (go, hear, say):
        os.close(end)
    assert os.waitpid(child, 0)[1] == 0


def test_names_of_others_are_passed_over(tmp_path: Path) -> None:
    uid = os.getuid()
    names = tmp_path / "unix"
    names.write_text(
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        f"0: 00000002 00000000 00010000 0001 01 7 @headrace-{uid}-20-1\n"
        f"0: 00000002 00000000 00010000 0001 01 7 @headrace-{uid}-3-0\n"
        f"0: 00000003 00000000 00000000 0001 03 7 @headrace-{uid}-3-0\n"
        f"0: 00000002 00000000 00010000 0001 01 7 @headrace-{uid + 1}-4-0\n"
        f"0: 00000002 00000000 00010000 0001 01 7 /run/headrace-{uid}-4-0\n"
        f"0: 00000002 00000000 00010000 0001 01 7 @headrace-{uid}-4-0-more\n"
    )
    assert find_loaders(names) == [Address(3, 0), Address(20, 1)]
    with pytest.raises(UnavailableError, match=r"looking for loaders in .*none"):
        find_loaders(tmp_path / "none")


def test_top_shows_ranks_and_the_verdict(watched: hr.Loader) -> None:
    text = run("top", os.getpid(), "--once").stdout
    head, row = text.splitlines()[:2]
    name = f"{os.getpid()}.{here(watched).ordinal}"
    cells = dict(zip(head.replace("step p50", "p50").split(), row.split(), strict=False))
    assert (cells["loader"], cells["rank"], cells["epoch"]) == (name, "1", "1")
    assert f"{name}: {watched.stats()['verdict']}" in text


def test_top_prints_json_and_metrics(watched: hr.Loader) -> None:
    loaders = json.loads(run("top", os.getpid(), "--json").stdout)["loaders"]
    (loader,) = loaders
    assert loader["ordinal"] == here(watched).ordinal
    assert loader["stats"]["batches"] == len(watched)
    samples = parse(run("top", os.getpid(), "--prometheus").stdout)
    pid, number = ("pid", str(os.getpid())), ("loader", str(here(watched).ordinal))
    assert samples["headrace_batches_total", frozenset({pid, number, ("rank", "1")})] == len(
        watched
    )


@pytest.mark.parametrize("command", ["top", "report"])
def test_help_teaches_with_an_example(command: str) -> None:
    assert f"Example: headrace {command}" in " ".join(run(command, "--help").stdout.split())


def test_top_of_nothing_and_of_wrong_arguments() -> None:
    message = run("top", os.getpid(), "--once", code=2).stderr
    assert f"process {os.getpid()}: no loader of yours is monitored there now" in message
    with subprocess.Popen(["true"]) as ended:
        pass
    message = run("top", ended.pid, "--once", code=2).stderr
    assert f"process {ended.pid} has ended, and its loaders with it" in message
    assert "--json with --prometheus" in run("top", "--json", "--prometheus", code=2).stderr
    assert "--interval" in run("top", "--interval", "0", code=2).stderr


def test_top_goes_on_in_a_terminal_past_the_end_of_a_loader_until_it_is_interrupted(
    watched: hr.Loader,
) -> None:
    ours, theirs = pty.openpty()
    asked = [*COMMAND, "top", str(os.getpid()), "--interval", "0.1"]
    with subprocess.Popen(
        asked, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as top:
        os.close(theirs)
        seen = b""
        while seen.count(b"samples/s") < 3:
            seen += os.read(ours, 4096)
        assert b"ended" not in seen
        watched.close()
        while seen.count(b"it has ended") < 3:
            seen += os.read(ours, 4096)
        top.send_signal(signal.SIGINT)
        try:
            while os.read(ours, 4096):
                pass
        except OSError:  # The other side is closed: how a terminal ends.
            pass
        assert top.stderr is not None
        assert top.stderr.read() == b""
    os.close(ours)
    assert top.returncode == 0


def test_report_draws_the_loader_of_another_process(watched: hr.Loader, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart = tmp_path / "chart.png"
    with hr.Loader(watched.dataset, engine=hr.EngineOptions(monitor=True)):
        assert "2 loaders are monitored" in run("report", os.getpid(), code=2).stderr
        report = ("report", os.getpid(), "--loader", here(watched).ordinal, "-o", chart)
        said = run(*report).stdout
        result = json.loads(run(*report, "--json").stdout)
    assert watched.stats()["verdict"] in said
    assert result == {"output": str(chart), "verdict": watched.stats()["verdict"]}
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert "no format '.zzz'" in run("report", "-o", tmp_path / "a.zzz", code=2).stderr
    assert "no format ''" in run("report", "-o", tmp_path / "plain", code=2).stderr


def made(rank: int, **stats: Any) -> dict[str, Any]:
    """A snapshot of the rank's own process, on a node of two."""
    quantiles = {"count": 3, "p50": 0.25, "p95": 0.5, "p99": 1.0}
    ranks = [
        {
            "rank": number,
            "samples": stats["samples"],
            "stall": dict.fromkeys(_top.CAUSES, 0.0) | {"decode": stats["decode"]},
            "step": quantiles,
            "ready": 4,
            "gone": False,
        }
        for number in range(2)
    ]
    told = {
        "epoch": 0,
        "step": 7,
        "seconds": stats["seconds"],
        "samples": stats["samples"],
        "ranks": ranks,
        "imbalance": {"late": [0.5, 0.25, 0.0]},
        "sources": {"storage": 1, "tiers": 3},
        "verdict": "as it is",
    }
    return {"rank": rank, "dataset": "d", "world_size": 2, "stats": told}


def shown(board: _top.Board, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    with console.capture() as captured:
        console.print(board.render(console))
    return captured.get()


def row_of(text: str) -> dict[str, str]:
    """The first row below the head, whose columns are set to the right but the first."""
    head, row = text.splitlines()[:2]
    ends = [match.end() for match in re.finditer(r"\S+(?: (?:for|p50))?", head)]
    begins = [0, max(ends[0], row.find(" ") + 1), *ends[1:-1]]
    return {
        head[begin:end].strip(): row[begin:end].strip()
        for begin, end in zip(begins, [begins[1], *ends[1:]], strict=True)
    }


def test_top_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    said = made(0, samples=1_234_567, seconds=1.0, decode=0.99)
    said["stats"] |= {"epoch": 12345, "step": 1_234_567, "verdict": "wait " * 50 + "no more"}
    said["stats"]["ranks"] = said["stats"]["ranks"][:1]
    said["stats"]["ranks"][0] |= {
        "stall": dict.fromkeys(_top.CAUSES, 0.0) | {"consumer": 1.0},
        "step": {"count": 3, "p50": 0.9995, "p95": 1.0, "p99": 1234.5},
        "ready": 4096,
    }
    monkeypatch.setattr(Address, "ask", lambda self, request: said)
    board = _top.Board()
    board.look([Address(4194304, 12)])
    text = shown(board)
    assert max(map(len, text.splitlines())) <= 80
    assert row_of(text) == {
        "loader": "4194304.12",
        "rank": "0",
        "epoch": "12345",
        "step": "1,234,567",
        "samples/s": "1,234,567",
        "waits for": "100% consumer",
        "ready": "4096",
        "step p50": "999.5 ms",
        "p99": "1,234.5 s",
    }
    assert " ".join(text.split()).endswith("4194304.12: " + "wait " * 50 + "no more")
    wide = row_of(shown(board, width=200))
    assert (wide["waiting"], wide["consumer"], wide["apart"]) == ("100%", "100%", "25%")


def test_top_says_that_a_loader_ended_or_gives_no_answer(
    watched: hr.Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, address = _top.Board(), here(watched)
    board.look([address])
    row = row_of(shown(board))
    verdict = watched.stats()["verdict"]
    watched.close()
    board.look([address])
    text = shown(board)
    assert row_of(text)["waits for"] == "no answer"
    assert f"{address.pid}.{address.ordinal}: it gives no answer" in text
    board.look([each for each in find_loaders() if each.pid == address.pid])  # Tests run beside it.
    text = shown(board)
    assert row_of(text) == row | {"waits for": "ended", "ready": ""}
    told = f"{address.pid}.{address.ordinal}: it has ended: it was closed, or its process is gone"
    # Numbers aside: the loader read on between its answer to the board and the verdict above.
    said_last = re.sub(r"\d+", "0", f"{told}; it said last: {verdict}")
    assert said_last in re.sub(r"\d+", "0", " ".join(text.split()))
    said = made(0, samples=1, seconds=1.0, decode=0.0)
    monkeypatch.setattr(Address, "ask", lambda self, request: said)
    for number in range(20):
        board.look([Address(5, number)])
    names = re.findall(r"^5\.\d+(?= )", shown(board), re.MULTILINE)
    assert names == ["5.19"] * 2 + [f"5.{number}" for number in range(11, 19)]
    nothing = _top.Board()
    nothing.look([])
    assert "no loader of this user is monitored now" in shown(nothing)


def test_rates_are_those_since_the_look_before() -> None:
    before = made(0, samples=1000, seconds=10.0, decode=4.0)
    now = made(0, samples=1600, seconds=12.0, decode=5.0)
    row, other = _top.rank_rows(Address(5, 0), now, before)
    assert (row["samples/s"], row["waiting"], row["decode"]) == ("300", "50%", "50%")
    assert (row["step p50"], row["p99"]) == ("250.0 ms", "1.0 s")
    assert row["waits for"] == "50% decode"
    idle = made(0, samples=1, seconds=1.0, decode=0.0)
    assert _top.rank_rows(Address(5, 0), idle, None)[0]["waits for"] == "nothing"
    idle["stats"]["ranks"][1]["gone"] = True
    assert _top.rank_rows(Address(5, 0), idle, None)[1]["waits for"] == "gone"
    assert (row["apart"], row["tiers"], row["ready"]) == ("25%", "75%", "4")
    assert (other["rank"], other["step"]) == ("1", "")
    row, other = _top.rank_rows(Address(5, 0), now, None)
    assert (row["samples/s"], row["decode"]) == ("133", "42%")


def test_ranks_of_a_node_that_are_listed_themselves_are_shown_once() -> None:
    now = {
        Address(5, 0): made(0, samples=1, seconds=1.0, decode=0.0),
        Address(6, 0): made(1, samples=1, seconds=1.0, decode=0.0),
    }
    shown = [
        [row["rank"] for row in _top.rank_rows(at, each, None, _top._elsewhere(now, at))]
        for at, each in now.items()
    ]
    assert shown == [["0"], ["1"]]
