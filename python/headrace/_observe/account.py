"""`Loader.explain()`: what a loader does and why, in sentences."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace import _html as html
from headrace._text import printable
from headrace._units import counted, format_bytes
from headrace.orders import order_class

_USES = {
    "staging": "reads in progress",
    "batches": "batches",
    "resident": "samples that the order keeps",
    "pinned": "blocks that need not be read again",
    "scratch": "decoders",
    "results": "results of workers",
    "decoded": "files and row groups that are decoded as a whole",
}
"""What memory is for, by the names of the statistics."""


class LoaderFacts(NamedTuple):
    """What is known of a loader besides its statistics."""

    path: str
    format: str
    samples: int
    schema: Sequence[tuple[str, str, tuple[int, ...], bool]]
    python: bool
    """Whether functions of the user make the batches."""
    batch_size: int
    steps: int | None
    """of an epoch; None: a sampler decides, and was not asked"""
    epochs: int | None
    rank: int
    world_size: int
    engine_ranks: int
    """Ranks that share the engine of a node process; 0: the engine is in this process."""
    order: str
    origins: Mapping[str, tuple[int | str, str]]
    """Value and origin of each parameter of the order."""
    inflation: Mapping[str, float | None] | None
    seed: int
    shuffle: bool
    drop_last: bool
    sampler: bool
    placement: str
    epoch: int
    step: int


class Account:
    """What ``loader.explain()`` returns: `sentences`, by subject; or ``print`` it."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        self.sentences = dict(sentences)

    def __str__(self) -> str:
        return printable("\n".join(self.sentences.values()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html.block(html.title("What the loader does"), html.table(self.sentences.items()))


def account(facts: LoaderFacts, stats: Mapping[str, Any]) -> Account:
    """From what is known of a loader, and what it counted."""
    sentences = {
        "data": _data(facts),
        "order": _order(facts),
        "shuffle": _shuffle(facts),
        "position": _position(facts),
        "ranks": _ranks(facts),
        "batches": _batches(facts, stats),
        "memory": _memory(stats),
        "reading": _reading(stats),
        "tiers": _tiers(facts, stats),
        "nodes": _nodes(stats),
        "replaced": _replaced(stats),
        "waiting": _waiting(stats),
    }
    return Account({subject: text for subject, text in sentences.items() if text})


def _data(facts: LoaderFacts) -> str:
    batches = f"{counted(facts.batch_size, 'sample')} a batch"
    steps = f", {counted(facts.steps, 'batch', 'batches')} an epoch" if facts.steps else ""
    runs = f", {counted(facts.epochs, 'epoch')}" if facts.epochs else ""
    return (
        f"It delivers {counted(facts.samples, 'sample')} of {facts.path} (format {facts.format}), "
        f"{batches}{steps}{runs}."
    )


def _order(facts: LoaderFacts) -> str:
    if facts.sampler:
        return (
            "A sampler says which sample comes when; it is asked once an epoch, when the epoch "
            "begins."
        )
    kind = order_class(facts.order)
    means = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ") if kind else ""
    fixed = (
        f"Seed {facts.seed} fixes it: the same on any number of threads and after any resume."
        if facts.shuffle
        else "Nothing is shuffled: shuffle=False."
    )
    parameters = ", ".join(
        f"{name} {value}" for name, (value, origin) in facts.origins.items() if origin == "given"
    )
    chosen = f" You gave {parameters}." if parameters else ""
    return f"Order {facts.order}: {means} {fixed}{chosen}".replace("  ", " ")


def _shuffle(facts: LoaderFacts) -> str:
    sentences = []
    limited = [name for name, (_, origin) in facts.origins.items() if "limited" in origin]
    if limited:
        sentences.append(
            f"Memory limits {' and '.join(limited)}: raise memory= for a better shuffle."
        )
    labels = facts.inflation.get("of_labels") if facts.inflation else None
    if labels is not None:
        sentences.append(
            f"The mix of labels varies {labels:.2f} times as much from batch to batch as with a "
            "perfect shuffle."
        )
    return " ".join(sentences)


def _position(facts: LoaderFacts) -> str:
    of = f"{facts.step:,} of {facts.steps:,}" if facts.steps else f"{facts.step:,}"
    return (
        f"The loop took {of} batches of epoch {facts.epoch}; "
        "state_dict() saves this position, and load_state_dict() continues with the next sample."
    )


def _ranks(facts: LoaderFacts) -> str:
    share = ""
    if facts.world_size > 1:
        share = (
            f"This is rank {facts.rank} of {facts.world_size}: all ranks get "
            f"{counted(facts.batch_size * facts.world_size, 'sample')} a step together. "
        )
        if facts.sampler:
            share = "Each rank's sampler says which samples the rank gets. "
    if not facts.engine_ranks:
        return f"{share}The engine that reads and decodes is in this process."
    served = counted(facts.engine_ranks, "rank")
    return f"{share}One node process reads and decodes for the {served} of this machine."


def _batches(facts: LoaderFacts, stats: Mapping[str, Any]) -> str:
    fields = ", ".join(
        f"{name} ({dtype}{_shape(shape, is_list)})" for name, dtype, shape, is_list in facts.schema
    )
    text = f"Each sample has {fields}"
    text += f"; {counted(stats['threads'], 'thread')} decode or copy them into batches"
    if facts.python:
        workers = stats["workers"]
        where = "in worker processes" if workers else "in this process"
        text += f". Python functions of yours then run {where}"
    last = ". The last batch is dropped if it is smaller" if facts.drop_last else ""
    return f"{text}{last}."


def _shape(shape: Sequence[int], is_list: bool) -> str:
    if is_list:
        return " of any length"
    return f" {' x '.join(map(str, shape))}" if shape else ""


def _memory(stats: Mapping[str, Any]) -> str:
    memory = stats["memory"]
    budgets = {use: memory[f"{use}_budget"] for use in _USES}
    if not any(budgets.values()):
        return ""  # It is divided when the first run begins.
    parts = [f"{format_bytes(size)} for {_USES[use]}" for use, size in budgets.items() if size]
    beyond = memory["beyond_peak"]
    more = (
        f" Batches that the loop holds took up to {format_bytes(beyond)} beyond that."
        if beyond
        else ""
    )
    return f"Memory is limited to {format_bytes(sum(budgets.values()))}: {', '.join(parts)}.{more}"


def _reading(stats: Mapping[str, Any]) -> str:
    moved, io = stats["bytes"], stats["io"]
    why = f" ({io['note']})" if io["note"] else ""
    if not io["reads"]:
        return f"Storage is read by {io['store']}{why}; nothing was read yet."
    text = (
        f"Storage is read by {io['store']}{why}: {format_bytes(moved['read'])} in "
        f"{counted(io['reads'], 'read')}, for {format_bytes(moved['samples'])} of samples"
    )
    if moved["samples"] and not stats["tiers"]:
        text += f", {moved['read'] / moved['samples']:.2f} times their size"
    cached = f"; {format_bytes(moved['page_cache'])} were in the page cache"
    return f"{text}{cached if moved['page_cache'] else ''}."


def _tiers(facts: LoaderFacts, stats: Mapping[str, Any]) -> str:
    if not stats["tiers"]:
        return ""
    held = [
        f"{tier['name']} holds {format_bytes(tier['used'])} of {format_bytes(tier['capacity'])} "
        f"and gave {counted(tier['uses'], 'sample')}"
        + (f", and is not used any more: {tier['degraded']}" if tier["degraded"] else "")
        for tier in stats["tiers"]
    ]
    storage = stats["sources"]["storage"] if stats["sources"] else 0
    return (
        f"Tiers keep samples between epochs, by the placement {facts.placement}: "
        f"{'; '.join(held)}; storage gave {counted(storage, 'sample')}."
    )


def _nodes(stats: Mapping[str, Any]) -> str:
    nodes, parcels = stats["nodes"], stats["parcels"]
    sentences = []
    if nodes:
        sentences.append(
            f"This is node {nodes['node']} of {nodes['nodes']}: it received "
            f"{counted(nodes['received'], 'sample')} from the others, of {nodes['asked']:,} that "
            f"it asked for, and gave {nodes['given']:,}."
        )
        if nodes["down"]:
            sentences.append(f"Not asked now: node {', '.join(map(str, nodes['down']))}.")
    if parcels:
        sentences.append(
            f"Nodes read their own disks: {counted(parcels['received_samples'], 'sample')} came "
            f"from other nodes, {parcels['sent_samples']:,} went to them."
        )
    return " ".join(sentences)


def _replaced(stats: Mapping[str, Any]) -> str:
    count = stats["substituted"]
    if not count:
        return ""
    return (
        f"{counted(count, 'sample')} could not be delivered and "
        f"{'was' if count == 1 else 'were'} replaced: stats()['substitutions']."
    )


def _waiting(stats: Mapping[str, Any]) -> str:
    verdict: str = stats["verdict"]
    return f"{verdict[:1].upper()}{verdict[1:]}."
