"""Run with the package `datasets`: writes datasets with it, and opens its objects with headrace.

Usage: python datasets_objects.py FOLDER PAGE

Leaves in FOLDER what `datasets` wrote, with its rows; prints JSON: of each case "same", or the
error. PAGE: docs/formats/huggingface.md, whose Python blocks run.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from datasets import Array2D, ClassLabel, Dataset, DatasetDict, Features, List, Value
from PIL import Image
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

import headrace as hr
from headrace.formats import HuggingFace

FOLDER, PAGE = Path(sys.argv[1]), Path(sys.argv[2])
COUNT = 57
FEATURES = Features(
    {
        "image": datasets.Image(decode=False),
        "sound": {"bytes": Value("binary"), "path": Value("string")},
        "label": ClassLabel(names=["ant", "bee"]),
        "text": Value("string"),
        "large": Value("large_string"),
        "view": Value("string_view"),
        "raw": Value("binary"),
        "half": Value("float32"),
        "double": Value("float64"),
        "unsigned": Value("uint64"),
        "flag": Value("bool"),
        "when": Value("timestamp[us]"),
        "box": Array2D((2, 3), "float32"),
        "path": Array2D((None, 2), "int16"),
        "tokens": List(Value("int32")),
        "flags": List(Value("bool")),
        "corner": List(Value("float32"), length=3),
        "classes": List(ClassLabel(names=["x", "y"])),
        "meta": {"width": Value("int8"), "name": Value("string")},
        "json": datasets.Json(),
        "turns": List(List(Value("int16"))),
        "names": List(Value("string")),
        "pages": List(datasets.Image(decode=False)),
        "answers": {"start": List(Value("int32")), "text": List(Value("string"))},
    }
)


def row(i: int) -> dict[str, Any]:
    return {
        "image": {"bytes": b"x" * (i * 7 % 11), "path": None if i % 2 else "a.png"},
        "sound": {"bytes": bytes([i]) * i, "path": None},
        "label": i % 2,
        "text": "üé\0"[: i % 4] * (i % 5),
        "large": "l" * i,
        "view": "ein längerer Text"[: i % 18],
        "raw": bytes(range(i)),
        "half": i / 2,
        "double": i / 3,
        "unsigned": i,
        "flag": i % 3 == 0,
        "when": datetime.datetime(1970, 1, 1, microsecond=i),
        "box": np.full((2, 3), i, "float32"),
        "path": np.full((i % 3, 2), i, "int16"),
        "tokens": list(range(i % 4)),
        "flags": [j % 2 == 0 for j in range(i % 5)],
        "corner": [i, 2, 3],
        "classes": [i % 2] * (i % 3),
        "meta": {"width": i % 7, "name": "z" * i},
        "json": {"number": i},
        "turns": [list(range(j)) for j in range(i % 4)],
        "names": ["ü" * j for j in range(i % 3)],
        "pages": [{"bytes": b"p" * (j + 1), "path": None} for j in range(i % 4)],
        "answers": {"start": [i] * (i % 2), "text": [f"a{i}"] * (i % 2)},
    }


def rows(first: int, last: int) -> Iterator[dict[str, Any]]:
    yield from map(row, range(first, last))


def made(name: str, first: int = 0, last: int = COUNT, features: Features = FEATURES) -> Dataset:
    return Dataset.from_generator(
        rows,
        features=features,
        cache_dir=str(FOLDER / name),
        gen_kwargs={"first": first, "last": last},
        writer_batch_size=10,
    )


def plain(value: Any) -> Any:
    if isinstance(value, (bytes, str)):
        return value
    if isinstance(value, list):
        return [plain(each) for each in value]
    array = np.asarray(value)
    return array.dtype.name, array.shape, array.tobytes()


def theirs(dataset: Any) -> list[dict[str, Any]]:
    """The rows as `datasets` gives them, through its own reading of the table."""
    table = dataset.with_format("arrow")[:] if len(dataset) else None
    found = []
    for each in [] if table is None else table.to_pylist():
        flat: dict[str, Any] = {}
        for name, value in each.items():
            if isinstance(value, dict) and "bytes" in value:
                flat[name] = value["bytes"]
            elif isinstance(value, dict):
                flat |= {f"{name}.{part}": inner for part, inner in value.items()}
            elif name == "pages":
                flat[name] = [page["bytes"] for page in value]
            elif hasattr(value, "microsecond"):
                flat[name] = value.microsecond
            else:
                flat[name] = value
        found.append(flat)
    return found


def like(value: Any, wanted: Any) -> Any:
    """What `datasets` gives, whose numbers have no dtype, with that of the value."""
    if isinstance(value, (bytes, str)):
        return wanted
    if isinstance(value, list):
        return [like(*each) for each in zip(value, wanted, strict=True)]
    return np.asarray(wanted, value.dtype).reshape(np.shape(value))


def compare(mine: hr.Dataset, dataset: Any) -> str:
    own = theirs(dataset)
    assert len(mine) == len(own) == len(dataset), (len(mine), len(own))
    for number, (found, wanted) in enumerate(zip(mine, own, strict=True)):
        assert found.keys() == wanted.keys(), (found.keys(), wanted.keys())
        for name, value in found.items():
            expected = like(value, wanted[name])
            assert plain(value) == plain(expected), (number, name, value, expected)
    again = pickle.loads(pickle.dumps(mine))
    assert (again.fingerprint, again.format) == (mine.fingerprint, mine.format)
    return "same"


def told(case: Callable[[], str]) -> str:
    try:
        return case()
    except hr.HeadraceError as error:
        return f"{type(error).__name__}: {error}"


def objects(ds: Dataset, dd: DatasetDict) -> dict[str, str]:
    streamed = ds.to_iterable_dataset()
    shuffled = ds.shuffle(seed=1)
    few = ds.remove_columns(["box", "path"])
    given: dict[str, Any] = {
        "whole": ds,
        "slice": ds.select(range(13, 40)),
        "slice of a slice": ds.select(range(13, 40)).select(range(2, 19)),
        "one row": ds.select(range(17, 18)),
        "chosen": ds.select([5, 1, 50, 5]),
        "no rows": ds.select([]),
        "shuffled": shuffled,
        "shuffled twice": shuffled.shuffle(seed=2).select(range(20)),
        "kept on disk": ds.shuffle(seed=4, indices_cache_file_name=str(FOLDER / "indices.arrow")),
        "split": ds.train_test_split(test_size=9, seed=3)["test"],
        "joined": datasets.concatenate_datasets([ds, ds.select(range(5)), dd["test"]]),
        "joined and shuffled": datasets.concatenate_datasets([shuffled, ds]).shuffle(seed=5),
        "renamed": ds.rename_column("label", "y"),
        "with fewer columns": few,
        "side by side": datasets.concatenate_datasets(
            [few.select_columns(["text"]), few.select_columns(["raw", "label"])], axis=1
        ),
        "shard": ds.shard(4, 1),
        "filtered": ds.filter(lambda each: each["label"] == 1),
        "mapped": ds.map(lambda each: {"more": each["label"] + 1}),
        "column in memory": ds.add_column("number", list(range(COUNT))),
        "cast": ds.cast_column("label", Value("int32")),
        "as torch": ds.with_format("torch"),
        "text in memory": ds.add_column("more", ["a"] * COUNT),
        "transformed": ds.with_transform(lambda batch: batch),
        "as pandas": ds.with_format("pandas"),
        "in memory": Dataset.from_dict({"a": [1]}),
        "dict": dd,
        "streamed": streamed,
        "streamed dict": datasets.IterableDatasetDict(train=streamed),
    }
    found = {name: told(lambda d=d: compare(hr.open(d), d)) for name, d in given.items()}
    some = hr.open(ds.with_format("numpy", columns=["label", "text"]))
    found["columns of a format"] = " ".join(some.fields)
    split = hr.open(dd, format=HuggingFace(split="test", columns=("text", "label")))
    found["split of a dict"] = f"{len(split)} {' '.join(split.fields)} {' '.join(split.classes)}"
    same = hr.open(dd, split="test", format=HuggingFace(columns=("text", "label")))
    found["the same by an argument"] = "same" if same.fingerprint == split.fingerprint else "other"
    found["split="] = told(lambda: compare(hr.open(dd, split="train"), dd["train"]))
    found["index of a name"] = told(
        lambda: compare(hr.open(shuffled, index=FOLDER / "named.hri"), shuffled)
    )
    found["another at this name"] = told(lambda: str(hr.open(ds, index=FOLDER / "named.hri")))
    return found


def loaders(ds: Dataset) -> dict[str, Any]:
    """Ids of torch's DataLoader over the dataset, and of headrace's over the same."""
    numbered = ds.map(lambda each, i: {"id": i}, with_indices=True).select_columns(["id", "text"])
    chosen = numbered.shuffle(seed=9).select(range(40))

    def ids(loader: Any) -> list[list[int]]:
        return [batch["id"] if isinstance(batch, dict) else batch.id for batch in loader]

    def of(sampler: Callable[[], Any]) -> list[list[list[int]]]:
        both = (
            ids(DataLoader(chosen.with_format("torch", columns=["id"]), 6, sampler=sampler())),
            ids(hr.Loader(chosen, 6, sampler=sampler())),
        )
        return [[batch.tolist() for batch in each] for each in both]

    def random() -> Any:
        return RandomSampler(chosen, generator=torch.Generator().manual_seed(3))

    def distributed() -> Any:
        return DistributedSampler(chosen, num_replicas=3, rank=1, shuffle=True, seed=4)

    with hr.Loader(chosen, 8, shuffle=False, job=hr.Job(node=hr.Node())) as loader:
        node = [(batch.id.tolist(), batch.text) for batch in loader]
    wanted = [(batch["id"], batch["text"]) for batch in chosen.iter(8)]
    return {
        "random": of(random),
        "distributed": of(distributed),
        "node": "same" if node == wanted else f"{node} {wanted}",
    }


def other_process(ds: Dataset) -> str:
    """A pickled dataset is read where `datasets` is not imported, by its index alone."""
    shuffled = ds.shuffle(seed=1)
    (FOLDER / "pickled").write_bytes(pickle.dumps(hr.open(shuffled)))
    program = (
        "import pickle, sys; d = pickle.load(open(sys.argv[1], 'rb'));"
        "assert 'datasets' not in sys.modules and 'pyarrow' not in sys.modules;"
        "print([each['text'] for each in d] == eval(sys.argv[2]))"
    )
    command = [sys.executable, "-c", program, str(FOLDER / "pickled"), repr(shuffled["text"][:])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() + done.stderr


def stale(ds: Dataset) -> str:
    copy = FOLDER / "stale"
    ds.save_to_disk(copy)
    found = hr.open(datasets.load_from_disk(copy).shuffle(seed=1))
    (path,) = copy.glob("data-*.arrow")
    os.utime(path, ns=(1, 1))
    return told(lambda: str(found.read(0)))


def images(folder: Path) -> Dataset:
    """Real images: in the dataset, and as files of their own."""
    (folder / "class").mkdir(parents=True)
    for number in range(8):
        data = io.BytesIO()
        Image.fromarray(np.full((40, 50, 3), number * 20, np.uint8)).save(data, "JPEG")
        (folder / "class" / f"{number}.jpg").write_bytes(data.getvalue())
    paths = sorted(str(each) for each in (folder / "class").iterdir())
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=["a", "b"])})
    values = {"image": paths, "label": [i % 2 for i in range(8)]}
    Dataset.from_dict(values, features=features).map(
        lambda batch: batch, batched=True, cache_file_name=str(folder / "paths.arrow")
    )
    return Dataset.from_dict(values, features=features)


def page(folder: Path) -> str:
    """The page's blocks, in a folder with the datasets that they name."""
    os.chdir(folder)
    pictures = images(folder / "pictures")
    DatasetDict(train=pictures, test=pictures).save_to_disk(folder / "imagenet")
    pictures.save_to_disk(folder / "flowers")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    return "ran"


def main() -> None:
    datasets.disable_progress_bars()
    ds, test = made("cache"), made("other", 100, 108)
    dd = DatasetDict(train=ds, test=test)
    ds.save_to_disk(FOLDER / "saved", num_shards=3)
    dd.save_to_disk(FOLDER / "dict")
    ds.select([]).save_to_disk(FOLDER / "empty")
    kept = {"saved": ds, "train": ds, "test": test}
    (FOLDER / "rows").write_bytes(pickle.dumps({name: theirs(each) for name, each in kept.items()}))
    found: dict[str, Any] = {"objects": objects(ds, dd), "loaders": loaders(ds)}
    found["own reader"] = told(lambda: compare(hr.open(FOLDER / "saved"), ds))
    found["other process"], found["stale"] = other_process(ds), told(lambda: stale(ds))
    (FOLDER / "page").mkdir()
    found["page"] = page(FOLDER / "page")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
