"""`headrace.Loader`: batches for a training loop."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Generic, NoReturn, Self

from headrace import _core
from headrace import _signature as signature
from headrace._arguments import flag, integer
from headrace._dataset import Dataset
from headrace._loading.arguments import (
    check_sampler_fits,
    check_samplers,
    field_kinds,
    opened,
    tiers_in_trouble,
    warn_of_data,
    warn_of_held_batches,
)
from headrace._loading.iteration import Iteration
from headrace._loading.node import node_place
from headrace._loading.observe import Observed, watch
from headrace._loading.options import EPOCHS_MAX, core_options, set_order_parameters
from headrace._loading.output import converter, to_user
from headrace._loading.ranks import Ranks
from headrace._loading.sampling import EpochPlan, SamplerSource, sampler_source
from headrace._loading.session import Session
from headrace._loading.state import check_state, make_state, order_parameters_to_adopt
from headrace._loading.trainers import NotPrepared
from headrace._observe.advice import data_facts
from headrace._workers import Core, Transform, Transformer, batch_type, split_transform
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.orders import Order, as_order
from headrace.profile import MachineProfile
from headrace.tiers import Part, Tier


class Loader(Observed, NotPrepared, Generic[signature.Made]):
    """Batches of a dataset, epoch after epoch, read and decoded ahead of the training loop.

    >>> loader = hr.Loader("/data/images", batch_size=256, transform=hr.image.train(224))
    >>> for epoch in range(90):
    ...     for image, label in loader:
    ...         ...

    **Iterating.** ``iter(loader)`` starts an epoch: the next one, as a new ``for`` over torch's
    DataLoader is a new shuffle. Leaving a loop early ends that epoch; the next ``for`` starts the
    one after it. ``set_epoch(e)`` says which epoch comes next; ``load_state_dict`` continues where
    a state was saved. A loader has one iteration at a time.

    **Order.** Seed and epoch fix every batch; threads, storage and resume change nothing. With
    several ranks each takes what torch's DistributedSampler would give it. All ranks have equally
    many batches: without `drop_last` the epoch is padded from its own beginning.

    **Memory.** A batch's memory is held until its last view dies, then used again. If you hold so
    many that the budget is full, further batches take memory beyond it: one warning, counted in
    ``stats()``.

    Thread safety: one thread iterates, takes and loads states; any may call `stats`, `explain` and
    `close`. After a fork the child has to make a loader of its own.

    Args:
        dataset: what ``headrace.open`` returns, or its path.
        batch_size: samples in a batch of one rank.
        shuffle: a new random order every epoch; else the order of the dataset.
        order: "exact": every sample where the seed, or the sampler, puts it; "batch": the same
            global batches, levelled over ranks; "epoch": every sample once an epoch, in an order
            that reads storage in large blocks, each once; "redox": the papers' way to do that. Or
            one of `headrace.orders`, with its parameters.
        seed: of the order and of random transforms.
        drop_last: leave the last, smaller batch out.
        transform: an image transform (`headrace.image`) for every image field, or a dict of field
            name to transform; without one, images are given as their encoded bytes. Or a Python
            callable, which gets one `headrace.Sample` with decoded images and returns arrays,
            numbers, str or bytes, or a tuple or dict of them; or one of torchvision or
            Albumentations, for the image; or a pair of both: it gets what the former made.
        decode: False: a Python callable gets encoded bytes; True: a `collate_fn` decoded images.
        fields: names of the fields wanted, in this order; all of them by default.
        sampler: an iterable of sample numbers, asked once an epoch; as torch's `sampler`.
        batch_sampler: an iterable of batches of them; as torch's `batch_sampler`.
        epochs: epochs of the run, if known: reading ahead stops after the last.
        rank, world_size: of this process; by default torch.distributed's or those of torchrun's
            environment, when the loader is made; `headrace docs trainers`.
        memory: budget in bytes, or "4GiB", or "20%" of the machine's; by default what is useful.
            Decoders and Python workers' results are in it (`headrace docs loader`).
        threads: that decode, beside a training loop that waits; by default one a usable core.
        io: "auto", "io_uring", "threads"; or "synthetic": no I/O, each sample one of a few that are
            read at the start: what is left is decoding and handing over.
        workers: processes that run the Python callable, 1 by default; 0: none, it runs in this one.
        worker_start: how they begin, as in multiprocessing: "spawn", "fork", "forkserver".
        collate_fn: makes a batch of the list of its samples' results, in a worker.
        worker_init_fn: called in each worker with its number, before anything else.
        ragged: results that differ in shape are an "error", or a "pad" or "list" batch;
            `headrace docs workers`.
        on_error: "raise" at a sample that cannot be read or decoded, or "substitute" another one:
            drawn from the seed, counted, and listed in ``stats()``.
        verify: samples against their checksums, where the dataset has them.
        output: "torch" tensors, "numpy" arrays, "dlpack" exporters; "auto": torch if installed.
        ids: the numbers of the samples as one more field, `sample_id`.
        prefetch: batches to work ahead; by default as many as the memory allows.
        tiers: where samples are kept between epochs, fastest first: `headrace.tiers.Ram` and `Ssd`.
        placement: by which plan tiers are filled and emptied: "coordinated", "frequency", "pinned",
            "first_touch", "reuse", "belady", "lru" or "none"; `headrace docs placements`.
        horizon: epochs that the plan looks ahead; by default those of the run, 16 if not known.
        budget: a part of a `headrace.tiers.Budget` instead of `memory` and `tiers`.
        profile: what `headrace profile` measured, or its file: where storage is faster than a tier
            that has a sample, it is read from there.
        isolation: "thread"; or "process": one engine that all ranks share; `headrace docs node`.
        node: name of a running ``headrace node`` to be used instead.
        local_rank, local_world_size: of this process on its node, if they are not torchrun's; with
            several ranks MASTER_PORT has to be set, too: `headrace docs node`.
        start_timeout: seconds to wait for ranks of the node that make no loader, or its process.
        monitor: answers ``headrace top``; default: if HEADRACE_MONITOR=1; `headrace docs observe`.
        schedule: how ranks of a node process share reads and decode threads: "shared_deadline",
            "lobster", "lobster_search", "fixed", or a plan's file: `headrace docs schedule`.

    Raises:
        InvalidArgumentError: an argument that cannot be, by name.
        NotFoundError, DataLossError, ...: from opening the dataset.
    """

    _closed = True  # Until there is something to close.

    @signature.loader_arguments
    def __init__(
        self,
        dataset: Dataset | str | os.PathLike[str],
        batch_size: int = 1,
        *,
        shuffle: bool = True,
        order: Order | signature.OrderName = "exact",
        seed: int = 0,
        drop_last: bool = False,
        transform: Transform = None,
        decode: bool | None = None,
        fields: Iterable[str] | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Iterable[Any]] | None = None,
        epochs: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        io: signature.Io = "auto",
        workers: int | None = None,
        worker_start: signature.WorkerStart = "spawn",
        collate_fn: Callable[[list[Any]], Any] | None = None,
        worker_init_fn: Callable[[int], object] | None = None,
        ragged: signature.Ragged = "error",
        on_error: signature.OnError = "raise",
        verify: bool = True,
        output: signature.Output = "auto",
        ids: bool = False,
        prefetch: int | None = None,
        tiers: Iterable[Tier] | None = None,
        placement: signature.Placement = "coordinated",
        horizon: int | None = None,
        budget: Part | None = None,
        profile: MachineProfile | str | os.PathLike[str] | None = None,
        isolation: signature.Isolation | None = None,
        node: str | None = None,
        local_rank: int | None = None,
        local_world_size: int | None = None,
        start_timeout: int = 600,
        monitor: bool | None = None,
        schedule: str | os.PathLike[str] = "shared_deadline",
    ) -> None:
        self.dataset = opened(dataset)
        self._order = as_order(order)
        sampled = sampler is not None or batch_sampler is not None
        self._ranks = Ranks(rank, world_size, with_sampler=sampled)
        self._place = node_place(isolation, node, local_rank, local_world_size, start_timeout)
        check_samplers(sampler, batch_sampler, batch_size, drop_last)
        fields = field_kinds(self.dataset, fields)
        native, python = split_transform(
            transform,
            fields,
            decode=decode,
            workers=workers,
            worker_start=worker_start,
            collate_fn=collate_fn,
            worker_init_fn=worker_init_fn,
            ragged=ragged,
        )
        options = core_options(
            self.dataset,
            self._order,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            transform=native,
            fields=fields,
            decoded=python.decoded if python is not None else (),
            epochs=epochs,
            ranks=self._ranks,
            memory=memory,
            threads=threads,
            io=io,
            on_error=on_error,
            verify=verify,
            prefetch=prefetch,
            tiers=tiers,
            placement=placement,
            horizon=horizon,
            budget=budget,
            profile=profile,
            schedule=schedule,
        )
        self._native = native
        self._profile = profile
        self._given = dict(options.order.parameters)  # What a state has to agree with.
        self._rank = options.rank
        self._source: SamplerSource | None = None
        if sampled:
            check_sampler_fits(self._order, self._place)
            self._source = sampler_source(sampler, batch_sampler, options, drop_last)
        self._options = options
        self._ids = flag("ids", ids)
        self._convert = converter(output)
        self._transformer = Transformer(python, options, self._convert, ids) if python else None
        self._session = Session(self.dataset, options, self._place, budget, self._transformer)
        self._closed = False
        self._expected_inflation = self._core.expected_inflation
        warn_of_data(self.dataset, self._core, options, on_error, python)
        self._order_parameters = self._core.order_parameters  # every default filled in
        self._steps_per_epoch = self._core.steps_per_epoch  # Of the loader's own order.
        self._fields = [name for name, _, _, _ in self._core.schema]
        self._data = data_facts(self.dataset, fields, native, python, options.substitute, sampled)
        self._batch = batch_type(self._fields + (["sample_id"] if ids else []))
        self._epoch, self._step = 0, 0  # how many batches of which epoch the user was given
        self._next: tuple[int, int] | None = None  # where the next iteration is to start
        self._run_at: tuple[int, int] | None = None  # what the core would give next
        self._plan: EpochPlan | None = None  # of `_epoch`, with a sampler
        self._began_at = (0, 0)  # the newest iteration
        self._untouched = False  # it was left before its first batch: the next one repeats it
        self._restoring: dict[str, Any] | None = None  # its sampler's epoch is not drawn
        self._iteration = 0  # number of the newest one
        self._iterating = False  # it has begun, and not ended
        self._warned = False
        self._troubled: set[str] = set()  # tiers that the user was warned about
        _open_loaders.add(self)
        self._monitor = watch(self, monitor)

    @property
    def _core(self) -> Core:
        return self._session.core

    def _reopen(self, undo: Callable[[], None]) -> None:
        """Opens a core for the options as they are now; `undo` restores them if that fails."""
        self._end_iteration()  # Whatever comes: the core that it took batches of is gone.
        self._run_at = None
        self._session.reopen(undo, self.close)

    @property
    def epoch(self) -> int:
        """The epoch in progress, or to come if none is."""
        return self._epoch

    @property
    def expected_inflation(self) -> dict[str, float | None] | None:
        """What the order is expected to do to a batch, from its parameters: `headrace docs quality`

        ``of_blocks``: variance inflation, were all samples of a block alike; ``of_labels``: of the
        labels as they are; each with ``_first`` while the first fill of a run joins. None: batches
        are not biased, or no closed form is known: measure those with ``headrace quality``.
        """
        return self._expected_inflation

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank."""
        return len(self._source) if self._source is not None else self._steps_per_epoch

    def __iter__(self) -> Iterator[signature.Made]:
        return self._iterate(self._present)

    def _iterate(self, present: Callable[[Any], Any], base_seed: bool = True) -> Iteration:
        """The next epoch, as `present` makes of the core's batches.

        Without `base_seed`, torch's DataLoader is around this loader and draws it itself.
        """
        self._check_open()
        self._ranks.check()
        if self._next is not None:
            epoch, step = self._next
        else:  # An epoch that was left early is over.
            epoch, step = (self._epoch + 1, 0) if self._step else (self._epoch, 0)
        if epoch >= self._options.epochs:
            raise FailedPreconditionError(
                f"iterating epoch {epoch}: the loader was made for epochs={self._options.epochs}; "
                "raise it, leave it out, or go back with set_epoch()"
            )
        self._begin(epoch, step, base_seed)
        self._began_at, self._next, self._untouched = (epoch, step), None, False
        self._end_iteration()
        self._iterating = True
        return Iteration(self, self._iteration, present)

    def _begin(self, epoch: int, step: int, base_seed: bool) -> None:
        """Has the core give `step` of `epoch` next."""
        if self._source is not None:
            if self._untouched and self._plan and self._plan.sampler_epoch == self._source.epoch:
                pass  # Drawn already, and nothing taken.
            elif self._restoring is not None:
                self._plan = self._source.draw_again(self._restoring, base_seed)
                self._restoring = None
            else:
                self._plan = self._source.draw(base_seed)
            self._make_room(self._plan.largest_batch)
            self._core.start_list(self._plan.ids, self._plan.batch_ends, epoch, step)
        elif self._run_at != (epoch, step):
            self._core.start(epoch, step)
        self._run_at = (epoch, step)
        self._epoch, self._step = epoch, step

    def _make_room(self, largest_batch: int) -> None:
        """Divides the memory anew if a batch sampler gives larger batches than was known."""
        before = self._options.batch_size
        if largest_batch > before:
            self._options.batch_size = largest_batch
            self._reopen(lambda: setattr(self._options, "batch_size", before))

    def _take(self, iteration: int) -> Any:
        """The core's next batch of an iteration; StopIteration at its end."""
        self._check_open()
        if iteration != self._iteration:
            raise FailedPreconditionError(
                "this iteration of the loader is over: a newer one was begun; a loader has one at "
                "a time, make a second loader to have two"
            )
        if self._plan is not None and self._step >= len(self._plan.batch_ends):
            self._end_epoch()
            raise StopIteration
        try:
            batch = self._core.next()
        except BaseException:
            self._run_at = None
            raise
        if batch is None:
            raise FailedPreconditionError("the plan of the loader has ended")
        self._step = batch.step + 1
        self._run_at = (batch.epoch, self._step)
        if batch.ends_epoch:
            self._run_at = (batch.epoch + 1, 0) if self._source is None else None
        if batch.beyond_budget and not self._warned:
            self._warned = True
            warn_of_held_batches(self._core)
        if self._options.tier_count:
            tiers_in_trouble(self._core, self._troubled)
        return batch

    def _present(self, batch: Any) -> Any:
        """A batch of the core as the user gets it."""
        if self._transformer is not None:
            return self._transformer.present(batch)
        return self._batch(*to_user(batch, len(self._fields), self._ids, self._convert))

    def _end_iteration(self) -> None:
        """What is being iterated is over: it gets no more batches."""
        self._iteration += 1
        self._iterating = False

    def _epoch_is_over(self) -> bool:
        return self._step >= self._epoch_length(self._plan)

    def _epoch_length(self, plan: EpochPlan | None) -> int:
        return len(plan.batch_ends) if plan is not None else self._steps_per_epoch

    def _end_epoch(self) -> None:
        self._iterating = False
        self._epoch, self._step, self._plan = self._epoch + 1, 0, None

    def _leave(self, iteration: int) -> None:
        """An iteration was dropped before its end: what was read ahead for it is let go."""
        if iteration == self._iteration and not self._closed:
            self._iterating = False
            self._run_at = None
            if self._next is None and (self._epoch, self._step) == self._began_at:
                self._next, self._untouched = self._began_at, True
            self._core.stop()

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is; passed on to a sampler that has set_epoch.

        The epoch of a state just loaded keeps its place in it.
        """
        epoch = integer("epoch", epoch, 0, EPOCHS_MAX - 1)
        keeps_place = self._next is not None and self._next[0] == epoch
        if not keeps_place:
            self._next, self._untouched = (epoch, 0), False
            self._restoring = None
        if self._source is not None and self._next is not None and self._next[1] == 0:
            self._source.set_epoch(epoch)
            if self._restoring is not None:
                self._restoring["sampler_epoch"] = self._source.epoch

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, as a small dict of plain values: after the last batch it gave.

        At the end of an epoch that is the start of the next one.
        """
        # What set_epoch() said counts from the next iteration on.
        coming = None if self._iterating else self._next
        epoch, step = coming or (self._epoch, self._step)
        plan = self._plan if coming is None or self._untouched else None
        if self._restoring is not None:
            return dict(self._restoring)
        return self._state_at(epoch, step, plan)

    def _state_at(self, epoch: int, step: int, plan: EpochPlan | None) -> dict[str, Any]:
        """The state before `step` of `epoch`, which may be the end of it."""
        if step and step >= self._epoch_length(plan):
            epoch, step, plan = epoch + 1, 0, None
        return make_state(
            self.dataset, self._options, epoch, step, self._source, plan, self._order_parameters
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the last batch before `state` was saved.

        On any number of ranks, as long as the global batch is the same. A state of another dataset
        or other parameters is refused, and the difference named.
        """
        epoch, step = check_state(state, self.dataset, self._options, self._source)
        if self._source is None and step >= self._steps_per_epoch:
            raise InvalidArgumentError(
                f"state: step {step} of epoch {epoch}, but an epoch has {self._steps_per_epoch}"
            )
        self._adopt(order_parameters_to_adopt(state, self._given, self._order_parameters))
        self._end_iteration()
        self._next, self._untouched = (epoch, step), False
        self._epoch, self._step, self._plan = epoch, 0, None
        self._restoring = dict(state) if self._source is not None else None
        if self._source is not None and state["sampler_epoch"] is not None:
            self._source.set_epoch(state["sampler_epoch"])  # Now: the user may say more later.

    def _adopt(self, parameters: dict[str, int | str]) -> None:
        """Goes on with these parameters of the order, all of them known."""
        if parameters == self._order_parameters:
            return
        before = self._options.order.parameters
        set_order_parameters(self._options, parameters)
        self._reopen(lambda: set_order_parameters(self._options, before))
        self._order_parameters = self._core.order_parameters
        self._expected_inflation = self._core.expected_inflation

    def close(self) -> None:
        """Stops reading and gives back threads and memory; batches that are held stay valid."""
        if not self._closed:
            self._closed = True
            _open_loaders.discard(self)
            with ExitStack() as then:  # Whatever is raised: Ctrl-C shortens what it waits for.
                then.callback(self._session.close_workers)
                if self._monitor is not None:
                    then.callback(self._monitor.close)
                self._session.close()  # First: the monitor's thread may wait for its answer.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a headrace.Loader cannot be pickled or copied: it owns threads and memory; make one "
            "in each process, and carry its place over with state_dict()"
        )


_open_loaders: weakref.WeakSet[Loader[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Before the interpreter goes: threads and memory are given back in order.

    Daemon threads that iterate stop where they are, without a word, as they do in all of Python.
    """
    _core.begin_exit()
    for loader in list(_open_loaders):
        loader.close()
    if threading.active_count() > 1:  # They keep what they were at.
        _core.allow_leaks()
