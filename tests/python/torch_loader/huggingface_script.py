"""Batches of Hugging Face's datasets in both DataLoaders: run by test_map_huggingface.py.

python huggingface_script.py FOLDER [FOLDER ...]    folders that have the packages
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path += sys.argv[1:]

import datasets
import torch
import torch.utils.data
from map_data import WAYS, plain

from headrace.torch import DataLoader

ROWS = {"number": list(range(23)), "text": [f"sample {number}" for number in range(23)]}


def main() -> None:
    made = datasets.Dataset.from_dict(ROWS | {"values": [[number, 0.5] for number in range(23)]})
    for data in (made.with_format("torch"), made.remove_columns("values"), made.select([5, 3, 4])):
        for name, way in WAYS.items():
            generator = torch.Generator().manual_seed(3)
            ours = DataLoader(data, 4, shuffle=True, generator=generator, **way)
            generator = torch.Generator().manual_seed(3)
            theirs = torch.utils.data.DataLoader(
                data, 4, shuffle=True, generator=generator, **(way if name == "persistent" else {})
            )
            for _ in range(2):
                assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs], name
            ours.close()
    check_engine()
    for way in ({}, WAYS["processes"], WAYS["persistent"]):
        check_iterable(made.remove_columns("values"), way)
    print("equal")


def check_engine() -> None:
    """What lies in files and is collated to arrays and texts is read by the engine."""
    with tempfile.TemporaryDirectory() as folder:
        datasets.Dataset.from_dict(
            ROWS | {"values": [[number, 0.5] for number in range(23)]},
            features=datasets.Features(
                number=datasets.Value("int64"),
                text=datasets.Value("string"),
                values=datasets.Sequence(datasets.Value("float32"), length=2),
            ),
        ).save_to_disk(folder)
        saved = datasets.load_from_disk(folder)
        arrays = saved.with_format("torch")
        cases = [
            (arrays, True),
            (saved.with_format("numpy").remove_columns("text"), True),
            (saved.with_format("numpy"), False),  # Its texts are of a type of NumPy's.
            (saved.remove_columns("values"), True),
            (arrays.select([5, 3, 4, 22, 0]), True),
            (arrays.shuffle(seed=3).train_test_split(0.3, seed=1)["train"], True),
            (torch.utils.data.Subset(arrays.select(range(20)), [-1, 4, 2, 0]), True),
            (torch.utils.data.ConcatDataset([arrays.select([1, 2]), arrays]), True),
            # A batch of this format has other dtypes than its samples, one by one.
            (saved.cast_column("number", datasets.Value("int32")).with_format("numpy"), False),
            (of_a_class(saved.remove_columns("values")), False),
            (saved, False),  # Lists are collated column by column.
            (saved.with_transform(lambda rows: {"n": rows["number"]}), False),
        ]
        for data, by_engine in cases:
            for workers in (0, 2):
                ours = read(DataLoader, data, workers)
                assert ours == read(torch.utils.data.DataLoader, data, workers), data
            loader = DataLoader(data, 4)
            list(loader)
            assert (loader.stats()["reader"] == "engine") == by_engine, data
            loader.close()
        check_indexes(arrays)
        check_changes(saved.remove_columns("values"))


def check_indexes(data: Any) -> None:
    """Shuffles of one table have one index: else each epoch's would stay in the user's cache."""
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "headrace"
    before = set(cache.iterdir())
    for seed in range(5):
        shuffled = data.shuffle(seed=seed)
        assert read(DataLoader, shuffled, 0) == read(torch.utils.data.DataLoader, shuffled, 0)
    assert set(cache.iterdir()) == before
    for other in (data.select(range(3, 20)), data.rename_column("number", "other")):  # Of a slice.
        loader = DataLoader(other, 4)
        theirs = torch.utils.data.DataLoader(other, 4)
        assert [plain(batch) for batch in loader] == [plain(batch) for batch in theirs]
        assert loader.stats()["reader"] == "engine"
        loader.close()
    assert len(set(cache.iterdir()) - before) == 2


class Own(datasets.Dataset):
    """A class of the user's: sample 4 is another."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(key, int):
            found["number"] = [-1 if each == 4 else each for each in found["number"]]
        return found


def of_a_class(data: Any) -> Any:
    data.__class__ = Own
    return data


def read(kind: Any, data: Any, workers: int) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    loader = kind(data, 4, shuffle=True, generator=generator, num_workers=workers)
    found = [[plain(batch) for batch in loader] for _ in range(2)]
    if kind is DataLoader:
        loader.close()
    return found


def check_changes(data: Any) -> None:
    """A format that is set between epochs counts."""
    loader = DataLoader(data, 4)
    for columns in (["number", "text"], ["text"], ["number"]):
        data.set_format("torch", columns=columns)
        theirs = torch.utils.data.DataLoader(data, 4)
        assert [plain(batch) for batch in loader] == [plain(batch) for batch in theirs], columns
        assert loader.stats()["reader"] == "engine", columns
    loader.close()


def check_iterable(table: Any, way: dict[str, Any]) -> None:
    """An iterable dataset, which has a state of its own, goes on at any step."""

    def data() -> Any:
        return table.to_iterable_dataset(num_shards=2)

    expected = [plain(batch) for batch in torch.utils.data.DataLoader(data(), 4, **way)]
    first = DataLoader(data(), 4, **way)
    iterator = iter(first)
    for step in range(len(expected)):
        if step in (0, 1, 3):
            second = DataLoader(data(), 4, **way)
            second.load_state_dict(first.state_dict())
            assert [plain(batch) for batch in second] == expected[step:], (way, step)
            # The next epoch is whole, though a state was loaded.
            assert [plain(batch) for batch in second] == expected, (way, step)
        assert plain(next(iterator)) == expected[step]
    assert next(iterator, None) is None
    second = DataLoader(data(), 4, **way)
    second.load_state_dict(first.state_dict())
    assert [[plain(batch) for batch in second] for _ in range(2)] == [expected, expected], way


if __name__ == "__main__":
    main()
