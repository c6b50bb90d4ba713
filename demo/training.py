"""One training run, in a process of its own: memory and device bytes are this run's alone.

The parent starts `train` with a pipe. It gets a `Ready` when all but the loader is there, answers
with anything, then gets `Progress` after each step and at the end a `Run`, or an error's text.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Literal, Protocol

import numpy as np
import torch
from torch import nn

import core_time
import headrace as hr
import page_cache
import process_tree
import torch_folder
from records import EPOCHS_MIN, CoreTime, Epoch, Progress, Ready, Run, RunPlan

_WARM_UP_STEPS = 3
_LEARNING_RATE = 0.05
_MOMENTUM = 0.9
_TRIAL_SECONDS = 1.5
_EPOCHS_MAX = 100

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # images, labels, sample numbers


class Source(Protocol):
    """A loader under test."""

    causes_are: Literal["waited", "workers"]
    reads_ahead_of_epochs: bool  # works on the next epoch before it is asked for

    def epoch(self) -> Iterator[Batch]:
        """The batches of the next epoch."""

    def causes(self) -> dict[str, float]:
        """Seconds so far, by cause."""

    def close(self) -> None:
        """Ends threads and worker processes, and waits for them."""


class TorchSource:
    """torch's DataLoader. It cannot tell why it waits; what its workers do, they clock here."""

    causes_are: Literal["waited", "workers"] = "workers"
    reads_ahead_of_epochs = False

    def __init__(self, plan: RunPlan) -> None:
        self._loader = torch_folder.make_loader(
            plan.source, plan.image_side, plan.batch_size, plan.workers
        )
        self._read_seconds = self._decode_seconds = 0.0

    def epoch(self) -> Iterator[Batch]:
        for images, labels, numbers, read_seconds, decode_seconds in self._loader:
            self._read_seconds += float(read_seconds.sum())
            self._decode_seconds += float(decode_seconds.sum())
            yield images, labels, numbers

    def causes(self) -> dict[str, float]:
        return {"storage": self._read_seconds, "decode": self._decode_seconds}

    def close(self) -> None:
        del self._loader


class HeadraceSource:
    """`headrace.Loader` with its defaults."""

    causes_are: Literal["waited", "workers"] = "waited"
    reads_ahead_of_epochs = True

    def __init__(self, plan: RunPlan, epochs: int) -> None:
        index = plan.index if plan.kind == "folder" else None
        self._loader: hr.Loader[Batch] = hr.Loader(
            hr.open(plan.source, index=index),
            batch_size=plan.batch_size,
            transform=hr.image.train(plan.image_side),
            epochs=epochs,
            seed=plan.seed,
            output=hr.Output("torch", ids=True),
        )

    def epoch(self) -> Iterator[Batch]:
        return iter(self._loader)

    def causes(self) -> dict[str, float]:
        return dict(self._loader.stats()["stall"])  # type: ignore[arg-type]  # all are floats

    def close(self) -> None:
        self._loader.close()


def make_source(plan: RunPlan, epochs: int) -> Source:
    """The loader that `plan` names."""
    return TorchSource(plan) if plan.kind == "torch" else HeadraceSource(plan, epochs)


class _Momentum:
    """SGD with momentum. torch.optim's would import torch's compiler: over a second a process."""

    def __init__(self, network: nn.Module, rate: float) -> None:
        self._rate = rate
        self._weights = list(network.parameters())
        self._velocities = [torch.zeros_like(weight) for weight in self._weights]

    def step(self) -> None:
        """Moves the weights against their gradients, and forgets these."""
        with torch.no_grad():
            for weight, velocity in zip(self._weights, self._velocities, strict=True):
                assert weight.grad is not None
                velocity.mul_(_MOMENTUM).add_(weight.grad)
                weight.sub_(velocity, alpha=self._rate)
                weight.grad = None


class Trainer:
    """A network small enough that the loader decides how long an epoch takes."""

    def __init__(self, classes: int) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
            convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)]
        self._network = nn.Sequential(*layers)
        self._loss = nn.CrossEntropyLoss()
        self._optimizer = _Momentum(self._network, _LEARNING_RATE)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, int]:
        """The loss, and how many of the batch were right before it was learnt from."""
        scores = self._network(images)
        loss = self._loss(scores, labels)
        loss.backward()
        self._optimizer.step()
        return float(loss.detach()), int((scores.argmax(1) == labels).sum())


def _warm_up(plan: RunPlan) -> None:
    """What torch sets up at its first step is nobody's loading time."""
    trainer = Trainer(plan.classes)
    shape = (plan.batch_size, 3, plan.image_side, plan.image_side)
    for _ in range(_WARM_UP_STEPS):
        trainer.step(torch.zeros(shape), torch.zeros(plan.batch_size, dtype=torch.long))


def _epochs_that_take(seconds: float, plan: RunPlan) -> int:
    """Judged by a trial of the loader, which nothing else counts."""
    page_cache.evict(page_cache.files_under(plan.source))
    trainer = Trainer(plan.classes)
    with closing(make_source(plan, epochs=1)) as source:
        batches = source.epoch()
        next(batches)
        began = now = time.perf_counter()
        count = 0
        for images, labels, _ in batches:
            trainer.step(images, labels)
            count += len(labels)
            now = time.perf_counter()
            if now - began > _TRIAL_SECONDS:
                break
        del batches  # Ends torch's workers.
    epoch_seconds = plan.samples * (now - began) / max(1, count)
    return min(max(EPOCHS_MIN, math.ceil(seconds / max(epoch_seconds, 1e-3))), _EPOCHS_MAX)


class _Run:
    """Runs the epochs and keeps the clock."""

    def __init__(self, plan: RunPlan, epochs: int, connection: Connection) -> None:
        self._plan = plan
        self._epochs = epochs
        self._connection = connection
        self._files = page_cache.files_under(plan.source)
        self._trainer = Trainer(plan.classes)
        self._names_forgotten = True

    def run(self) -> Run:
        first = Epoch(resident_bytes=self._evict())
        device_before = process_tree.device_read_bytes()
        ours_before, busy_before = process_tree.cpu_seconds()
        began = time.perf_counter()
        plan = self._plan
        with closing(make_source(plan, self._epochs)) as source:
            epochs = [self._epoch(source, 0, first, began)]
            for number in range(1, self._epochs):
                epoch, epoch_began = self._between_epochs(source)
                epochs.append(self._epoch(source, number, epoch, epoch_began))
            ended = time.perf_counter()
            causes = source.causes()
        # Worker processes count as ours from when they have been waited for.
        device_after = process_tree.device_read_bytes()
        ours, busy = process_tree.cpu_seconds()
        others = busy - busy_before - (ours - ours_before)
        cores_seconds = (os.cpu_count() or 1) * (time.perf_counter() - began)
        return Run(
            kind=plan.kind,
            round=plan.round,
            samples=plan.samples * self._epochs,
            epochs=epochs,
            names_forgotten=self._names_forgotten,
            device_bytes=(
                None
                if device_before is None or device_after is None
                else device_after - device_before
            ),
            others_cpu_share=max(0.0, others / cores_seconds),
            causes=causes,
            causes_are=source.causes_are,
            core_time=self._core_time(),
            clock_began=began,
            clock_ended=ended,
        )

    def _core_time(self) -> CoreTime:
        plan = self._plan
        images = page_cache.files_under(plan.images)
        cores = len(os.sched_getaffinity(0))
        step = self._trainer.step
        return core_time.measure(step, images, plan.batch_size, plan.image_side, cores)

    def _evict(self) -> int:
        """Makes the dataset cold; bytes of it that are still in memory."""
        page_cache.evict(self._files)
        resident = page_cache.resident_bytes(self._files)
        self._names_forgotten &= page_cache.forget_names()
        return resident

    def _between_epochs(self, source: Source) -> tuple[Epoch, float]:
        """The next epoch, and when its clock began."""
        began = time.perf_counter()
        epoch = Epoch(resident_bytes=self._evict())
        now = time.perf_counter()
        if not source.reads_ahead_of_epochs:
            return epoch, now
        epoch.pause_seconds = now - began
        return epoch, began

    def _epoch(self, source: Source, number: int, epoch: Epoch, began: float) -> Epoch:
        plan = self._plan
        times_seen = np.zeros(plan.samples, np.int64)
        labels_seen = np.zeros(plan.classes, np.int64)
        loss_sum, right, count = 0.0, 0, 0
        before_wait = began + epoch.pause_seconds
        for images, labels, numbers in source.epoch():
            epoch.wait_seconds += time.perf_counter() - before_wait
            loss, right_here = self._trainer.step(images, labels)
            loss_sum += loss * len(labels)
            right += right_here
            count += len(labels)
            np.add.at(times_seen, numbers.numpy(), 1)
            np.add.at(labels_seen, labels.numpy(), 1)
            self._connection.send(Progress(number, count, loss))
            before_wait = time.perf_counter()
        ended = time.perf_counter()
        epoch.wait_seconds += ended - before_wait
        epoch.seconds = ended - began
        epoch.loss, epoch.accuracy = loss_sum / count, right / count
        epoch.once = bool((times_seen == 1).all())
        epoch.labels = labels_seen.tolist()
        return epoch


def train(plan: RunPlan, connection: Connection) -> None:
    """The main function of the run's process."""
    try:
        torch.set_num_threads(plan.trainer_threads)
        torch.manual_seed(plan.seed)
        _warm_up(plan)
        epochs = plan.epochs or _epochs_that_take(plan.seconds, plan)
        torch.manual_seed(plan.seed)  # The same first weights in all runs.
        run = _Run(plan, epochs, connection)
        connection.send(Ready(epochs))
        connection.recv()
        connection.send(run.run())
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError, EOFError):
        pass  # Stopped, by the user or by a parent that is gone.
    except Exception:
        connection.send(traceback.format_exc())
