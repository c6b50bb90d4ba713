"""Other loaders, the real packages, over one dataset: logs which sample each delivers when.

    python loaders.py FOLDER SAMPLES SHARD EPOCHS ROW...

Writes FOLDER/ROW.npy of each row: the numbers of the samples of every epoch, in the order in which
the training loop gets them. The dataset is made in FOLDER, in the format of the loader, if it is
not there: sample i holds its number, and lies in shard i // SHARD. other_shuffles.py starts one
process for the rows of torch, and one for each other row, with the packages of
tools/envs/loaders.txt on its path.
"""

from __future__ import annotations

import fcntl
import importlib.machinery
import itertools
import multiprocessing
import shutil
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler

BATCH = 256  # of all ranks
WORKERS = 2


@dataclass(frozen=True)
class Data:
    """One dataset, which lies in `folder` in several formats."""

    folder: Path
    samples: int
    shard_samples: int

    def shards(self) -> list[range]:
        """The samples of each shard."""
        step = self.shard_samples
        return [range(i, min(i + step, self.samples)) for i in range(0, self.samples, step)]

    def made(self, name: str, make: Callable[[Path], None]) -> Path:
        """The folder of a format, made whole or not at all."""
        target = self.folder / name
        with open(self.folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Another row may make it now.
            if not target.exists():
                part = self.folder / f"{name}.part"
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(parents=True)
                # In a process of its own: after LitData's writer its reader waits for seconds.
                writer = multiprocessing.get_context("fork").Process(target=make, args=(part,))
                writer.start()
                writer.join()
                if writer.exitcode != 0:
                    raise RuntimeError(f"making {target}: exit code {writer.exitcode}")
                part.rename(target)
        return target


Epochs = Callable[[int], Iterable[Any]]
"""The batches of an epoch, each of sample numbers."""


def torch_shuffled(data: Data) -> Epochs:
    loader = DataLoader(range(data.samples), BATCH, shuffle=True, num_workers=WORKERS)
    return lambda epoch: loader


def torch_in_order(data: Data) -> Epochs:
    loader = DataLoader(range(data.samples), BATCH, num_workers=WORKERS)
    return lambda epoch: loader


def torch_ranks(data: Data, set_epoch: bool = True) -> Epochs:
    """Two ranks in one process: of each step the batch of rank 0, then that of rank 1."""
    numbers = range(data.samples)
    samplers = [DistributedSampler(numbers, 2, rank) for rank in range(2)]
    loaders = [DataLoader(numbers, BATCH // 2, sampler=sampler) for sampler in samplers]

    def batches(epoch: int) -> Iterable[Any]:
        for sampler in samplers if set_epoch else []:
            sampler.set_epoch(epoch)
        return itertools.chain.from_iterable(zip(*loaders, strict=True))

    return batches


def torch_ranks_same_epoch(data: Data) -> Epochs:
    return torch_ranks(data, set_epoch=False)


def torch_buffer(data: Data) -> Epochs:
    from torch.utils.data.datapipes.iter import IterableWrapper

    lists = [list(shard) for shard in data.shards()]
    shards = IterableWrapper(lists).shuffle().sharding_filter()
    samples = shards.unbatch().shuffle()
    loader = DataLoader(samples, BATCH, shuffle=True, num_workers=WORKERS)
    return lambda epoch: loader


def _web_shards(data: Data) -> list[str]:
    import webdataset

    def make(folder: Path) -> None:
        for number, shard in enumerate(data.shards()):
            with webdataset.TarWriter(str(folder / f"{number:06}.tar")) as sink:
                for i in shard:
                    sink.write({"__key__": f"{i:09}", "cls": i})

    return sorted(map(str, data.made("webdataset", make).glob("*.tar")))


def _web_batches(data: Data, buffer: int, each_epoch: bool = False) -> Any:
    """`each_epoch`: shards come in another order in every epoch."""
    import webdataset

    samples = webdataset.WebDataset(_web_shards(data), shardshuffle=100, detshuffle=each_epoch)
    if buffer:
        samples = samples.shuffle(buffer)
    batches = samples.decode().to_tuple("cls").batched(BATCH)
    return webdataset.WebLoader(
        batches, batch_size=None, num_workers=WORKERS, persistent_workers=each_epoch
    )


def webdataset_shards(data: Data) -> Epochs:
    loader = _web_batches(data, buffer=0)
    return lambda epoch: (numbers for (numbers,) in loader)


def webdataset_buffer(data: Data) -> Epochs:
    loader = _web_batches(data, buffer=1000)
    return lambda epoch: (numbers for (numbers,) in loader)


def webdataset_mixed(data: Data) -> Epochs:
    loader = _web_batches(data, buffer=1000)
    mixed = loader.unbatched().shuffle(5000).batched(BATCH)
    return lambda epoch: (numbers for (numbers,) in mixed)


def webdataset_epochs(data: Data) -> Epochs:
    loader = _web_batches(data, buffer=1000, each_epoch=True)
    mixed = loader.unbatched().shuffle(5000).batched(BATCH)
    return lambda epoch: (numbers for (numbers,) in mixed)


def _as_it_is(number: int) -> dict[str, int]:
    return {"id": number}


def litdata(data: Data) -> Epochs:
    from litdata import StreamingDataLoader, StreamingDataset, optimize

    def make(folder: Path) -> None:
        optimize(
            fn=_as_it_is,
            inputs=list(range(data.samples)),
            output_dir=str(folder),
            chunk_size=data.shard_samples,
            num_workers=1,
        )

    dataset = StreamingDataset(str(data.made("litdata", make)), shuffle=True)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS)
    return lambda epoch: (batch["id"] for batch in loader)


def hugging_face(data: Data, buffer_size: int = 1000) -> Epochs:
    import datasets
    import pyarrow
    import pyarrow.parquet

    datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0  # Its workers sleep 5 s after each epoch.

    def make(folder: Path) -> None:
        for number, shard in enumerate(data.shards()):
            table = pyarrow.table({"id": list(shard)})
            pyarrow.parquet.write_table(table, folder / f"{number:06}.parquet")

    files = sorted(map(str, data.made("parquet", make).glob("*.parquet")))
    samples = datasets.load_dataset("parquet", data_files=files, streaming=True, split="train")
    samples = samples.shuffle(seed=42, buffer_size=buffer_size)
    loader = DataLoader(samples, BATCH, num_workers=WORKERS)

    def batches(epoch: int) -> Iterable[Any]:
        samples.set_epoch(epoch)
        return (batch["id"] for batch in loader)

    return batches


def hugging_face_large(data: Data) -> Epochs:
    return hugging_face(data, buffer_size=10_000)


def _without_torchvision() -> None:
    """Streaming imports it for its datasets of images; none is used here."""
    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        module = types.ModuleType(f"torchvision{name}")
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        module.VisionDataset = module.to_tensor = object  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module


def mosaicml(data: Data, **shuffle: Any) -> Epochs:
    _without_torchvision()
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    def make(folder: Path) -> None:
        size = 12 * data.shard_samples + 300  # bytes: 12 of each, and a header
        with MDSWriter(out=str(folder), columns={"id": "int64"}, size_limit=size) as sink:
            for i in range(data.samples):
                sink.write({"id": i})

    dataset = StreamingDataset(
        local=str(data.made("mds", make)), shuffle=True, batch_size=BATCH, **shuffle
    )
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS)
    return lambda epoch: (batch["id"] for batch in loader)


def mosaicml_py1br(data: Data) -> Epochs:
    return mosaicml(data, shuffle_algo="py1br")


ROWS: dict[str, Callable[[Data], Epochs]] = {
    "torch-shuffled": torch_shuffled,
    "torch-in-order": torch_in_order,
    "torch-ranks": torch_ranks,
    "torch-ranks-same-epoch": torch_ranks_same_epoch,
    "torch-buffer": torch_buffer,
    "webdataset-shards": webdataset_shards,
    "webdataset-buffer": webdataset_buffer,
    "webdataset-mixed": webdataset_mixed,
    "webdataset-epochs": webdataset_epochs,
    "litdata": litdata,
    "hugging-face": hugging_face,
    "hugging-face-10000": hugging_face_large,
    "mosaicml": mosaicml,
    "mosaicml-py1br": mosaicml_py1br,
}


def delivered(data: Data, row: str, epochs: int) -> np.ndarray[Any, Any]:
    """The samples of so many epochs, in the order of delivery."""
    batches = ROWS[row](data)
    ids = [np.asarray(batch) for epoch in range(epochs) for batch in batches(epoch)]
    return np.concatenate(ids)


def main(folder: str, samples: str, shard: str, epochs: str, *rows: str) -> None:
    data = Data(Path(folder), int(samples), int(shard))
    for row in rows:
        torch.manual_seed(0)
        np.save(data.folder / f"{row}.npy", delivered(data, row, int(epochs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
