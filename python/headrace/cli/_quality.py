"""How well an order, or any loader's log of sample numbers, is shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headrace import _core
from headrace.cli._orders import Ids, Planned, Source, global_ids
from headrace.errors import InvalidArgumentError, NotFoundError


def measure(planned: Planned, ranks_per_node: int) -> dict[str, Any]:
    """The report on the global sequence, and on each rank's and node's."""
    if ranks_per_node < 1 or planned.ranks % ranks_per_node:
        raise InvalidArgumentError(
            f"--ranks-per-node: got {ranks_per_node}, must divide --ranks {planned.ranks}"
        )
    result = _measure_ranks(planned, range(planned.ranks))
    result |= {
        "order": planned.order,
        "parameters": planned.parameters,
        "batch": planned.batch,
        "ranks": planned.ranks,
        "seed": planned.seed,
    }
    result["expected"] = _expected(planned)
    per_rank = planned.ranks > 1
    result["per_rank"] = [
        _measure_ranks(planned, [rank]) for rank in range(planned.ranks if per_rank else 0)
    ]
    result["per_node"] = [
        _measure_ranks(planned, range(first, first + ranks_per_node))
        for first in range(0, planned.ranks if ranks_per_node > 1 else 0, ranks_per_node)
    ]
    return result


def _measure_ranks(planned: Planned, ranks: Iterable[int]) -> dict[str, Any]:
    """Of the rows that these ranks get, in the order of global positions."""
    members = list(ranks)
    batch = planned.batch // planned.ranks * len(members)
    whole = len(members) == planned.ranks
    samples = planned.source.samples
    meter = _core.QualityMeter(
        planned.source.blocks,
        batch=batch,
        dropped=max(0, samples - planned.positions),
        padded=max(0, planned.positions - samples),
        partial=not whole,
    )
    streams = [planned.stream(rank) for rank in members]
    given = global_ids(streams, batch)
    pieces: Iterator[tuple[Ids, Ids | None]]
    if planned.order == "redox" and whole:
        # It answers the requests of `exact` with other samples: M10 says how far off.
        asked = global_ids([planned.stream(rank, "exact") for rank in members], batch)
        pieces = zip(given, asked, strict=True)
    else:
        pieces = ((ids, None) for ids in given)
    for ids, requested, is_end in _epochs(
        pieces, planned.positions * len(members) // planned.ranks
    ):
        meter.add(ids)
        if requested is not None:
            meter.add_requested(requested)
        if is_end:
            meter.end_epoch()
    report = meter.report()
    report["counters"] = streams[0].counters()
    return report


def measure_ids(source: Source, log: Ids, batch: int, epochs: int) -> dict[str, Any]:
    """The report on a log of so many epochs of equal length."""
    if epochs < 1 or len(log) % epochs:
        raise InvalidArgumentError(
            f"--epochs: got {epochs}, the log holds {len(log)} numbers, which are not so many "
            "epochs of equal length"
        )
    meter = _core.QualityMeter(source.blocks, batch=batch)
    for ids in np.split(log, epochs):
        meter.add(ids)
        meter.end_epoch()
    return meter.report() | {"batch": batch, "ranks": 1, "per_rank": [], "per_node": []}


def first_epoch_ids(planned: Planned) -> Ids:
    """The global sequence of the first epoch."""
    streams = [planned.stream(rank) for rank in range(planned.ranks)]
    pieces = []
    left = planned.positions
    for ids in global_ids(streams, planned.batch):
        pieces.append(ids[:left])
        left -= len(pieces[-1])
        if left == 0:
            break
    return np.concatenate(pieces)


def _epochs(
    pieces: Iterator[tuple[Ids, Ids | None]], positions: int
) -> Iterator[tuple[Ids, Ids | None, bool]]:
    """The pieces, cut where an epoch ends, and whether it does."""
    left = positions
    for ids, asked in pieces:
        start = 0
        while start < len(ids):
            end = min(len(ids), start + left)
            left -= end - start
            yield ids[start:end], None if asked is None else asked[start:end], left == 0
            left = left or positions
            start = end


def _expected(planned: Planned) -> dict[str, float | None] | None:
    """What the order's parameters let expect of a batch, of blocks and of labels."""
    dataset = planned.source.dataset
    labels = None if dataset is None else _core.inline_labels(dataset.index)
    return _core.expected_inflation(
        planned.order, planned.parameters, labels=labels, **planned.job(0)
    )


def read_ids(path: Path) -> Ids:
    """Numbers of samples, from a .npy file or from text: the whole numbers of every line."""
    try:
        if path.suffix == ".npy":
            loaded = np.load(path, allow_pickle=False)
        else:
            loaded = np.array(path.read_text().replace(",", " ").split(), dtype=np.int64)
    except FileNotFoundError as error:
        raise NotFoundError(f"--ids {path}: no such file") from error
    except (ValueError, OverflowError, EOFError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"--ids {path}: holds something else than numbers of samples: {error}"
        ) from error
    if loaded.dtype.kind not in "iu":
        raise InvalidArgumentError(f"--ids {path}: holds {loaded.dtype}, must be whole numbers")
    if loaded.size == 0:
        raise InvalidArgumentError(f"--ids {path}: holds no number")
    if loaded.dtype.kind == "i" and loaded.min() < 0:
        raise InvalidArgumentError(f"--ids {path}: holds {loaded.min()}, a negative number")
    return np.ascontiguousarray(loaded.reshape(-1), dtype=np.uint64)
