"""A job that goes on with another number of nodes gives what one node gives.

The global batch stays. Each node is a process. HEADRACE_SOAK=1 goes on from every step of every
number of nodes, with every number. The planner alone does so in src/plan/node_counts_test.cc.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loader_data import COUNT, LABELS, batch_digests, sample_digest, sample_file
from node_ranks import Ranks, addresses

import headrace as hr

ORDERS = ("exact", "batch", "epoch")
GLOBAL = 24  # samples of a global batch
NODES = (1, 2, 3, 4, 8)
EPOCHS = 2
STEPS = -(-COUNT // GLOBAL)  # of an epoch; the last is not full
SOAK = os.environ.get("HEADRACE_SOAK") == "1"

Batch = list[tuple[int, str]]
"""Numbers of samples, and what says their bytes; ascending."""


class Job:
    """A job of so many nodes of one rank, whose loaders a test opens, one after the other."""

    def __init__(self, source: Path, nodes: int) -> None:
        self._source = str(source)
        self._nodes = nodes
        self.ranks = Ranks(nodes, local_ranks=1)

    def open(self, order: str, state: Any = None) -> None:
        self.ranks.ask(
            "open_", self._source, raw=True, batch_size=GLOBAL // self._nodes, order=order,
            epochs=EPOCHS, ram="64KiB", engine={"prefetch": 2},
            node={"addresses": addresses(self._nodes)},
        )  # fmt: skip
        if state is not None:
            self.ranks.ask("load", state)

    def steps(self, count: int | None = None) -> list[Batch]:
        """Global batches; to the end of the epoch without a number."""
        of_ranks = self.ranks.ask("contents", count)
        return [
            sorted((number, digest) for share in batch for number, digest in share)
            for batch in zip(*of_ranks, strict=True)
        ]

    def state(self) -> Any:
        states = self.ranks.ask("state")
        assert all(state == states[0] for state in states)
        return states[0]

    def close(self) -> None:
        self.ranks.ask("close")


@pytest.fixture(scope="module")
def files(numbered: Path) -> dict[int, str]:
    """What says the bytes of each sample, from its file."""
    return {
        number: sample_digest(
            [("image", sample_file(numbered, number).read_bytes()), ("label", LABELS[number])]
        )
        for number in range(COUNT)
    }


@pytest.fixture(scope="module")
def one_node(numbered: Path) -> dict[str, list[list[int]]]:
    """Of each order, the global batches of all epochs, without nodes."""
    found = {}
    for order in ORDERS:
        with hr.Loader(
            numbered,
            GLOBAL,
            order=order,
            output=hr.Output("numpy", fields=["label"], ids=True),
            epochs=EPOCHS,
        ) as loader:
            found[order] = [
                sorted(number for number, _ in batch_digests(batch))
                for _ in range(EPOCHS)
                for batch in loader
            ]
    return found


def check(got: list[Batch], wanted: list[list[int]], files: dict[int, str], nodes: int) -> None:
    """The wanted samples, each once and with the bytes of its file; the last step is filled up."""
    assert len(got) == len(wanted)
    for step, (batch, ids) in enumerate(zip(got, wanted, strict=True)):
        for number, digest in batch:
            assert digest == files[number], f"step {step}: bytes of sample {number}"
        found = Counter(number for number, _ in batch)
        if len(ids) == GLOBAL:
            assert found == Counter(ids), f"step {step}"
        else:  # As many for each node.
            assert found.keys() >= set(ids), f"step {step}"
            assert found.total() == len(ids) + -len(ids) % nodes


def check_conserved(batches: list[Batch]) -> None:
    """In each epoch every sample is delivered; in its full steps none twice."""
    for first in range(0, len(batches), STEPS):
        epoch = batches[first : first + STEPS]
        assert {number for batch in epoch for number, _ in batch} == set(range(COUNT))
        full = Counter(number for batch in epoch[:-1] for number, _ in batch)
        assert full.most_common(1)[0][1] == 1


def run_until(job: Job, order: str, step: int) -> tuple[list[Batch], Any]:
    """What a job delivers before so many steps of the run, and its state then."""
    job.open(order)
    before = job.steps() if step > STEPS else []
    before += job.steps(step - len(before))
    state = job.state()
    job.close()
    return before, state


def run_on(job: Job, order: str, state: Any, step: int) -> list[Batch]:
    """What it delivers from there to the end of the run."""
    job.open(order, state)
    rest = [batch for _ in range(EPOCHS - step // STEPS) for batch in job.steps()]
    job.close()
    return rest


@pytest.mark.parametrize("nodes", [4, 8])
def test_many_nodes_deliver_the_samples_of_one(
    numbered: Path, files: dict[int, str], one_node: dict[str, list[list[int]]], nodes: int
) -> None:
    """With tests of two and of three in test_nodes.py."""
    with (job := Job(numbered, nodes)).ranks:
        for order in ORDERS:
            job.open(order)
            batches = [batch for _ in range(EPOCHS) for batch in job.steps()]
            job.close()
            check(batches, one_node[order], files, nodes)
            check_conserved(batches)


@pytest.mark.parametrize(
    ("order", "nodes", "then", "step"),
    [
        ("exact", 2, 3, 2),
        ("batch", 3, 1, STEPS),  # The end of an epoch.
        ("epoch", 4, 2, STEPS + 3),
        ("exact", 8, 3, 1),
    ],
)
def test_a_run_goes_on_with_another_number_of_nodes(
    numbered: Path,
    files: dict[int, str],
    one_node: dict[str, list[list[int]]],
    order: str,
    nodes: int,
    then: int,
    step: int,
) -> None:
    with (first := Job(numbered, nodes)).ranks:
        before, state = run_until(first, order, step)
    with (second := Job(numbered, then)).ranks:
        rest = run_on(second, order, state, step)
    check(before, one_node[order][:step], files, nodes)
    check(rest, one_node[order][step:], files, then)
    check_conserved(before + rest)


@pytest.fixture(scope="module")
def jobs(numbered: Path) -> Iterator[dict[int, Job]]:
    """Of each number of nodes; their processes stay for all tests."""
    made = {nodes: Job(numbered, nodes) for nodes in NODES}
    yield made
    for job in made.values():
        job.ranks.__exit__(None, None, None)


@pytest.mark.skipif(not SOAK, reason="takes many minutes: make soak")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("step", range(EPOCHS * STEPS))
@pytest.mark.parametrize("order", ORDERS)
def test_a_run_goes_on_from_every_step_with_every_number_of_nodes(
    jobs: dict[int, Job],
    files: dict[int, str],
    one_node: dict[str, list[list[int]]],
    order: str,
    step: int,
) -> None:
    for nodes, then in itertools.permutations(NODES, 2):
        before, state = run_until(jobs[nodes], order, step)
        rest = run_on(jobs[then], order, state, step)
        check(before, one_node[order][:step], files, nodes)
        check(rest, one_node[order][step:], files, then)
        check_conserved(before + rest)
