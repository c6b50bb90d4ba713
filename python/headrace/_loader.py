"""`headrace.Loader`: batches for a training loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, NoReturn, Self

from headrace import _signature as signature
from headrace._arguments import flag
from headrace._dataset import Dataset
from headrace._loading.arguments import (
    check_sampler_fits,
    check_samplers,
    field_kinds,
    opened,
    warn_of_data,
)
from headrace._loading.feed import Delivered, EpochFeed
from headrace._loading.node import node_place
from headrace._loading.observe import Observed, watch
from headrace._loading.options import core_options
from headrace._loading.output import converter, to_user
from headrace._loading.ranks import Ranks
from headrace._loading.sampling import SamplerSource, sampler_source
from headrace._loading.session import Session
from headrace._loading.trainers import NotPrepared
from headrace._observe.advice import data_facts
from headrace._workers import Transform, Transformer, batch_type, split_transform
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
        found = opened(dataset)
        order = as_order(order)
        sampled = sampler is not None or batch_sampler is not None
        ranks = Ranks(rank, world_size, with_sampler=sampled)
        place = node_place(isolation, node, local_rank, local_world_size, start_timeout)
        check_samplers(sampler, batch_sampler, batch_size, drop_last)
        kinds = field_kinds(found, fields)
        native, python = split_transform(
            transform,
            kinds,
            decode=decode,
            workers=workers,
            worker_start=worker_start,
            collate_fn=collate_fn,
            worker_init_fn=worker_init_fn,
            ragged=ragged,
        )
        options = core_options(
            found,
            order,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            transform=native,
            fields=kinds,
            decoded=python.decoded if python is not None else (),
            epochs=epochs,
            ranks=ranks,
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
        source: SamplerSource | None = None
        if sampled:
            check_sampler_fits(order, place)
            source = sampler_source(sampler, batch_sampler, options, drop_last)
        ids = flag("ids", ids)
        self._convert = converter(output)
        self._transformer = Transformer(python, options, self._convert, ids) if python else None
        session = Session(found, options, place, budget, self._transformer)
        delivers = Delivered(kinds, native, ids, python is not None)
        feed = EpochFeed(found, session, options, ranks, source, delivers)
        data = data_facts(found, kinds, native, python, options.substitute, sampled)
        super().__init__(feed, data, profile)
        warn_of_data(found, feed.core, options, on_error, python)
        self._batch = batch_type([*kinds, *(["sample_id"] if ids else [])])
        self._monitor = watch(self, monitor)
        if self._monitor is not None:
            feed.at_close(self._monitor.close)

    @property
    def epoch(self) -> int:
        """The epoch in progress, or to come if none is."""
        return self._feed.at.epoch

    @property
    def expected_inflation(self) -> dict[str, float | None] | None:
        """What the order is expected to do to a batch, from its parameters: `headrace docs quality`

        ``of_blocks``: variance inflation, were all samples of a block alike; ``of_labels``: of the
        labels as they are; each with ``_first`` while the first fill of a run joins. None: batches
        are not biased, or no closed form is known: measure those with ``headrace quality``.
        """
        return self._feed.expected_inflation

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank."""
        return len(self._feed)

    def __iter__(self) -> Iterator[signature.Made]:
        return self._feed.iterate(self._present)

    def _present(self, batch: Any) -> Any:
        """A batch of the core as the user gets it."""
        if self._transformer is not None:
            return self._transformer.present(batch)
        delivers = self._feed.delivers
        return self._batch(*to_user(batch, len(delivers.kinds), delivers.ids, self._convert))

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is; passed on to a sampler that has set_epoch.

        The epoch of a state just loaded keeps its place in it.
        """
        self._feed.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, as a small dict of plain values: after the last batch it gave.

        At the end of an epoch that is the start of the next one.
        """
        return self._feed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the last batch before `state` was saved.

        On any number of ranks, as long as the global batch is the same. A state of another dataset
        or other parameters is refused, and the difference named.
        """
        self._feed.load_state_dict(state)

    def close(self) -> None:
        """Stops reading and gives back threads and memory; batches that are held stay valid."""
        self._feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a headrace.Loader cannot be pickled or copied: it owns threads and memory; make one "
            "in each process, and carry its place over with state_dict()"
        )


def feed_of(loader: Loader[Any]) -> EpochFeed:
    """What a loader takes its batches from, for `headrace.torch`."""
    return loader._feed
