"""Trains a small GPT-2, made from a config, with Hugging Face's Trainer.

python with_trainer.py TOKENS [--workers N]

Prints a line for each step and each batch of an evaluation: its samples and the loss as a
hexadecimal number.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

WINDOW = 16


class Windows(torch.utils.data.Dataset[Any]):
    """Windows of a file of 16-bit tokens; some are shorter than the others."""

    def __init__(self, path: str, first: int, last: int) -> None:
        self.tokens = np.fromfile(path, np.uint16).astype(np.int64)
        self.numbers = range(first, last)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> dict[str, Any]:
        begin = self.numbers[index] * WINDOW
        return {"number": index, "input_ids": self.tokens[begin : begin + WINDOW - index % 5]}


def padded(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A data collator: batches are as long as their longest sample."""
    length = max(len(each["input_ids"]) for each in samples)
    ids, labels = torch.zeros(len(samples), length).long(), torch.full((len(samples), length), -100)
    for row, each in enumerate(samples):
        tokens = torch.from_numpy(each["input_ids"])
        ids[row, : len(tokens)] = labels[row, : len(tokens)] = tokens
    numbers = torch.tensor([each["number"] for each in samples])
    mask = (labels != -100).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, "numbers": numbers}


class LanguageTrainer(Trainer):
    workers: int

    def get_train_dataloader(self) -> Any:
        return DataLoader(
            self.train_dataset,
            batch_size=self.args.train_batch_size,
            shuffle=True,
            collate_fn=self.data_collator,
            num_workers=self.workers,
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return DataLoader(
            self.eval_dataset,
            batch_size=self.args.eval_batch_size,
            collate_fn=self.data_collator,
            num_workers=self.workers,
        )

    def compute_loss(self, model: Any, inputs: Any, *more: Any, **named: Any) -> Any:
        numbers = inputs.pop("numbers")
        found = super().compute_loss(model, inputs, *more, **named)
        loss = found[0] if isinstance(found, tuple) else found
        print("train" if model.training else "eval", numbers.tolist(), loss.item().hex())
        return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tokens")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=2,
            per_device_train_batch_size=8,
            per_device_eval_batch_size=8,
            gradient_accumulation_steps=2,
            learning_rate=1e-2,
            eval_strategy="epoch",
            save_strategy="no",
            seed=5,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
        )
        torch.manual_seed(arguments.seed)
        sizes = {"n_positions": WINDOW, "n_embd": 32, "n_layer": 2, "n_head": 2}
        config = GPT2Config(vocab_size=64, bos_token_id=0, eos_token_id=0, **sizes)
        trainer = LanguageTrainer(
            GPT2LMHeadModel(config),
            arguments,
            data_collator=padded,
            train_dataset=Windows(args.tokens, 0, 50),
            eval_dataset=Windows(args.tokens, 50, 70),
        )
        trainer.workers = args.workers
        trainer.train()


if __name__ == "__main__":
    main()
