"""NoPFS's interface (Dryden et al., "Clairvoyant prefetching for distributed machine learning I/O",
2021, 5.2.1) over a `headrace.Loader`: the paper's figure 7 runs as it is.

>>> from headrace.papers.nopfs import Job, NoPFSDataLoader, NoPFSImageFolder
>>> job = Job(data_dir, batch_size, num_epochs, 'uniform', drop_last)
>>> dataset = NoPFSImageFolder(data_dir, job, data_transforms)
>>> dataloader = NoPFSDataLoader(dataset)

Names and arguments that the paper does not show are those of its code, hdmlp.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from headrace._arguments import integer, shown
from headrace._dataset import Dataset, epoch_samples, open_dataset
from headrace._dataset.decoding import decode_image
from headrace._loader import Loader
from headrace._nodes.ranks import Ranks
from headrace._options.groups import Cache, Output, Workers, group_or_first
from headrace._signature import named_arguments
from headrace._workers import Sample
from headrace._workers._libraries import library_of
from headrace.errors import FailedPreconditionError, InvalidArgumentError

__all__ = ["Job", "NoPFSDataLoader", "NoPFSImageFolder"]

_SCHEME, _LABEL = "uniform", "label"
_OWN = ("batch_size", "drop_last", "epochs", "seed", "transform", "shuffle")
"""Options of a Loader that a job decides."""


class Job:
    """The samples of a dataset for a number of epochs, in an order that a seed fixes.

    Either `get` takes the samples, or a `NoPFSDataLoader` does. A process may have several jobs.

    Args:
        dataset_path: a path, or what ``headrace.open`` returned.
        batch_size: samples of a batch of all ranks together, as in NoPFS: each rank gets an equal
            part.
        epochs: number of epochs of the run.
        distr_scheme: "uniform": each rank gets an equal part of every batch.
        drop_last_batch: drop the last batch of an epoch if it is smaller.
        transforms: one of `headrace.image`, which decodes images natively. Default: `get` returns
            encoded images, and a data loader decodes them for its dataset's `transform`.
        seed: by default 0: all ranks must have the same.
        config_path: refused: `tiers` replaces the storage classes of NoPFS's file.
        options: any others of a `headrace.Loader`: `tiers`, `memory`, `job`, ... With `tiers` the
            placement is NoPFS's, unless they are a `headrace.Cache`. The job chooses the arrays of
            `output`. Python transforms run in the training loop's process, as in NoPFS, unless
            `workers` is given.

    Thread safety: none.
    """

    def __init__(
        self,
        dataset_path: Dataset | str | os.PathLike[str],
        batch_size: int,
        epochs: int,
        distr_scheme: str,
        drop_last_batch: bool,
        transforms: Any = None,
        seed: int | None = None,
        config_path: str | None = None,
        **options: Any,
    ) -> None:
        self._batch_size = integer("batch_size", batch_size, 1, 2**44)
        if distr_scheme != _SCHEME:
            raise InvalidArgumentError(
                f"distr_scheme: got {shown(distr_scheme)}, must be {_SCHEME!r}, the only one that "
                "NoPFS has"
            )
        if config_path is not None:
            raise InvalidArgumentError(
                f"config_path: got {shown(config_path)}: headrace does not read NoPFS's file; say "
                "where to keep samples, as tiers=[headrace.tiers.Ram('4GiB')], and let `headrace "
                "profile` measure the machine"
            )
        own = [name for name in _OWN if name in options]
        if own:
            raise InvalidArgumentError(
                f"{own[0]}={shown(options[own[0]])}: a job decides this option of a loader; leave "
                "it out"
            )
        self._ranks = Ranks(options.get("job"))
        self._output = group_or_first(options.pop("output", "auto"), Output)
        if self._output.arrays != Output.arrays:
            raise InvalidArgumentError(
                f"Output.arrays: got {shown(self._output.arrays)}: a job decides this option of a "
                "loader; leave it out"
            )
        if self._batch_size % self._ranks.world_size:
            raise InvalidArgumentError(
                f"batch_size: got {self._batch_size}, of all {self._ranks.world_size} ranks "
                "together: must be a multiple of their number"
            )
        self.dataset = (
            dataset_path if isinstance(dataset_path, Dataset) else open_dataset(dataset_path)
        )
        self._epochs, self._drop_last, self._transforms = epochs, drop_last_batch, transforms
        self._seed, self._options = 0 if seed is None else seed, options
        self._loader: Loader[Any] | None = None
        self._samples: Iterator[tuple[Any, Any]] | None = None
        self._newest: Any = None

    def loader(
        self, transform: Any = None, workers: Workers | None = None, **output: Any
    ) -> Loader[Any]:
        """The loader of the job, made with these options, too. It is made once.

        `workers`: in place of the job's; `output`: options of `Output`.
        """
        if self._loader is not None:
            raise FailedPreconditionError(
                "this job's samples are taken already: by get() or by one NoPFSDataLoader; make "
                "another Job to take them twice"
            )
        options = dict(self._options)
        tiers = options.get("tiers")
        if tiers is not None and not isinstance(tiers, Cache):
            options["tiers"] = Cache(tiers, placement="frequency")
        if workers is not None:
            options["workers"] = workers
        self._loader = Loader(
            self.dataset,
            self._batch_size // self._ranks.world_size,
            epochs=self._epochs,
            drop_last=self._drop_last,
            seed=self._seed,
            transform=transform,
            output=dataclasses.replace(self._output, **output),
            **options,
        )
        return self._loader

    def workers(self, collate_fn: Callable[[list[Any]], Any] | None) -> Workers:
        """Where Python functions run: in the training loop's process, if the job does not say."""
        option = self._options.get("workers")
        workers = group_or_first(0 if option is None else option, Workers)
        if collate_fn is None:
            return workers
        if workers.collate_fn is not None:
            raise InvalidArgumentError(
                "collate_fn: the job's workers= have one, too: leave one of them out"
            )
        return dataclasses.replace(workers, collate_fn=collate_fn)

    def setup(self) -> None:
        """Opens the job for `get`. Without this call, the first `get` does."""
        if self._samples is None:
            loader = self.loader(self._transforms, arrays="numpy")
            self._samples = _labelled_samples(loader, self._epochs, self.dataset)

    @named_arguments
    def get(self, num_items: int = 1) -> tuple[Any, Any]:
        """The next sample: its label, the name of its class if it has one, and the sample: bytes as
        they are stored, or an array. Of several: a list of labels and one of samples.

        Raises StopIteration after the last epoch.
        """
        self.setup()
        assert self._samples is not None
        count = integer("num_items", num_items, 1, 2**24)
        pairs = [next(self._samples) for _ in range(count)]
        self._newest = pairs[-1][1]
        plain = [(label, _stored(sample)) for label, sample in pairs]
        if count == 1:
            return plain[0]
        return [label for label, _ in plain], [sample for _, sample in plain]

    @property
    def buffer_p(self) -> Any:
        """A pointer to the newest sample that `get` returned, in the memory of its batch: to read
        it without a copy, until the next `get`. None before the first."""
        if self._newest is None:
            return None
        return self._newest.ctypes.data_as(ctypes.POINTER(ctypes.c_char))

    @property
    def buffer_size(self) -> int:
        """Bytes of that sample."""
        return 0 if self._newest is None else int(self._newest.nbytes)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Any, Any]:
        return self.get()

    def destroy(self) -> None:
        """Stops reading, and frees threads and memory."""
        self._newest = None
        if self._loader is not None:
            self._loader.close()

    def length(self) -> int:
        """Samples of an epoch."""
        return epoch_samples(self.dataset)

    def get_node_id(self) -> int:
        """The number of this rank: NoPFS has one process a node."""
        return self._ranks.rank

    def get_no_nodes(self) -> int:
        """The number of ranks."""
        return self._ranks.world_size

    def get_batch_size(self) -> int:
        """Samples of a batch of all ranks together."""
        return self._batch_size

    def get_num_epochs(self) -> int:
        return self._epochs

    def get_drop_last_batch(self) -> bool:
        return self._drop_last

    def get_transforms(self) -> Any:
        return self._transforms


class NoPFSImageFolder:
    """The images of a job, as torchvision's ImageFolder has them: `classes`, `class_to_idx`.

    It has no order of its own: `dataset[i]` is the job's next sample, whatever i is.

    Args:
        root: the folder of the job.
        job: a `Job`.
        transform: gets a Pillow image; or it is one of torchvision or Albumentations, which runs as
            in a `headrace.Loader`. Default: images are arrays, (height, width, channel).
        target_transform: gets a label's number.
    """

    @named_arguments
    def __init__(
        self,
        root: Dataset | str | os.PathLike[str],
        job: Job,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ) -> None:
        if not isinstance(job, Job):
            raise InvalidArgumentError(f"job: got {shown(job)}, must be a Job")
        path = root.path if isinstance(root, Dataset) else os.fsdecode(root)
        if os.path.abspath(path) != os.path.abspath(job.dataset.path):
            raise InvalidArgumentError(
                f"root: got {path!r}, but the job reads {job.dataset.path!r}: give both the same"
            )
        for name, function in (("transform", transform), ("target_transform", target_transform)):
            if function is not None and not callable(function):
                raise InvalidArgumentError(f"{name}: got {shown(function)}, must be callable")
        if transform is not None and job.get_transforms() is not None:
            raise InvalidArgumentError(
                "transform: the job has transforms, which make the images: leave one of them out"
            )
        images = [field for field in job.dataset.fields if job.dataset.kind(field) == "image"]
        if not images or _LABEL not in job.dataset.fields:
            raise InvalidArgumentError(
                f"job: {job.dataset.path!r} has the fields {', '.join(job.dataset.fields)}: an "
                f"image folder needs an image and a field named {_LABEL!r}; take samples of others "
                "by Job.get()"
            )
        self._fields = [images[0], _LABEL]
        self.root = path
        self.transform = transform
        self.target_transform = target_transform
        self.classes = list(job.dataset.classes)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self._job = job

    def __len__(self) -> int:
        return self._job.length()

    def __getitem__(self, _: Any) -> tuple[Any, Any]:
        label, sample = self._job.get()
        number = self.class_to_idx.get(label, label)
        if self._job.get_transforms() is None:
            sample = decode_image(np.frombuffer(sample, np.uint8))
        return _Made(self.transform, self.target_transform).made(sample, number)

    def get_job(self) -> Job:
        return self._job

    def loader(self, collate_fn: Callable[[list[Any]], Any] | None) -> Loader[Any]:
        """The job's loader with this dataset's transforms."""
        native = self._job.get_transforms()
        output: dict[str, Any] = {"fields": self._fields}
        workers = None
        function: Any = None
        if native is None or self.target_transform is not None:
            function = _Made(self.transform, self.target_transform)
            if self.target_transform is None and library_of(self.transform) is not None:
                function = self.transform
            if self.transform is None and native is None and collate_fn is None:
                output["ragged"] = "list"  # Images as they are stored differ in size.
        if function is not None or collate_fn is not None:
            workers = self._job.workers(collate_fn)
        if native is not None and function is not None:
            return self._job.loader((native, function), workers, **output)
        return self._job.loader(native if function is None else function, workers, **output)


class NoPFSDataLoader:
    """Batches of a `NoPFSImageFolder`, as torch's DataLoader has them: `images, labels`.

    >>> for images, labels in NoPFSDataLoader(dataset):  # an epoch; the next `for` is the next
    ...     ...

    Args:
        dataset: a `NoPFSImageFolder`.
        collate_fn: makes a batch from a list of pairs (image, label).
        label_type: a dtype of torch, for labels; default: as they are, int64.

    `loader` is the `headrace.Loader` that reads: its `stats`, `explain`, `state_dict`, ...
    """

    @named_arguments
    def __init__(
        self,
        dataset: NoPFSImageFolder,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        label_type: Any = None,
    ) -> None:
        if not isinstance(dataset, NoPFSImageFolder):
            raise InvalidArgumentError(f"dataset: got {shown(dataset)}, must be a NoPFSImageFolder")
        if collate_fn is not None and label_type is not None:
            raise InvalidArgumentError(
                "label_type with collate_fn, which makes the labels: leave one of them out"
            )
        self.dataset = dataset
        self.loader = dataset.loader(collate_fn)
        self._label_type = label_type

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        if self._label_type is None:
            return batches
        return ((images, labels.to(self._label_type)) for images, labels in batches)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """As the loader's."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As the loader's."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the loader's."""
        self.loader.load_state_dict(state)


class _Made:
    """Makes a pair (image, label) of a sample, as ImageFolder does. Pickled for workers."""

    def __init__(
        self, transform: Callable[[Any], Any] | None, target: Callable[[int], Any] | None
    ) -> None:
        self._transform = transform
        self._target = target

    def __call__(self, sample: Sample) -> tuple[Any, Any]:
        return self.made(sample[0], sample[1])

    def made(self, image: Any, label: Any) -> tuple[Any, Any]:
        """Of an image that is decoded."""
        if self._transform is not None:
            from PIL import Image

            image = self._transform(Image.fromarray(image))
        return image, label if self._target is None else self._target(int(label))


def _labelled_samples(
    loader: Loader[Any], epochs: int, dataset: Dataset
) -> Iterator[tuple[Any, Any]]:
    """Labels and samples of all epochs."""
    for _ in range(epochs):
        for batch in loader:
            names = batch._fields
            samples = batch[next(at for at, name in enumerate(names) if name != _LABEL)]
            labels = batch[_LABEL] if _LABEL in names else [None] * len(samples)
            for sample, label in zip(samples, labels, strict=True):
                yield _name(label, dataset.classes), sample


def _name(label: Any, classes: Sequence[str]) -> Any:
    """The name of a label's class, if it has one."""
    if label is not None and np.ndim(label) == 0 and np.asarray(label).dtype.kind in "iu":
        return classes[int(label)] if 0 <= label < len(classes) else int(label)
    return label


def _stored(sample: Any) -> Any:
    """Encoded images and bytes as `bytes`, everything else as it is."""
    if isinstance(sample, np.ndarray) and sample.dtype == np.uint8 and sample.ndim == 1:
        return sample.tobytes()
    return sample
