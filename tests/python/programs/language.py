"""Trains a small GPT on a file of tokens, in the style of nanoGPT.

python language.py TOKENS [--workers N]

Prints a line for each micro step and each evaluation: the windows, and the loss as a hexadecimal
number.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

WINDOW, WIDTH, HEADS, VOCABULARY = 16, 32, 4, 64
STEPS, ACCUMULATED, EVALUATED = 10, 2, 4


class Windows(torch.utils.data.Dataset[Any]):
    """Neighbouring windows of a file of 16-bit tokens, which is mapped."""

    def __init__(self, path: str, first: int, last: int) -> None:
        self.tokens = np.memmap(path, np.uint16, "r")
        self.first, self.count = first, last - first

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        begin = (self.first + number) * WINDOW
        tokens = torch.from_numpy(self.tokens[begin : begin + WINDOW + 1].astype(np.int64))
        return tokens[:-1], tokens[1:], number


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.attention(self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (each.view(rows, length, HEADS, -1).transpose(1, 2) for each in parts)
        dropout = 0.1 if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, WIDTH))
        found: torch.Tensor = x + self.mlp(self.ln_2(x))
        return found


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(Block(), Block())
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.wte.weight = self.head.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(WINDOW)))
        logits = self.head(self.ln_f(self.blocks(x)))
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


@torch.no_grad()
def estimate_loss(model: GPT, batches: Any) -> None:
    """Of the first batches of an epoch, which is left early."""
    model.eval()
    for _, (tokens, targets, numbers) in zip(range(2), batches, strict=False):
        print("eval", numbers.tolist(), model(tokens, targets).item().hex())
    model.train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tokens")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(1337)

    how = {"batch_size": 6, "num_workers": args.workers}
    train = DataLoader(Windows(args.tokens, 0, 50), shuffle=True, drop_last=True, **how)
    validation = DataLoader(Windows(args.tokens, 50, 70), shuffle=True, **how)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, (0.9, 0.95), weight_decay=0.1)
    batches = iter(train)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS)))
        if step % EVALUATED == 0:  # while an epoch of the other loader lasts
            estimate_loss(model, validation)
        for _ in range(ACCUMULATED):
            try:
                tokens, targets, numbers = next(batches)
            except StopIteration:
                batches = iter(train)
                tokens, targets, numbers = next(batches)
            loss = model(tokens, targets) / ACCUMULATED
            loss.backward()
            print("train", numbers.tolist(), loss.item().hex())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
