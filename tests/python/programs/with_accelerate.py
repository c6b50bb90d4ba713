"""Trains a classifier of token windows with Accelerate.

accelerate launch --num_processes 2 with_accelerate.py TOKENS [--workers N]

Each process prints a line for each of its steps: the samples, and the loss as a hexadecimal number.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader

WINDOW = 16


class Windows(torch.utils.data.Dataset[Any]):
    """Windows of a file of 16-bit tokens, and the parity of the token that follows each."""

    def __init__(self, path: str, first: int, last: int) -> None:
        self.tokens = np.fromfile(path, np.uint16).astype(np.int64)
        self.numbers = range(first, last)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> dict[str, Any]:
        begin = self.numbers[index] * WINDOW
        window = self.tokens[begin : begin + WINDOW]
        return {"tokens": window, "label": int(self.tokens[begin + WINDOW] % 2), "number": index}


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(64, 32)
        self.layers = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(self.embedding(tokens))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tokens")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(7)
    how = {"batch_size": 4, "num_workers": args.workers}
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    train = DataLoader(Windows(args.tokens, 0, 50), shuffle=True, **how)
    test = DataLoader(Windows(args.tokens, 50, 71), **how)
    train, test, model, optimizer = accelerator.prepare(train, test, model, optimizer)
    for _ in range(2):
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(batch["tokens"]), batch["label"])
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            print("train", batch["number"].tolist(), loss.item().hex())
        model.eval()
        for batch in test:
            with torch.no_grad():
                logits = model(batch["tokens"])
            logits, numbers = accelerator.gather_for_metrics((logits, batch["number"]))
            print("test", numbers.tolist(), logits.sum().item().hex())


if __name__ == "__main__":
    main()
