"""Loaders of torch's and ours that Accelerate prepares, for accelerate_dataloader.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler

import headrace.torch

COUNT, EPOCHS = 29, 2
THREADS: dict[str, Any] = {"num_workers": 2, "worker_method": "thread"}
WAYS: dict[str, dict[str, Any]] = {
    "direct": {},
    "threads": THREADS,
    "pool": THREADS | {"pool_size": 5},
    "processes": {"num_workers": 2},
}
SOURCES: dict[str, Callable[[], dict[str, Any]]] = {
    "in order": dict,
    "shuffled": lambda: {"shuffle": True},
    "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(5)},
    "drop_last": lambda: {"shuffle": True, "drop_last": True},
    "batch_sampler": lambda: {
        "batch_size": 1,
        "batch_sampler": BatchSampler(RandomSampler(range(COUNT)), 4, False),
    },
}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "split": {"split_batches": True},
    "uneven": {"even_batches": False},
    "seedable": {"use_seedable_sampler": True, "data_seed": 11},
}


class Numbers(torch.utils.data.Dataset[Any]):
    """Sample i is i."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor(number)


def accelerator(config: dict[str, Any], **more: Any) -> Any:
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config), **more)


def ours(source: str, way: str = "threads", dataset: Any = None, batch_size: int = 4) -> Any:
    how = {"batch_size": batch_size} | SOURCES[source]() | WAYS[way]
    return headrace.torch.DataLoader(Numbers() if dataset is None else dataset, **how)


def torchs(source: str) -> Any:
    return torch.utils.data.DataLoader(Numbers(), **({"batch_size": 4} | SOURCES[source]()))


def divided(dataset: Any = None, ranks: int | None = None) -> Any:
    """Ours with a DistributedSampler."""
    ranks = dist.get_world_size() if ranks is None else ranks
    sampler = DistributedSampler(range(COUNT), ranks, dist.get_rank() % ranks, seed=3)
    made = Numbers() if dataset is None else dataset
    return headrace.torch.DataLoader(made, 4, sampler=sampler, **THREADS)


def prepared(trains: Any, loader: Any) -> Any:
    """Of torch's, or of ours in its wrapper."""
    is_ours = isinstance(loader, headrace.torch.DataLoader)
    return trains.prepare(headrace.torch.TrainerLoader(loader, trains) if is_ours else loader)


def ids(loader: Any) -> list[list[int]]:
    return [sorted(batch.tolist()) for batch in loader]


def error(case: Callable[[], Any]) -> Any:
    try:
        return case()
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
