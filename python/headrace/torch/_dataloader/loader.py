"""`headrace.torch.DataLoader`: torch's with parallel fetches, a state and clear errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.multiprocessing
import torch.utils.data
from torch.utils.data import IterableDataset

from headrace._arguments import integer
from headrace._loading.not_torchs import warn_of_prepare
from headrace._loading.passes.origins import has_state
from headrace._process.children import check_not_daemonic
from headrace._signature import named_arguments
from headrace.errors import InvalidArgumentError
from headrace.torch._dataloader.arguments import (
    AddedArguments,
    Fetch,
    PoolSize,
    WorkerMethod,
    check,
)
from headrace.torch._dataloader.epochs import state as states
from headrace.torch._dataloader.epochs.drawing import Origin, Share, Source
from headrace.torch._dataloader.epochs.epoch_sampler import limit_epochs
from headrace.torch._dataloader.epochs.progress import Progress, between, finish_restored
from headrace.torch._dataloader.epochs.state import Facts, Position
from headrace.torch._dataloader.iterations.batch_reader import BatchReader, FinishedReader
from headrace.torch._dataloader.iterations.iteration import (
    AheadIteration,
    DirectIteration,
    EpochIteration,
    Iteration,
    Limits,
)
from headrace.torch._dataloader.iterations.thread_reader import ThreadReader
from headrace.torch._dataloader.native.arrays import ArrayIteration
from headrace.torch._dataloader.native.choice import NativeReaders, is_fixed
from headrace.torch._dataloader.pinning import Pinning
from headrace.torch._dataloader.reading.fetching import Fetcher
from headrace.torch._dataloader.reading.pool_size import ReadWaits
from headrace.torch._dataloader.reading.supply import Supply
from headrace.torch._dataloader.stats import figures
from headrace.torch._dataloader.stream_batches import Batching
from headrace.torch._dataloader.streams import (
    StreamIteration,
    StreamProgress,
    StreamReader,
    start_of,
)
from headrace.torch._dataloader.workers.process_reader import ProcessReader
from headrace.torch._dataloader.workers.processes import KeptProcesses, ReaderProcesses

_ABOUT_WORKERS = (
    *("num_workers", "pin_memory", "pin_memory_device", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "prefetch_factor", "persistent_workers", "in_order"),
)
_LEFT_BEHIND = ("_kept_processes", "_waits", "_stream_reader", "_native", "_progress", "_kept_seed")
"""Attributes of iterations."""
_TORCH_PARAMETERS = inspect.signature(torch.utils.data.DataLoader.__init__).parameters


class DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's DataLoader, with its arguments and attributes, that fetches samples in parallel.

    >>> from headrace.torch import DataLoader  # in place of torch.utils.data
    >>> loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8)

    For the same generator or seed it gives the same samples in the same batches as torch's, in the
    same order. A batch is divided over the workers. `state_dict` at any step is the loop's
    position, without what was read ahead. In a worker, what a dataset draws from the generators of
    torch, Python and NumPy is fixed by the base seed and the sample's place in the epoch; see also
    `headrace.torch.sample_rng`. `headrace docs dataloader` has the rest.

    Thread safety: one thread iterates, saves and loads states.

    Args:
        worker_method: "multiprocessing", or "thread": workers are threads of this process, for a
            dataset whose ``__getitem__`` may run in several at once.
        pool_size: samples that are read at a time; default: one for each worker. If above
            `num_workers`, processes have several threads. "auto": measures how many help.
        fetch: "order", or "arrival": the samples of a batch have the order in which they arrived,
            as in Rinas.
        epoch_size: samples of an epoch. The next epoch continues with the sampler, which restarts
            when it ends.
        snapshot_every_n_steps: how often the state of a sampler that has ``state_dict`` is taken; a
            restore draws the steps since then again.

    Every other argument is torch's. Raises ValueError, as torch does, also if it is not supported.
    """

    @named_arguments
    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        worker_method: WorkerMethod = "multiprocessing",
        pool_size: PoolSize | None = None,
        fetch: Fetch = "order",
        epoch_size: int | None = None,
        snapshot_every_n_steps: int = 1,
    ) -> None:
        arguments = locals()
        names = [name for name in _TORCH_PARAMETERS if name in arguments and name != "self"]
        torch_arguments = {name: arguments[name] for name in names}
        if "in_order" not in _TORCH_PARAMETERS and not in_order:
            raise InvalidArgumentError(
                f"in_order=False: torch {torch.__version__} has no such argument: upgrade torch to "
                "2.6 or newer, or leave it out"
            )
        # Public, as torch's: Lightning makes another loader from the attributes of one.
        self.worker_method, self.pool_size, self.fetch = worker_method, pool_size, fetch
        self.epoch_size, self.snapshot_every_n_steps = epoch_size, snapshot_every_n_steps
        check(self._added, dataset, torch_arguments)
        if epoch_size is not None:
            limit_epochs(torch_arguments, epoch_size)
        super().__init__(**torch_arguments)
        self._in_order = in_order
        self._epoch = 0  # of the next iteration
        self._restored: Position | None = None
        self._share: Share | None = None  # of its samples, if a TrainerLoader divides them
        self._passes_over = 0  # batches that the next iteration draws and does not read
        self._start_anew()

    def _start_anew(self) -> None:
        """Sets what iterations leave behind."""
        self._kept_processes = KeptProcesses()
        self._waits = ReadWaits()
        self._stream_reader: StreamReader | None = None  # of an iterable dataset
        self._native = NativeReaders()
        self._progress: Progress | StreamProgress | None = None  # of the newest one
        self._kept_seed: int | None = None  # of the newest epoch, with persistent workers

    def __getstate__(self) -> dict[str, Any]:
        """A copy, also in another process, has the arguments; it begins with the next epoch."""
        return {name: value for name, value in vars(self).items() if name not in _LEFT_BEHIND}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start_anew()

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Accelerator.prepare() asks. False: it makes a loader of torch's class of this one."""
        if not isinstance(self.dataset, IterableDataset):
            warn_of_prepare()
        return False

    def check_worker_number_rationality(self) -> None:
        """Warns of too many processes, as torch does; threads that wait may be many."""
        if self._added.worker_method != "thread":
            super().check_worker_number_rationality()

    @property
    def _added(self) -> AddedArguments:
        return AddedArguments(
            self.worker_method,
            self.pool_size,
            self.fetch,
            self.epoch_size,
            self.snapshot_every_n_steps,
        )

    @property
    def _source(self) -> Source:
        return Source(
            self._index_sampler,
            self._auto_collation,
            self.generator,
            self.num_workers > 0,
            self._added.state_every,
            self._kept_seed,
        )

    @property
    def _facts(self) -> Facts:
        try:
            length = len(self.dataset)  # type: ignore[arg-type]
        except TypeError:
            length = None
        share = self._source.share if self._share is None else self._share
        return Facts(self.batch_size, self.drop_last, length, self._added.epoch_size, share)

    def __iter__(self) -> Any:
        self._waits.begin()
        if isinstance(self.dataset, IterableDataset):
            return self._stream()
        begun = self._map_style()
        source = self._source
        may_change = source.has_epoch and source.stateful is None
        return EpochIteration(begun, self._again) if may_change else begun

    def _again(self, begun: Iteration) -> Iteration | None:
        """Another iteration, if the sampler's epoch was set after the newest one began: Lightning
        does so when it resumes."""
        progress = begun.progress
        if progress is not self._progress or progress.sampler_epoch == self._source.epoch:
            return None
        begun.close()
        self._epoch = progress.epoch
        return self._map_style()

    def _map_style(self) -> Iteration:
        """The next iteration of a map-style dataset."""
        progress = self._begin()
        passed, self._passes_over = self._passes_over, 0
        progress.pass_over(passed)
        iteration = self._iteration(progress)
        iteration.waits = self._waits
        self._progress, self._epoch, self._restored = progress, progress.epoch + 1, None
        if self.persistent_workers:
            self._kept_seed = progress.base_seed
        return iteration

    def _stream(self) -> StreamIteration:
        """The next iteration of an iterable dataset."""
        if self.num_workers:
            check_not_daemonic("starting workers", "give DataLoader num_workers=0")
        restored, source = self._restored, self._source
        progress = None
        if restored is not None:
            progress = self._stream_progress(restored.epoch, restored.origin)
            if not progress.resume(restored, source):
                self._epoch, progress = restored.epoch + 1, None
        if progress is None:
            progress = self._stream_progress(self._epoch, source.origin())
            progress.begin()
        self._progress, self._epoch, self._restored = progress, progress.epoch + 1, None
        return StreamIteration(progress, self.__len__, self._waits)

    def _stream_progress(self, epoch: int, origin: Origin) -> StreamProgress:
        if self._stream_reader is None:
            batching = Batching(
                self.batch_size, self.drop_last, self.collate_fn, self.snapshot_every_n_steps
            )
            arguments = {
                name: getattr(self, name) for name in _ABOUT_WORKERS if name in _TORCH_PARAMETERS
            }
            if not self.num_workers:
                arguments["prefetch_factor"] = None
            self._stream_reader = StreamReader(self.dataset, batching, arguments)
        return StreamProgress(self._stream_reader, epoch, origin)

    def _begin(self) -> Progress:
        restored = self._restored
        source = self._source
        if restored is None:
            if isinstance(self._progress, Progress):
                self._progress.leave((self.prefetch_factor or 2) * self.num_workers)
            return Progress(source, self._epoch, None)
        source = self._keeping(restored.kept_seed)
        if restored.origin.epoch != source.epoch:  # The user chose another epoch since.
            finish_restored(source, restored)
            return Progress(self._keeping(restored.newest_seed), self._epoch, None)
        state = restored.dataset if self._keeps_dataset else None
        has_begun = restored.base_seed is not None
        if state is not None and not has_begun:
            self.dataset.load_state_dict(state)  # type: ignore[attr-defined]
        progress = Progress(source, restored.epoch, restored)
        is_spent = restored.batches > 0 and progress.is_spent()
        if state is not None and has_begun:
            # Last: a dataset that restores torch's generator means the one that samples draw from.
            self.dataset.load_state_dict(state)  # type: ignore[attr-defined]
        if is_spent:
            return Progress(self._keeping(progress.base_seed), restored.epoch + 1, None)
        return progress

    def _keeping(self, seed: int | None) -> Source:
        """The source of an epoch that follows one of this base seed."""
        return replace(self._source, kept_seed=seed if self.persistent_workers else None)

    @property
    def _keeps_dataset(self) -> bool:
        """Whether a map-style dataset has a state that changes in the order of the batches."""
        return self.num_workers == 0 and has_state(self.dataset)

    def _iteration(self, progress: Progress) -> Iteration:
        finish = self._finisher()
        fetcher = Fetcher(self.dataset, self.collate_fn, self._auto_collation)
        may_draw = self._auto_collation and is_fixed(self._index_sampler)
        arrays = folders = None
        if may_draw and not self._workers_matter:
            arrays = self._native.arrays(self.dataset, self.collate_fn)
        if arrays is not None:
            iteration = ArrayIteration(progress, self.__len__, arrays, fetcher, finish)
            if self.num_workers > 0:  # When torch draws for the first time.
                iteration.draw()
            return iteration
        if may_draw:
            folders = self._native.folders(self.dataset)
        supply = Supply(progress.draw)
        if folders is not None:
            folders.prepare()
            supply = folders.supply(progress)
        if self.num_workers == 0:
            return DirectIteration(progress, self.__len__, supply, fetcher, finish)
        reader = self._reader(progress.base_seed, supply, fetcher, finish)
        limits = Limits(self._batches_ahead(), self.timeout or None)
        return AheadIteration(progress, self.__len__, supply, reader, limits)

    def _reader(
        self, seed: int, supply: Supply, fetcher: Fetcher, finish: Callable[[Any], Any]
    ) -> BatchReader:
        """What reads the batches of an iteration ahead."""
        added = self._added
        if added.worker_method == "thread":
            return ThreadReader(
                supply,
                fetcher,
                self._waits,
                finish,
                threads=self.num_workers if added.measures else added.pool(self.num_workers),
                base_seed=seed,
                in_order=self._in_order,
                arrival=added.fetch == "arrival",
                measures=added.measures,
            )
        processes, persist = self._kept_processes.take(
            lambda: self._start_processes(fetcher, seed), keep=self.persistent_workers
        )
        try:
            reader = ProcessReader(processes, supply, seed, self._waits, persist=persist)
            return reader if finish is _unchanged else FinishedReader(reader, finish)
        except BaseException:
            processes.close()
            raise

    @property
    def _workers_matter(self) -> bool:
        """Whether the user asks for something that only the dataset's own samples can do."""
        added = self._added
        return (
            added.worker_method == "thread"
            or added.pool_size is not None
            or added.fetch != "order"
            or self.worker_init_fn is not None
            or self.timeout > 0
        )

    def _batches_ahead(self) -> int:
        """How many batches are on their way or ready."""
        factor = self.prefetch_factor or 2
        if self._added.worker_method != "thread":
            return factor * self.num_workers
        pool = self._added.pool(self.num_workers)
        size = self.batch_size or getattr(self.batch_sampler, "batch_size", None) or 1
        return factor * max(1, -(-pool // size))

    def _start_processes(self, fetcher: Fetcher, seed: int) -> ReaderProcesses:
        return ReaderProcesses(
            self.multiprocessing_context or torch.multiprocessing.get_context(),
            fetcher,
            count=self.num_workers,
            threads=-(-self._added.pool(self.num_workers) // self.num_workers),
            measures=self._added.measures,
            arrival=self._added.fetch == "arrival",
            in_order=self._in_order,
            batches=self._batches_ahead(),
            base_seed=seed,
            init_fn=self.worker_init_fn,
        )

    def _finisher(self) -> Callable[[Any], Any]:
        """What is done with a complete batch."""
        return Pinning.here() or _unchanged if self.pin_memory else _unchanged

    @property
    def set_epoch(self) -> Callable[[int], None]:
        """``set_epoch(epoch)`` sets the next epoch, by the sampler's `set_epoch`. Setting that of a
        state just loaded keeps the position in it.

        Raises:
            AttributeError: the sampler has no `set_epoch`. Trainers test with hasattr() whether to
                set the epoch.
        """
        if not self._source.has_epoch:
            raise AttributeError(
                f"set_epoch: {type(self.sampler).__name__} has no set_epoch: its order follows "
                "from its generator, pass after pass; restore a place with load_state_dict()",
                name="set_epoch",
            )
        return self._set_epoch

    def _set_epoch(self, epoch: int) -> None:
        integer("epoch", epoch, 0, 2**62)
        self._source.set_epoch(epoch)
        self._epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """The loop's position, after the last batch that it got; after an epoch's last batch, the
        beginning of the next. Plain values, besides the states of samplers."""
        return states.to_state(self._position(), self._facts)

    def _position(self) -> Position:
        if self._restored is not None:
            return self._restored
        progress = self._progress
        if progress is None or progress.is_over():
            state = self._dataset_state(progress)
            return between(self._source, self._epoch, state, self._kept_seed)
        if isinstance(progress, StreamProgress):
            return progress.position()
        return progress.position(self._dataset_state(progress))

    def _dataset_state(self, progress: Progress | StreamProgress | None) -> Any:
        """The state of the dataset, for what is read next."""
        if isinstance(progress, StreamProgress):
            return progress.next_epoch()
        if isinstance(self.dataset, IterableDataset) or not self._keeps_dataset:
            return None
        return self.dataset.state_dict()  # type: ignore[attr-defined]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration continues after the last batch before `state` was saved, with any
        number of workers. With a DistributedSampler it may be the state of any rank, and of
        another number of ranks if a step of all ranks together has the same number of samples.

        Raises:
            InvalidArgumentError: `state` is not a state of a DataLoader.
            FailedPreconditionError: it is of another dataset, or of other parameters. Iterating
                raises it if the sampler gives other samples than before.
        """
        position = states.from_state(state, self._facts)
        states.check_sampler(position, self._source)
        is_divided = isinstance(self.dataset, IterableDataset)
        has_begun = position.batches > 0 or position.dataset is not None
        if is_divided and has_begun:
            start_of(position.dataset, self.num_workers)
        if position.origin.epoch is not None:
            self._source.set_epoch(position.origin.epoch)
        self._restored, self._epoch = position, position.epoch

    def stats(self) -> dict[str, Any]:
        """Who reads the samples, how long the loop waited for batches, and what to do about it.

        `headrace docs dataloader` has the figures. If the engine reads, its figures are those of a
        Loader.
        """
        if self._native.makes_batches:
            reader = "engine"
        elif self.num_workers == 0:
            reader = "loop"
        else:
            reader = "threads" if self.worker_method == "thread" else "processes"
        stats = figures(self._waits, reader)
        stats["engine"] = self._native.stats()
        return stats

    def close(self) -> None:
        """Ends persistent workers and the engine. Other workers end with their iteration."""
        self._native.close()
        if self._stream_reader is not None:
            self._stream_reader.close()
            self._stream_reader = None
        if self.persistent_workers and isinstance(self._progress, StreamProgress):
            self._progress.close()
        self._kept_seed = None
        self._kept_processes.close()


def _unchanged(batch: Any) -> Any:
    return batch
