"""tools/cluster: nodes made of one machine, their limits, and that nothing is left of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster import amounts, command, groups
from cluster.groups import PREFIX, Groups, Limits, disk_of
from cluster.network import why_no_namespaces
from cluster.relay import Bucket

ROOT = Path(__file__).parents[1]
NO_NAMESPACES = why_no_namespaces()
NETWORKS = [
    pytest.param(
        (),
        marks=pytest.mark.skipif(
            NO_NAMESPACES is not None, reason=f"no network namespaces here: {NO_NAMESPACES}"
        ),
        id="namespaces",
    ),
    pytest.param(("--loopback",), id="loopback"),
]
PATIENCE_S = 100.0
# Node 0 sends so many bytes to each other node; those print how many MB/s came.
SENDING = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(sys.argv[1])
own = os.environ["HEADRACE_CLUSTER_LISTEN"].split(":")
to = os.environ["HEADRACE_CLUSTER_ADDRESSES"].split(",")[0].split(":")
if rank == 0:
    with socket.create_server((own[0], int(own[1]))) as server:
        peers = [server.accept()[0] for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
        for peer in peers:
            peer.sendall(bytes(size))
            peer.close()
else:
    until = time.monotonic() + 50
    got = 0
    while not got and time.monotonic() < until:  # The listener may not be there yet.
        try:
            with socket.create_connection((to[0], int(to[1]))) as peer:
                begin = time.monotonic()
                while data := peer.recv(1 << 16):
                    got += len(data)
        except ConnectionError:
            pass
    assert got == size, got
    print("seconds", time.monotonic() - begin)
"""
LEAVING = "(setsid sleep 1000 & echo pid $!); "


def started(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "tools/cluster", "run", *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def ended(tool: subprocess.Popen[str], code: int) -> str:
    """What it prints. Its control groups are gone with it."""
    output, _ = tool.communicate(timeout=PATIENCE_S)
    assert tool.returncode == code, output
    left = [path.name for path in groups.ROOT.glob(f"*/{PREFIX}-*")]
    left += [path.name for path in groups.ROOT.glob(f"{PREFIX}-*")]
    assert not [name for name in left if name.startswith(f"{PREFIX}-{tool.pid}-")]
    return output


def run(*arguments: object, code: int = 0) -> str:
    return ended(started(*arguments), code)


def values(output: str, name: str) -> list[str]:
    """What nodes print after a name, in the order of nodes."""
    lines = sorted(line for line in output.splitlines() if f"] {name} " in line)
    return [line.partition(f"] {name} ")[2] for line in lines]


def namespaces_in_use() -> set[str]:
    """The network namespaces of all processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(path))
    return found


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("network", NETWORKS)
def test_each_node_is_told_its_place(network: tuple[str, ...]) -> None:
    script = "echo told $GROUP_RANK $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR; "
    script += "echo at $HEADRACE_CLUSTER_LISTEN; echo all $HEADRACE_CLUSTER_ADDRESSES; "
    script += "echo secret ${#HEADRACE_TOKEN}; echo in $(readlink /proc/self/ns/net)"
    before = b"" if network else subprocess.check_output(["ip", "netns", "list"])
    output = run("-n", 3, "--ranks", 2, *network, "--", "sh", "-c", script)
    master = values(output, "told")[0].split()[-1]
    assert sorted(values(output, "told")) == [
        f"{rank // 2} {rank}/6 {rank % 2}/2 {master}" for rank in range(6)
    ]
    (addresses,) = set(values(output, "all"))
    assert addresses.split(":")[0] == master
    assert set(values(output, "at")) == set(addresses.split(","))
    assert set(values(output, "secret")) == {"64"}
    namespaces = set(values(output, "in"))
    assert len(namespaces) == (1 if network else 3)
    if not network:
        assert not namespaces & namespaces_in_use()
        assert subprocess.check_output(["ip", "netns", "list"]) == before


@pytest.mark.parametrize("network", NETWORKS)
def test_a_link_carries_no_more_than_its_rate(network: tuple[str, ...]) -> None:
    """Two nodes take from one, whose link they share. A busy machine is slower, never faster."""
    size = 2_000_000
    output = run(
        "-n", 3, "--link", "100Mbit", *network, "--", sys.executable, "-c", SENDING, size
    )  # fmt: skip
    assert "links of 100 Mbit/s" in output
    seconds = [float(each) for each in values(output, "seconds")]
    assert len(seconds) == 2
    assert max(seconds) >= 0.8 * 2 * size / 12.5e6


@pytest.mark.parametrize("network", NETWORKS)
def test_a_rank_that_fails_ends_the_others_and_all_they_left(network: tuple[str, ...]) -> None:
    script = LEAVING + "[ $RANK != 1 ] || exit 7; exec sleep 1000"
    output = run("-n", 3, *network, "--", "sh", "-c", script, code=7)
    assert "cluster: node 1 ended with 7" in output
    pids = [int(pid) for pid in values(output, "pid")]
    assert pids
    assert not any(map(is_running, pids))


def test_others_go_on_if_that_is_asked_for() -> None:
    script = "[ $RANK != 1 ] || kill -9 $$; echo done $RANK"
    output = run("-n", 3, "--keep-going", "--", "sh", "-c", script, code=137)
    assert "cluster: node 1 was killed by SIGKILL" in output
    assert values(output, "done") == ["0", "2"]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_nodes(how: signal.Signals, network: tuple[str, ...]) -> None:
    """Also those that do not listen."""
    script = LEAVING + "trap '' INT TERM; echo here $$; while :; do sleep 1000; done"
    limits = ("--link", "1Gbit", "--storage", "1GB/s")
    tool = started("-n", 2, "--grace", 0.1, *limits, *network, "--", "sh", "-c", script)
    assert tool.stdout is not None
    output = ""
    while output.count("] here") < 2:
        line = tool.stdout.readline()
        assert line, output
        output += line
    tool.send_signal(how)
    ended(tool, 128 + how)
    pids = [int(pid) for pid in (*values(output, "pid"), *values(output, "here"))]
    assert len(pids) == 4
    assert not any(map(is_running, pids))


def test_ranks_end_with_a_tool_that_is_killed() -> None:
    tool = started("-n", 2, "--", "sh", "-c", "echo here $$; exec sleep 1000")
    assert tool.stdout is not None
    assert tool.stdout.readline().startswith("cluster: 2 nodes")
    pids = [int(tool.stdout.readline().split()[-1]) for _ in range(2)]
    tool.kill()
    tool.communicate(timeout=PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)):
        assert time.monotonic() < until
        select.select((), (), (), 0.01)  # What is waited for needs the processor.


def test_reads_of_a_node_are_held_to_its_rate(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(4 * 2**20))
    script = f"time -p dd if={file} of=/dev/null bs=256k iflag=direct 2>/dev/null"
    output = run(
        "-n", 2, "--storage", "10MB/s", "--storage-path", tmp_path, "--", "bash", "-c", script
    )  # fmt: skip
    if "storage is NOT limited" in output:
        pytest.skip(output.splitlines()[0])
    assert "storage 10 MB/s a node" in output
    assert min(float(each) for each in values(output, "real")) >= 0.25  # Each has its own.


def test_a_node_that_takes_too_much_memory_is_killed() -> None:
    script = "import os; data = os.urandom(2**20) * (int(os.environ['RANK']) * 150 + 1)"
    output = run("-n", 2, "--memory", "64MiB", "--", sys.executable, "-c", script, code=137)
    if "memory is NOT limited" in output:
        pytest.skip(output.splitlines()[0])
    assert "cluster: node 1 was killed by SIGKILL" in output


def test_control_groups_of_version_2_get_their_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(groups, "_removed", lambda group: True)
    monkeypatch.setattr(groups, "disk_of", lambda path: "8:0")
    limits = Limits(read_bytes_per_s=10**6, reads_per_s=50, memory_bytes=2**30)
    with Groups(1, limits, tmp_path, root=tmp_path) as made:
        (folder,) = tmp_path.glob(f"{PREFIX}-*")
        assert made.joins == [[folder / "cgroup.procs"]]
        assert (folder / "memory.max").read_text() == str(2**30)
        assert (folder / "io.max").read_text() == "8:0 riops=50"  # The kernel keeps each line.
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+io +memory"


def test_what_cannot_be_limited_is_said(tmp_path: Path) -> None:
    with Groups(2, Limits(memory_bytes=2**20), tmp_path, root=tmp_path / "none") as made:
        assert made.joins == [[], []]
        (said,) = made.said
    assert said.startswith("memory is NOT limited: No such file or directory")
    with pytest.raises(OSError, match="on no disk of this machine"):
        disk_of(Path("/proc"))


def test_a_bucket_lets_no_more_through_than_its_rate() -> None:
    bucket = Bucket(bytes_per_s=1000)
    assert bucket.take(500, now_s=0.0) == 0.5
    assert bucket.take(500, now_s=0.5) == 0.5
    assert bucket.take(1000, now_s=0.6) == pytest.approx(1.4)
    assert bucket.take(1, now_s=100.0) == 0  # What was not used is lost, but for a burst.
    assert bucket.take(1000, now_s=100.0) == pytest.approx(0.991)


def test_amounts_are_read_as_people_write_them() -> None:
    assert amounts.bits_per_s("1Gbit") == 10**9
    assert amounts.bits_per_s("125MB/s") == 10**9
    assert amounts.bytes_per_s("0.5MB/s") == 500_000
    assert amounts.size("2GiB") == 2**31
    for parse, text in (
        (amounts.bits_per_s, "1"),
        (amounts.bytes_per_s, "1GB"),
        (amounts.bytes_per_s, "1Gbit/s"),
        (amounts.size, "1GB/s"),
        (amounts.size, "0B"),
    ):
        with pytest.raises(ValueError, match="must be a"):
            parse(text)


def test_arguments_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, error in (
        (["-n", "0", "--", "true"], "argument -n/--nodes: got '0', must be 1 to 64"),
        (["-n", "2", "--link", "1", "--", "true"], "got '1', must be a rate such as 1Gbit"),
    ):
        with pytest.raises(SystemExit):
            command.main(["run", *arguments])
        assert error in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no command"):
        command.main(["run", "-n", "2"])
