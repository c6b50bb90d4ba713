"""The table of the matrix test: factors, their values, and which combinations are refused.

A feature adds its value, or its factor, to `FACTORS`, and says in `matrix_run.py` what a loader of
that value is given. A combination that it refuses is a row of `REFUSALS`, and of
docs/combinations.md.

A *cell* has one value of each factor. It is written as `factor=value` words, which
`python tests/python/matrix_run.py` takes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Cell = dict[str, str]

FACTORS: dict[str, tuple[str, ...]] = {
    "order": ("exact", "batch", "epoch", "small-pool", "redox"),
    "draw": ("shuffle", "in-order", "sampler", "batch-sampler"),
    "fields": (
        *("inline", "stored", "both", "one-of-several", "several", "mapped", "ragged"),
        "compressed",
    ),
    "format": ("folder", "pack", "zipped", "row-groups"),
    "ranks": ("1", "2"),
    "tiers": ("none", "ram", "ssd", "both"),
    "workers": ("default", "0", "2"),
    "isolation": ("thread", "process", "shared"),
    "drop_last": ("no", "yes"),
    "ids": ("no", "yes"),
    "transform": ("none", "image", "python", "image+python", "collate"),
    "placement": ("coordinated", "belady", "lru"),
    "output": ("torch", "numpy", "dlpack"),
    "run": ("through", "resumed", "left"),
    "epochs": ("open", "known"),
    "prefetch": ("default", "1"),
    "io": ("auto", "threads"),
    "on_error": ("raise", "substitute"),
    "verify": ("yes", "no"),
}
"""The first value of a factor is the default: alone it is refused nowhere."""

BASE = ("order", "draw", "fields", "format", "ranks")
"""Every cell of these, whatever is refused, in each `make test`; see `base_cells`."""

PRODUCT = (*BASE, "tiers", "workers", "isolation", "drop_last", "ids")
"""Every cell of these in `make soak`, the other factors drawn."""

_DECODED = ("zipped", "row-groups")
"""Formats whose files, or parts of them, are decoded as a whole."""

_RELAXED = ("batch", "epoch", "small-pool", "redox")
_POOLED = ("epoch", "small-pool")
_SAMPLERS = ("sampler", "batch-sampler")


@dataclass(frozen=True)
class Refusal:
    """Cells with one of these values of each of these factors are refused with this message."""

    when: Mapping[str, tuple[str, ...]]
    message: str
    """`{order}` and the like are the names that the user gave."""

    def applies(self, cell: Mapping[str, str]) -> bool:
        """Also to a cell that lacks factors: then only if those here decide it."""
        return all(cell.get(factor) in values for factor, values in self.when.items())

    def text(self, cell: Mapping[str, str]) -> str:
        return self.message.format(
            order=ORDER_NAMES.get(cell["order"], cell["order"]), placement=cell["placement"]
        )


ORDER_NAMES = {"small-pool": "epoch"}

# In the order in which they are checked: of several that apply, the first is raised.
REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        {"draw": ("batch-sampler",), "drop_last": ("yes",)},
        "batch_sampler decides the batches: leave sampler, batch_size and drop_last out",
    ),
    Refusal(
        {"workers": ("0", "2"), "transform": ("none", "image")},
        "workers: there is no Python callable to run, as transform= or Workers.collate_fn; leave "
        "it out: reading and decoding need no workers",
    ),
    Refusal(
        {"placement": ("belady", "lru"), "tiers": ("none",)},
        "Cache(placement='{placement}') without tiers=: there is nothing to place; say what may be "
        'used, as tiers=[headrace.tiers.Ram("4GiB")]',
    ),
    Refusal(
        {"draw": _SAMPLERS, "order": _RELAXED},
        "sampler with order='{order}': a sampler says which sample comes when, which only "
        "order='exact' keeps; leave one of them out",
    ),
    Refusal(
        {"draw": _SAMPLERS, "isolation": ("shared",), "ranks": ("2",)},
        "sampler with node_process= and 2 ranks on this node: each has a sampler of its own; leave "
        "one of them out",
    ),
    Refusal(
        {"format": ("zipped",), "io": ("threads",)},
        "io: 'threads' does not read objects of decoded://; leave io= out",
    ),
    Refusal(
        {"format": ("row-groups",), "io": ("threads",)},
        "io: 'threads' does not read objects of rowgroups://; leave io= out",
    ),
    Refusal(
        {"draw": ("in-order",), "order": _POOLED},
        "order epoch: shuffle=False, but samples are drawn at random from pools; use order 'exact' "
        "to have them in sequence, or shuffle=True",
    ),
    Refusal(
        {"draw": ("in-order",), "order": ("redox",)},
        "order redox: shuffle=False, but slots give whichever sample of theirs is in memory; use "
        "order 'exact' to have them in sequence, or shuffle=True",
    ),
)


def refusal(cell: Mapping[str, str]) -> Refusal | None:
    """Why a cell is refused; None: it is not."""
    return next((row for row in REFUSALS if row.applies(cell)), None)


def whole(part: Mapping[str, str]) -> Cell:
    """A cell of these values, the other factors at their defaults."""
    return {factor: part.get(factor, values[0]) for factor, values in FACTORS.items()}


def words(cell: Mapping[str, str]) -> str:
    return " ".join(f"{factor}={value}" for factor, value in cell.items())


def parse(arguments: Iterable[str]) -> Cell:
    """The cell of `factor=value` words; factors that are left out are at their defaults."""
    part = dict(argument.split("=", 1) for argument in arguments)
    for factor, value in part.items():
        if value not in FACTORS.get(factor, ()):
            raise ValueError(f"{factor}={value}: the factors are {FACTORS}")
    return whole(part)


def product(
    factors: Sequence[str], table: Mapping[str, tuple[str, ...]] = FACTORS
) -> Iterator[Cell]:
    """Every combination of these factors' values."""
    for values in itertools.product(*(table[factor] for factor in factors)):
        yield dict(zip(factors, values, strict=True))


def base_cells() -> Iterator[Cell]:
    """Every cell of `BASE`; of formats that are decoded as a whole those that a seed shuffles."""
    for part in product(BASE):
        if part["format"] not in _DECODED or part["draw"] == "shuffle":
            yield whole(part)


Tuple3 = tuple[tuple[str, str], ...]
"""Three factors, in the table's order, each with a value."""


def triples(cell: Mapping[str, str]) -> Iterator[Tuple3]:
    return itertools.combinations(cell.items(), 3)


def all_triples(table: Mapping[str, tuple[str, ...]] = FACTORS) -> dict[Tuple3, None]:
    """Of every three factors all combinations of values."""
    return {
        tuple(cell.items()): None
        for chosen in itertools.combinations(table, 3)
        for cell in product(chosen, table)
    }


def covering_cells(
    table: Mapping[str, tuple[str, ...]] = FACTORS, refusals: Sequence[Refusal] = REFUSALS
) -> list[Cell]:
    """Few cells, in which every combination of three factors' values occurs.

    In a cell that is accepted, if the combination itself is refused by nothing; else in one that is
    refused, by no more reasons than the combination has. The same cells every time.
    """
    draw = random.Random(0)
    missing = all_triples(table)
    cells = []
    while missing:
        # The first that is left, so that each round has one less.
        cell = dict(next(iter(missing)))
        reasons = [row for row in refusals if row.applies(cell)]
        others = [factor for factor in table if factor not in cell]
        draw.shuffle(others)
        for factor in others:
            cell[factor] = _best_value(cell, factor, table, missing, refusals, reasons)
        cell = {factor: cell[factor] for factor in table}
        cells.append(cell)
        refused = bool(reasons)
        for each in triples(cell):
            if not refused or any(row.applies(dict(each)) for row in refusals):
                missing.pop(each, None)
    return cells


def _best_value(
    cell: Cell,
    factor: str,
    table: Mapping[str, tuple[str, ...]],
    missing: Mapping[Tuple3, None],
    refusals: Sequence[Refusal],
    reasons: Sequence[Refusal],
) -> str:
    """Of the values that add no reason to refuse the cell: the one with most missing triples."""
    rank = {each: number for number, each in enumerate(table)}
    pairs = list(itertools.combinations(cell.items(), 2))

    def gain(value: str) -> int:
        new = (factor, value)
        return sum(
            tuple(sorted((*pair, new), key=lambda each: rank[each[0]])) in missing for pair in pairs
        )

    allowed = [
        value
        for value in table[factor]
        if not any(row.applies(cell | {factor: value}) for row in refusals if row not in reasons)
    ]
    return max(allowed, key=gain)  # ValueError: no value is allowed beside those of the cell.
