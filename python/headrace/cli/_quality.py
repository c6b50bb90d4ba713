"""How well an order, or any loader's log of sample numbers, is shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headrace import _core
from headrace._labels import inline_labels
from headrace.cli._orders import Ids, Planned, Source, global_ids, rank_ids
from headrace.errors import InvalidArgumentError, NotFoundError

_CURVE_WINDOWS_MAX = 24  # of the chart: powers of two


def measure(planned: Planned, ranks_per_node: int, windows: list[int]) -> dict[str, Any]:
    """The report on the global sequence, and on each rank's and node's."""
    if ranks_per_node < 1 or planned.ranks % ranks_per_node:
        raise InvalidArgumentError(
            f"--ranks-per-node: got {ranks_per_node}, must divide --ranks {planned.ranks}"
        )
    result = _measure_ranks(planned, range(planned.ranks), windows)
    result |= {
        "order": planned.order,
        "parameters": planned.parameters,
        "batch": planned.batch,
        "ranks": planned.ranks,
        "seed": planned.seed,
    }
    result["labels"] = _expected_labels(planned)
    per_rank = planned.ranks > 1
    result["per_rank"] = [
        _measure_ranks(planned, [rank], []) for rank in range(planned.ranks if per_rank else 0)
    ]
    result["per_node"] = [
        _measure_ranks(planned, range(first, first + ranks_per_node), [])
        for first in range(0, planned.ranks if ranks_per_node > 1 else 0, ranks_per_node)
    ]
    return result


def _measure_ranks(planned: Planned, ranks: Iterable[int], windows: list[int]) -> dict[str, Any]:
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
        windows=windows,
    )
    streams = [planned.stream(rank) for rank in members]
    # What the order was asked for, where it answers with something else.
    asked = [planned.stream(0, "exact")] if planned.order == "redox" and whole else []
    requests = global_ids([planned.stream(r, "exact") for r in members], batch) if asked else None
    ends = planned.positions * len(members) // planned.ranks
    for piece, is_end in _epochs(global_ids(streams, batch), ends):
        meter.add(piece)
        if requests is not None and len(piece):
            meter.add_requested(_take(requests, len(piece)))
        if is_end:
            meter.end_epoch()
    report = meter.report()
    report["counters"] = streams[0].counters()
    return report


def measure_ids(
    source: Source, pieces: Ids, batch: int, positions: int, windows: list[int]
) -> dict[str, Any]:
    """The report on a log: epochs of `positions` samples each, the last may be shorter."""
    meter = _core.QualityMeter(source.blocks, batch=batch, windows=windows)
    for start in range(0, len(pieces), positions):
        meter.add(np.ascontiguousarray(pieces[start : start + positions]))
        meter.end_epoch()
    return meter.report() | {"batch": batch, "ranks": 1, "per_rank": [], "per_node": []}


def _epochs(pieces: Iterator[Ids], positions: int) -> Iterator[tuple[Ids, bool]]:
    """The pieces, cut where an epoch ends, and whether it does."""
    left = positions
    for piece in pieces:
        rest = piece
        while len(rest):
            now, rest = rest[:left], rest[left:]
            left -= len(now)
            yield np.ascontiguousarray(now), left == 0
            left = left or positions


class _Taker:
    """Hands out an iterator's samples in lengths of the caller's choice."""


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
