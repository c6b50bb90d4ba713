"""Measures the shuffle of an order, or of a loader's log of sample numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace import _core
from headrace._units import counted
from headrace.cli._parts.orders import Ids, Planned, Source, amount, global_ids
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
    result["expected"] = planned.expected_inflation()
    result["change_to"] = None
    if result["change"]:
        result["change"], changed = _advice(planned, result["effects"])
        if changed is not None:
            result["change_to"] = {"order": changed.order, "parameters": changed.settings}
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
    """The report on the rows of these ranks, in the order of global positions."""
    members = list(ranks)
    batch = planned.batch // planned.ranks * len(members)
    whole = len(members) == planned.ranks
    samples = planned.source.samples
    meter = _core.QualityMeter(
        planned.source.blocks,
        batch=batch,
        labels=planned.source.labels,
        stored_shuffled=planned.source.stored_shuffled,
        dropped=max(0, samples - planned.positions),
        padded=max(0, planned.positions - samples),
        partial=not whole,
    )
    streams = [planned.stream(rank) for rank in members]
    delivered = global_ids(streams, batch)
    pieces: Iterator[tuple[Ids, Ids | None]]
    original = _core.find_order(planned.order).reproduces_requests_of
    if original is not None and whole:
        # It answers its requests with other samples: M10 measures the distance.
        requested = global_ids([planned.stream(rank, original.name) for rank in members], batch)
        pieces = zip(delivered, requested, strict=True)
    else:
        pieces = ((ids, None) for ids in delivered)
    for ids, requested_ids, is_end in _epochs(
        pieces, planned.positions * len(members) // planned.ranks
    ):
        meter.add(ids)
        if requested_ids is not None:
            meter.add_requested(requested_ids)
        if is_end:
            meter.end_epoch()
    report = meter.report()
    report["counters"] = streams[0].counters()
    return report


def measure_ids(source: Source, log: Ids, batch: int, epochs: int) -> dict[str, Any]:
    """The report on a log of `epochs` epochs of equal length."""
    if epochs < 1 or len(log) % epochs:
        raise InvalidArgumentError(
            f"--epochs: got {epochs}, the log holds {counted(len(log), 'number')}, which are not "
            "so many epochs of equal length; give the number that the log holds"
        )
    meter = _core.QualityMeter(
        source.blocks, batch=batch, labels=source.labels, stored_shuffled=source.stored_shuffled
    )
    for ids in np.split(log, epochs):
        meter.add(ids)
        meter.end_epoch()
    report = meter.report() | {"batch": batch, "ranks": 1, "per_rank": [], "per_node": []}
    grades = {effect["name"]: effect["grade"] for effect in report["effects"]}
    times, rest = divmod(len(log), source.samples)
    if grades.get("coverage") == "broken" and epochs == 1 and times > 1 and rest == 0:
        report["change"] = (
            f"deliver every sample once an epoch; if the log is of {times} epochs, say so: "
            f"--epochs {times}"
        )
    elif grades.get("coverage") != "broken" and grades.get("storage_order", _GOOD[0]) not in _GOOD:
        report["change"] = "shuffle: the log follows the order of storage; shuffle=True in torch"
    return report


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
    """The pieces, cut at the end of each epoch, and whether a piece ends one."""
    left = positions
    for ids, requested in pieces:
        start = 0
        while start < len(ids):
            end = min(len(ids), start + left)
            left -= end - start
            yield ids[start:end], None if requested is None else requested[start:end], left == 0
            left = left or positions
            start = end


# Effects that larger pools reduce.
_OF_THE_POOL = ("batch_inflation", "window_drift", "label_mix")
_MARGIN = 1.1  # An effect just within the limit may exceed it with another seed.


_GOOD = ("excellent", "good")
_WHOLE_FILL: dict[str, int | str] = {"first_fill_permille": 1000}


def _advice(planned: Planned, effects: list[dict[str, Any]]) -> tuple[str, Planned | None]:
    """What to change so that the verdict is good, in this order's own parameters; and the result.

    Measures that the change suffices; None: no change is known.
    """
    if not planned.shuffle:
        return "shuffle: leave --no-shuffle out, as Loader(shuffle=True)", None
    effect = effects[0]
    name = _core.find_order(planned.order).budget_parameter
    if not name or effect["name"] not in _OF_THE_POOL:
        return str(effect["change"]), None
    strictest = _core.order_names()[0]
    candidates = _pools(planned, name, effect)
    text, changed = next(
        ((text, changed) for text, changed in candidates if _is_good(changed, effect)),
        (
            f"no pool suffices: take order '{strictest}'",
            replace(planned, order=strictest, settings={}),
        ),
    )
    labels = next((effect for effect in effects if effect["name"] == "label_mix"), None)
    if labels is not None and labels["grade"] not in _GOOD:
        text += "; for the labels it suffices to shuffle the dataset once: headrace pack"
    return text, changed


def _pools(planned: Planned, name: str, effect: dict[str, Any]) -> Iterator[tuple[str, Planned]]:
    """Candidates with a description: larger pools, each also with a whole first fill."""
    fill = "; and have the first batch wait for all of it: --set first_fill_permille=1000"
    for text, changed in _larger_pools(planned, name, effect):
        if changed is not planned:
            yield text, changed
        if int(changed.parameters.get("first_fill_permille", 1000)) < 1000:
            yield text + fill, changed.with_settings(changed.settings | _WHOLE_FILL)


def _larger_pools(
    planned: Planned, name: str, effect: dict[str, Any]
) -> Iterator[tuple[str, Planned]]:
    """The pool as it is, the order's own if that is larger, and pools of calculated sizes."""
    source, pool = planned.source, int(planned.parameters[name])
    rest = {key: value for key, value in planned.settings.items() if key != name}
    yield "keep the pool", planned
    default = planned.with_settings(rest)
    kept = int(default.parameters[name])
    if pool < kept:
        whole = "the whole dataset" if kept >= source.total_bytes else amount(source, kept)
        text = (
            f"leave --memory and {name} out: by default the order keeps {whole} in memory, here "
            f"only {amount(source, pool)}"
        )
        yield text, default
    if effect["name"] == "window_drift":
        times = (effect["value"] / effect["good"]) ** 2
    else:
        times = (effect["value"] - 1) / (effect["good"] - 1)
    wanted = round(pool * times * _MARGIN)
    for count in (wanted, 2 * wanted, source.total_bytes):
        if not pool < count <= source.total_bytes:
            continue
        share = count / source.total_bytes
        text = (
            f"keep {amount(source, count)} in memory instead of {amount(source, pool)}: "
            f"--set {name}={count} ({share:.0%} of the dataset)"
        )
        try:
            yield text, planned.with_settings(rest | {name: count})
        except InvalidArgumentError:
            return  # more than this machine's memory


def _is_good(planned: Planned, effect: dict[str, Any]) -> bool:
    expected = planned.expected_inflation()
    if effect["name"] == "batch_inflation" and expected is not None:
        of_blocks = expected["of_blocks"]
        if of_blocks is not None and of_blocks > effect["good"]:
            return False  # known without measuring
    return _measure_ranks(planned, range(planned.ranks))["verdict"] in _GOOD


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
            f"--ids {path}: holds something else than numbers of samples: {error}; write "
            "only these there, with blanks between"
        ) from error
    if loaded.dtype.kind not in "iu":
        raise InvalidArgumentError(f"--ids {path}: holds {loaded.dtype}, must be whole numbers")
    if loaded.size == 0:
        raise InvalidArgumentError(
            f"--ids {path}: holds no number; write the samples' numbers there"
        )
    if loaded.dtype.kind == "i" and loaded.min() < 0:
        raise InvalidArgumentError(f"--ids {path}: holds {loaded.min()}, must be 0 or more")
    return np.ascontiguousarray(loaded.reshape(-1), dtype=np.uint64)
