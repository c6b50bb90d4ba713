"""All nodes of a job together: the late rank, merged traces, and loaders of other machines."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import headrace as hr
from headrace._observe._steps.merge import merge_traces, write_merged
from headrace._observe.late import Look, late_rank, look_at
from headrace._observe.monitor import Address
from headrace.cli import _observe_commands as commands
from headrace.cli._jobs import nodes as job_nodes
from headrace.cli._jobs.nodes import OtherNodes, nodes_of_job
from headrace.cli._jobs.watch import Watch
from headrace.cli._parts import top
from headrace.cli._parts.top import Board
from headrace.errors import InvalidArgumentError

COMMAND = (sys.executable, "-W", "error", "-m", "headrace")
CAUSES = ("storage", "decode", "consumer", "ranks")


def look(rank: int, step: int = 100, seconds: float = 10.0, **waited: float) -> Look:
    times = dict.fromkeys(CAUSES, 0.0) | waited
    return Look(rank, 0, step, seconds, times, ready=3, down=(), held_by=None)


BEFORE = [look(rank, step=0, seconds=0.0) for rank in range(4)]


def test_a_rank_that_is_behind_is_named_with_what_it_waits_for() -> None:
    ranks = [look(0), look(1), look(2, step=90, storage=6.0), look(3)]
    line = late_rank(ranks, BEFORE)
    assert line == (
        "rank 2 is late, at epoch 0 step 90, others at epoch 0 step 100: "
        "waiting 60% of the time for storage"
    )
    ranks[2] = replace(ranks[2], down=(3,))
    assert (late_rank(ranks, BEFORE) or "").endswith(
        "waiting 60% of the time for node 3, which does not answer, and storage"
    )
    ranks[2] = replace(look(2, step=90, ranks=5.0), held_by=1)
    assert (late_rank(ranks, BEFORE) or "").endswith("for rank 1 of its node")
    ranks[2] = look(2, step=90)
    assert (late_rank(ranks, BEFORE) or "").endswith("in its training step, with 3 batches ready")
    ranks[2] = replace(ranks[2], epoch=-1)
    assert "rank 2 is late" in (late_rank(ranks, BEFORE) or "")


def test_shares_are_of_the_time_since_the_look_before() -> None:
    before = [look(0, seconds=90.0, storage=80.0), look(1, seconds=90.0)]
    now = [look(0, seconds=100.0, storage=80.0), look(1, seconds=100.0, decode=5.0)]
    assert late_rank(now, before) == "rank 1 waits most: waiting 50% of the time for decoding"


def test_a_rank_without_an_answer_is_named_first() -> None:
    ranks = [look(0), look(1, storage=9.0)]
    line = late_rank(ranks, BEFORE, silent=[look(3, step=97)])
    assert line == (
        "rank 3 gives no answer, at epoch 0 step 97, others at epoch 0 step 100: it is stopped or "
        "busy"
    )


def test_nobody_is_late_if_nobody_waits_or_all_do_alike() -> None:
    assert late_rank([look(0), look(1, step=99)], BEFORE) is None  # It takes the batch just now.
    assert late_rank([look(0, storage=5.0), look(1, storage=6.0)], BEFORE) is None
    assert late_rank([look(0, storage=5.0)], BEFORE) is None  # The verdict says so.
    assert late_rank([], []) is None


def test_a_loader_s_snapshot_has_what_a_look_needs(numbered: Path) -> None:
    with hr.Loader(numbered, 4, output="numpy") as loader:
        next(iter(loader))
        seen = look_at(json.loads(json.dumps(loader._snapshot())))
    assert seen is not None
    assert (seen.rank, seen.epoch, seen.step, seen.down) == (0, 0, 1, ())
    assert set(seen.waited) == set(CAUSES)


def test_a_watch_prints_what_changes() -> None:
    watch = Watch(after_s=30.0)
    assert watch.look(0.0, 10, []) == []
    assert watch.look(5.0, 12, ["rank 1 is late, at step 5"]) == ["rank 1 is late, at step 5"]
    assert watch.look(10.0, 14, ["rank 1 is late, at step 7"]) == []  # The same, further on.
    assert watch.look(34.0, 14, []) == []
    still = "no rank took a batch for 30 s or more"
    assert watch.look(40.0, 14, []) == [still]
    assert watch.look(45.0, 14, []) == []
    assert watch.look(50.0, 15, []) == []
    assert watch.look(80.0, 15, ["rank 0 waits"]) == [still, "rank 0 waits"]
    assert watch.look(85.0, None, []) == []  # All have ended: none stands still.
    assert watch.look(200.0, None, []) == []
    assert watch.look(201.0, 15, ["rank 0 waits"]) == ["rank 0 waits"]
    assert watch.look(202.0, 16, ["rank 5 waits"]) == ["rank 5 waits"]
    silent = ["12.0: it gives no answer"]
    assert watch.look(203.0, None, silent) == silent
    assert watch.look(204.0, None, silent) == []
    assert watch.look(205.0, None, ["13.0: it gives no answer"]) == ["13.0: it gives no answer"]


def test_a_loader_that_has_not_answered_yet_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    board, stopped = Board(), Address(4, 1)
    monkeypatch.setattr(top, "ask_all", lambda addresses: {})
    board.look([stopped], {}, {"b": "ssh: no route"})
    assert board.unanswered() == [
        "4.1: it gives no answer: it is stopped, busy, or just being closed",
        "b: no answer: ssh: no route",
    ]
    assert board.late() == []
    board.look([], {}, {})  # Its process is gone, and was never seen.
    assert board.unanswered() == []


def trace(path: Path, **clock: Any) -> Path:
    about = {"boot": "one", "host": "a", "pid": 7, "monotonic_ns": 10**9, "realtime_ns": 5 * 10**9}
    events = [
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 0, "args": {"name": "rank 0"}},
        {"ph": "X", "name": "training", "ts": 100.0, "dur": 5.0, "pid": 7, "tid": 0},
        {"ph": "b", "name": "read", "ts": 90.0, "pid": 7, "tid": 0, "cat": "x", "id": "0.0"},
    ]
    path.write_text(json.dumps({"traceEvents": events, "clock": about | clock}))
    return path


def test_traces_of_machines_get_one_clock_and_processes_of_their_own(tmp_path: Path) -> None:
    here = trace(tmp_path / "a")
    beside = trace(tmp_path / "b", pid=8)
    # Its clock began two seconds later.
    far = trace(tmp_path / "c", boot="two", host="b", monotonic_ns=10**9, realtime_ns=7 * 10**9)
    events = merge_traces([here, beside, far])["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1: "a, process 7", 2: "a, process 8", 3: "b, process 7"}
    again = merge_traces([here, far, here])["traceEvents"]  # Of two loaders of one process.
    names = {e["pid"]: e["args"]["name"] for e in again if e["name"] == "process_name"}
    assert names == {1: f"a, process 7, {here}", 2: "b, process 7", 3: f"a, process 7, {here}"}
    assert len({e["id"] for e in again if e["ph"] == "b"}) == 3
    at = {e["pid"]: e["ts"] for e in events if e["ph"] == "X"}
    assert at == {1: 100.0, 2: 100.0, 3: 2_000_100.0}
    assert len({e["id"] for e in events if e["ph"] == "b"}) == 3


def test_the_command_merges_what_loaders_wrote(numbered: Path, tmp_path: Path) -> None:
    with hr.Loader(numbered, 4, output="numpy") as loader:
        list(loader)
        loader.trace(tmp_path / "a.json")
        loader.trace(tmp_path / "b.json")
    output = tmp_path / "all.json"
    done = subprocess.run(
        [*COMMAND, "report", "--merge", tmp_path / "a.json", tmp_path / "b.json", "-o", output],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("merged 2 traces, ")
    assert len(json.loads(output.read_text())["traceEvents"]) > 2 * len(loader)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    good, bad, old = trace(tmp_path / "good"), tmp_path / "bad", tmp_path / "old"
    bad.write_text("{")
    old.write_text('{"traceEvents": []}')
    for paths, error in (
        ([], "give one file or more"),
        ([good, bad], "is no JSON"),
        ([old, good], r"not from loader\.trace\(\) of this version"),
    ):
        with pytest.raises(InvalidArgumentError, match=error):
            merge_traces(paths)
    with pytest.raises(OSError, match=r"reading the trace .*none"):
        merge_traces([tmp_path / "none"])
    with pytest.raises(OSError, match="writing the trace"):
        write_merged([good], tmp_path / "none" / "x.json")
    with pytest.raises(InvalidArgumentError, match="is one of the traces"):
        commands.report([str(good)], merge=True, output=good)


ANSWERS = """
import json, sys
node, *command = sys.argv[1:]
assert command == ["headrace", "top", "--json"], command
if node == "broken":
    sys.exit("no route to host")
if node == "babbling":
    print("not for you")
    sys.exit(0)
print("Welcome!")
print(json.dumps({"loaders": [json.loads(open(node).read())]}))
"""


def remote(folder: Path, loader: hr.Loader) -> str:
    """The --via of a machine that has such a loader; its name is the file of its answer."""
    (folder / "answers.py").write_text(ANSWERS)
    snapshot = loader._snapshot() | {"ordinal": 3, "pid": 17, "rank": 1, "job": None}
    snapshot["stats"]["ranks"][0]["rank"] = 1
    (folder / "far").write_text(json.dumps(snapshot))
    return f"{sys.executable} {folder / 'answers.py'} {{node}}"


def test_top_shows_loaders_of_other_machines(numbered: Path, tmp_path: Path) -> None:
    engine = hr.EngineOptions(monitor=True)
    with hr.Loader(numbered, 4, output="numpy", engine=engine) as loader:
        list(loader)
        via = remote(tmp_path, loader)
        far = str(tmp_path / "far")
        asked = [*COMMAND, "top", str(os.getpid()), "--once", "--via", via]
        for node in (far, "broken", "babbling"):
            asked += ["--node", node]
        environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "xterm"}
        done = subprocess.run(asked, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        text = done.stdout
        assert f"{far}:17.3" in text
        assert "broken: no answer: " in text
        assert "no route to host" in text
        assert "babbling: no answer: its answer is no JSON" in text


def test_a_rank_whose_machine_is_gone_keeps_its_row_and_is_late(numbered: Path) -> None:
    with hr.Loader(numbered, 4, output="numpy") as loader:
        here = loader._snapshot()
        next(iter(loader))
        far = loader._snapshot()
    far |= {"rank": 1}
    far["stats"]["ranks"][0]["rank"] = 1
    one, other = Address(1, 0, "a"), Address(1, 0, "b")
    board = Board()
    board.look([], {one: here, other: far})
    assert "no answer" not in "".join(board.late())
    board.look([], {one: here}, {"b": "no route"})
    (late,) = board.late()
    assert late.startswith("rank 1 gives no answer, at epoch 0 step 1: ")
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as captured:
        console.print(board.render(console))
    assert "b:1.0: it gives no answer" in captured.get()
    assert "b: no answer: no route" in captured.get()
    board.look([], {one: here})  # Its machine answers: it has ended.
    assert board.late() == []


def test_top_watch_names_the_late_rank_and_why(
    numbered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hr.Loader(
        numbered, 4, output="numpy", job=hr.Job(rank=0, world_size=2),
        engine=hr.EngineOptions(monitor=True),
    ) as loader:  # fmt: skip
        list(loader)
        via = remote(tmp_path, loader)
        list(loader)  # So the other one, whose answer stays the same, falls behind.
        watch = partial(commands.top, [os.getpid()], watch=True, interval=0.1, once=True)
        watch(node=[str(tmp_path / "far")], via=via)
        line = capsys.readouterr().out
        assert "rank 1 is late, at epoch 1 step 0, others at epoch 2 step 0: " in line
        watch(as_json=True)
        assert json.loads(capsys.readouterr().out)["late"] == "no rank is late"
    with pytest.raises(InvalidArgumentError, match=r"--after: got 0, must be 0\.1 s or more"):
        commands.top(watch=True, after=0)


def test_machines_that_do_not_answer_in_time_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_nodes, "_SECONDS_MAX", 0.2)
    silent = OtherNodes(["far"], "sh -c 'sleep 1000; true' {node}")
    found, unheard = silent.ask()
    assert not found
    assert unheard["far"].endswith(
        ": no answer within 0 s; run it by hand to see why, or change --via"
    )
    monkeypatch.setattr(job_nodes, "_SECONDS_MAX", 60.0)
    monkeypatch.setattr(job_nodes, "_ANSWER_BYTES_MAX", 1000)
    _, unheard = OtherNodes(["far"], "sh -c 'yes' {node}").ask()
    assert ": prints more than 1,000 bytes; run it by hand to see why" in unheard["far"]


def test_a_via_without_a_machine_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"--via: got 'ssh', must contain \{node\}"):
        OtherNodes([], "ssh")
    with pytest.raises(InvalidArgumentError, match=r"--via: .*quotation"):
        OtherNodes([], "ssh '{node}")


def test_a_job_s_machines_are_those_of_its_loaders() -> None:
    job = {"node": 1, "addresses": ["10.0.0.1:5", "10.0.0.2:5", "[fd00::3]:5"]}
    assert nodes_of_job([{"job": job}, {"job": None}, {}]) == ["10.0.0.1", "fd00::3"]


def test_nobody_is_late_among_loaders_of_several_jobs(numbered: Path) -> None:
    with hr.Loader(numbered, 4, output="numpy") as loader:
        batches = iter(loader)
        early = loader._snapshot()
        for _ in range(4):
            next(batches)
        late = loader._snapshot()
    board = Board()
    board.look([], {Address(1, 0, "a"): early, Address(2, 0, "a"): late})
    assert board.late() == []
    late |= {"rank": 1}
    late["stats"]["ranks"][0]["rank"] = 1
    board.look([], {Address(1, 0, "a"): early, Address(2, 0, "a"): late})
    assert len(board.late()) == 1  # Of one job, it would be.
