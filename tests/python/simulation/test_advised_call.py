"""What an advice writes for a script, and says of ranks and nodes."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest
from advised import BYTES, MB, SIZE, machine, of, work

import headrace as hr
from headrace import errors, simulation
from headrace.cli._advise_commands import _default_tiers
from headrace.cli._parts.advised import loader_notes, loader_text, waits_for
from headrace.simulation import Setup, TierChoice
from headrace.simulation.machine import DescribedMachine


def test_the_call_is_of_a_rank() -> None:
    tiers = [
        TierChoice(name="ram", capacity=BYTES // 2),
        TierChoice(name="/nvme/cache", capacity=4),
    ]
    advice = simulation.advise(machine(decode=400 * MB, cpus=4), work(ranks=2, epochs=2), tiers)
    exact = of(advice, "exact", tiers=tuple(tiers))
    text = loader_text(replace(advice, chosen=exact))
    assert f"memory={2**29}, tiers=[hr.tiers.Ram({BYTES // 4}), " in text
    assert "hr.tiers.Ssd('/nvme/cache', 2)], threads=2, job=hr.Job(node=hr.Node()), eng" in text
    assert loader_notes(advice) == []


def test_the_call_of_several_nodes_says_how_they_ask_each_other() -> None:
    ram = TierChoice(name="ram", capacity=BYTES // 2)
    job = work(nodes=2, epochs=2)
    advice = simulation.advise(machine(peer_bytes_per_second=5e9), job, [ram])
    kept = replace(advice, chosen=of(advice, "exact", tiers=(ram,)))
    assert f"tiers=[hr.tiers.Ram({BYTES // 2})], " in loader_text(kept)
    assert "job=hr.Job(node=hr.Node(open_network=True)), " in loader_text(kept)
    (note,) = loader_notes(kept)
    assert note.startswith("open_network=True: samples go unencrypted from node to node; unless")
    alone = replace(advice, chosen=of(advice, "exact"))
    assert "job=" not in loader_text(alone)  # They have nothing to send.
    assert loader_notes(alone) == []


def test_the_call_has_no_folder_by_a_scenario_s_name() -> None:
    disk = TierChoice(name="ssd", capacity=BYTES // 10)
    job = work(sizes=np.full(400, float(SIZE)))
    advice = simulation.advise(simulation.load_scenario("thesis-s1"), job, [disk])
    kept = replace(advice, chosen=of(advice, "exact", tiers=(disk,)))
    assert f"hr.tiers.Ssd('/FOLDER/ssd', {BYTES // 10})" in loader_text(kept)
    assert loader_notes(kept) == ["/FOLDER/ssd: write a folder on each node's ssd"]
    with pytest.raises(errors.InvalidArgumentError, match="/FOLDER"):
        hr.tiers.core_tiers(hr.tiers.Ssd("/FOLDER/ssd", 10**6))


@pytest.mark.parametrize("full", [False, True])
def test_what_ranks_wait_for_is_their_mean(full: bool) -> None:
    """Eight ranks: the first batch alone waits for storage, less than a twentieth of the time."""
    job = work(sizes=np.full(1600, float(SIZE)), nodes=2, ranks=4, batch_size=5, sample_rate=65.0)
    exact = of(simulation.advise(machine(), job, full=full), "exact")
    assert sum(exact.waits.values()) == pytest.approx(exact.outcome.stall_seconds, rel=0.001)
    assert 0.02 < exact.waits["storage"] / exact.outcome.seconds < 0.05
    assert waits_for(exact) == "nothing"


def test_a_tier_of_all_nodes_is_given_by_a_node_s_part() -> None:
    given = simulation.load_scenario("thesis-s1")
    buffer = replace(given.tiers[1], name="bb", capacity=999, shared=True)
    buffered = replace(given, tiers=(given.tiers[0], buffer))
    tiers = (TierChoice(name="ram", capacity=BYTES // 20), TierChoice(name="bb", capacity=BYTES))
    job = work(nodes=4, ranks=2, batch_size=5, compute_rate=given.compute_rate)
    made = DescribedMachine(buffered, files=False).scenario(job, Setup(order="exact", tiers=tiers))
    assert [tier.capacity for tier in made.tiers] == [BYTES // 20, 4 * BYTES]
    assert [tier.of_node(4)[0] for tier in made.tiers] == [BYTES // 20, BYTES]
    whole = replace(buffered, tiers=(given.tiers[0], replace(buffer, capacity=4 * BYTES)))
    assert _default_tiers(whole, job)[1] == tiers[1]


def test_no_read_holds_samples_that_are_files_each() -> None:
    described = simulation.load_scenario("thesis-s1")
    for files in (False, True):
        advice = simulation.advise(described, work(files=files))
        has_blocks = [one.setup.block_bytes is not None for one in advice.candidates]
        assert any(has_blocks) != files
        assert advice.chosen.setup.order != "epoch" or not files


def test_the_bill_has_a_request_for_each_file() -> None:
    given = simulation.load_scenario("thesis-s1")
    described = replace(given, storage=replace(given.storage, shared_by="reads"))
    few = np.full(400, 1e4)
    for files, full in itertools.product((False, True), (False, True)):
        job = work(sizes=few, batch_size=50, files=files)
        advice = simulation.advise(described, job, full=full)
        requests = of(advice, "exact").bill.requests
        assert (requests == 400) == files, requests


def test_memory_that_the_machine_does_not_have_is_said() -> None:
    memory = machine().host.memory_bytes  # 8 GiB
    few = np.full(400, float(SIZE))
    enough = simulation.advise(machine(), work(sizes=few, memory=memory))
    assert not loader_notes(enough)
    more = simulation.advise(machine(), work(sizes=few, memory=memory + 2**30))
    assert loader_notes(more) == [
        "memory of a node: 9.0 GiB is more than the 8.0 GiB of the profile's machine; the call "
        "needs a machine that has it"
    ]
    given = simulation.load_scenario("thesis-s1")  # 1 GB of staging, 51 GB of RAM
    described = simulation.advise(given, work(sizes=few, memory=60 * 10**9))
    assert "of the scenario's machine" in loader_notes(described)[0]


def test_what_the_fast_mode_refuses_is_advised_by_full_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["headrace.simulation.advise"], "_SMALL", 0)
    given = simulation.load_scenario("thesis-s1")
    slow = replace(given, storage=replace(given.storage, latency=0.001))
    few = np.full(400, float(SIZE))
    for described, ranks in ((slow, 1), (replace(given, schedule="fixed"), 2)):
        job = work(sizes=few, ranks=ranks)
        with pytest.raises(errors.InvalidArgumentError) as caught:
            simulation.advise(described, job)
        message = str(caught.value)
        assert message.startswith(
            "advising for none: no candidate can be simulated: estimating step by step: got "
        )
        assert "simulate without" not in message
        assert message.endswith(": `--full`, or full=True, simulates each read")
        advice = simulation.advise(described, job, full=True)
        assert of(advice, "exact").seconds > 0
