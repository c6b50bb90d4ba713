"""How loaders look to libraries that expect torch's DataLoader. `headrace docs trainers`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidArgumentError

_PREPARES = "accelerate.accelerator"  # the module whose functions prepare objects that they know
_PREPARED = "_is_accelerate_prepared"  # Accelerator.prepare_data_loader() asks for it.
_TELLS_EPOCH = "_set_sampler_epoch"  # Lightning's function that sets the epoch of samplers.
# Attributes of a DataLoader from which libraries make another one, which skips batches.
_OF_DATALOADER = frozenset(
    {
        *("dataset", "sampler", "batch_sampler", "batch_size", "drop_last", "collate_fn"),
        *("num_workers", "prefetch_factor", "persistent_workers", "worker_init_fn", "timeout"),
        *("pin_memory", "pin_memory_device", "generator", "multiprocessing_context", "in_order"),
    }
)


class SeenAsDataLoader:
    """A Loader: Accelerate can skip its first batches and prepare it."""

    if not TYPE_CHECKING:  # Type checkers must not see such attributes.

        def __getattr__(self, name: str) -> Any:
            frame = sys._getframe(1)
            if _is_of_accelerate(frame):
                if name == _PREPARED:
                    self._prepare()
                    return True
                if name in _OF_DATALOADER:
                    return self._as_dataloader(frame, name)
            if name == "sampler" and frame.f_code.co_name == _TELLS_EPOCH:
                return _TrainedEpochs(self._feed)
            kind = type(self).__name__
            why = ", as it is not torch's DataLoader" if name in _OF_DATALOADER else ""
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{why}", name=name)

        @property
        def dataset(self) -> Any:
            frame = sys._getframe(1)
            if _is_of_accelerate(frame):
                return self._as_dataloader(frame, "dataset")
            return super().dataset

        @property
        def __class__(self) -> type:
            """isinstance() reads it, which is how prepare() finds what it can prepare."""
            if sys._getframe(1).f_globals.get("__name__") == _PREPARES:
                return sys.modules["torch"].utils.data.DataLoader
            return type(self)

        def _as_dataloader(self, frame: Any, name: str) -> Any:
            if frame.f_code.co_name == "prepare_data_loader":  # It did not ask for _PREPARED.
                raise _not_prepared(type(self).__name__)
            from headrace.torch._listed import attribute_of

            return attribute_of(self, self._feed, name)

    def _prepare(self) -> None:
        raise NotImplementedError


class _TrainedEpochs:
    """A sampler for Lightning, which sets the number of epochs that it has trained. It loads no
    state from a checkpoint of the end of an epoch, so a new loader must begin with the next."""

    def __init__(self, feed: Any) -> None:
        self._feed = feed

    def set_epoch(self, epoch: int) -> None:
        self._feed.set_epoch(epoch, of_new_loader=True)


class NotADataLoader:
    """Raises clear errors where trainers would raise an unclear one."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            if name == _PREPARED:
                raise _not_prepared(kind)
            if name in _OF_DATALOADER:
                raise AttributeError(
                    f"a headrace.{kind} has no {name!r}, as it is not torch's DataLoader: "
                    "Accelerate's skip_first_batches() cannot skip its first batches; give it the "
                    "headrace.Loader, or restore the place with load_state_dict(); "
                    "`headrace docs trainers`",
                    name=name,
                )
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name)


def _is_of_accelerate(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("accelerate.")


def _not_prepared(kind: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"accelerator.prepare(): got a headrace.{kind}, which this Accelerate would divide again "
        "or change: leave it out, as it finds its rank itself, and for batches on the device "
        "iterate headrace.torch.DeviceBatches(loader, accelerator.device); `headrace docs trainers`"
    )
