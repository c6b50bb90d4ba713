"""The table of the matrix test: factors, their values, and which combinations are refused.

A feature adds its value, or its factor, to `FACTORS`, and says in `matrix_run.py` what a loader of
that value is given. A combination that it refuses is a row of `REFUSALS`, and of
docs/combinations.md.

A *cell* has one value of each factor. It is written as `factor=value` words, which
`python tests/python/matrix_run.py` takes.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Cell = dict[str, str]

FACTORS: dict[str, tuple[str, ...]] = {
    "order": ("exact", "batch", "epoch", "small-pool", "redox"),
    "draw": ("shuffle", "in-order", "sampler", "batch-sampler"),
    "fields": (
        *("inline", "stored", "both", "one-of-several", "several", "mapped", "ragged"),
        *("compressed", "nested"),
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
    "profile": ("none", "storage"),
}
"""The first value of a factor is the default: alone it is refused nowhere."""

NODES = 2
"""Of a cell of `NODE_FACTORS`; a cell of `FACTORS` has one."""

NODE_FACTORS: dict[str, tuple[str, ...]] = {
    "order": ("redox-nodes", "redox-chunks", "epoch-homes", "batch-homes"),
    "fields": FACTORS["fields"],
    "format": (*FACTORS["format"], "homes"),
    "ranks": ("1", "2"),  # of a node
    "isolation": ("shared", "thread", "process"),
    **{
        factor: FACTORS[factor]
        for factor in (
            *("tiers", "workers", "drop_last", "ids", "transform", "output", "run", "epochs"),
            *("prefetch", "io", "on_error", "verify", "profile"),
        )
    },
}
"""The factors of jobs of two nodes. What is no factor here has its default."""

LISTED = {"skip": "listed"}
"""Of a cell whose dataset leaves samples out by number: see `listed_cells`."""

EXTRAS: tuple[Cell, ...] = (
    {"names": "dict"},
    {"opened": "split"},
    {"opened": "filled"},
    {"opened": "mixed"},
    {"restored": "elsewhere"},
    {"schedule": "proportional"},
    {"sized": "slots"},
    {"stored": "server"},
    {"held": "decoded"},
)
"""What a cell of `extra_cells` has besides the factors: batches that are dicts; a dataset opened
with `split=`, or with `fill=` and `optional=`; a mixture of two; a state that is restored with
`strict=False`; ranks that share a node process by a policy; `Redox(slots=)`; data in an object
store; a tier that holds images decoded."""

_EXTRA_FACTORS = ("order", "draw", "ranks", "workers", "drop_last", "ids", "run")
_PLAIN: dict[str, tuple[str, ...]] = {
    "fields": ("inline", "stored", "both"),
    **{factor: FACTORS[factor] for factor in ("format", "isolation", "tiers")},
    "transform": ("none", "image", "python"),
}
_EXTRA_VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    "dict": {"fields": ("both", "several"), "transform": ("none", "image", "library")},
    "split": {"format": ("folder", "row-groups"), "transform": ("image", "python")},
    "filled": {"format": ("row-groups",), "transform": ("none", "python", "collate")},
    # Other orders refuse mixtures: test_mixtures.py
    "mixed": {"order": ("exact",), "draw": ("shuffle", "in-order"), **_PLAIN},
    "elsewhere": {
        "order": ("exact", "redox"),  # Others depend on sizes: test_loader_state.py
        "format": FACTORS["format"],
        "transform": ("image", "image+python"),
        "run": ("resumed",),
    },
    "proportional": {
        "draw": ("shuffle", "in-order"),  # Samplers are a rank's own: `REFUSALS`.
        "ranks": ("2",),
        "isolation": ("shared",),
        "tiers": ("none", "ram"),
        "transform": ("none", "image", "python"),
    },
    "server": _PLAIN,
    "decoded": {
        "order": ("exact", "batch"),
        "fields": ("stored", "both", "several"),
        "format": FACTORS["format"],
        "isolation": FACTORS["isolation"],
        "tiers": ("ram",),
        "transform": ("image", "image+python", "collate"),
        "placement": FACTORS["placement"],
        "on_error": FACTORS["on_error"],
        "verify": FACTORS["verify"],
        "profile": FACTORS["profile"],
    },
    "slots": {
        "order": ("redox",),
        "draw": ("shuffle",),
        "format": FACTORS["format"],
        "isolation": FACTORS["isolation"],
        "tiers": ("none", "ram"),
        "transform": ("none", "python"),
    },
}

BASE = ("order", "draw", "fields", "format", "ranks")
"""Every cell of these, whatever is refused, in each `make check`; see `base_cells`."""

PRODUCT = (*BASE, "tiers", "workers", "isolation", "drop_last", "ids")
"""Every cell of these in `make soak`, the other factors drawn."""

_DECODED = ("zipped", "row-groups")
"""Formats whose files, or parts of them, are decoded as a whole."""

_RELAXED = ("batch", "epoch", "small-pool", "redox")
_POOLED = ("epoch", "small-pool")
EXCHANGING = ("redox-nodes", "redox-chunks", "epoch-homes")
"""Orders whose nodes read their own blocks only, and send each other samples."""

_PROCESSES = ("shared", "process")
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
            order=ORDER_NAMES.get(cell["order"], cell["order"]),
            placement=cell["placement"],
            nodes_argument="homes" if cell["order"] == "epoch-homes" else "nodes",
        )


ORDER_NAMES = {
    "small-pool": "epoch",
    "redox-nodes": "redox",
    "redox-chunks": "redox",
    "epoch-homes": "epoch",
    "batch-homes": "batch",
}

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
        "Cache(placement='{placement}') without tiers: there is nothing to place; say what may be "
        "used, as tiers=hr.Cache(hr.tiers.Ram(\"4GiB\"), placement='{placement}')",
    ),
    Refusal(
        {"draw": _SAMPLERS, "order": _RELAXED},
        "sampler with order='{order}': a sampler says which sample comes when, which only "
        "order='exact' keeps; leave one of them out",
    ),
    Refusal(
        {"draw": _SAMPLERS, "isolation": ("shared",), "ranks": ("2",)},
        "sampler with a node process and 2 ranks on this node: each has a sampler of its own; "
        "leave one of them out",
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


# Of cells that have something besides the factors.
EXTRA_REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        {"names": ("dict",), "transform": ("python", "image+python", "collate")},
        "Output.fields: got a dict, which names what batches hold, and a Python function, which "
        "decides that, too: return a dict from the function, and write hr.Output(fields=[...]), or "
        "leave it out",
    ),
    Refusal(
        {"held": ("decoded",), "tiers": ("both",)},
        "tiers: form='decoded' beside other tiers: one in memory is all that a loader has then; "
        "give tiers=headrace.tiers.Ram(capacity, form='decoded') alone, or leave form out",
    ),
    Refusal(
        {"held": ("decoded",), "tiers": ("ram",), "order": (*_POOLED, "redox")},
        "tiers: form='decoded' with order='{order}': samples pass through its pool as they are "
        "stored; use order='exact' or 'batch', or leave form out",
    ),
    Refusal(
        {"held": ("decoded",), "tiers": ("ram",), "transform": ("none", "python")},
        "tiers: form='decoded': 0 fields have a transform of headrace.image, must be one, whose "
        "pixels are kept; what a Python function decodes is not: leave form out",
    ),
)


# Of two nodes, besides those of `REFUSALS`.
NODE_REFUSALS: tuple[Refusal, ...] = (
    *(row for row in REFUSALS if not row.when.keys() - NODE_FACTORS.keys()),
    Refusal(
        {"order": EXCHANGING, "isolation": ("process",), "ranks": ("2",)},
        "order {order}: {nodes_argument}=2, but this job has 4 nodes (4 ranks, as Node says "
        "how many a node has): give the order {nodes_argument}=4, or start the job on 2 nodes",
    ),
    Refusal(
        {"order": EXCHANGING, "isolation": _PROCESSES, "tiers": ("ram", "ssd", "both")},
        "tiers with order '{order}' on 2 nodes: each node reads its own blocks and sends samples "
        "to the others, which tiers take no part in; leave tiers= out or, on storage that all "
        "nodes share, use order 'exact', 'batch', or 'epoch' without homes",
    ),
    Refusal(
        {"order": EXCHANGING, "isolation": _PROCESSES, "on_error": ("substitute",)},
        "on_error='substitute' with order '{order}' on 2 nodes: the sample that stands in may lie "
        "on another node, which does not send it; use on_error='raise'",
    ),
)


def is_of_nodes(cell: Mapping[str, str]) -> bool:
    """Whether it is one of `NODE_FACTORS`."""
    return cell["order"] in NODE_FACTORS["order"]


def exchanges(cell: Mapping[str, str]) -> bool:
    """Whether its nodes send each other samples."""
    return cell["order"] in EXCHANGING and cell["isolation"] in _PROCESSES


def world_of(cell: Mapping[str, str]) -> int:
    """Ranks of the job."""
    return int(cell["ranks"]) * (NODES if is_of_nodes(cell) else 1)


def refusal(cell: Mapping[str, str]) -> Refusal | None:
    """Why a cell is refused; None: it is not."""
    rows = NODE_REFUSALS if is_of_nodes(cell) else (*REFUSALS, *EXTRA_REFUSALS)
    return next((row for row in rows if row.applies(cell)), None)


def leaves_out(cell: Mapping[str, str]) -> bool:
    """Whether its dataset leaves samples out by number."""
    return LISTED.items() <= cell.items()


def whole(part: Mapping[str, str]) -> Cell:
    """A cell of these values, the other factors at their defaults."""
    table = FACTORS
    if part.get("order") in NODE_FACTORS["order"]:
        table = FACTORS | NODE_FACTORS
    cell = {factor: part.get(factor, values[0]) for factor, values in table.items()}
    return cell | {
        name: part[name] for extra in (LISTED, *EXTRAS) for name in extra if name in part
    }


def words(cell: Mapping[str, str]) -> str:
    return " ".join(f"{factor}={value}" for factor, value in cell.items())


def parse(arguments: Iterable[str]) -> Cell:
    """The cell of `factor=value` words; factors that are left out are at their defaults."""
    part = dict(argument.split("=", 1) for argument in arguments)
    of_nodes = part.get("order") in NODE_FACTORS["order"]
    table = FACTORS | NODE_FACTORS if of_nodes else FACTORS
    for factor, value in part.items():
        if {factor: value} in (LISTED, *EXTRAS) or value == "library":
            continue
        is_jax = (factor, value) == ("output", "jax")  # where JAX can be imported
        if value not in table.get(factor, ()) and not is_jax:
            raise ValueError(f"{factor}={value}: the factors are {table}")
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


Part = tuple[tuple[str, str], ...]
"""Some factors, in the table's order, each with a value."""


def parts_of(cell: Mapping[str, str], size: int = 3) -> Iterator[Part]:
    return itertools.combinations(cell.items(), size)


def all_parts(table: Mapping[str, tuple[str, ...]] = FACTORS, size: int = 3) -> dict[Part, None]:
    """Of every `size` factors all combinations of values."""
    return {
        tuple(cell.items()): None
        for chosen in itertools.combinations(table, size)
        for cell in product(chosen, table)
    }


def covering_cells(
    table: Mapping[str, tuple[str, ...]] = FACTORS,
    refusals: Sequence[Refusal] = REFUSALS,
    size: int = 3,
) -> list[Cell]:
    """Few cells, in which every combination of `size` factors' values occurs.

    In a cell that is accepted, if the combination itself is refused by nothing; else in one that is
    refused, by no more reasons than the combination has. The same cells every time.
    """
    draw = random.Random(0)
    missing = all_parts(table, size)
    rank = {factor: number for number, factor in enumerate(table)}
    cells = []
    while missing:
        # The first that is left, so that each round has one less.
        cell = dict(next(iter(missing)))
        reasons = [row for row in refusals if row.applies(cell)]
        others = [factor for factor in table if factor not in cell]
        draw.shuffle(others)
        for factor in others:
            allowed = [
                value
                for value in table[factor]
                if not any(
                    row.applies(cell | {factor: value}) for row in refusals if row not in reasons
                )
            ]
            gain = functools.partial(
                _gain, list(itertools.combinations(cell.items(), size - 1)), factor, missing, rank
            )
            cell[factor] = max(allowed, key=gain)  # ValueError: none is allowed beside the cell's.
        cell = {factor: cell[factor] for factor in table}
        cells.append(cell)
        refused = bool(reasons)
        for each in parts_of(cell, size):
            if not refused or any(row.applies(dict(each)) for row in refusals):
                missing.pop(each, None)
    return cells


def _gain(
    others: Sequence[Part],
    factor: str,
    missing: Mapping[Part, None],
    rank: Mapping[str, int],
    value: str,
) -> int:
    """How many of `others` are missing together with the factor's value."""
    new = (factor, value)
    return sum(
        tuple(sorted((*each, new), key=lambda pair: rank[pair[0]])) in missing for each in others
    )


def node_cells() -> Iterator[Cell]:
    """Of two nodes: what they send each other, the rest, and every refusal.

    In the first two every combination of two factors' values occurs, and again in data of an object
    store, as far as it is read there.
    """
    sent = NODE_FACTORS | {
        "order": EXCHANGING,
        "isolation": ("shared",),
        "tiers": ("none",),
        "on_error": ("raise",),
    }
    rest = {
        factor: NODE_FACTORS[factor]
        for factor in ("order", "format", "ranks", "isolation", "tiers", "run", "on_error")
    }
    stored = rest | {"fields": ("both", "inline", "stored"), "format": ("folder", "pack", "homes")}
    cells = [
        *covering_cells(sent, NODE_REFUSALS, 2),
        *covering_cells(rest, NODE_REFUSALS, 2),
        *(cell for row in NODE_REFUSALS for cell in _refused_by(row)),
        *(
            cell | {"stored": "server"}
            for cell in covering_cells(stored, NODE_REFUSALS, 2)
            if refusal(whole(cell)) is None
        ),
    ]
    yield from (dict(each) for each in dict.fromkeys(tuple(whole(cell).items()) for cell in cells))


def listed_cells() -> Iterator[Cell]:
    """Of datasets that leave samples out: every combination of two factors' values, without tiers,
    which they refuse; and of two nodes that send each other samples."""
    table = FACTORS | {"tiers": ("none",), "placement": ("coordinated",)}
    sent = {"order": EXCHANGING, "isolation": ("shared",)} | {
        factor: NODE_FACTORS[factor] for factor in ("format", "ranks", "drop_last", "run")
    }
    for cell in (*covering_cells(table, REFUSALS, 2), *covering_cells(sent, NODE_REFUSALS, 2)):
        if refusal(cell) is None:
            yield whole(cell | LISTED)


def extra_table(extra: Cell) -> dict[str, tuple[str, ...]]:
    """The factors that it meets, and their values."""
    (value,) = extra.values()
    return {factor: FACTORS[factor] for factor in _EXTRA_FACTORS} | _EXTRA_VALUES[value]


def extra_cells() -> Iterator[Cell]:
    """Of each of `EXTRAS` every combination of two values of the factors that it may meet, and what
    it refuses."""
    for extra in EXTRAS:
        for cell in covering_cells(extra_table(extra), REFUSALS, 2):
            if refusal(cell) is None:
                yield whole(cell | extra)
    for row in EXTRA_REFUSALS:
        yield from (whole(part) for part in product(tuple(row.when), row.when))


def _refused_by(row: Refusal) -> Iterator[Cell]:
    """A cell for each order that the row refuses; by no other one, with defaults for the rest."""
    for order in row.when.get("order", NODE_FACTORS["order"][:1]):
        yield {factor: values[0] for factor, values in row.when.items()} | {"order": order}


# docs/combinations.md.

PAGE = Path(__file__).parents[2] / "docs" / "combinations.md"


def page_rows(columns: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the page's table whose first row begins with this."""
    table = PAGE.read_text().partition(f"\n| {columns} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", table, re.MULTILINE)


def written(rows: Iterable[Refusal]) -> list[tuple[str, str]]:
    """As the page has them."""
    when = ["; ".join(f"{f}: {', '.join(v)}" for f, v in row.when.items()) for row in rows]
    return list(zip(when, [row.message for row in rows], strict=True))
