"""Batches of Hugging Face's datasets in both DataLoaders: run by test_map_huggingface.py.

python huggingface_script.py FOLDER [FOLDER ...]    folders that have the packages
"""

import sys
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
            theirs = torch.utils.data.DataLoader(data, 4, shuffle=True, generator=generator)
            for _ in range(2):
                assert [plain(batch) for batch in ours] == [plain(batch) for batch in theirs], name
            ours.close()
    for way in ({}, {"num_workers": 2}):
        check_iterable(made.remove_columns("values"), way)
    print("equal")


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
        assert plain(next(iterator)) == expected[step]


if __name__ == "__main__":
    main()
