"""The samples of a Loader as a dataset of torch's DataLoader."""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import socket
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from headrace import errors
from headrace._arguments import flag, integer
from headrace._dataset.decoding import decoded_columns
from headrace._loader import Loader, feed_of
from headrace._signature import named_arguments
from headrace._workers import Sample, batch_type, dict_type
from headrace._workers._options import check_was_made, for_function
from headrace._workers._output import SAMPLE_ID
from headrace._workers._protocol import InputField
from headrace._workers._sample import Origin, list_rows, make_samples, sample_hint, sample_type
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    TransformError,
    UnavailableError,
)
from headrace.formats._files.nested import Nesting, RowError
from headrace.torch._accelerate import check_epoch
from headrace.torch._feed import BatchFeed
from headrace.torch._parcel import read_parcel
from headrace.torch._server import MESSAGE_BYTES_MAX, NEXT, Server, peer


class SampleStream(IterableDataset[Any]):
    """The samples of a `headrace.Loader`, for the worker processes of torch's DataLoader.

    >>> loader = hr.Loader("/data/images", batch_size=256, seed=1)
    >>> samples = headrace.torch.SampleStream(loader, transform=prepare)
    >>> batches = torch.utils.data.DataLoader(samples, batch_size=256, num_workers=4)
    >>> for epoch in range(90):
    ...     for image, label in batches:
    ...         ...

    The loader reads, in this process or its node process; DataLoader's workers run `transform` and
    DataLoader's `collate_fn`. If DataLoader has the loader's `batch_size`, its batches are those of
    the loader, one by one, for any `num_workers`: worker i gets every `num_workers`-th of them.
    Each ``iter()`` of the DataLoader is an epoch of the loader, as ``iter(loader)`` is.

    Without `transform` a sample is a named tuple of the loader's fields, tensors and numbers, with
    `sample_id` if it has ``ids=True``; a dict if its `fields` are one. The Loader decides
    everything else: order, seed, rank, image transforms, tiers, a sampler, `node_process`;
    ``loader.stats()`` reports it. Do not set DataLoader's own `shuffle` and `sampler`, as with any
    IterableDataset.

    Thread safety: for one thread. Call `set_epoch` and `load_state_dict` of the stream, not of its
    loader, and do not iterate the loader. `close`, or dropping the stream, ends it; the loader
    stays open.

    Args:
        loader: a Loader without a Python transform.
        transform: gets one `headrace.Sample`, and returns whatever DataLoader's `collate_fn` takes.
            In workers that are not forked it is pickled. What it draws from ``sample.rng`` is
            fixed by seed, epoch and sample. Images are decoded; or it is a transform of torchvision
            or Albumentations: as the Loader's, `headrace docs workers`.
        decode: False: `transform` gets encoded bytes.

    Raises:
        InvalidArgumentError: names the invalid argument.
    """

    @named_arguments
    def __init__(
        self,
        loader: Loader,
        transform: Callable[[Sample], Any] | None = None,
        *,
        decode: bool = True,
    ) -> None:
        if not isinstance(loader, Loader):
            raise InvalidArgumentError(f"loader: got {loader!r}, must be a headrace.Loader")
        feed: BatchFeed = feed_of(loader)
        if feed.delivers.python:
            raise InvalidArgumentError(
                "loader: it has a Python transform or a collate_fn, which runs in workers of its "
                "own; give the transform here, and collate_fn to DataLoader"
            )
        check_was_made("transform", transform)
        if transform is not None and not callable(transform):
            raise InvalidArgumentError(f"transform: got {transform!r}, must be callable")
        flag("decode", decode)
        feed.check_open()
        server = Server(feed)
        self._server: Server | None = server
        self._loader = loader  # Keeps the monitor of `headrace top` alive as long as the stream.
        self._iterations = 0
        self._end: Any = weakref.finalize(self, Server.close, server)
        kinds, native = feed.delivers.kinds, feed.delivers.native
        library, decoded = for_function(transform, native, kinds, decode)
        self._reader = _Reader(
            server.fields,
            feed.delivers.ids,
            feed.delivers.seed,
            library or transform,
            server.address,
            decoded,
            feed.delivers.keys,
        )

    def __iter__(self) -> Iterator[Any]:
        self._iterations += 1
        worker = get_worker_info()
        if worker is None:
            return self._here()
        # DataLoader starts the workers of an iteration one after the other.
        identity = multiprocessing.current_process()._identity
        started = [*identity[:-1], identity[-1] - worker.id] if identity else []
        said = {
            "iteration": [worker.seed - worker.id, self._iterations],
            "started": started,
            "worker": worker.id,
            "workers": worker.num_workers,
        }
        return self._reader.samples(_dealt(self._reader, json.dumps(said).encode()))

    def _here(self) -> Iterator[Any]:
        """Without workers."""
        server = self._owned()
        self._check_open()
        with server.anew():
            batches = server.begin()
        return self._reader.samples(_taken(server, batches))

    def __len__(self) -> int:
        """Samples of this rank's epoch; only those of full batches if the number is unknown."""
        return self._owned().feed.samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, as Loader's. Ends the current iteration."""
        server = self._owned()
        check_epoch(server, server.feed, epoch)
        with server.anew():
            server.feed.set_epoch(epoch)

    def state_dict(self, batches: int) -> dict[str, Any]:
        """The training loop's position: a state of the Loader, for a Loader or a stream.

        Args:
            batches: how many batches DataLoader returned in this iteration. DataLoader reads ahead,
                so only the loop knows.
        """
        server = self._owned()
        feed, begun = server.feed, server.newest
        if begun is None:
            with server.lock:
                integer("batches, as no iteration has begun", batches, 0, 0)
                return feed.state_dict()
        # Without the lock: its holder may wait for a batch, which may wait for other ranks.
        most = feed.cursor.length(begun.plan) - begun.step
        step = begun.step + integer("batches", batches, 0, most)
        return feed.state_at(begun._replace(step=step))

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continues at `state`, of a stream or a Loader, as Loader's does."""
        server = self._owned()
        with server.anew():
            server.feed.load_state_dict(state, strict)

    def close(self) -> None:
        """Ends the workers' connections. The loader stays open."""
        if self._end is not None:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the address of the loader's server for a worker, not the loader."""
        self._check_open()
        return {"_server": None, "_end": None, "_iterations": 0, "_reader": self._reader}

    def _owned(self) -> Server:
        if self._server is None or self._server.process != os.getpid():
            raise FailedPreconditionError(
                "a SampleStream in another process than the one that made it serves only "
                "DataLoader's workers there; make a SampleStream in this process"
            )
        return self._server

    def _check_open(self) -> None:
        if self._end is not None and not self._end.alive:
            raise FailedPreconditionError("the stream is closed; make another one")


def check_steps(stream: SampleStream, batch_size: int | None) -> None:
    """Refuses a DataLoader, of this batch size, whose steps are not those of the stream's loader.

    Raises:
        FailedPreconditionError: the loader has batches of another size.
    """
    feed = feed_of(stream._loader)
    size = feed.options.batch_size if feed.source is None else feed.source.full_batch_size
    if size != batch_size:
        raise FailedPreconditionError(
            f"state: the DataLoader has batch_size {batch_size} and the SampleStream's loader "
            f"{'batches of any size' if size is None else size}: a state is a step of the loader, "
            "so samples would be lost or repeated; give both the same batch_size"
        )


Batch = tuple[int, int, list[int], list[Sequence[Any]]]
"""(epoch, step, numbers of the samples, rows of each field)"""


@dataclass(frozen=True)
class _Reader:
    """Makes samples from batches. Pickled for workers."""

    fields: tuple[InputField, ...]
    ids: bool
    seed: int
    transform: Callable[[Sample], Any] | None
    address: str
    decoded: tuple[str, ...]
    """Fields whose images are decoded for the transform."""
    keys: Sequence[str] | None
    """The names of the fields in samples that are dicts; None: these are named tuples."""

    def samples(self, batches: Iterable[Batch]) -> Iterator[Any]:
        nesting = Nesting([field.name for field in self.fields])
        names = nesting.names
        if self.transform is None:
            members = [*(self.keys or names), *[SAMPLE_ID] * self.ids]
            make = batch_type(members) if self.keys is None else dict_type(members)
            for _, _, ids, stored in batches:
                columns = _joined(nesting, stored, ids)
                given = [*columns, np.array(ids, np.int64)] if self.ids else columns
                for values in zip(*given, strict=True):
                    yield make(*map(_to_torch, values))
            return
        kind = sample_type(names)
        positions = [names.index(name) for name in self.decoded]
        for epoch, step, ids, stored in batches:
            decoded = decoded_columns(_joined(nesting, stored, ids), positions)
            samples = make_samples(kind, decoded, ids, Origin(self.seed, epoch))
            for slot, number in enumerate(ids):
                try:
                    made = self.transform(next(samples))
                except (Exception, SystemExit) as error:
                    where = f"transforming epoch {epoch} step {step} slot {slot} sample {number}"
                    # It would end this process without a message.
                    if isinstance(error, SystemExit):
                        raise TransformError(f"{where}: SystemExit: {error}") from error
                    error.add_note(where)
                    hint = sample_hint(error)
                    if hint is not None:
                        error.add_note(hint)
                    raise
                yield made


def _joined(nesting: Nesting, columns: list[Sequence[Any]], ids: list[int]) -> list[Sequence[Any]]:
    try:
        return nesting.joined(columns)
    except RowError as error:
        raise DataLossError(f"sample {ids[error.row]}: {error}") from None


def _to_torch(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_torch(each) for each in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _taken(server: Server, batches: Iterator[Any]) -> Iterator[Batch]:
    """Samples from the loader of this process."""
    while True:
        with server.lock:
            batch = next(batches, None)
        if batch is None:
            return
        columns: list[Sequence[Any]] = []
        for position in range(len(server.fields)):
            view = batch.field(position)
            if isinstance(view, list):
                columns.append(list_rows(view))
            else:
                columns.append(np.asarray(view))  # type: ignore[arg-type]
        yield batch.epoch, batch.step, batch.samples().tolist(), columns


def _dealt(reader: _Reader, hello: bytes) -> Iterator[Batch]:
    """Samples from the loader of the process that started this one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(reader.address)
        except ConnectionRefusedError:
            raise UnavailableError(
                "asking for samples: the stream is closed; make another one"
            ) from None
        process, user = peer(connection)
        if user != os.geteuid():
            raise UnavailableError(
                f"asking for samples: process {process} is user {user}'s; run both as one user"
            )
        try:
            connection.send(hello)
        except (BrokenPipeError, ConnectionResetError):
            raise UnavailableError(
                "asking for samples: the stream is closed; make another one"
            ) from None
        while (batch := _asked(connection, process, reader)) is not None:
            yield batch


def _asked(connection: socket.socket, process: int, reader: _Reader) -> Batch | None:
    """The worker's next batch; None at the end."""
    try:
        connection.send(NEXT)
        if not _wait(connection, process):
            raise ConnectionResetError
        message, descriptors, _, _ = socket.recv_fds(
            connection, MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
        )
    except (BrokenPipeError, ConnectionResetError):
        message, descriptors = b"", []
    try:
        if not message:
            raise UnavailableError(
                f"waiting for samples: process {process}, which reads them, has ended, or closed "
                "its loader or stream; see its output"
            )
        told = json.loads(message)
        if "error" in told:
            kind = getattr(errors, told["error"], None)
            if kind is None:
                raise errors.HeadraceError(f"{told['error']}: {told['text']}")
            raise kind(told["text"])
        if "end" in told:
            return None
        ids, columns = read_parcel(reader.fields, descriptors[0], told["rows"])
        return told["epoch"], told["step"], ids, columns
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _wait(connection: socket.socket, process: int) -> bool:
    """Waits for an answer. Returns False if the process has ended without one.

    The connection alone does not show that: a worker that was forked later has it, too.
    """
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return False
    try:
        poll = select.poll()
        for each in (connection.fileno(), watched):
            poll.register(each, select.POLLIN)
        return any(ready == connection.fileno() for ready, _ in poll.poll())
    finally:
        os.close(watched)
