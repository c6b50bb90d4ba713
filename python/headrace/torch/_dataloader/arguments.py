"""The arguments that `headrace.torch.DataLoader` adds, and what of torch's it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils.data import IterableDataset, IterDataPipe, MapDataPipe

from headrace._arguments import choice, integer, iterable, shown
from headrace._dataset import Mixture
from headrace.errors import InvalidArgumentError
from headrace.torch._dataloader.reading.pool_size import AUTO, POOL_MAX

WorkerMethod = Literal["multiprocessing", "thread"]
PoolSize = int | Literal["auto"]
Fetch = Literal["order", "arrival"]


@dataclass(frozen=True)
class AddedArguments:
    """The arguments that torch's DataLoader does not have."""

    worker_method: str
    pool_size: PoolSize | None
    fetch: str
    epoch_size: int | None
    state_every: int

    @property
    def measures(self) -> bool:
        """Whether the pool's size is chosen by measuring."""
        return self.pool_size == AUTO

    def pool(self, workers: int) -> int:
        """Samples that are read at a time, at most."""
        if self.pool_size is None or isinstance(self.pool_size, str):
            return max(workers, POOL_MAX) if self.measures else workers
        return self.pool_size


def check(added: AddedArguments, dataset: Any, arguments: dict[str, Any]) -> None:
    """Raises InvalidArgumentError for what cannot be honoured. `arguments`: torch's."""
    choice("worker_method", added.worker_method, ("multiprocessing", "thread"))
    choice("fetch", added.fetch, ("order", "arrival"))
    integer("snapshot_every_n_steps", added.state_every, 1, 2**62)
    _check_torch_arguments(arguments)
    workers = arguments["num_workers"]
    if isinstance(dataset, (IterDataPipe, MapDataPipe)):
        raise InvalidArgumentError(
            f"dataset: got {type(dataset).__name__}, a DataPipe: torch's DataLoader shuffles and "
            "divides these by their graph; use that, or an IterableDataset"
        )
    if isinstance(dataset, Mixture):
        raise InvalidArgumentError(
            "dataset: got a mixture: a sampler would draw each of its samples once, whatever the "
            "weights; give it to headrace.Loader"
        )
    if isinstance(added.pool_size, str):
        if not added.measures:
            raise InvalidArgumentError(
                f"pool_size: got {added.pool_size!r}, must be a number of samples, or 'auto'"
            )
    elif added.pool_size is not None:
        integer("pool_size", added.pool_size, max(1, workers), 2**16)
    if added.epoch_size is not None:
        integer("epoch_size", added.epoch_size, 1, 2**62)
        if arguments["batch_sampler"] is not None:
            raise InvalidArgumentError(
                "epoch_size: counts samples, and a batch_sampler decides how many a batch has: "
                "give sampler= and batch_size=, or end the epochs in the batch_sampler"
            )
    if workers == 0:
        if arguments["timeout"] > 0:
            raise InvalidArgumentError(
                f"timeout={arguments['timeout']}: without workers nothing can be waited for: give "
                "num_workers="
            )
        for name, value, default in (
            ("worker_method", added.worker_method, "multiprocessing"),
            ("pool_size", added.pool_size, None),
            ("fetch", added.fetch, "order"),
        ):
            if value != default:
                raise InvalidArgumentError(
                    f"{name}={value!r}: without workers samples are read one by one: give "
                    "num_workers="
                )
    if isinstance(dataset, IterableDataset):
        _check_iterable(added)
    if added.worker_method == "thread":
        _check_threads(arguments)


def _check_torch_arguments(arguments: dict[str, Any]) -> None:
    """Types that torch does not check, or not by name."""
    integer(
        "num_workers", arguments["num_workers"], -(2**31), 2**31
    )  # torch refuses negative ones.
    if arguments["prefetch_factor"] is not None and arguments["num_workers"] > 0:
        integer("prefetch_factor", arguments["prefetch_factor"], 1, 2**31)
    if not isinstance(arguments["timeout"], (int, float)):
        raise InvalidArgumentError(
            f"timeout: got {shown(arguments['timeout'])}, must be a number of seconds"
        )
    generator = arguments["generator"]
    if generator is not None and not isinstance(generator, torch.Generator):
        raise InvalidArgumentError(f"generator: got {shown(generator)}, must be a torch.Generator")
    for name in ("sampler", "batch_sampler"):
        if arguments[name] is not None:
            iterable(name, arguments[name])


def _check_iterable(added: AddedArguments) -> None:
    for name, value, default in (
        ("worker_method", added.worker_method, "multiprocessing"),
        ("pool_size", added.pool_size, None),
        ("fetch", added.fetch, "order"),
        ("epoch_size", added.epoch_size, None),
    ):
        if value != default:
            raise InvalidArgumentError(
                f"{name}={value!r}: an IterableDataset decides itself what comes next, and torch's "
                "own workers iterate it: leave it out"
            )


def _check_threads(arguments: dict[str, Any]) -> None:
    why = {
        "worker_init_fn": "it sets up a process, and threads share this one: call it yourself",
        "multiprocessing_context": "no process is started: leave it out",
        "persistent_workers": "threads share the dataset of this process, which persists: leave it "
        "out",
    }
    for name, reason in why.items():
        if arguments[name]:
            raise InvalidArgumentError(f"{name} with worker_method='thread': {reason}")
