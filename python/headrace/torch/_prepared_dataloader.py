"""What Accelerator.prepare() makes of a `headrace.torch.DataLoader`: it stays the same object.

Accelerate makes its DataLoaderShard, which divides the batches, copies them to the device and says
which one is the last. The shard then takes its batches from our loader, to which it gives its
batch sampler. `headrace docs design/trainers`.
"""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
import torch.utils.data
from torch.utils.data import IterableDataset

from headrace._arguments import integer
from headrace._loading.passes.origins import layers
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.torch._dataloader.epochs.drawing import Share
from headrace.torch._dataloader.epochs.progress import Here, Progress
from headrace.torch._dataloader.epochs.state import (
    DEALS_BATCHES,
    SPLITS_BATCHES,
    Facts,
    Position,
    to_state,
)
from headrace.torch._listed import BatchDataset, BatchList, check_place, listed, turn_of
from headrace.torch._prepared import processes_of

_PREPARES = ("accelerate.accelerator", "prepare_data_loader")
_SKIPS = ("accelerate.data_loader", "skip_first_batches")
_SAVES = ("accelerate.checkpointing", "save_accelerator_state")
_ASKED = frozenset({"self", "device_placement", "slice_fn_for_dispatch"})
"""Arguments of the function that prepares."""
_STEPS = frozenset({"base_dataloader", "iteration", "set_epoch", "_update_state_dict", "begin"})
"""What the iteration of a DataLoaderShard uses."""
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
_LISTED = frozenset(
    {
        *("dataset", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory"),
        *("timeout", "worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor"),
        *("persistent_workers", "pin_memory_device", "in_order"),
    }
)
_SAVED = "use_stateful_dataloader"
_PLACE = "place"
_NOT_COUNTED = {"_sampler_iter_yielded": 0, "_num_yielded": 0, "_index_sampler_state": None}
"""What Accelerate corrects in the states of torchdata's loaders if it is more than 0."""
_KIND = "DataLoader"


def prepare(loader: Any, frame: Any) -> bool:
    """Prepares a DataLoader for Accelerate, if the function of `frame` is what does so.

    False: Accelerate makes a loader of torch's class, for an iterable dataset for one.

    Raises:
        InvalidArgumentError: the sampler divides over another number of ranks.
        FailedPreconditionError: a state was loaded before.
    """
    if _place_of(frame) != _PREPARES or isinstance(loader.dataset, IterableDataset):
        return False
    given: Mapping[str, Any] = frame.f_locals
    if not given.keys() >= _ASKED or not _is_known():
        _warn_unknown()
        return False
    accelerator = given["self"]
    if accelerator.dispatch_batches or accelerator.distributed_type.value == "XLA":
        return False
    if loader._restored is not None:
        raise FailedPreconditionError(
            "accelerator.prepare(): a state was loaded into this DataLoader, and Accelerate "
            "changes its batches: prepare it first, then load the state"
        )
    divides = _divides(loader, accelerator)
    shard = _shard(loader, accelerator, given, divides=divides)
    shard.dl_state_dict = {}
    made, shard.base_dataloader = shard.base_dataloader, _Base(loader)
    vars(loader).update(
        batch_sampler=made.batch_sampler,
        sampler=made.sampler,
        _shard=shard,
        _division=(SPLITS_BATCHES if accelerator.split_batches else DEALS_BATCHES) * divides,
        _skipped=0,
        _given={},
        _begun=None,
        _epoch=0,
        _progress=None,
    )
    for each in layers(loader._index_sampler):
        if type(each).__name__ == "SeedableRandomSampler" and each.generator is None:
            # It would make one like this in its first pass: states are of the same generators then.
            each.generator = torch.Generator(device=torch.get_default_device())
            each.generator.manual_seed(each.initial_seed)
    kind: Any = type(loader)
    loader.__class__ = _prepared_class(kind)
    return True


def _place_of(frame: Any) -> tuple[str, str]:
    """The module and function of a frame; of one of a comprehension where it stands."""
    while frame.f_code.co_name == "<dictcomp>" and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")), frame.f_code.co_name


def _is_known() -> bool:
    """Whether this Accelerate has what is relied on here."""
    module = sys.modules.get("accelerate.data_loader")
    iterate = getattr(getattr(module, "DataLoaderShard", None), "__iter__", None)
    code = getattr(iterate, "__code__", None)
    return code is not None and set(code.co_names) >= _STEPS


def _warn_unknown() -> None:
    version = getattr(sys.modules.get("accelerate"), "__version__", "unknown")
    warnings.warn(
        f"accelerator.prepare(): headrace.torch.DataLoader does not know Accelerate {version}, "
        "which makes a loader of torch's class of it: the samples are the same, but are not "
        "read in parallel, and no state is saved; leave the loader out of prepare(), give it a "
        "DistributedSampler, and iterate headrace.torch.DeviceBatches(loader, "
        "accelerator.device); `headrace docs dataloader`",
        RuntimeWarning,
        stacklevel=4,
    )


def _divides(loader: Any, accelerator: Any) -> bool:
    """Whether Accelerate is to divide the batches. Not if the sampler divides its samples."""
    share: Share | None = loader._source.share
    processes, _ = processes_of(accelerator.state)
    if share is None or share.ranks == 1 or processes == 1:
        return True
    if share.ranks != processes:
        raise InvalidArgumentError(
            f"accelerator.prepare(): the sampler of this DataLoader, a {share.kind}, divides the "
            f"samples by {share.ranks}, but Accelerate has {processes} data-parallel processes: "
            "samples would be lost or repeated; leave the sampler out, for Accelerate to divide, "
            f"or make it for {processes} ranks"
        )
    return False


def _shard(loader: Any, accelerator: Any, given: Mapping[str, Any], *, divides: bool) -> Any:
    """Accelerate's DataLoaderShard of a loader of torch's class that is like this one."""
    plain: Any = object.__new__(torch.utils.data.DataLoader)
    vars(plain).update(vars(loader), **_READS_NOTHING)
    placement, cut = given["device_placement"], given["slice_fn_for_dispatch"]
    if divides:
        made = accelerator.prepare_data_loader(plain, placement, cut)
        accelerator._dataloaders.remove(made)  # It is registered as the loader.
    else:
        made = sys.modules["accelerate.data_loader"].prepare_data_loader(
            plain,
            accelerator.device,
            num_processes=1,
            process_index=0,
            put_on_device=accelerator.device_placement if placement is None else placement,
            rng_types=list(accelerator.rng_types),
            non_blocking=accelerator.non_blocking,
        )
    is_last = divides and loader.fetch == "order" and loader._in_order
    if not is_last and accelerator.num_processes > 1:
        # What pads the samples is not the end of what is gathered. So Accelerate gets no number of
        # those in the last step, and cuts nothing off.
        made._drop_last = True
    return made


@functools.cache
def _prepared_class(kind: type) -> type:
    return type(kind.__name__, (Prepared, kind), {"__module__": kind.__module__})


class _Base:
    """The loader as the shard reads it. Keeps no loader alive."""

    def __init__(self, loader: Any) -> None:
        self._loader = weakref.ref(loader)

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self._loader(), name)

    def __len__(self) -> int:
        return len(cast(Any, self._loader()))

    def __iter__(self) -> Iterator[Any]:
        begun: Iterator[Any] = cast(Any, self._loader())._begin_epoch()
        return begun

    def state_dict(self) -> dict[str, Any]:
        """The place that follows the batch which the training loop gets next. The shard keeps it,
        as it reads a batch ahead."""
        return {_PLACE: cast(Any, self._loader())._here(), **_NOT_COUNTED}


class Prepared(torch.utils.data.DataLoader[Any]):
    """A DataLoader that Accelerate prepared: the first base of the loader's class from then on.

    What a DataLoaderShard has beyond a DataLoader, such as `total_batch_size`, is here, too.

    Thread safety: as a DataLoader.
    """

    _is_accelerate_prepared = True
    use_stateful_dataloader = True
    """Accelerate's save_state() and load_state() include the state."""

    if TYPE_CHECKING:
        _shard: Any
        _division: str  # how Accelerate divides the batches, if it is to do so
        _restored: Position | None
        _progress: Progress | None
        _epoch: int
        _skipped: int  # batches at the start of the next epoch
        _given: dict[str, Any]  # the place of the loop, as the shard knows it
        _begun: weakref.ref[Any] | None  # the newest iteration

    else:

        def __getattribute__(self, name: str) -> Any:
            if name in _LISTED and _place_of(sys._getframe(1)) == _SKIPS:
                return getattr(_list_of(self), name)
            if name == _SAVED and not _saves(sys._getframe(1)):
                return False
            return super().__getattribute__(name)

        def __getattr__(self, name: str) -> Any:
            return getattr(object.__getattribute__(self, "_shard"), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise FailedPreconditionError(
            "copying or pickling a DataLoader that accelerator.prepare() prepared: it belongs to "
            "the Accelerator of this process; copy the loader before, and prepare the copy"
        )

    def __iter__(self) -> Any:
        """Begins when the first batch is asked for, as Accelerate's. An error ends it: the shard
        cannot go on. A state then repeats the batch that was read before and not given."""
        shard = self._shard
        batches = iter(shard)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except BaseException:
                shard.dl_state_dict = self._given
                if self._begun is not None and (begun := self._begun()) is not None:
                    begun.close()
                raise
            self._given = shard.dl_state_dict
            yield batch

    def _begin_epoch(self) -> Iterator[Any]:
        if self._restored is None:
            self._epoch = self._shard.iteration
        begun: Any = super().__iter__()
        self._begun = weakref.ref(begun)
        self._given = self._shard.dl_state_dict = {_PLACE: self._here()}
        return cast(Iterator[Any], begun)

    def _begin(self) -> Progress:
        progress: Progress = cast(Any, super())._begin()
        skipped, self._skipped = self._skipped, 0
        for _ in range(skipped):
            if (drawn := progress.draw()) is not None:
                progress.deliver(drawn)
        return progress

    @property
    def _facts(self) -> Facts:
        facts: Facts = cast(Any, super())._facts
        if not self._division:
            return facts
        sampler = self._index_sampler  # With one process Accelerate makes no other.
        ranks, rank = getattr(sampler, "num_processes", 1), getattr(sampler, "process_index", 0)
        share = Share(self._division, ranks, rank, None, None, facts.drop_last)
        return replace(facts, share=share)

    def _position(self) -> Position:
        position: Position = cast(Any, super())._position()
        if position.base_seed is None and position.origin.epoch is not None:
            # The shard gives the sampler the number of the epoch when that begins.
            position = replace(position, origin=replace(position.origin, epoch=position.epoch))
        return position

    def _here(self) -> tuple[Here, Any] | None:
        """The place, and the dataset's state; None at the end of an epoch."""
        progress = self._progress
        if progress is None or progress.is_over():
            return None
        return progress.here(), cast(Any, self)._dataset_state(progress)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is, though a batch more was read."""
        found: tuple[Here, Any] | None = self._shard.dl_state_dict.get(_PLACE)
        if found is None or self._progress is None:
            return to_state(self._position(), self._facts)
        here, dataset = found
        return to_state(self._progress.position(dataset, here), self._facts)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        cast(Any, super()).load_state_dict(state)
        self._shard.iteration = self._epoch
        self._shard.dl_state_dict = {}

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch comes next. The epoch of a state just loaded keeps its place in it."""
        integer("epoch", epoch, 0, 2**62)
        self._shard.set_epoch(epoch)
        self._epoch = epoch
        if self._restored is not None and self._restored.epoch != epoch:
            self._restored = None


def _saves(frame: Any) -> bool:
    """Whether a process includes the state where this frame asks: one writes the file that all
    read, as with what is registered for checkpointing."""
    if _place_of(frame) != _SAVES:
        return True
    state: Any = sys.modules["accelerate.state"].PartialState()
    if frame.f_locals.get("save_on_each_node"):
        return bool(state.is_local_main_process)
    return bool(state.is_main_process)


def _pass_over(loader: Any) -> None:
    """The next epoch is the one after the next: its batches are drawn, and not read."""
    place = _begins(loader, len(loader))
    if loader._restored is not None and place.epoch > 0 and not place.batches:
        return  # The end of an epoch is the beginning of the next, where it is.
    iteration, loader._skipped = loader._shard.iteration, len(loader) - place.batches
    for _ in loader:
        raise AssertionError("a batch is left")
    loader._shard.iteration = iteration + 1


class _Begins(NamedTuple):
    """Where the next iteration begins."""

    epoch: int
    batches: int


def _begins(loader: Any, step: int) -> _Begins:
    """Raises if that is in an epoch, and not at a step to which batches are skipped."""
    restored: Position | None = loader._restored
    if restored is None:
        return _Begins(loader._shard.iteration, 0)
    check_place(_KIND, step, restored.epoch, restored.batches)
    return _Begins(restored.epoch, restored.batches)


def _list_of(loader: Any) -> torch.utils.data.DataLoader[Any]:
    """The epoch of a prepared loader as a list of batches, of which Accelerate skips the first."""

    def go_to(step: int) -> Iterator[Any]:
        loader._skipped = step - _begins(loader, step).batches
        return iter(loader)

    dataset = BatchDataset(_KIND, len(loader.dataset), go_to, turn_of(loader))
    batches: Any = BatchList(
        loader, loader.batch_size, loader.drop_last, dataset, lambda: _pass_over(loader)
    )
    # A generator of its own: the list draws nothing from those of the loader.
    return listed(dataset, batches, generator=torch.Generator())
