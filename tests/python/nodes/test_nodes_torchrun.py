"""Several nodes started by torchrun, one agent a node: they exchange addresses, and start again.

The command itself runs a job with a kill and one whose number of nodes changes; the others run
torchrun in forks of a process that imported it and torch (forking_agent.py).
HEADRACE_NODE_KILLS=30 has thirty of the kills, and two fewer of each order whose nodes send each
other samples.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forks import Forked, ForkServer
from loader_data import COUNT
from node_ranks import wait_for_end
from test_exchange import packed_homes

import headrace as hr

torch = pytest.importorskip("torch")

from nodes_script import EPOCHS, GLOBAL, Trouble  # noqa: E402

SCRIPT = Path(__file__).with_name("nodes_script.py")
PATIENCE_S = 150.0
KILLS = int(os.environ.get("HEADRACE_NODE_KILLS", "3"))
STEPS = -(-COUNT // GLOBAL)  # of an epoch
# A child of one that is killed ends, too: nothing else would tell it.
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


class Job:
    """The script under torchrun: each node's agent is a child, and so is what the agents start."""

    def __init__(
        self,
        source: Path,
        folder: Path,
        troubles: list[Trouble],
        nodes: str,
        order: tuple[str, dict[str, Any]] | None,
        server: ForkServer | None,
    ) -> None:
        # Of this process: an agent that ends first must not take the store with it.
        self._store = torch.distributed.TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False
        )
        self._folder = folder
        told = json.dumps([dataclasses.asdict(each) for each in troubles])
        self._server = server
        self._words = [
            "-m", "torch.distributed.run", f"--nnodes={nodes}",
            "--nproc-per-node=1", "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self._store.port}", f"--rdzv-id={folder.name}",
            "--rdzv-conf=is_host=false,last_call_timeout=2,keep_alive_interval=2",
            "--max-restarts=2", "--local-addr=127.0.0.1", str(SCRIPT), str(source), str(folder),
            told, json.dumps(order),
        ]  # fmt: skip
        self.agents: list[subprocess.Popen[bytes] | Forked] = []

    def add_node(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        # Otherwise gloo's restarted ranks find the addresses of the ranks before them.
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with (self._folder / f"agent-{len(self.agents)}.log").open("w") as log:
            if self._server is not None:
                file = log.fileno()
                agent = self._server.start(self._words, environment, out=file, err=file)
                self.agents.append(agent)
                return
            self.agents.append(
                subprocess.Popen(
                    [*WITH_PARENT, sys.executable, *self._words], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, env=environment, start_new_session=True,
                )
            )  # fmt: skip

    def codes(self) -> list[int]:
        return [agent.wait(PATIENCE_S) for agent in self.agents]

    def wait(self, killed: int = 0) -> None:
        """Waits for all agents; so many of them end by a signal, the others well."""
        codes = self.codes()
        logs = "\n".join(self.log(number)[-3000:] for number in range(len(codes)))
        assert codes.count(0) == len(codes) - killed, logs
        assert codes.count(-signal.SIGKILL) == killed, logs

    def log(self, agent: int) -> str:
        return (self._folder / f"agent-{agent}.log").read_text()

    def end(self) -> None:
        for agent in self.agents:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
        for path in self._folder.glob("node-*"):  # One that was stopped cannot end.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.name.partition("-")[2]), signal.SIGCONT)


@contextlib.contextmanager
def job(
    source: Path,
    folder: Path,
    *troubles: Trouble,
    nodes: int = 2,
    range_: str = "",
    order: tuple[str, dict[str, Any]] | None = None,
    server: ForkServer | None = None,
) -> Iterator[Job]:
    """Runs the script on `nodes` nodes; ends all of it. `server`: in forks of it."""
    if "{node}" not in str(source):
        hr.open(source)  # Its index is made once.
    found = Job(source, folder, list(troubles), range_ or str(nodes), order, server)
    try:
        for _ in range(nodes):
            found.add_node()
        yield found
    finally:
        found.end()


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """With torchrun and the script's packages."""
    modules = ("numpy", "headrace._nodes.process", "headrace.torch", "forking_agent")
    with ForkServer(*modules, OMP_NUM_THREADS="1") as made:
        yield made


def wait_for_file(path: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until, f"no {path.name} within {PATIENCE_S} s"
        select.select((), (), (), 0.01)  # What is waited for needs the processor.


def starts(folder: Path) -> Counter[int]:
    """How often rank 0 was started, by the world size."""
    names = [path.stem.split("-") for path in folder.glob("process-*.jsonl")]
    return Counter(int(world) for _, _, _, rank, _, world in names if rank == "0")


def check_trained(
    source: Path, folder: Path, order: tuple[str, dict[str, Any]] | None = None
) -> None:
    """Every step of the job is that of one rank with the same global batch, in every launch."""
    steps: dict[tuple[int, int, int], dict[str, list[int]]] = defaultdict(dict)
    for path in sorted(folder.glob("process-*.jsonl")):
        _, _, _, rank, _, world = path.stem.split("-")
        for line in path.read_text().splitlines():
            epoch, step, ids = json.loads(line)
            before = steps[epoch, step, int(world)].setdefault(rank, ids)
            assert before == ids, f"step {step} of epoch {epoch} changed"
    whole = set()
    made = "exact" if order is None else getattr(hr.orders, order[0])(**order[1])
    with hr.Loader(
        source,
        GLOBAL,
        order=made,
        output=hr.Output("numpy", ids=True, fields=["label"]),
        epochs=EPOCHS,
    ) as loader:
        want = {
            (epoch, step + 1): [int(number) for number in batch.sample_id]
            for epoch in range(EPOCHS)
            for step, batch in enumerate(loader)
        }
    for (epoch, step, world), of_ranks in steps.items():
        got = Counter(number for ids in of_ranks.values() for number in ids)
        expected = Counter(want[epoch, step])
        is_last = step == STEPS  # Filled up, for all ranks to have as many.
        assert is_last or not got - expected, (epoch, step, world)
        if len(of_ranks) < world:  # The job ended in this step.
            continue
        whole.add((epoch, step))
        assert not expected - got, (epoch, step, world)
    assert whole == want.keys()


def test_nodes_find_each_other_by_the_store_of_torchrun(
    numbered: Path, tmp_path: Path, server: ForkServer
) -> None:
    with job(numbered, tmp_path, server=server) as running:
        running.wait()
    check_trained(numbered, tmp_path)
    assert starts(tmp_path) == {2: 1}
    nodes, reads, _ = json.loads((tmp_path / "stats.json").read_text())
    assert nodes["nodes"] == 2
    assert nodes["given"] > 0
    assert reads <= COUNT


def drawn(seed: int) -> tuple[int, Trouble]:
    """The nodes of a job, and what happens to one of them. The first three are one of each kind."""
    chance = random.Random(seed)
    kinds = [("node", "SIGKILL"), ("rank", "SIGKILL"), ("node", "SIGSTOP"), ("rank", "SIGSTOP")]
    victim, how = kinds[seed] if seed < 3 else chance.choice(kinds)
    nodes = 2 if seed < 3 else chance.choice([2, 3])
    # Two steps before the end at the latest: the one after it may be in the rank's memory already.
    at = chance.randrange(1, EPOCHS * STEPS - 1)
    return nodes, Trouble(nodes, at, chance.randrange(nodes), victim, how)


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_or_stopped_process_is_started_again_and_the_sequence_goes_on(
    numbered: Path, tmp_path: Path, server: ForkServer, seed: int
) -> None:
    nodes, trouble = drawn(seed)
    print(f"seed {seed}: {trouble}")
    forks = server if seed > 0 else None
    with job(numbered, tmp_path, trouble, nodes=nodes, server=forks) as running:
        running.wait()
        logs = "".join(running.log(number) for number in range(nodes))
    check_trained(numbered, tmp_path)
    assert starts(tmp_path) == {nodes: 2}
    if (trouble.victim, trouble.how) == ("node", "SIGSTOP"):
        assert "of the node process (pid" in logs
        assert "it has been stopped for 10 s" in logs
        assert "s, as by SIGSTOP: continue it (kill -CONT" in logs


BLOCK = 4  # samples
# Orders whose nodes send each other samples: the class, the name of its number of nodes, the rest.
EXCHANGING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "redox": ("Redox", "nodes", {"chunks_per_virtual": 3, "block_samples": BLOCK, "read": "chunk"}),
    "epoch": ("Epoch", "homes", {"block_samples": BLOCK}),
}


def exchanging(name: str, nodes: int) -> tuple[str, dict[str, Any]]:
    kind, count, given = EXCHANGING[name]
    return kind, {**given, count: nodes}


@pytest.mark.parametrize("name", EXCHANGING)
@pytest.mark.parametrize("seed", range(KILLS - 2))
def test_nodes_that_send_each_other_samples_are_started_again_and_the_sequence_goes_on(
    numbered: Path, tmp_path: Path, server: ForkServer, name: str, seed: int
) -> None:
    nodes, trouble = drawn(seed)
    order = exchanging(name, nodes)
    print(f"seed {seed}: {trouble} of {order}")
    with job(numbered, tmp_path, trouble, nodes=nodes, order=order, server=server) as running:
        running.wait()
    check_trained(numbered, tmp_path, order)
    assert starts(tmp_path) == {nodes: 2}
    if trouble.at <= (EPOCHS - 1) * STEPS:  # The last launch had an epoch or more.
        told = json.loads((tmp_path / "stats.json").read_text())[2]
        assert told["sent_samples"] > 0
        assert told["received_samples"] > 0


def test_a_home_disk_that_does_not_come_back_ends_the_job_with_an_error_that_names_it(
    numbered: Path, tmp_path: Path, server: ForkServer
) -> None:
    packed_homes(numbered, tmp_path, 2)
    trouble = Trouble(world=2, at=4, rank=1, victim="home")
    order = ("Epoch", {"homes": 2, "pools": 2})
    with job(tmp_path / "node-{node}", tmp_path, trouble, order=order, server=server) as running:
        codes = running.codes()
        logs = [running.log(node) for node in range(2)]
    assert codes == [1, 1], "\n".join(logs)
    assert "folder" in logs[1]
    assert "node-1/home-1 is not here, and this is node 1, which alone reads it" in logs[1]
    assert starts(tmp_path)[2] >= 1  # Of the first launch alone.


def test_a_job_goes_on_with_one_node_more_and_with_one_node_less(
    numbered: Path, tmp_path: Path
) -> None:
    more = Trouble(world=2, at=5, victim="more")
    less = Trouble(world=3, at=7, rank=1, victim="agent")
    with job(numbered, tmp_path, more, less, range_="2:3") as running:
        wait_for_file(tmp_path / "trouble-0")
        running.add_node()
        running.wait(killed=1)
    check_trained(numbered, tmp_path)
    assert starts(tmp_path) == {2: 2, 3: 1}
    # Nothing is left, of the killed agent either.
    started = [path.name for path in tmp_path.glob("node-*")]
    started += [path.stem for path in tmp_path.glob("process-*")]
    assert len(started) == 2 * (2 + 3 + 2)
    for name in started:
        wait_for_end(int(name.split("-")[1]))
