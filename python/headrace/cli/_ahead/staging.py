"""Fills the folders of a job's tiers before the job: `headrace stage`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from headrace import _core
from headrace._dataset import Dataset, epoch_samples
from headrace._loading.options import LoaderArguments, resolve
from headrace._loading.session import Session
from headrace._names import Placement
from headrace._options.groups import Cache, Job, group, group_or_first
from headrace.errors import InvalidArgumentError, UnavailableError

End = Literal["epoch", "full", "time", "interrupt"]
"""The epoch is over, the folders are full, the time is over, Ctrl-C."""

_LOOK_EVERY_S = 0.2
_READ_WITHOUT_ROOM = 64  # samples; a large one may find no room where smaller ones do


@dataclass(frozen=True)
class Staged:
    """What the folders have, of all ranks together, and what this call did."""

    samples: int
    """in the folders"""
    bytes: int
    """that they take there"""
    found: int
    """of the samples: of an earlier call, or job"""
    read_bytes: int
    """from the dataset's storage"""
    seconds: float
    share: float
    """of the first epoch's samples"""
    ended: End


def stage(
    dataset: Dataset,
    arguments: LoaderArguments,
    order: _core.OrderSpec,
    ranks: Sequence[int],
    seconds: float | None = None,
    progress: Callable[[int], object] | None = None,
) -> Staged:
    """Reads the first epoch of a job in its order, and keeps in its tiers what it uses first.

    The folders are those of the loaders with these arguments, one of each of `ranks`. Ends when
    they are full, after `seconds`, with the epoch, or with Ctrl-C: they then keep what they have.
    `progress` is called with the bytes in the folders.

    Raises:
        InvalidArgumentError: the arguments are no loader's; all that batches hold is in the index.
        UnavailableError: a folder's disk failed, or is full before the tier is.
        What reading a dataset raises.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        runs = [
            stack.enter_context(closing(_Filling(dataset, arguments, order, rank)))
            for rank in ranks
        ]
        ended = _fill(runs, None if seconds is None else began + seconds, progress)
        counts = [run.counts() for run in runs]
        taken = time.monotonic() - began
    samples = sum(of_rank.samples for of_rank in counts)
    return Staged(
        samples=samples,
        bytes=sum(of_rank.bytes for of_rank in counts),
        found=sum(of_rank.found for of_rank in counts),
        read_bytes=sum(of_rank.read_bytes for of_rank in counts),
        seconds=taken,
        share=min(1.0, samples / sum(run.epoch_samples for run in runs)),
        ended=ended,
    )


def _fill(
    runs: Sequence[_Filling], until: float | None, progress: Callable[[int], object] | None
) -> End:
    """Why it ended."""
    active = deque(runs)
    full = False
    looked = 0.0
    try:
        while active:
            run = active.popleft()
            if run.advance():
                active.append(run)
            now = time.monotonic()
            if now < looked + _LOOK_EVERY_S:
                continue
            looked = now
            counts = {run: run.counts() for run in runs}
            if progress is not None:
                progress(sum(of_rank.bytes for of_rank in counts.values()))
            left = deque(run for run in active if not run.is_full(counts[run]))
            full = full or len(left) < len(active)
            active = left
            if until is not None and now >= until and active:
                return "time"
    except KeyboardInterrupt:
        return "interrupt"
    return "full" if full else "epoch"


@dataclass(frozen=True)
class _Counts:
    samples: int
    bytes: int
    found: int
    planned: int
    """samples that the plan wants in the tiers, beside those that were found"""
    read_bytes: int
    from_storage: int
    settled: bool
    """All of `planned` are there, or will not be."""


class _Filling:
    """A run of one rank's loader, of which only the tiers are used.

    `placement` keeps what is used first, and evicts nothing for what is used later.

    Thread safety: none.
    """

    def __init__(
        self,
        dataset: Dataset,
        arguments: LoaderArguments,
        order: _core.OrderSpec,
        rank: int,
        placement: Placement = "first_touch",
    ) -> None:
        job = replace(group("job", arguments.job, Job), rank=rank, node=False)
        tiers = replace(group_or_first(arguments.tiers, Cache), placement=placement)
        resolved = resolve(dataset, replace(arguments, tiers=tiers, job=job, epochs=1))
        options = resolved.options.replace(order=order, tiers={"await_inserts": True})
        self._session = Session(dataset, replace(resolved, options=options), None)
        core: Any = self._session.core
        self._core = core
        if not core.stats()["tiers"]:
            self._session.close()
            raise InvalidArgumentError(
                f"staging {dataset.path}: all that batches hold is in the index, so that nothing "
                "is read and tiers keep nothing; nothing needs to be staged"
            )
        of_rank = -(-epoch_samples(dataset) // options.world_size)
        self.epoch_samples = min(options.batch_size * core.steps_per_epoch, of_rank)
        self._planned: tuple[int, int] | None = None  # and what had been read by then
        self._read_with_plan = options.batch_size * core.stats()["budget"]["batches_max"]
        core.start(0, 0)

    def advance(self) -> bool:
        """Takes a batch. False: it was the last one."""
        batch = self._core.next()
        return not batch.ends_epoch

    def counts(self) -> _Counts:
        """Raises UnavailableError: a tier takes no more."""
        stats = self._core.stats()
        tiers = [tier["stats"] for tier in stats["tiers"]]
        for tier in stats["tiers"]:
            if tier["stats"]["degraded"]:
                raise UnavailableError(
                    f"staging into {tier['name']}: {tier['stats']['degraded_reason']}; what is "
                    "there stays: run the command again when the disk works and has room"
                )
        counts = stats["engine"]["tiers"]
        samples = sum(tier["entries"] for tier in tiers)
        found = sum(tier["entries_inherited"] for tier in tiers)
        return _Counts(
            samples=samples,
            bytes=sum(tier["used_bytes"] for tier in tiers),
            found=found,
            planned=counts["to_keep"],
            read_bytes=stats["engine"]["read_bytes"],
            from_storage=counts["storage_uses"],
            settled=samples + counts["not_kept"] >= found + counts["to_keep"],
        )

    def is_full(self, counts: _Counts) -> bool:
        """Whether samples were read that were not planned for the tiers, so that none has room."""
        if self._planned is None or self._planned[0] != counts.planned:
            self._planned = (counts.planned, counts.from_storage)
        without_room = counts.from_storage - self._planned[1] - _READ_WITHOUT_ROOM
        return without_room >= (0 if counts.settled else self._read_with_plan)

    def close(self) -> None:
        self._session.close()
