"""The model of the scripts in docs/trainers.md. Prints what it was given when its process ends."""

from __future__ import annotations

import atexit
import json
import os

import torch
from loader_data import LABELS

_MEAN, _STD = 0.485, 0.229  # of the first channel, in headrace.image.train()
_trained: list[int] = []


class Net(torch.nn.Module):
    """Gives the loss of images and labels, as a tensor: 0."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        first = images[:, 0]
        grey = first[:, 0, 0]
        assert bool((first == grey[:, None, None]).all()), "a sample is mixed"
        ids = ((grey * _STD + _MEAN) * 255).round().int().tolist()
        assert [LABELS[sample] for sample in ids] == labels.tolist()
        _trained.extend(ids)
        return self.linear(grey[:, None]).mean() * 0


@atexit.register
def _tell() -> None:
    # Ranks may have one pipe: a line is written at once.
    os.write(1, f"\n{json.dumps(_trained)}\n".encode())
