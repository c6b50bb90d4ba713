"""A `headrace.torch.DataLoader` as the source of a TrainerLoader: Accelerate divides its batches.

Accelerate makes its DataLoaderShard of a loader of torch's class that is like ours. A copy of ours
gets the shard's batch sampler and reads; the shard's device, generators and ends count.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.utils.data
from torch.utils.data import IterableDataset

from headrace._arguments import integer
from headrace._loading.passes.origins import layers
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch._dataloader.epochs.drawing import Share
from headrace.torch._dataloader.epochs.progress import Here
from headrace.torch._dataloader.epochs.state import DEALS_BATCHES, SPLITS_BATCHES, to_state
from headrace.torch._dataloader.loader import DataLoader
from headrace.torch._trainers.facts import StepFacts, check_place, processes_of

_KIND = "DataLoader"
_USED = ("begin", "end", "set_epoch", "iteration", "rng_types", "synchronized_generator")
"""What is used of a DataLoaderShard."""
_READS_NOTHING = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "worker_init_fn": None,
    "pin_memory": False,
    "in_order": True,
    "_DataLoader__multiprocessing_context": None,
}
_END = object()


class DividedBatches:
    """A DataLoader's epochs, of this rank.

    Thread safety: as the loader. Raises: as TrainerLoader.
    """

    def __init__(self, loader: DataLoader, accelerator: Any) -> None:
        _check(loader, accelerator)
        divides = _divides(loader, accelerator)
        self._shard = shard = _shard(loader, accelerator, divides=divides)
        self.device: torch.device | None = shard.device
        self.pads: Any = shard.batch_sampler
        self.loader: Any = copy.copy(loader)
        share = _share(loader, accelerator, shard.batch_sampler) if divides else None
        # torch refuses the assignment of samplers.
        vars(self.loader).update(
            sampler=shard.sampler, batch_sampler=shard.batch_sampler, _share=share
        )
        for sampler in layers(self.loader._index_sampler):
            if type(sampler).__name__ == "SeedableRandomSampler" and sampler.generator is None:
                # It would make one like this in its first pass: states are of the same generators.
                sampler.generator = torch.Generator(device=torch.get_default_device())
                sampler.generator.manual_seed(sampler.initial_seed)
        self._place: tuple[Here, Any] | None = None  # in the loop
        # Datasets may have no length, and batch samplers no size.
        samples = loader._facts.length or 0
        sizes = (loader.batch_size, getattr(shard, "total_batch_size", None))
        place = (accelerator.num_processes, accelerator.process_index)
        self.facts = StepFacts(_KIND, samples, *sizes, loader.drop_last, *place)

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def epoch(self) -> int:
        return int(self._shard.iteration)

    def iterate(self) -> Iterator[Any]:
        """Begins when the first batch is asked for, and reads one ahead, as Accelerate's shard. An
        error ends it; a state then repeats the batch that was read before and not given."""
        shard, utils = self._shard, sys.modules["accelerate.utils"]
        if shard.rng_types is not None:
            utils.synchronize_rng_states(shard.rng_types, shard.synchronized_generator)
        shard.begin()
        try:
            shard.set_epoch(shard.iteration)
            batches = self._begin()
            batch = _next(batches)
            is_empty = batch is _END
            while batch is not _END:
                if shard.device is not None:
                    non_blocking = shard._non_blocking
                    batch = utils.send_to_device(batch, shard.device, non_blocking=non_blocking)
                place = self._here()
                following = _next(batches)
                if following is _END:
                    shard.end_of_dataloader, place = True, self._here()
                self._place = place
                yield batch
                batch = following
            shard.iteration += not is_empty
        finally:
            shard.end()

    def _begin(self) -> Any:
        loader = self.loader
        if loader._restored is None:
            loader._epoch = self._shard.iteration
        begun = iter(loader)
        self._place = self._here()
        return begun

    def _here(self) -> tuple[Here, Any] | None:
        """The place, and the dataset's state; None at the end of an epoch."""
        progress = self.loader._progress
        if progress is None or progress.is_over():
            return None
        return progress.here(), self.loader._dataset_state(progress)

    def go_to(self, step: int) -> Iterator[Any]:
        self.loader._passes_over = step - self._begins(step)[1]
        return self.iterate()

    def pass_over(self) -> None:
        """The batches of the epoch are drawn, and not read."""
        loader, shard = self.loader, self._shard
        epoch, batches = self._begins(len(self))
        if loader._restored is not None and epoch > 0 and not batches:
            return  # The end of an epoch is the beginning of the next, where it is.
        iteration = shard.iteration
        loader._passes_over = len(self) - batches
        for _ in self.iterate():
            raise AssertionError("a batch is left")
        shard.iteration = iteration + 1

    def _begins(self, step: int) -> tuple[int, int]:
        """The epoch and the batches of it after which the next iteration begins. Raises if that is
        in an epoch, and not at a step to which batches are skipped."""
        restored = self.loader._restored
        if restored is None:
            return self._shard.iteration, 0
        check_place(_KIND, step, restored.epoch, restored.batches)
        return restored.epoch, restored.batches

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch comes next. The epoch of a state just loaded keeps its place in it."""
        integer("epoch", epoch, 0, 2**62)
        loader = self.loader
        self._shard.set_epoch(epoch)
        loader._epoch = epoch
        if loader._restored is not None and loader._restored.epoch != epoch:
            loader._restored = None

    def set_first_epoch(self, epoch: int) -> None:
        if self.loader._progress is None and self.loader._restored is None:
            self.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is, though a batch more was read."""
        loader = self.loader
        if self._place is not None and loader._progress is not None:
            here, dataset = self._place
            return to_state(loader._progress.position(dataset, here), loader._facts)
        position = loader._position()
        if position.base_seed is None and position.origin.epoch is not None:
            # The shard gives the sampler the number of the epoch when that begins.
            position = replace(position, origin=replace(position.origin, epoch=position.epoch))
        return to_state(position, loader._facts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loader.load_state_dict(state)
        self._shard.iteration = self.loader._epoch
        self._place = None


def _next(batches: Any) -> Any:
    try:
        return next(batches, _END)
    except BaseException:
        batches.close()  # An error that is kept keeps no processes.
        raise


def _check(loader: DataLoader, accelerator: Any) -> None:
    doing = "making a TrainerLoader of a headrace.torch.DataLoader"
    if accelerator is None:
        raise InvalidArgumentError(
            f"{doing}: Accelerate divides its batches: give the Accelerator, as "
            "TrainerLoader(loader, accelerator); Lightning and Hugging Face's Trainer take the "
            "DataLoader itself; `headrace docs dataloader`"
        )
    is_iterable = isinstance(loader.dataset, IterableDataset)
    if is_iterable or accelerator.dispatch_batches or accelerator.distributed_type.value == "XLA":
        what = "an iterable dataset" if is_iterable else "dispatch_batches=True or XLA"
        raise InvalidArgumentError(
            f"{doing} with {what}: Accelerate reads in a way of its own then: give "
            "accelerator.prepare() the DataLoader itself; `headrace docs dataloader`"
        )
    if loader._restored is not None:
        raise FailedPreconditionError(
            f"{doing}: a state was loaded into it, and Accelerate changes its batches: make the "
            "TrainerLoader first, then load the state into that"
        )


def _divides(loader: Any, accelerator: Any) -> bool:
    """Whether Accelerate is to divide the batches. Not if the sampler divides its samples."""
    share: Share | None = loader._source.share
    processes, _ = processes_of(accelerator.state)
    if share is None or share.ranks == 1 or processes == 1:
        return True
    if share.ranks != processes:
        raise InvalidArgumentError(
            f"making a TrainerLoader: the sampler of this DataLoader, a {share.kind}, divides the "
            f"samples by {share.ranks}, but Accelerate has {processes} data-parallel processes: "
            "samples would be lost or repeated; leave the sampler out, for Accelerate to divide, "
            f"or make it for {processes} ranks"
        )
    return False


def _share(loader: DataLoader, accelerator: Any, batches: Any) -> Share:
    """How Accelerate divides. With one process it makes no other batch sampler."""
    how = SPLITS_BATCHES if accelerator.split_batches else DEALS_BATCHES
    ranks, rank = getattr(batches, "num_processes", 1), getattr(batches, "process_index", 0)
    return Share(how, ranks, rank, None, None, loader.drop_last)


def _shard(loader: Any, accelerator: Any, *, divides: bool) -> Any:
    """Accelerate's DataLoaderShard of a loader of torch's class that is like this one."""
    plain: Any = object.__new__(torch.utils.data.DataLoader)
    vars(plain).update(vars(loader), **_READS_NOTHING)
    if divides:
        made = accelerator.prepare_data_loader(plain)
        accelerator._dataloaders.remove(made)  # The TrainerLoader is registered.
    else:
        made = sys.modules["accelerate.data_loader"].prepare_data_loader(
            plain,
            accelerator.device,
            num_processes=1,
            process_index=0,
            put_on_device=accelerator.device_placement,
            rng_types=list(accelerator.rng_types),
            non_blocking=accelerator.non_blocking,
        )
    if not all(hasattr(made, name) for name in _USED):
        version = getattr(sys.modules.get("accelerate"), "__version__", "unknown")
        raise FailedPreconditionError(
            f"making a TrainerLoader of a headrace.torch.DataLoader: Accelerate {version} is not "
            "known: give accelerator.prepare() the DataLoader itself: the samples are the same, "
            "but are not read in parallel, and no state is saved; `headrace docs dataloader`"
        )
    is_last = divides and loader.fetch == "order" and loader._in_order
    if not is_last and accelerator.num_processes > 1:
        # What pads the samples is not the end of what is gathered. So Accelerate gets no number of
        # those in the last step, and cuts nothing off.
        made._drop_last = True
    return made
