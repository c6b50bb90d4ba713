"""What benchmarks/convergence.py trains: data that shows a poor order, and small models in NumPy.

The definitions follow three experiments of the shuffle-quality literature: a small real set of
digits, a mixture that plain and batch-normalised networks learn, and a regression under drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = tuple[NDArray[Any], NDArray[Any]]  # inputs and targets


@dataclass(frozen=True)
class Problem:
    """Samples in the order of storage, the worst one, and what is measured after each epoch."""

    inputs: Floats
    targets: NDArray[Any]
    test: Rows


def digits(seed: int) -> Problem:
    """1,440 digits of 8 x 8, sorted by class; 357 to test."""
    from sklearn.datasets import load_digits

    inputs, labels = load_digits(return_X_y=True)
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    train, test = shuffled[:1440], shuffled[1440:]
    train = train[np.argsort(labels[train], kind="stable")]
    mean, spread = inputs[train].mean(0), inputs[train].std(0) + 1.6
    scaled = ((inputs - mean) / spread).astype(np.float32)
    return Problem(scaled[train], labels[train].astype(np.int64), (scaled[test], labels[test]))


def mixture(seed: int) -> Problem:
    """20,480 points of 20 Gaussians in 32 dimensions, sorted by class; 4,000 to test."""
    draw = np.random.default_rng(seed + 77)
    means = draw.normal(0, 1, (20, 32)) * 0.55
    labels = np.sort(draw.integers(0, 20, 20480))
    inputs = means[labels] + draw.normal(0, 1, (20480, 32))
    test_labels = draw.integers(0, 20, 4000)
    test_inputs = means[test_labels] + draw.normal(0, 1, (4000, 32))
    return Problem(inputs.astype(np.float32), labels, (test_inputs, test_labels))


def drift(seed: int) -> Problem:
    """40,960 points of a regression whose intercept and one input move with time, by time."""
    draw = np.random.default_rng(seed)
    time = np.arange(40960) / 40960
    inputs = draw.normal(0, 1, (40960, 16))
    inputs[:, 0] += 3 * np.sin(2 * np.pi * time)
    targets = inputs @ draw.normal(0, 1, 16)
    targets += 2 * np.cos(2 * np.pi * time) + 4 * (time - 0.5) + draw.normal(0, 1, 40960)
    with_one = np.c_[inputs, np.ones(40960)].astype(np.float32)
    return Problem(with_one, targets.astype(np.float32), (with_one, targets))


class Network:
    """One hidden layer, ReLU, softmax; momentum. With BatchNorm each rank has its own statistics.

    A step takes the rows of every rank, as data-parallel training does: gradients are averaged,
    what a rank computes from its own rows is its own.
    """

    def __init__(
        self, problem: Problem, hidden: int, seed: int, *, rate: float, norm: bool
    ) -> None:
        draw = np.random.default_rng(seed)
        width, classes = problem.inputs.shape[1], int(problem.targets.max()) + 1
        self._test = problem.test
        self._rate, self._norm = rate, norm
        self._weights: dict[str, NDArray[Any]] = {
            "in": draw.normal(0, np.sqrt(2 / width), (width, hidden)),
            "in_bias": np.zeros(hidden),
            "out": draw.normal(0, np.sqrt(1 / hidden), (hidden, classes)),
            "out_bias": np.zeros(classes),
            "scale": np.ones(hidden),
            "shift": np.zeros(hidden),
        }
        self._speed = {name: np.zeros_like(value) for name, value in self._weights.items()}
        self._mean, self._variance = np.zeros(hidden), np.ones(hidden)  # rank 0's, running

    def step(self, ranks: Sequence[Rows]) -> None:
        all_gradients = [self._gradients(x, y, rank) for rank, (x, y) in enumerate(ranks)]
        for name, weight in self._weights.items():
            mean = sum(each[name] for each in all_gradients) / len(ranks)
            self._speed[name] = 0.9 * self._speed[name] - self._rate * mean
            weight += self._speed[name]

    def _gradients(self, x: NDArray[Any], y: NDArray[Any], rank: int) -> dict[str, NDArray[Any]]:
        w = self._weights
        before = x @ w["in"] + w["in_bias"]
        normal = before
        deviation = np.ones(())
        if self._norm:
            mean, variance = before.mean(0), before.var(0) + 1e-5
            deviation = np.sqrt(variance)
            normal = (before - mean) / deviation
            if rank == 0:
                self._mean = 0.9 * self._mean + 0.1 * mean
                self._variance = 0.9 * self._variance + 0.1 * variance
        scaled = w["scale"] * normal + w["shift"]
        active = np.maximum(scaled, 0)
        error = _softmax(active @ w["out"] + w["out_bias"])
        error[np.arange(len(y)), y] -= 1
        error /= len(y)
        of_scaled = (error @ w["out"].T) * (scaled > 0)
        gradients = {"out": active.T @ error, "out_bias": error.sum(0)}
        zeros = np.zeros_like(w["scale"])
        gradients["scale"] = (of_scaled * normal).sum(0) if self._norm else zeros
        gradients["shift"] = of_scaled.sum(0) if self._norm else zeros
        of_before = of_scaled
        if self._norm:
            of_normal = of_scaled * w["scale"]
            of_before = (
                of_normal - of_normal.mean(0) - normal * (of_normal * normal).mean(0)
            ) / deviation
        return gradients | {"in": x.T @ of_before, "in_bias": of_before.sum(0)}

    def measure(self) -> float:
        """Accuracy, in percent."""
        x, y = self._test
        w = self._weights
        hidden = x @ w["in"] + w["in_bias"]
        if self._norm:
            hidden = w["scale"] * (hidden - self._mean) / np.sqrt(self._variance) + w["shift"]
        found = np.argmax(np.maximum(hidden, 0) @ w["out"] + w["out_bias"], axis=1)
        return 100 * float((found == y).mean())


class Regression:
    """Least squares by SGD: how far above the optimum, which is known, the loss ends."""

    def __init__(self, problem: Problem, *, rate: float) -> None:
        self._x = problem.test[0].astype(np.float64)
        self._y = problem.test[1].astype(np.float64)
        best = np.linalg.lstsq(self._x, self._y, rcond=None)[0]
        self._optimum = self._loss(best)
        self._weights = np.zeros(self._x.shape[1])
        self._rate, self._epoch = rate, 0

    def _loss(self, weights: NDArray[Any]) -> float:
        return float(((self._x @ weights - self._y) ** 2).mean())

    def step(self, ranks: Sequence[Rows]) -> None:
        gradient = sum(x.T @ (x @ self._weights - y) / len(y) for x, y in ranks) / len(ranks)
        self._weights = self._weights - self._rate / (1 + self._epoch) * gradient

    def measure(self) -> float:
        """Excess loss, in percent of the optimum."""
        self._epoch += 1
        return 100 * (self._loss(self._weights) / self._optimum - 1)


def _softmax(logits: NDArray[Any]) -> NDArray[Any]:
    raised: NDArray[Any] = np.exp(logits - logits.max(1, keepdims=True))
    raised /= raised.sum(1, keepdims=True)
    return raised
