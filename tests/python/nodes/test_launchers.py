"""Real launchers: Open MPI's mpirun and Slurm's srun start two nodes of two ranks on this machine.

`apt-get install openmpi-bin slurm-wlm` has them; without, the tests are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loader_data import flat

import headrace as hr
from cluster.network import free_ports

SCRIPT = Path(__file__).with_name("launch_script.py")
PATIENCE_S = 120.0
RANKS, LOCAL_RANKS = 4, 2
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")

# Open MPI starts its daemon on each host by a shell: here each host is this machine.
SHELL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec sh -c "$*"
"""

SLURM_CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdParameters=config_overrides
NodeName=n0 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=n0,n1 Default=YES State=UP
"""


def environment() -> dict[str, str]:
    """Without a launch: the addresses of the nodes, and the job's secret."""
    launchers = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "SLURM_", "OMPI_", "PMI", "MASTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    ports = free_ports(["127.0.0.1", "127.0.0.2"])
    return kept | {
        "HEADRACE_NODES": f"127.0.0.1:{ports[0]},127.0.0.2:{ports[1]}",
        "HEADRACE_TOKEN": "the secret of a test",
        "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(SCRIPT.parents[1])]),
    }


def run(command: list[str], env: dict[str, str], folder: Path) -> None:
    with (folder / "launcher.log").open("w") as log:
        process = subprocess.Popen(
            [*WITH_PARENT, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env,
            start_new_session=True,
        )  # fmt: skip
    try:
        code = process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == 0, (folder / "launcher.log").read_text()[-4000:]


def check(source: Path, folder: Path, by: str) -> None:
    """All know their places, and deliver what one rank does; nodes gave each other samples."""
    told: list[dict[str, Any]] = [
        json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)
    ]
    for rank, each in enumerate(told):
        assert each["launch"] == {
            "by": by, "rank": rank, "world_size": RANKS, "local_rank": rank % LOCAL_RANKS,
            "local_world_size": LOCAL_RANKS, "node": rank // LOCAL_RANKS, "nodes": 2,
        }  # fmt: skip
        assert (each["nodes"]["node"], each["nodes"]["nodes"]) == (rank // LOCAL_RANKS, 2)
    # On a busy machine answers may be late.
    asked = [each["sources"]["nodes"] + each["sources"]["node_fallbacks"] for each in told]
    assert sum(asked) > 0
    with hr.Loader(
        source, 3 * RANKS, output=hr.Output("numpy", fields=["label"], ids=True)
    ) as loader:
        for epoch in range(2):
            alone = [[int(number) for number in batch.sample_id] for batch in loader]
            merged = [
                flat(step) for step in zip(*(each["epochs"][epoch] for each in told), strict=True)
            ]
            assert [sorted(step) for step in merged[:-1]] == [sorted(step) for step in alone[:-1]]
            assert set(alone[-1]) <= set(merged[-1])  # Filled up.


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun (openmpi-bin)")
def test_mpirun_says_all_that_a_job_needs(numbered: Path, tmp_path: Path) -> None:
    hr.open(numbered)  # Its index is made once.
    shell = tmp_path / "shell.sh"
    shell.write_text(SHELL)
    shell.chmod(0o700)
    command = [
        "mpirun", "--host", f"n0:{LOCAL_RANKS},n1:{LOCAL_RANKS}", "-np", str(RANKS),
        "--map-by", "slot", "--bind-to", "none", "--mca", "plm_rsh_agent", str(shell),
        "--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo",
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    command += [sys.executable, "-W", "error", str(SCRIPT), str(numbered), str(tmp_path)]
    run(command, environment(), tmp_path)
    check(numbered, tmp_path, "Open MPI")


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """A cluster of two nodes on this machine; its configuration file."""
    conf = folder / "slurm.conf"
    ports = free_ports(["127.0.0.1"] * 3)
    conf.write_text(SLURM_CONF.format(folder=folder, ports=ports))
    (folder / "state").mkdir()
    daemons = []
    try:
        for name, *options in (["slurmctld"], ["slurmd", "-N", "n0"], ["slurmd", "-N", "n1"]):
            with (folder / f"{name}{''.join(options)}.log").open("w") as log:
                daemons.append(
                    subprocess.Popen(
                        [*WITH_PARENT, shutil.which(name) or name, "-D", *options, "-f", str(conf)],
                        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    )
                )  # fmt: skip
        yield conf
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.mark.skipif(shutil.which("srun") is None, reason="no srun (slurm-wlm)")
@pytest.mark.skipif(shutil.which("slurmctld") is None, reason="no slurmctld (slurm-wlm)")
@pytest.mark.skipif(os.geteuid() != 0, reason="Slurm's daemons run as root")
def test_srun_says_all_that_a_job_needs(numbered: Path, tmp_path: Path) -> None:
    hr.open(numbered)
    with slurm(tmp_path) as conf:
        # srun waits until the controller answers and both nodes have registered.
        command = [
            "srun", f"--nodes={RANKS // LOCAL_RANKS}", f"--ntasks={RANKS}",
            f"--ntasks-per-node={LOCAL_RANKS}", "--distribution=block", "--chdir=/",
            sys.executable, "-W", "error", str(SCRIPT), str(numbered), str(tmp_path),
        ]  # fmt: skip
        run(command, environment() | {"SLURM_CONF": str(conf)}, tmp_path)
    check(numbered, tmp_path, "Slurm")


def test_a_launch_that_does_not_put_neighbours_on_a_node_is_refused(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0",
        "SLURM_NODEID": "1", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with pytest.raises(hr.errors.InvalidArgumentError) as caught:
        hr.Loader(numbered, job=hr.Job(node=hr.Node()), tiers=[hr.tiers.Ram("1MiB")])
    assert str(caught.value) == (
        "Job.node: rank 1 of 4 is local rank 0 of 2, by Slurm: the ranks of a node must be "
        "neighbours, in the order of their local ranks: start them with srun --distribution=block "
        "or mpirun --map-by slot"
    )
