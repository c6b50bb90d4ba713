"""What launchers say of a process, from their environment variables."""

from __future__ import annotations

import pytest

from headrace._nodes.launch import find_addresses, find_launch
from headrace.errors import InvalidArgumentError

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_TASKS_PER_NODE": "2(x2),3",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}  # fmt: skip
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
MVAPICH = {
    "MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_SIZE": "8",
    "MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_LOCAL_SIZE": "4",
}  # fmt: skip


@pytest.mark.parametrize("environment", [TORCHRUN, OPEN_MPI, MPICH, MVAPICH])
def test_a_launch_of_two_nodes_of_four_ranks_is_read(environment: dict[str, str]) -> None:
    found = find_launch(environment)
    assert found is not None
    assert (found.rank, found.world_size) == (5, 8)
    assert (found.local_rank, found.local_world_size) == (1, 4)
    assert (found.node, found.nodes) == (1, 2)


def test_slurm_s_nodes_may_have_unequal_numbers_of_tasks() -> None:
    found = find_launch(SLURM)
    assert found is not None
    assert (found.rank, found.world_size) == (5, 7)
    assert (found.local_rank, found.local_world_size) == (1, 3)
    assert (found.node, found.nodes) == (2, 3)


@pytest.mark.parametrize("told", ["", "2(x2", "2(x2)"])
def test_without_slurm_s_tasks_of_the_node_local_ranks_are_unknown(told: str) -> None:
    found = find_launch({**SLURM, "SLURM_STEP_TASKS_PER_NODE": told})
    assert found is not None
    assert (found.local_rank, found.local_world_size) == (None, None)
    assert (found.node, found.nodes) == (2, 3)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},  # A batch script, which srun did not start.
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        {"PMIX_RANK": "0"},
        {"JOB_COMPLETION_INDEX": "2"},  # It says no number of pods.
        {"HEADRACE_NODES": "a,b"},
    ],
)
def test_one_process_of_its_own_is_no_launch(environment: dict[str, str]) -> None:
    assert find_launch(environment) is None


def test_torchrun_is_right_under_slurm() -> None:
    assert find_launch({**SLURM, **TORCHRUN}) == find_launch(TORCHRUN)
    assert find_launch({**SLURM, "PMIX_RANK": "5"}) == find_launch(SLURM)  # srun --mpi=pmix


def test_slurm_adds_what_a_script_that_sets_rank_leaves_out() -> None:
    found = find_launch({**SLURM, "RANK": "5", "WORLD_SIZE": "7"})
    assert found is not None
    assert (found.local_rank, found.local_world_size, found.node) == (1, 3, 2)
    other = find_launch({**SLURM, "RANK": "5", "WORLD_SIZE": "8"})
    assert other is not None
    assert other.local_world_size is None


def test_a_pod_of_an_indexed_job_is_a_node() -> None:
    found = find_launch({"JOB_COMPLETION_INDEX": "2", "HEADRACE_NODES": "t-0.t, t-1.t, t-2.t:99"})
    assert found is not None
    assert (found.rank, found.world_size, found.node, found.nodes) == (2, 3, 2, 3)
    assert (found.local_rank, found.local_world_size) == (0, 1)


def test_addresses_get_a_port() -> None:
    given = "t-0.t, t-1.t:99,10.0.0.1,[::1],[::1]:5"
    assert find_addresses({"HEADRACE_NODES": given}) == [
        "t-0.t:4100", "t-1.t:99", "10.0.0.1:4100", "[::1]:4100", "[::1]:5",
    ]  # fmt: skip
    assert find_addresses({}) is None
    with pytest.raises(InvalidArgumentError, match="HEADRACE_NODES='a,,b'"):
        find_addresses({"HEADRACE_NODES": "a,,b"})


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "1"}, "RANK='1', WORLD_SIZE=None: must both be integers"),
        ({**SLURM, "SLURM_PROCID": "x"}, "SLURM_PROCID='x', SLURM_STEP_NUM_TASKS='7'"),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, "local rank 4 of 4, by the environment"),
        ({**SLURM, "SLURM_PROCID": "7"}, "rank 7 of 7, by Slurm: must be from 0 to 6"),
        ({"PMIX_RANK": "1"}, "does not say of how many"),
        (
            {"JOB_COMPLETION_INDEX": "first"},
            "environment JOB_COMPLETION_INDEX='first': must be an integer; or give job=",
        ),
        (
            {"JOB_COMPLETION_INDEX": "1.0", "HEADRACE_NODES": "a,b"},
            "environment JOB_COMPLETION_INDEX='1.0': must be an integer",
        ),
        (
            {**TORCHRUN, "JOB_COMPLETION_INDEX": "first"},
            "environment JOB_COMPLETION_INDEX='first': must be an integer",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "x"},
            "environment LOCAL_RANK='x': must be an integer",
        ),
        (
            {"JOB_COMPLETION_INDEX": "3", "HEADRACE_NODES": "a,b,c"},
            r"rank 3 of 3, by Kubernetes \(JOB_COMPLETION_INDEX, HEADRACE_NODES\)",
        ),
    ],
)
def test_variables_that_are_no_place_are_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        find_launch(environment)
