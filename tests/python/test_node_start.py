"""How ranks find their node process, and their errors if they do not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from node_ranks import RankError, Ranks
from test_node import check_epochs

import headrace as hr
from headrace import errors
from headrace._nodes import process as node


@pytest.fixture
def source(numbered: Path) -> str:
    hr.open(numbered)  # Its index is made once.
    return str(numbered)


def test_a_rank_that_never_makes_its_loader_is_named(source: str) -> None:
    with Ranks(3) as ranks:
        for rank in (0, 1):
            ranks[rank].ask(
                "open_", source, batch_size=4, node={"start_timeout": 5}
            )  # also to open it
        for rank in (0, 1):
            ranks[rank].say("steps", 1)
        for rank in (0, 1):
            with pytest.raises(RankError, match="local rank 2 of 3, which made no") as raised:
                ranks[rank].answer()
            assert raised.value.kind == "DeadlineExceededError"


def test_a_local_rank_given_twice_is_an_error_that_the_next_launch_hears_nothing_of(
    source: str,
) -> None:
    with Ranks(2, numbers=[0, 0]) as wrong:
        wrong[0].ask("open_", source, batch_size=4)
        wrong[1].say("open_", source, batch_size=4)
        with pytest.raises(RankError, match="is that already; give each process its own"):
            wrong[1].answer()
        with pytest.raises(RankError, match="is that already; give each process its own"):
            wrong[0].ask("steps", 1)
    with Ranks(2, port=wrong.port) as ranks:
        for rank in (1, 0):
            ranks[rank].say("open_", source, batch_size=4, node={"start_timeout": 30})
        for rank in (1, 0):
            ranks[rank].answer()
        state = ranks[0].ask("state")
        check_epochs(ranks.ask("epoch"), source, state, batch_size=4)


def test_arguments_that_can_not_be_are_named(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, what in (
        ({"job": hr.Job(node="fork")}, "Job.node: got 'fork'"),
        ({"job": hr.Job(node=hr.Node(name=5))}, "node"),
        ({"job": hr.Job(node=hr.Node(local_rank=0))}, "local_world_size"),
        ({"job": hr.Job(node=hr.Node(local_rank=2, local_world_size=2))}, "local_rank"),
        ({"job": hr.Job(node=hr.Node(name="a/b\n"))}, "node"),
        ({"job": hr.Job(node=hr.Node(name="../x"))}, "got '../x', must have no '/': it is a na"),
        ({"job": hr.Job(node=hr.Node(start_timeout=0))}, "start_timeout"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=what):
            hr.Loader(source, **arguments)
    for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"belong together.*Node.local_rank does not.*set MASTER_PORT",
    ):
        hr.Loader(source, job=hr.Job(node=hr.Node(local_rank=0, local_world_size=2)))


class SetTime:
    """Passes only where it is waited for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("arguments", "seconds", "told"),
    [
        (
            {"job": hr.Job(node=hr.Node(name="nobody"))},
            2,
            "for the node service 'nobody'.*headrace node --name nobody",
        ),
        (
            {"job": hr.Job(node=hr.Node(name="a b", start_timeout=1))},
            1,
            "for .*headrace node --name 'a b'",
        ),
        (
            {"job": hr.Job(node=hr.Node(local_rank=1, local_world_size=2, start_timeout=7))},
            7,
            "for .*local rank 0 starts.*raise Node.start_timeout",
        ),
        (
            {"job": hr.Job(node=hr.Node(local_rank=1, local_world_size=2))},
            600,
            "for .*local rank 0 starts.*nobody serves it",
        ),
    ],
)
def test_who_waits_for_a_node_process_says_for_what_and_how_long(
    source: str,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    seconds: int,
    told: str,
) -> None:
    time_ = SetTime()
    monkeypatch.setattr(node, "time", time_)
    monkeypatch.setattr(node, "_TRY_EVERY_S", 0.25)
    monkeypatch.setenv("MASTER_PORT", f"test-{os.getpid()}")
    with pytest.raises(errors.UnavailableError, match=f"waited {seconds} s {told}"):
        hr.Loader(source, **arguments)
    assert time_.now == seconds
