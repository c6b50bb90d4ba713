"""What a loader says to libraries that take it for torch's DataLoader. `headrace docs trainers`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidArgumentError

_PREPARES = "accelerate.accelerator"  # the module whose functions prepare what they know
_SKIPPED_BY = frozenset({"dataset", "sampler", "batch_sampler"})  # what skip_first_batches asks for


class NotADataLoader:
    """Answers the questions of trainers whose own errors would be riddles, or none."""

    if not TYPE_CHECKING:  # For a checker of types there are no such attributes.

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            if name == "_is_accelerate_prepared":  # Accelerator.prepare_data_loader() asks.
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
    """One that Accelerator.prepare() would return as it is, its batches on the CPU."""

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            """isinstance() looks here, and is all that prepare() does to what it does not know."""
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
