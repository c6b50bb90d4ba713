"""Loaders of samples in an object store, one epoch each, for link.py: they write data, and read it.

    python object_readers.py write KIND FOLDER SAMPLES BYTES        pack, mds, litdata or objects
    python object_readers.py read WHO SETTINGS SAMPLES CACHE        prints a line of JSON

A sample is its number (8 bytes), then bytes that no compression makes smaller. Settings are JSON.
The server is settled by the environment: AWS_ENDPOINT_URL and keys.
"""

from __future__ import annotations

import importlib.machinery
import io
import itertools
import json
import os
import resource
import sys
import tarfile
import time
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 64
_SHARD_BYTES = 16 << 20
"""Of MDS and LitData, whose own 64 MB would make the first batch wait longer."""
BUCKET = "s3://data"


def _samples(count: int, size: int) -> Iterable[bytes]:
    rest = np.random.default_rng(0).bytes(size + 16 * count)
    for number in range(count):
        yield number.to_bytes(8, "little") + rest[16 * number : 16 * number + size - 8]


def _number(sample: Any) -> int:
    return int.from_bytes(bytes(sample[:8]), "little")


# Writing.


def write_objects(folder: Path, count: int, size: int) -> None:
    folder.mkdir()
    for number, sample in enumerate(_samples(count, size)):
        (folder / f"{number:06}.jpg").write_bytes(sample)


def write_pack(folder: Path, count: int, size: int) -> None:
    import headrace as hr
    from headrace.formats import WebDataset
    from headrace.pack import PackParameters, write_pack

    tars = folder.parent / "tars"
    write_tars(tars, count, size)
    source = hr.open(tars, format=WebDataset(), index=str(folder.parent / "tars.hri"))
    write_pack(source, folder, PackParameters())


def write_tars(folder: Path, count: int, size: int) -> None:
    folder.mkdir()
    per_shard = max(1, (64 << 20) // size)
    for shard, samples in itertools.groupby(
        enumerate(_samples(count, size)), lambda one: one[0] // per_shard
    ):
        with tarfile.open(folder / f"shard-{shard:05}.tar", "w") as tar:
            for number, sample in samples:
                member = tarfile.TarInfo(f"{number:06}.x")
                member.size = size
                tar.addfile(member, io.BytesIO(sample))


def write_mds(folder: Path, count: int, size: int) -> None:
    _without_torchvision()
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"x": "bytes"}, size_limit=_SHARD_BYTES) as sink:
        for sample in _samples(count, size):
            sink.write({"x": sample})


def write_litdata(folder: Path, count: int, size: int) -> None:
    from litdata.streaming.writer import BinaryWriter

    folder.mkdir()
    sink = BinaryWriter(str(folder), chunk_bytes=_SHARD_BYTES)
    for number, sample in enumerate(_samples(count, size)):
        sink[number] = {"x": sample}
    sink.done()
    sink.merge(1)


WRITERS: dict[str, Callable[[Path, int, int], None]] = {
    "pack": write_pack,
    "mds": write_mds,
    "litdata": write_litdata,
    "objects": write_objects,
}


# Reading: an iterable of lists of samples each.


def read_headrace(settings: dict[str, Any], samples: int, cache: Path) -> Iterable[Any]:
    os.environ["XDG_CACHE_HOME"] = str(cache)
    import headrace as hr

    dataset = hr.open(f"{BUCKET}/{settings.pop('data')}")
    (field,) = [name for name in dataset.fields if name in ("x", "image")][:1]
    output = hr.Output(fields=[field])
    if service := settings.pop("service", None):
        settings["job"] = hr.Job(node=hr.Node(name=service))
    settings = {"batch_size": BATCH, "output": output, "seed": 1, "epochs": 1, **settings}
    loader = hr.Loader(dataset, **settings)
    return (list(batch[0] if isinstance(batch, tuple) else batch) for batch in loader)


def read_mosaicml(settings: dict[str, Any], samples: int, cache: Path) -> Iterable[Any]:
    """Workers are spawned: forked ones share the connections of the dataset's client, so that
    answers reach another worker than the one that asked (wrong bytes, 60 s of waiting; 0.13)."""
    _without_torchvision()
    import streaming
    from torch.utils.data import DataLoader

    workers = settings.pop("workers")
    dataset = streaming.StreamingDataset(
        remote=f"{BUCKET}/mds",
        local=str(cache / "mds"),
        shuffle=True,
        batch_size=BATCH,
        num_canonical_nodes=1,
        **settings,
    )
    return DataLoader(
        dataset,
        batch_size=BATCH,
        num_workers=workers,
        collate_fn=_column,
        multiprocessing_context="spawn",
    )


def read_litdata(settings: dict[str, Any], samples: int, cache: Path) -> Iterable[Any]:
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(cache)
    import litdata
    from litdata.streaming import downloader

    options = {**downloader._OBSTORE_CLIENT_OPTIONS, "allow_http": True}
    downloader._OBSTORE_CLIENT_OPTIONS = options
    workers = settings.pop("workers")
    dataset = litdata.StreamingDataset(
        f"{BUCKET}/litdata",
        shuffle=True,
        cache_dir=str(cache),
        storage_options={
            "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
            "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "region_name": os.environ["AWS_REGION"],
        },
        max_cache_size="20GB",
        **settings,
    )
    return litdata.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, collate_fn=_column
    )


def _column(batch: list[Any]) -> list[Any]:
    return [sample["x"] for sample in batch]


def read_s3_map(settings: dict[str, Any], samples: int, cache: Path) -> Iterable[Any]:
    from s3torchconnector import S3ClientConfig, S3MapDataset
    from torch.utils.data import DataLoader

    dataset = S3MapDataset.from_objects(
        [f"{BUCKET}/objects/{number:06}.jpg" for number in range(samples)],
        region=os.environ["AWS_REGION"],
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        transform=lambda found: found.read(),
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    return DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        num_workers=settings["workers"],
        collate_fn=lambda b: b,
    )


READERS: dict[str, Callable[[dict[str, Any], int, Path], Iterable[Any]]] = {
    "headrace": read_headrace,
    "mosaicml": read_mosaicml,
    "litdata": read_litdata,
    "s3-map": read_s3_map,
}


def _without_torchvision() -> None:
    """Streaming imports it for its datasets of images; none is used here."""
    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        module = types.ModuleType(f"torchvision{name}")
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        module.VisionDataset = module.to_tensor = object  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module


def _cpu_s() -> float:
    return sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


def _read(who: str, settings: dict[str, Any], samples: int, cache: Path) -> None:
    cache.mkdir(parents=True)
    begin = time.perf_counter()
    batches = READERS[who](settings, samples, cache)
    made = time.perf_counter() - begin
    first = 0.0
    seen = np.zeros(samples, np.int64)
    size = 0
    foreign = 0  # bytes of no sample
    for batch in batches:
        first = first or time.perf_counter() - begin
        for sample in batch:
            number = _number(sample)
            if number < samples:
                seen[number] += 1
            else:
                foreign += 1
            size += len(sample)
    seconds = time.perf_counter() - begin
    missing = int((seen == 0).sum())
    repeated = int((seen > 1).sum())
    found = {"s": seconds, "made_s": made, "first_s": first, "bytes": size}
    print(
        json.dumps({**found, "missing": missing, "repeated": repeated, "foreign": foreign}),
        flush=True,
    )


def main(arguments: list[str]) -> None:
    if arguments[0] == "write":
        _, kind, folder, count, size = arguments
        WRITERS[kind](Path(folder), int(count), int(size))
        return
    _, who, settings, samples, cache = arguments
    _read(who, json.loads(settings), int(samples), Path(cache))


if "mosaicml" in sys.argv:  # Also in its spawned workers, before they load the dataset.
    _without_torchvision()

if __name__ == "__main__":
    main(sys.argv[1:])
