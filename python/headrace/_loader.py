"""`headrace.Loader`: batches for a training loop."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, NoReturn, Self

from headrace import _signature as signature
from headrace._dataset import Dataset, check_has_samples
from headrace._loading.arguments import opened, tell_of_encoded, warn_of_data
from headrace._loading.facts import data_facts
from headrace._loading.feed import BatchFeed, Delivered, EpochFeed
from headrace._loading.not_torchs import NotADataLoader, warn_of_accelerate
from headrace._loading.observe import Observed, watch
from headrace._loading.options import LoaderArguments, resolve
from headrace._loading.output import converter, joins, to_user
from headrace._loading.session import Session
from headrace._names import OrderName
from headrace._options.groups import (
    Cache,
    EngineOptions,
    Job,
    Output,
    Workers,
    group,
    spellings,
)
from headrace._process.tracebacks import release
from headrace._workers import Transform, Transformer
from headrace.formats._files.nested import Nesting
from headrace.orders import Order
from headrace.tiers import Part, Tier


class Loader(NotADataLoader, Observed, Generic[signature.Made], metaclass=signature.PublicHelp):
    """Batches of a dataset, epoch after epoch, read and decoded ahead of the training loop.

    >>> loader = hr.Loader("/data/images", batch_size=256, transform=hr.image.train(224))
    >>> for image, label in loader:  # an epoch; the next `for` is the next epoch
    ...     ...

    Seed and epoch fix every batch, on any number of threads and after any resume. One thread
    iterates, saves and loads states; any may call `stats`, `explain` and `close`. A forked child
    must make its own loader. `headrace docs loader` has the rest.

    Args:
        dataset: a path, or what ``headrace.open`` returned.
        batch_size: samples in a batch of one rank.
        shuffle: True: a new random order every epoch; False: the order of the dataset.
        order: "exact", "batch", "epoch", or one of `headrace.orders` with parameters.
        seed: seed of the order and of random transforms.
        drop_last: drop the last batch if it is smaller.
        transform: one of `headrace.image` or `headrace.audio`, or a dict of them by field; or a
            Python callable, which gets a `headrace.Sample`; or a pair. Default: nothing is decoded.
        sampler, batch_sampler: as torch's: an iterable of sample numbers, or of batches of them.
        epochs: number of epochs of the run, if known: then nothing is read ahead after the last.
        memory: limit of the loader's memory: bytes, "4GiB", or "20%" of the machine's; or a part of
            a `headrace.tiers.Budget`, with its tiers. Default: as much as is useful, at most a
            quarter of the machine's.
        threads: number of threads that decode; default: one per usable core.
        tiers: where to keep samples between epochs: one of `headrace.tiers`, or a list, fastest
            first; or a `headrace.Cache`, which also says which samples they keep.
        workers: number of processes for the Python callable, default 1; or a `headrace.Workers`.
        on_error: if a sample cannot be read or decoded: "raise", or "substitute" another sample.
        output: "torch" tensors, "numpy" or "jax" arrays, or "dlpack" exporters; "auto": torch if
            installed, otherwise NumPy. Or a `headrace.Output`, which also says what batches hold:
            which fields, decoded or not, with the samples' numbers or not.
        job: `headrace.Job`: rank, world size, ranks that get the same batches, machines.
        engine: `headrace.EngineOptions`: how it reads, verifies, prefetches, and is monitored.

    Raises `InvalidArgumentError`, which names the invalid argument; and what `open` raises.
    """

    _is_wrapped = False  # something puts batches on a device, or the user was warned

    @signature.helped(signature.OF_OTHERS, spellings())
    def __init__(
        self,
        dataset: Dataset | str | os.PathLike[str],
        batch_size: int = 1,
        *,
        shuffle: bool = True,
        order: Order | OrderName = "exact",
        seed: int = 0,
        drop_last: bool = False,
        transform: Transform = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Iterable[Any]] | None = None,
        epochs: int | None = None,
        memory: int | str | Part | None = None,
        threads: int | None = None,
        tiers: Tier | Iterable[Tier] | Cache | None = None,
        workers: int | Workers | None = None,
        on_error: signature.OnError = "raise",
        output: signature.Arrays | Output = "auto",
        job: Job | None = None,
        engine: EngineOptions | None = None,
    ) -> None:
        arguments = LoaderArguments(
            batch_size=batch_size,
            shuffle=shuffle,
            order=order,
            seed=seed,
            drop_last=drop_last,
            transform=transform,
            sampler=sampler,
            batch_sampler=batch_sampler,
            epochs=epochs,
            memory=memory,
            threads=threads,
            tiers=tiers,
            workers=workers,
            on_error=on_error,
            output=output,
            job=job,
            engine=engine,
        )
        dataset = opened(dataset)
        check_has_samples("loading dataset", dataset)
        resolved = resolve(dataset, arguments)
        options, python = resolved.options, resolved.python
        self._convert = converter(output)
        self._batch = resolved.batch
        self._joined = joins(resolved.kinds, resolved.output.ragged) if python is None else {}
        self._transformer = (
            Transformer(python, options.seed, self._convert, resolved.output.ids, self._batch)
            if python
            else None
        )
        session = Session(dataset, resolved, self._transformer)
        delivers = Delivered.by(session.core.schema, resolved)
        feed = EpochFeed(dataset, session, resolved, delivers)
        engine = group("engine", engine, EngineOptions)
        super().__init__(feed, data_facts(dataset, resolved), engine.profile)
        self._nesting = Nesting([name for name, *_ in delivers.schema])
        try:
            wanted = resolved.output.fields
            warn_of_data(dataset, feed.core, options, python, wanted, resolved.kinds)
            self._monitor = watch(self, engine.monitor, session.job)
        except BaseException:  # Whoever keeps it keeps this frame.
            feed.close()
            raise
        if self._monitor is not None:
            feed.at_close(self._monitor.close)

    @property
    def epoch(self) -> int:
        """The epoch in progress or, if there is none, the next one."""
        return self._feed.cursor.at.epoch

    @property
    def expected_inflation(self) -> dict[str, float | None] | None:
        """How much more batches vary than with a perfect shuffle, by the order's parameters, or
        None; `headrace docs quality`."""
        return self._feed.order.expected_inflation

    def __len__(self) -> int:
        """Number of batches in an epoch, the same on every rank."""
        return len(self._feed)

    def __iter__(self) -> Iterator[signature.Made]:
        try:
            if not self._is_wrapped:
                self._is_wrapped = warn_of_accelerate()
            if self._transformer is None and self._feed.delivers.native is None:
                tell_of_encoded(self._feed.dataset, self._feed.delivers.kinds)
            return self._feed.iterate(self._present)
        except BaseException as error:
            release(error)
            del self  # The traceback keeps this frame.
            raise

    def __getitem__(self, number: Any) -> NoReturn:
        """Raises: torch's DataLoader, and a Trainer, ask for samples by number."""
        raise TypeError(
            "a headrace.Loader gives batches to a loop, not samples by number: iterate it in place "
            "of torch's DataLoader; give Hugging Face's Trainer a headrace.torch.TrainerLoader("
            "loader) as what get_train_dataloader() returns (`headrace docs trainers`); samples "
            "are those of headrace.open(path)"
        )

    def _present(self, batch: Any) -> Any:
        """A batch of the core as the user gets it."""
        if self._transformer is not None:
            return self._transformer.present(batch)
        delivers = self._feed.delivers
        return self._batch(
            *to_user(batch, self._nesting, delivers.ids, self._convert, self._joined)
        )

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, and the sampler's, if it has `set_epoch`; else its
        next pass comes. Setting the epoch of a state just loaded keeps the position in it."""
        self._feed.set_epoch(epoch)

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Of a mixture, on all ranks: these weights from the next batch on. States keep them."""
        self._feed.set_weights(weights)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that the loader gave: a small dict of plain values."""
        return self._feed.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continues after the last batch before `state` was saved, on any number of ranks with the
        same global batch. Refuses a state of other parameters, or of another dataset unless that is
        a copy; `strict=False` accepts any with the same number of samples and the same fields."""
        self._feed.load_state_dict(state, strict)

    def close(self) -> None:
        """Stops reading, and frees threads and memory; batches that you hold stay valid."""
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


def feed_of(loader: Loader[Any]) -> BatchFeed:
    """The loader's batches and position, for adapters to other libraries."""
    return loader._feed


def mark_wrapped(loader: Loader[Any]) -> None:
    """The caller puts batches on a device and keeps the position: do not warn."""
    loader._is_wrapped = True


def unnamed_fields(loader: Loader[Any]) -> list[str] | None:
    """The fields of batches that are named tuples of them; None: batches are something else."""
    delivers, made = loader._feed.delivers, loader._transformer
    is_tuple = delivers.keys is None and (made is None or made.are_fields)
    return list(delivers.kinds) if is_tuple else None
