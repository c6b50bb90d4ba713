"""Errors for libraries that expect torch's DataLoader. `headrace docs trainers`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidArgumentError

_PREPARES = "accelerate.accelerator"  # the module whose functions prepare objects that they know
# Attributes that skip_first_batches reads.
_SKIPPED_BY = frozenset({"dataset", "sampler", "batch_sampler"})


class NotADataLoader:
    """Raises clear errors where trainers would raise an unclear one, or none."""

    if not TYPE_CHECKING:  # Type checkers must not see such attributes.

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            if name == "_is_accelerate_prepared":  # Accelerator.prepare_data_loader() reads it.
                raise _not_prepared(kind)
            if name in _SKIPPED_BY:
                raise AttributeError(
                    f"a headrace.{kind} has no {name!r}, as it is not torch's DataLoader: "
                    "Accelerate's skip_first_batches(), which Hugging Face's Trainer calls to "
                    "resume, cannot skip its first batches; restore its place with "
                    "load_state_dict(), and have the Trainer skip nothing: "
                    "TrainingArguments(ignore_data_skip=True); `headrace docs trainers`",
                    name=name,
                )
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name)


class NotPrepared(NotADataLoader):
    """A loader that Accelerator.prepare() would return unchanged, with batches on the CPU."""

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            """isinstance() reads it, which is all that prepare() does with unknown objects."""
            asks = sys._getframe(1)
            if asks.f_globals.get("__name__") == _PREPARES and "prepare" in asks.f_code.co_name:
                raise _not_prepared(type(self).__name__)
            return type(self)


def _not_prepared(kind: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"accelerator.prepare(): got a headrace.{kind}, which Accelerate does not know: it would "
        "leave the batches on the CPU; leave it out, as it finds its rank itself, and for batches "
        "on the device iterate headrace.torch.DeviceBatches(loader, accelerator.device); "
        "`headrace docs trainers`"
    )
