"""Rinas: a mean over a batch does not depend on the order of its samples (its equation 1).

The samples arrive in an order that each test sets, none in its slot's. What a model computes of a
batch as a set agrees then; what it computes by slots does not, until they are put back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from headrace.torch import DataLoader
from headrace.torch._dataloader.iterations.thread_reader import ThreadReader

BATCH = 8
BATCHES = 12
FEATURES = 6


class Turns(Dataset[Any]):
    """Samples of features, a target and their number; those of a batch arrive one after another.

    `turns[b][s]`: when the sample in slot s of batch b arrives. It waits until as many others have
    been put into their batch.
    """

    def __init__(self, turns: list[list[int]], dtype: torch.dtype) -> None:
        draw = np.random.default_rng(4)
        self.features = torch.from_numpy(draw.normal(size=(BATCH * BATCHES, FEATURES))).to(dtype)
        self.targets = torch.from_numpy(draw.normal(size=BATCH * BATCHES)).to(dtype)
        self._turns = turns
        self._put = [0] * BATCHES
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return BATCH * BATCHES

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int]:
        batch, slot = divmod(number, BATCH)
        with self._changed:
            self._changed.wait_for(lambda: self._put[batch] == self._turns[batch][slot])
        return self.features[number], self.targets[number], number

    def put(self, batch: int) -> None:
        with self._changed:
            self._put[batch] += 1
            self._changed.notify_all()


def permutations(seed: int) -> list[list[int]]:
    """A turn for each slot of each batch; no batch is in order."""
    draw = np.random.default_rng(seed)
    found: list[list[int]] = []
    while len(found) < BATCHES:
        turns = draw.permutation(BATCH).tolist()
        if turns != sorted(turns):
            found.append(turns)
    return found


def delivered(
    monkeypatch: pytest.MonkeyPatch, fetch: Any, turns: list[list[int]], dtype: torch.dtype
) -> list[tuple[Tensor, Tensor, Tensor]]:
    data = Turns(turns, dtype)
    put = ThreadReader._put

    def tells(self: ThreadReader, batch: Any, slot: int, samples: list[Any]) -> bool:
        is_whole = put(self, batch, slot, samples)
        data.put(batch.drawn.number)
        return is_whole

    with monkeypatch.context() as patched:
        patched.setattr(ThreadReader, "_put", tells)
        # A thread for each sample of a batch, as in the paper: all of them wait for their turns.
        loader = DataLoader(data, BATCH, num_workers=BATCH, worker_method="thread", fetch=fetch)
        found = list(loader)
    assert len(found) == BATCHES
    for features, targets, numbers in found:  # Whatever the slot, its sample is whole.
        assert torch.equal(features, data.features[numbers])
        assert torch.equal(targets, data.targets[numbers])
    return found


def model_of(dtype: torch.dtype, *, norm: bool = False, dropout: bool = False) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(FEATURES, 8),
        *([nn.BatchNorm1d(8)] if norm else []),
        nn.Tanh(),
        *([nn.Dropout(0.5)] if dropout else []),
        nn.Linear(8, 1),
    ).to(dtype)


def mean(model: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(features)[:, 0], targets)


def total(model: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(features)[:, 0], targets, reduction="sum")


def halves(model: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    """Two micro-batches, whose gradients are added."""
    parts = zip(features.chunk(2), targets.chunk(2), strict=True)
    return torch.stack([mean(model, *part) for part in parts]).mean()


def weighted(model: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    """A weight of each slot."""
    weights = torch.linspace(0.1, 1.9, BATCH, dtype=features.dtype)
    return (weights * (model(features)[:, 0] - targets) ** 2).mean()


def mixed(model: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    """Mixup of neighbours."""
    return mean(model, (features + features.roll(1, 0)) / 2, (targets + targets.roll(1)) / 2)


Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
SETS: dict[str, tuple[Loss, dict[str, bool]]] = {
    "mean": (mean, {}),
    "sum": (total, {}),
    "batch norm": (mean, {"norm": True}),
    "micro-batches": (halves, {}),
}
SLOTS: dict[str, tuple[Loss, dict[str, bool]]] = {
    "weights of slots": (weighted, {}),
    "dropout": (mean, {"dropout": True}),
    "mixup": (mixed, {}),
    "batch norm of micro-batches": (halves, {"norm": True}),
}


def gradient(model: nn.Module, loss: Loss, features: Tensor, targets: Tensor) -> Tensor:
    model.zero_grad()
    torch.manual_seed(2)  # Of dropout: a mask for each slot.
    loss(model, features, targets).backward()
    return torch.cat(
        [values.grad.flatten() for values in model.parameters() if values.grad is not None]
    )


def descend(model: nn.Module) -> None:
    with torch.no_grad():
        for values in model.parameters():
            assert values.grad is not None
            values -= 0.01 * values.grad


def state(model: nn.Module) -> Tensor:
    """Weights, and the running statistics of batch norm."""
    return torch.cat([values.flatten().double() for values in model.state_dict().values()])


@pytest.mark.parametrize("seed", [0, 1])
def test_samples_take_the_slots_of_their_arrival(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = permutations(seed)
    arrived = delivered(monkeypatch, "arrival", turns, torch.float32)
    for batch, (_, _, numbers) in enumerate(arrived):
        by_turn = np.argsort(turns[batch]) + BATCH * batch
        assert numbers.tolist() == by_turn.tolist()
        assert numbers.tolist() != sorted(numbers.tolist())
    ordered = delivered(monkeypatch, "order", turns, torch.float32)
    assert [batch[2].tolist() for batch in ordered] == [
        list(range(first, first + BATCH)) for first in range(0, BATCH * BATCHES, BATCH)
    ]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
@pytest.mark.parametrize("case", SETS)
def test_gradients_do_not_depend_on_the_order_within_a_batch(
    case: str, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each step of a training, and what it has learned at the end."""
    loss, layers = SETS[case]
    turns = permutations(3)
    models = [model_of(dtype, **layers) for _ in range(2)]
    ways = [delivered(monkeypatch, fetch, turns, dtype) for fetch in ("order", "arrival")]
    for batches in zip(*ways, strict=True):
        assert batches[0][2].tolist() != batches[1][2].tolist()
        assert batches[0][2].tolist() == sorted(batches[1][2].tolist())
        found = [
            gradient(model, loss, *batch[:2]) for model, batch in zip(models, batches, strict=True)
        ]
        torch.testing.assert_close(found[1], found[0], rtol=tolerance, atol=tolerance)
        for model in models:
            descend(model)
    torch.testing.assert_close(state(models[1]), state(models[0]), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", SLOTS)
def test_gradients_depend_on_the_order_if_the_model_depends_on_slots(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And on nothing else of the arrival: put back into their slots, samples give the same bits."""
    loss, layers = SLOTS[case]
    turns = permutations(3)
    ways = [delivered(monkeypatch, fetch, turns, torch.float64) for fetch in ("order", "arrival")]
    distances = []
    for ordered, arrived in zip(*ways, strict=True):
        back = torch.argsort(arrived[2])
        expected, found, put_back = (
            gradient(model_of(torch.float64, **layers), loss, features, targets)
            for features, targets in (
                ordered[:2],
                arrived[:2],
                (arrived[0][back], arrived[1][back]),
            )
        )
        distances.append(float((found - expected).norm() / expected.norm()))
        assert torch.equal(put_back, expected)
    # Some permutations may leave the halves as they were, or pairs; hardly more than one batch.
    assert sorted(distances)[1] > 1e-3, distances
