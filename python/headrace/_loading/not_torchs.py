"""Errors and a warning that lead from a Loader to `headrace.torch.TrainerLoader`."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidArgumentError
from headrace.formats._base.findings import callers_level

_OF_DATALOADER = frozenset(
    {
        *("dataset", "sampler", "batch_sampler", "batch_size", "drop_last", "collate_fn"),
        *("num_workers", "prefetch_factor", "persistent_workers", "worker_init_fn", "timeout"),
        *("pin_memory", "pin_memory_device", "generator", "multiprocessing_context", "in_order"),
    }
)


class NotADataLoader:
    """Raises clear errors where trainers would raise an unclear one."""

    if not TYPE_CHECKING:  # Type checkers must not see such attributes.

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            if name == "_is_accelerate_prepared":
                raise InvalidArgumentError(
                    f"accelerator.prepare_data_loader(): got a headrace.{kind}, which is not "
                    "torch's DataLoader: give it headrace.torch.TrainerLoader(loader, accelerator) "
                    "of the headrace.Loader; `headrace docs trainers`"
                )
            if name in _OF_DATALOADER:
                raise AttributeError(
                    f"a headrace.{kind} has no {name!r}, as it is not torch's DataLoader: for "
                    "Accelerate, Hugging Face's Trainer and Lightning make "
                    "headrace.torch.TrainerLoader(loader) of the headrace.Loader; "
                    "`headrace docs trainers`",
                    name=name,
                )
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name)


def accelerate_state() -> Any:
    """Accelerate's state of this process; None if it does not run. Imports nothing."""
    module: Any = sys.modules.get("accelerate.state")
    for name in ("AcceleratorState", "PartialState"):
        kind: Any = getattr(module, name, None)
        if getattr(kind, "_shared_state", None):
            return kind()
    return None


def warn_of_accelerate() -> bool:
    """Warns that a loader is iterated by itself where Accelerate runs. Returns whether it did."""
    if accelerate_state() is None:
        return False
    warnings.warn(
        "iterating a headrace.Loader where Accelerate runs: batches stay on the CPU and are not in "
        "save_state(): wrap it in headrace.torch.TrainerLoader(loader, accelerator); "
        "`headrace docs trainers`",
        RuntimeWarning,
        stacklevel=callers_level(),
    )
    return True


def warn_of_prepare() -> None:
    """Warns of a DataLoader that is prepared by itself."""
    warnings.warn(
        "accelerator.prepare(): got a headrace.torch.DataLoader: Accelerate makes a loader of "
        "torch's class of it: the samples are the same, but are not read in parallel, and no state "
        "is saved: give it headrace.torch.TrainerLoader(loader, accelerator) "
        "(not with dispatch_batches=True or on XLA: there this is the way); "
        "`headrace docs dataloader`",
        RuntimeWarning,
        stacklevel=callers_level(),
    )
