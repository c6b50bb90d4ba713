"""What a sample costs at least: training and decoding, each alone, with samples in memory.

From this comes the bound that no storage can pass (summary.py). It counts seconds of cores, not of
the clock: a busy machine can then only push a loader further below the bound, never above it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

import headrace as hr
from headrace import _core
from records import CoreTime

_SAMPLES_MAX = 512
_PASSES = 2

Step = Callable[[torch.Tensor, torch.Tensor], object]


def measure(step: Step, files: Sequence[Path], batch_size: int, side: int, cores: int) -> CoreTime:
    """The least of several passes over the same samples, spread evenly over `files`."""
    count = min(_SAMPLES_MAX, len(files))
    chosen = [files[number * len(files) // count] for number in range(count)]
    encoded = [file.read_bytes() for file in chosen]
    transform = hr.image.train(side).to_core()
    images: list[torch.Tensor] = [torch.empty(0)] * count

    def decode(numbers: range) -> None:
        for number in numbers:
            row = _core.decode_image(encoded[number], transform, sample=number)
            images[number] = torch.from_numpy(row)

    decoding = min(_decode_on_all(decode, count, cores) for _ in range(_PASSES))
    labels = torch.from_numpy(np.zeros(count, np.int64))
    pixels = torch.stack(images)
    batches = [
        (pixels[first : first + batch_size], labels[first : first + batch_size])
        for first in range(0, count, batch_size)
    ]
    training = min(_train_on(step, batches) for _ in range(_PASSES))
    return CoreTime(training=training / count, decoding=decoding / count)


def _decode_on_all(decode: Callable[[range], None], count: int, cores: int) -> float:
    parts = [range(first, count, cores) for first in range(cores)]
    threads = [threading.Thread(target=decode, args=(part,)) for part in parts]
    began = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.process_time() - began


def _train_on(step: Step, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    # Of this thread alone: torch's other threads spin while they wait, which is no work.
    began = time.thread_time()
    for images, labels in batches:
        step(images, labels)
    return time.thread_time() - began
