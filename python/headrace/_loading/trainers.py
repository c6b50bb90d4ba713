"""How loaders look to libraries that expect torch's DataLoader. `headrace docs trainers`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from headrace._loading.feed import Delivered

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

    def __getitem__(self, number: Any) -> NoReturn:
        """Raises: torch's DataLoader, and a Trainer, ask for samples by number."""
        raise TypeError(
            "a headrace.Loader gives batches to a loop, not samples by number: iterate it in place "
            "of torch's DataLoader; give it to Hugging Face's Trainer as what "
            "get_train_dataloader() returns (`headrace docs trainers`); samples are those of "
            "headrace.open(path)"
        )

    def _prepare(self) -> None:
        raise NotImplementedError


def refuse_named_tuples(frame: Any, delivers: Delivered) -> None:
    """Raises if Hugging Face's Trainer iterates, in this frame, a loader of named tuples.

    Otherwise it would fail at the first batch, with an error that names none of this.
    """
    module = str(frame.f_globals.get("__name__"))
    if delivers.keys is None and module.startswith("transformers.trainer"):
        named = {_IN_MODELS.get(name, name): name for name in delivers.kinds}
        raise InvalidArgumentError(
            "iterating a headrace.Loader in Hugging Face's Trainer, which passes batches to the "
            f"model by name: make them dicts of the names that the model takes, as fields={named}, "
            "or by a Python function that returns dicts (`headrace docs trainers`)"
        )


_IN_MODELS = {"image": "pixel_values", "img": "pixel_values", "label": "labels"}
"""Names that models of Transformers have for fields."""


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
