"""An order from the command line, with or without a dataset, planned without reading samples."""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from headrace import _core, _dataset
from headrace._arguments import integer
from headrace._dataset.left_out import others
from headrace._units import counted, format_bytes, parse_bytes
from headrace.cli._parts.job import OrderOptions
from headrace.errors import InvalidArgumentError
from headrace.formats.pack_format import stored_shuffled
from headrace.orders import costs_in_bytes

Ids = np.ndarray[tuple[int], np.dtype[np.uint64]]

_DEFAULT_BATCH = 256
_CHUNK_SAMPLES = 1 << 20  # planned together


@dataclass(frozen=True)
class Source:
    """The samples to plan: a dataset's blocks, or synthetic blocks.

    Orders plan places, 0, 1, ...: those of the samples that are not left out, by number.
    """

    blocks: _core.Blocks
    dataset: _dataset.Dataset | None
    left: Ids | None = None
    """The sample at each place; None: no sample is left out."""

    @property
    def samples(self) -> int:
        """Number of samples to plan."""
        return self.blocks.sample_count

    @property
    def total_bytes(self) -> int:
        """Memory of all samples; without a dataset, a byte each."""
        return self.blocks.total_units * self.blocks.unit_bytes

    @functools.cached_property
    def labels(self) -> np.ndarray[tuple[int], np.dtype[np.uint32]] | None:
        """The number of each sample's label; None if the dataset has no labels. Made once."""
        labels = None if self.dataset is None else _core.inline_labels(self.dataset.index)
        return labels if labels is None or self.left is None else labels[self.left]

    @property
    def stored_shuffled(self) -> bool:
        """Whether the samples were stored in a random order, as a pack's are by default."""
        return self.dataset is not None and stored_shuffled(self.dataset.index)

    @functools.cached_property
    def costs(self) -> np.ndarray[tuple[int], np.dtype[np.uint32]] | None:
        """The bytes of each sample, which a Loader's `batch` order balances; None: all equal."""
        costs = None if self.dataset is None else costs_in_bytes(self.dataset)
        return costs if costs is None or self.left is None else costs[self.left]

    def numbers(self, places: Ids) -> Ids:
        """The samples at these places."""
        return places if self.left is None else self.left[places]

    def places(self, numbers: Ids) -> Ids:
        """The places of these samples; of those without one, numbers that no place has."""
        if self.left is None:
            return numbers
        places = np.searchsorted(self.left, numbers).astype(np.uint64)
        known = self.left[np.minimum(places, np.uint64(self.samples - 1))] == numbers
        return np.where(known, places, np.uint64(self.samples) + numbers)

    def rank_units(self, ranks: int) -> int | None:
        """Memory of a Loader on this machine for an order's pool; None without a dataset: no limit.

        In the units of `blocks`, for one rank.
        """
        return None if self.dataset is None else _core.default_rank_units(self.blocks, ranks)


def make_source(
    dataset: _dataset.Dataset | None, samples: int | None, block_samples: int | None
) -> Source:
    """From DATASET, or from --samples and --block-samples."""
    if (dataset is None) == (samples is None):
        raise InvalidArgumentError(
            "give either a DATASET, or --samples N (with --block-samples B) to plan without data"
        )
    if block_samples is not None and block_samples < 1:
        raise InvalidArgumentError(f"--block-samples: got {block_samples}, must be at least 1")
    if dataset is not None:
        blocks = _core.Blocks.of_index(dataset.index, block_samples or 0)
        left_out = _dataset.left_out_of(dataset)
        if left_out is None:
            return Source(blocks, dataset)
        left = others(len(dataset), left_out)
        if not len(left):
            raise InvalidArgumentError(
                f"--skip: leaves out all {counted(len(dataset), 'sample')} of {dataset.path}; "
                "leave fewer out"
            )
        return Source(_blocks_left(blocks, dataset, left), dataset, left)
    assert samples is not None
    if not 1 <= samples < 2**40:
        raise InvalidArgumentError(f"--samples: got {samples}, must be in [1, 2^40)")
    return Source(_core.Blocks.uniform(samples, block_samples or 64), None)


def _blocks_left(blocks: _core.Blocks, dataset: _dataset.Dataset, left: Ids) -> _core.Blocks:
    """The blocks of these samples alone, by place: of those that have none nothing is left.

    As `LeftOut` of the core makes them for a loader; here by an index of the samples alone.
    """
    counts = np.diff(np.searchsorted(left, blocks.bounds())).astype(np.uint64)
    counts = counts[counts > 0]
    sizes = _core.stored_bytes(dataset.index)[left].astype(np.uint64)
    places, zeros = np.zeros(len(left), np.uint64), np.zeros(len(counts), np.uint64)
    with tempfile.TemporaryDirectory(prefix="headrace-order-") as folder:
        contents = _core.IndexContents(len(left), folder)
        largest = sizes.max(keepdims=True, initial=0)
        contents.add_objects(["samples"], largest, np.zeros(1, np.int64))
        contents.add_extent_field("sample", ("bytes", "uint8", ()), (places, places, sizes))
        contents.add_blocks(counts, (zeros, zeros, zeros + largest), zeros)
        path = os.path.join(folder, "left.hri")
        _core.write_index(contents, path)
        return _core.Blocks.of_index(_core.Index.open(path))


def parse_settings(settings: Sequence[str] | None) -> dict[str, str]:
    """The parameters of the order, of `--set NAME=VALUE`."""
    parameters: dict[str, str] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise InvalidArgumentError(f"--set: got {setting!r}, must be NAME=VALUE")
        key = name.replace("-", "_")
        if key in parameters:
            raise InvalidArgumentError(f"--set {key}: given twice; give it once")
        parameters[key] = value
    return parameters


def order_values(parameters: dict[str, str]) -> dict[str, int | str]:
    return {
        name: int(value) if re.fullmatch(r"[+-]?\d{1,18}", value) else value
        for name, value in parameters.items()
    }


def _memory_bytes(text: str, source: Source) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if match is None and "%" in text:
        raise InvalidArgumentError(f'--memory: got "{text}", must be bytes or a share as 10%')
    share = None if match is None else float(match[1])
    count = (
        parse_bytes(text, "--memory") if share is None else round(source.total_bytes * share / 100)
    )
    return integer("--memory", count, 1, 2**56)


class JobArguments(TypedDict):
    """Keyword arguments of the core's planners."""

    index: _core.Blocks
    batch_size: int
    world_size: int
    rank: int
    seed: int
    shuffle: bool
    drop_last: bool
    epochs: int
    rank_units: int | None
    costs: np.ndarray[tuple[int], np.dtype[np.uint32]] | None


@dataclass(frozen=True)
class Planned:
    """One order of one job, to be planned rank by rank."""

    source: Source
    order: str
    settings: dict[str, int | str]  # parameters that the user sets
    parameters: dict[str, int | str]  # with every default filled in
    batch: int  # of all ranks together
    ranks: int
    seed: int
    shuffle: bool
    drop_last: bool
    epochs: int

    def job(self, rank: int) -> JobArguments:
        """The job, as every order needs it."""
        return {
            "index": self.source.blocks,
            "batch_size": self.batch // self.ranks,
            "world_size": self.ranks,
            "rank": rank,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "epochs": self.epochs,
            "rank_units": self.source.rank_units(self.ranks),
            "costs": self.source.costs if _core.find_order(self.order).takes_costs else None,
        }

    def stream(self, rank: int, order: str | None = None) -> _core.OrderStream:
        """The steps of one rank, or of another order without parameters over the same job."""
        parameters = self.parameters if order is None else {}
        return _core.OrderStream(order or self.order, parameters, **self.job(rank))

    def with_settings(self, settings: dict[str, int | str]) -> Planned:
        """The same job and order with other parameters; InvalidArgumentError if invalid."""
        parameters = _core.OrderStream(self.order, settings, **self.job(0)).parameters
        return replace(self, settings=settings, parameters=parameters)

    def expected_inflation(self) -> dict[str, float | None] | None:
        """The expected effect of the order on the labels of a batch, as in a Loader."""
        return _core.expected_inflation(
            self.order, self.parameters, labels=self.source.labels, **self.job(0)
        )

    @property
    def positions(self) -> int:
        """Samples of one epoch over all ranks: without the drop set, plus the pad set."""
        if self.drop_last:
            return self.source.samples // self.batch * self.batch
        return -(-self.source.samples // self.ranks) * self.ranks


def make_planned(source: Source, job: OrderOptions) -> Planned:
    """The order with its parameters resolved; refuses invalid ones."""
    parameters = order_values(parse_settings(job.settings))
    order, memory, ranks = job.order, job.memory, job.ranks
    if memory is not None:
        name = _core.find_order(order).budget_parameter
        if not name:
            raise InvalidArgumentError(
                f"--memory: sizes a pool, which order {order} does not have; leave it out"
            )
        if name in parameters:
            raise InvalidArgumentError(f"--memory: {name} is given, too; give one of the two")
        parameters[name] = _memory_bytes(memory, source)
    if ranks < 1:
        raise InvalidArgumentError(f"--ranks: got {ranks}, must be at least 1")
    batch = max(ranks, _DEFAULT_BATCH // ranks * ranks) if job.batch is None else job.batch
    integer("--seed", job.seed, 0, 2**64 - 1)
    integer("--epochs", job.epochs, 1, 2**24)
    integer("--batch", batch, 1, 2**24 * ranks)
    if batch % ranks:
        raise InvalidArgumentError(
            f"--batch: got {batch}, a global batch of {ranks} ranks must be a multiple of {ranks}"
        )
    planned = Planned(
        source=source,
        order=order,
        settings=parameters,
        parameters=parameters,
        batch=batch,
        ranks=ranks,
        seed=job.seed,
        shuffle=not job.no_shuffle,
        drop_last=job.drop_last,
        epochs=job.epochs,
    )
    try:
        return planned.with_settings(parameters)
    except InvalidArgumentError as error:
        if memory is None or not memory.rstrip().endswith("%"):
            raise
        return _default_pool(planned, memory, error)


def _default_pool(planned: Planned, memory: str, error: InvalidArgumentError) -> Planned:
    """Uses the order's default pool if a share of a small dataset is too little."""
    name = _core.find_order(planned.order).budget_parameter
    too_little = int(planned.settings[name])
    settings = {key: value for key, value in planned.settings.items() if key != name}
    try:
        by_default = planned.with_settings(settings)
    except InvalidArgumentError:
        raise error from None
    pool = int(by_default.parameters[name])
    if pool <= too_little:
        raise error
    print(
        f"headrace: --memory {memory} of this dataset is {amount(planned.source, too_little)}, too "
        f"little for order {planned.order}; it keeps {amount(planned.source, pool)} "
        "instead, its default",
        file=sys.stderr,
    )
    return by_default


def rank_ids(
    stream: _core.OrderStream, batch: int, at_a_time: int = _CHUNK_SAMPLES
) -> Iterator[Ids]:
    """All samples of a stream, some steps at a time."""
    steps = max(1, min(at_a_time, _CHUNK_SAMPLES) // batch)
    while len(ids := stream.ids(steps)):
        yield ids


def global_ids(
    streams: Sequence[_core.OrderStream], batch: int, at_a_time: int = _CHUNK_SAMPLES
) -> Iterator[Ids]:
    """All samples in the order of global positions: row by row, rank after rank."""
    if len(streams) == 1:
        yield from rank_ids(streams[0], batch, at_a_time)
        return
    steps = max(1, min(at_a_time, _CHUNK_SAMPLES) // batch)
    while True:
        parts = [stream.ids(steps) for stream in streams]
        if not len(parts[0]):
            return
        yield np.stack(parts, axis=1).reshape(-1)


def amount(source: Source, count: int) -> str:
    """Bytes of memory, in words; without a dataset a sample takes one."""
    return counted(count, "sample") if source.dataset is None else format_bytes(count)
