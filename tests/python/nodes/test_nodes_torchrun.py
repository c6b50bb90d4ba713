"""Several nodes started by torchrun, one agent a node: they exchange addresses, and start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from loader_data import COUNT

import headrace as hr

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("nodes_script.py")
PATIENCE_S = 150.0


def launch(folder: Path, *arguments: str, nodes: int = 2, ranks: int = 1) -> None:
    """Runs the script on `nodes` nodes of `ranks` ranks, each under an agent of its own."""
    # Of this process: an agent that ends first must not take the store with it.
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    endpoint = f"127.0.0.1:{store.port}"
    command = [
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}",
        f"--nproc-per-node={ranks}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
        f"--rdzv-id={folder.name}", "--rdzv-conf=is_host=false",
        "--max-restarts=2", "--local-addr=127.0.0.1", str(SCRIPT), *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    # Otherwise a restarted rank finds the addresses of the ranks before it in the store.
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    agents = []
    for number in range(nodes):
        with (folder / f"agent-{number}.log").open("w") as log:
            agents.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                    start_new_session=True,
                )
            )  # fmt: skip
    try:
        for number, agent in enumerate(agents):
            code = agent.wait(PATIENCE_S)
            assert code == 0, (folder / f"agent-{number}.log").read_text()[-4000:]
    finally:
        for agent in agents:
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()


def trained(folder: Path) -> tuple[dict[tuple[int, int], set[int]], int]:
    """The samples of each step of the job, and how often rank 1 was started."""
    steps: dict[tuple[int, int], dict[str, list[int]]] = defaultdict(dict)
    starts = 0
    for path in sorted(folder.glob("process-*.jsonl")):
        rank = path.stem.rpartition("-")[2]
        starts += rank == "1"
        for line in path.read_text().splitlines():
            epoch, step, ids = json.loads(line)
            before = steps[epoch, step].setdefault(rank, ids)
            assert before == ids, f"step {step} of epoch {epoch} changed"
    merged = {}
    for at, of_ranks in steps.items():
        merged[at] = {number for ids in of_ranks.values() for number in ids}
    return merged, starts


def expected(source: Path) -> dict[tuple[int, int], set[int]]:
    steps = {}
    with hr.Loader(source, 12, ids=True, fields=["label"], output="numpy", epochs=3) as loader:
        for epoch in range(3):
            for step, batch in enumerate(loader):
                steps[epoch, step + 1] = {int(number) for number in batch.sample_id}
    return steps


def test_nodes_find_each_other_by_the_store_of_torchrun(numbered: Path, tmp_path: Path) -> None:
    launch(tmp_path, str(numbered), str(tmp_path), "0", "nothing")
    got, starts = trained(tmp_path)
    assert starts == 1
    want = expected(numbered)
    assert {at: ids for at, ids in got.items() if len(want[at]) == 12} == {
        at: ids for at, ids in want.items() if len(ids) == 12
    }
    nodes, reads = json.loads((tmp_path / "stats.json").read_text())
    assert nodes["nodes"] == 2
    assert nodes["given"] > 0
    assert reads <= COUNT


@pytest.mark.parametrize("victim", ["rank", "node"])
def test_a_killed_process_is_started_again_and_the_sequence_goes_on(
    numbered: Path, tmp_path: Path, victim: str
) -> None:
    launch(tmp_path, str(numbered), str(tmp_path), "7", victim)
    got, starts = trained(tmp_path)
    assert starts == 2
    want = expected(numbered)
    for at, ids in want.items():
        assert ids <= got[at], at  # The last batch of an epoch is filled up.
