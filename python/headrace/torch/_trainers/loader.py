"""`headrace.torch.TrainerLoader`: a loader as a DataLoader of torch's class, for trainers."""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
import torch.utils.data

from headrace._arguments import shown
from headrace._loader import Loader, unnamed_fields
from headrace._loading.not_torchs import accelerate_state
from headrace._signature import named_arguments
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.formats._base.findings import callers_level
from headrace.torch._dataloader.loader import DataLoader
from headrace.torch._trainers.divided import DividedBatches
from headrace.torch._trainers.loader_batches import LoaderBatches
from headrace.torch._trainers.steps import StepDataset, StepList, StepSampler, TrainerSource

_IN_MODELS = {"image": "pixel_values", "img": "pixel_values", "label": "labels"}
"""Names that models of Transformers have for fields."""


class TrainerLoader(torch.utils.data.DataLoader[Any]):
    """A loader for Accelerate, Hugging Face's Trainer and Lightning: a DataLoader of torch's class.

    >>> loader = headrace.torch.TrainerLoader(loader, accelerator)
    >>> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    Iterating it gives the loader's batches, on Accelerate's device if Accelerate runs. Its
    `dataset` has the batch of each step of the epoch, its `sampler` and `batch_sampler` list the
    steps: ``skip_first_batches(loader, n)`` makes a DataLoader of them. `state_dict` is the loop's
    position, without what was read ahead; checkpoints of Accelerate and Lightning contain it.
    `headrace docs trainers` has the rest.

    Thread safety: one thread iterates, saves and loads states.

    Args:
        loader: a `headrace.Loader`, which divides the samples itself; or a
            `headrace.torch.DataLoader`, whose batches Accelerate divides: it is copied.
        accelerator: an `accelerate.Accelerator`, for the device, and for how a DataLoader is
            divided. For a `headrace.Loader` it may be left out: the device is that of the process.

    Raises:
        InvalidArgumentError: samples would be lost or repeated; the message says what to do.
        FailedPreconditionError: a state was loaded into the DataLoader before, or this version
            of Accelerate is not known.
    """

    use_stateful_dataloader = True
    """Whether Accelerate's save_state() and load_state() include the state."""

    @named_arguments
    def __init__(self, loader: Loader[Any] | DataLoader, accelerator: Any = None) -> None:
        untyped: Any = loader
        if accelerator is not None and not hasattr(accelerator, "prepare_data_loader"):
            raise InvalidArgumentError(
                f"accelerator: got {shown(accelerator)}, must be an accelerate.Accelerator"
            )
        if isinstance(untyped, Loader):
            source: TrainerSource = LoaderBatches(untyped, accelerator)
        elif isinstance(untyped, DataLoader):
            source = DividedBatches(untyped, accelerator)
        else:
            raise InvalidArgumentError(
                f"loader: got a {type(untyped).__name__}, must be a headrace.Loader or a "
                "headrace.torch.DataLoader"
            )
        self.loader = loader
        """The argument `loader`."""
        self._source = source
        self._has_accelerator = accelerator is not None
        self.total_batch_size = source.facts.total_batch_size
        """Samples of a step of all processes, as Accelerate's loaders say it."""
        self.total_dataset_length = source.facts.samples
        steps = StepDataset(source)
        sampler = StepSampler(source, steps)
        batches: Any = StepList(source, steps, sampler)
        super().__init__(
            steps,
            batch_sampler=batches,
            collate_fn=_of_one_step,
            generator=torch.Generator(),  # DataLoaders of the steps draw from no other.
        )
        # torch refuses them beside a batch sampler, and their assignment afterwards.
        size, drop = batches.batch_size, batches.drop_last
        vars(self).update(sampler=sampler, batch_size=size, drop_last=drop)
        if accelerator is not None:
            _have_one_process_save(self, accelerator)
        elif isinstance(untyped, Loader):
            _warn_of_named_tuples(untyped)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Accelerator.prepare() asks. True: it keeps this loader as it is, and registers it."""
        state = None if self._has_accelerator else accelerate_state()
        if state is not None and state.num_processes > 1:
            raise InvalidArgumentError(
                f"accelerator.prepare(): got a TrainerLoader without the Accelerator, of which "
                f"{state.num_processes} processes run: each of them would write the same file in "
                "save_state(): give it, as TrainerLoader(loader, accelerator); "
                "`headrace docs trainers`"
            )
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, is_prepared: bool) -> None:
        """Accelerator.prepare() says so afterwards."""

    def __len__(self) -> int:
        """Number of batches in an epoch of this rank."""
        return len(self._source)

    def __iter__(self) -> Any:
        return self._source.iterate()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise FailedPreconditionError(
            "copying or pickling a headrace.torch.TrainerLoader: it belongs to the trainer of this "
            "process; make one of another loader"
        )

    @property
    def epoch(self) -> int:
        """The epoch in progress or, if there is none, the next one."""
        return self._source.epoch

    @property
    def device(self) -> torch.device | None:
        """Where batches are put; None: they stay on the CPU."""
        return self._source.device

    def set_epoch(self, epoch: int) -> None:
        """Sets the next epoch. Setting that of a state just loaded keeps the position in it."""
        self._source.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The loop's position, after the last batch that it got."""
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the last batch before `state` was saved."""
        self._source.load_state_dict(state)

    def stats(self) -> Any:
        """As the loader's."""
        return self._source.loader.stats()

    def explain(self, step: int | None = None, epoch: int | None = None) -> Any:
        """As `headrace.Loader.explain`.

        Raises:
            InvalidArgumentError: the loader is a `headrace.torch.DataLoader`.
        """
        loader: Any = self.loader
        if not isinstance(self.loader, Loader):
            raise InvalidArgumentError(
                "explaining a step of a TrainerLoader of a headrace.torch.DataLoader: only the "
                "steps of a headrace.Loader can be explained; give TrainerLoader a headrace.Loader"
            )
        return loader.explain(step, epoch)

    def close(self) -> None:
        """Closes the loader."""
        self._source.loader.close()


def _of_one_step(batches: list[Any]) -> Any:
    (batch,) = batches
    return batch


def _have_one_process_save(loader: TrainerLoader, accelerator: Any) -> None:
    """Accelerate has each process write the state into one file. So only that process says that it
    has one which writes the rest, too; all of them load it."""
    known = weakref.proxy(loader)

    def include(has_state: bool) -> None:
        with contextlib.suppress(ReferenceError):  # The loader is gone.
            known.use_stateful_dataloader = has_state

    def saves(*_: Any) -> None:
        on_each_node = accelerator.project_configuration.save_on_each_node
        include(getattr(accelerator, f"is_{'local_' if on_each_node else ''}main_process"))

    accelerator.register_save_state_pre_hook(saves)
    accelerator.register_load_state_pre_hook(lambda *_: include(True))


def _warn_of_named_tuples(loader: Loader[Any]) -> None:
    """Hugging Face's Trainer fails at the first batch, with an error that names none of this."""
    fields = unnamed_fields(loader)
    if fields is None or "transformers.trainer" not in sys.modules:
        return
    named = {_IN_MODELS.get(name, name): name for name in fields}
    warnings.warn(
        "making a TrainerLoader of a headrace.Loader of named tuples: Hugging Face's Trainer "
        "passes batches to the model by name: make them dicts of the names that the model takes, "
        f"as output=hr.Output(fields={named}), or by a Python function that returns dicts "
        "(`headrace docs trainers`)",
        RuntimeWarning,
        stacklevel=callers_level(),
    )
