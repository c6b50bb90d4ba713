"""Tables and plain values of an advice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from headrace._units import counted, format_bytes
from headrace.cli._parts.simulated import Grid, seconds
from headrace.simulation import Advice, Candidate, Scenario, TierChoice
from headrace.simulation.machine import memory_of

_WAITS_LEAST = 0.05  # of the time, the mean of all ranks: waiting that does not count


def plain(advice: Advice) -> dict[str, Any]:
    """For JSON."""
    work = advice.work
    job = ("nodes", "ranks", "batch_size", "epochs", "seed", "memory", "sample_rate")
    return {
        "dataset": work.dataset,
        "job": {name: getattr(work, name) for name in (*job, "compute_rate")},
        "chosen": _plain(advice.chosen),
        "why": advice.why,
        "loader": loader_text(advice),
        "loader_notes": loader_notes(advice),
        "bottleneck": advice.bottleneck,
        "gains": advice.gains,
        "candidates": [_plain(candidate) for candidate in advice.candidates],
        "refused": [{"setup": setup, "why": why} for setup, why in advice.refused],
    }


def _plain(candidate: Candidate) -> dict[str, Any]:
    setup = candidate.setup
    return {
        "order": setup.order,
        "block_bytes": setup.block_bytes,
        "block_samples": candidate.block_samples,
        "tiers": [dataclasses.asdict(tier) for tier in setup.tiers],
        "threads": setup.threads,
        "prefetch": setup.prefetch,
        "seconds": candidate.seconds,
        "range": candidate.range,
        "epoch_seconds": candidate.outcome.epoch_seconds.tolist(),
        "stalls": candidate.outcome.stalls,
        "memory": candidate.memory,
        "label_inflation": candidate.label_inflation,
        "mixes": candidate.mixes,
        **dataclasses.asdict(candidate.bill),
    }


def headline(advice: Advice) -> str:
    work = advice.work
    return (
        f"{work.dataset}: {counted(len(work.sizes), 'sample')} of "
        f"{format_bytes(work.sample_bytes)}; {counted(work.nodes, 'node')} of "
        f"{counted(work.ranks, 'rank')}, {work.batch_size} samples a batch, "
        f"{counted(work.epochs, 'epoch')}, {format_bytes(work.memory)} of memory a node"
    )


def grids(advice: Advice) -> Iterator[Grid]:
    """The candidates, and what would help."""
    head = ["order", "blocks", "tiers", "threads", "ahead", "s an epoch", "range", "the last"]
    head += ["requests", "from storage", "over links", "memory", "waits for", ""]
    rows = [
        [*_row(candidate), "chosen" if candidate is advice.chosen else ""]
        for candidate in advice.candidates
    ]
    yield Grid("", head, rows)
    gains = sorted(advice.gains.items(), key=lambda item: -item[1])
    rows = [[resource, f"{gain:.0%}"] for resource, gain in gains]
    yield Grid("", ["twice as fast", "less time"], rows)


def _row(candidate: Candidate) -> list[str]:
    setup, bill = candidate.setup, candidate.bill
    low, high = candidate.range
    tiers = " + ".join(f"{tier.name} {format_bytes(tier.capacity)}" for tier in setup.tiers)
    return [
        setup.order,
        "-" if setup.block_bytes is None else format_bytes(setup.block_bytes),
        tiers or "-",
        str(setup.threads),
        str(setup.prefetch),
        seconds(candidate.seconds),
        f"{seconds(low)} to {seconds(high)}",
        seconds(candidate.outcome.epoch_seconds[-1]),
        f"{bill.requests:,.0f}",
        format_bytes(bill.storage_bytes),
        format_bytes(bill.link_bytes),
        format_bytes(candidate.memory),
        waits_for(candidate),
    ]


def waits_for(candidate: Candidate) -> str:
    """What most of the waiting is for; nothing if that is less than a twentieth of the time."""
    waits = candidate.waits
    cause = max(waits, key=lambda name: waits[name])
    return cause if waits[cause] > _WAITS_LEAST * candidate.outcome.seconds else "nothing"


def remarks(advice: Advice) -> Iterator[str]:
    """What stands below the tables."""
    chosen = advice.chosen
    low, high = chosen.range
    yield f"advice: {loader_text(advice)}"
    yield from loader_notes(advice)
    yield f"{seconds(chosen.seconds)} s an epoch, {seconds(low)} to {seconds(high)}: {advice.why}"
    if advice.bottleneck is None:
        yield "no resource alone limits it: none that is twice as fast saves 1 % of the time"
    else:
        gain = advice.gains[advice.bottleneck]
        yield f"the next bottleneck: {advice.bottleneck}; twice as fast it saves {gain:.0%}"
    for setup, why in advice.refused:
        yield f"{setup}: {why}"


def loader_text(advice: Advice) -> str:
    """As written in a script, where each rank has its part of a node's memory, tiers, threads."""
    setup, work = advice.chosen.setup, advice.work
    order = f'"{setup.order}"'
    if advice.chosen.block_samples is not None:
        order = f"hr.orders.Epoch(block_samples={advice.chosen.block_samples})"
    tiers = [
        f"hr.tiers.Ram({tier.capacity // work.ranks})"
        if tier.in_memory
        else f"hr.tiers.Ssd({_folder(advice, tier)!r}, {tier.capacity // work.ranks})"
        for tier in setup.tiers
    ]
    words = [repr(work.dataset), str(work.batch_size), f"order={order}"]
    words += [f"memory={work.memory // work.ranks}"]
    words += [f"tiers=[{', '.join(tiers)}]"] if tiers else []
    words += [f"threads={max(1, setup.threads // work.ranks)}"]
    if _asks_nodes(advice):
        words += ["job=hr.Job(node=hr.Node(open_network=True))"]
    elif work.ranks > 1:
        words += ["job=hr.Job(node=hr.Node())"]
    words += [f"engine=hr.EngineOptions(prefetch={setup.prefetch})"]
    return f"hr.Loader({', '.join(words)})"


def loader_notes(advice: Advice) -> list[str]:
    """What to check in the call before it is run."""
    notes = [
        f"{_folder(advice, tier)}: write a folder on each node's {tier.name}"
        for tier in advice.chosen.setup.tiers
        if not tier.in_memory and isinstance(advice.machine, Scenario)
    ]
    memory, there = advice.work.memory, memory_of(advice.machine, advice.work.nodes)
    if memory > there:
        of = "scenario" if isinstance(advice.machine, Scenario) else "profile"
        notes.append(
            f"memory of a node: {format_bytes(memory)} is more than the {format_bytes(there)} of "
            f"the {of}'s machine; the call needs a machine that has it"
        )
    if _asks_nodes(advice):
        notes.append(
            "open_network=True: samples go unencrypted from node to node; unless their network is "
            "private, write certificate=, key=, authority= (`headrace docs nodes`)"
        )
    return notes


def _asks_nodes(advice: Advice) -> bool:
    """Whether nodes send each other samples."""
    return advice.work.nodes > 1 and bool(advice.chosen.setup.tiers)


def _folder(advice: Advice, tier: TierChoice) -> str:
    """Of a tier on a disk. A scenario's has a name alone: one in a folder that is not there, so
    that a call in which it stands fails and makes none."""
    return f"/FOLDER/{tier.name}" if isinstance(advice.machine, Scenario) else tier.name
