"""The table of the DataLoader's matrix test: factors, their values, which combinations are refused.

As tests/python/matrix_cells.py is for `hr.Loader`.
"""

from __future__ import annotations

from collections.abc import Mapping

from matrix_cells import Cell, Refusal

FACTORS: dict[str, tuple[str, ...]] = {
    "dataset": (
        *("numbers", "fails", "arrays", "images", "nested", "batched"),
        *("iterable", "own-state"),
    ),
    "draw": (
        *("in-order", "shuffle", "weighted", "replacement", "list", "distributed"),
        "batch-sampler",
    ),
    "batch_size": ("4", "1", "none"),
    "drop_last": ("no", "yes"),
    "reads": ("loop", "threads", "processes", "persistent", "pool", "auto"),
    "collate": ("default", "own"),
    "delivery": ("in-order", "as-ready", "arrival"),
    "epoch_size": ("none", "10"),
    "generator": ("global", "own"),
    "run": ("through", "left", "resumed", "moved", "copied"),
}
"""The first value of a factor is the default: alone it is refused nowhere."""

ITERABLE = ("iterable", "own-state")
"""Datasets that decide themselves what comes next."""
_SAMPLERS = ("weighted", "replacement", "list", "distributed")
_BY_ITSELF = (
    "an IterableDataset decides itself what comes next, and torch's own workers iterate it: leave "
    "it out"
)

REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        {"epoch_size": ("10",), "draw": ("batch-sampler",)},
        "epoch_size: counts samples, and a batch_sampler decides how many a batch has: give "
        "sampler= and batch_size=, or end the epochs in the batch_sampler",
    ),
    Refusal(
        {"delivery": ("arrival",), "reads": ("loop",)},
        "fetch='arrival': without workers samples are read one by one: give num_workers=",
    ),
    *(
        Refusal({"dataset": ITERABLE, factor: (value,)}, f"{argument}: {_BY_ITSELF}")
        for factor, value, argument in (
            ("reads", "threads", "worker_method='thread'"),
            ("reads", "pool", "pool_size=5"),
            ("reads", "auto", "pool_size='auto'"),
            ("delivery", "arrival", "fetch='arrival'"),
            ("epoch_size", "10", "epoch_size=10"),
        )
    ),
    # torch's own:
    *(
        Refusal(
            {"dataset": ITERABLE, "draw": draws},
            f"DataLoader with IterableDataset: expected unspecified {option} option",
        )
        for draws, option in (
            (("shuffle",), "shuffle"),
            (_SAMPLERS, "sampler"),
            (("batch-sampler",), "batch_sampler"),
        )
    ),
    Refusal(
        {"draw": ("batch-sampler",), "drop_last": ("yes",)},
        "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
        "drop_last",
    ),
    Refusal(
        {"batch_size": ("none",), "drop_last": ("yes",)},
        "batch_size=None option disables auto-batching and is mutually exclusive with drop_last",
    ),
)
"""In the order in which they are checked."""


UNDEFINED: tuple[Mapping[str, tuple[str, ...]], ...] = (
    # torch's persistent workers go on where they were when the epoch was left, which depends on
    # how fast they are.
    {"dataset": ("own-state",), "reads": ("persistent",), "run": ("left",)},
)
"""Cells whose batches torch does not define: only run."""


def is_defined(cell: Mapping[str, str]) -> bool:
    return not any(
        all(cell[factor] in values for factor, values in row.items()) for row in UNDEFINED
    )


def refusal(cell: Mapping[str, str]) -> Refusal | None:
    """Why a cell is refused; None: it is not."""
    return next((row for row in REFUSALS if row.applies(cell)), None)


def whole(part: Mapping[str, str]) -> Cell:
    """A cell of these values, the other factors at their defaults."""
    return {factor: part.get(factor, values[0]) for factor, values in FACTORS.items()}
