"""Trains one epoch on a GPU through a trainer. Run by test_on_gpu.py, as the one rank of a job.

Usage: on_gpu.py DATA CASE

Fails unless every batch is on the GPU and each sample comes once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from loader_data import COUNT, FLAT, payload_ids

import headrace as hr
from headrace.torch import TrainerLoader

SEEN: list[int] = []


class Net(torch.nn.Module):
    """Notes the samples of each batch and gives a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Linear(8, 3))

    def forward(self, batch: Any) -> torch.Tensor:
        assert batch.image.device.type == "cuda", batch.image.device
        SEEN.extend(payload_ids(type(batch)(*(field.cpu() for field in batch))))
        scores: torch.Tensor = self.layers(batch.image.float().flatten(2).mean(2))
        return torch.nn.functional.cross_entropy(scores, batch.label.long())


def loader() -> hr.Loader:
    return hr.Loader(Path(sys.argv[1]), batch_size=10, seed=1, transform=FLAT)


def accelerated(**arguments: Any) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(**arguments)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, batches = accelerator.prepare(
        model, optimizer, TrainerLoader(loader(), accelerator)
    )
    for batch in batches:
        optimizer.zero_grad()
        accelerator.backward(model(batch))
        optimizer.step()
    batches.close()
    accelerator.end_training()


def accelerated_fsdp() -> None:
    from accelerate import FullyShardedDataParallelPlugin

    accelerated(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))


def lightning_fsdp() -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def train_dataloader(self) -> Any:
            return TrainerLoader(loader())

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(batch)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.trainer.model.parameters(), lr=0.1)

    lightning.Trainer(
        max_epochs=1, accelerator="gpu", devices=1, strategy="fsdp", logger=False,
        enable_checkpointing=False, enable_progress_bar=False,
    ).fit(Module())  # fmt: skip


def transformers() -> None:
    from transformers import Trainer, TrainingArguments

    class Model(Net):
        def forward(self, image: Any, label: Any) -> Any:
            assert image.device.type == "cuda"
            SEEN.extend(image[:, 0, 0, 0].tolist())
            scores = self.layers(image.float().flatten(2).mean(2))
            return {"loss": torch.nn.functional.cross_entropy(scores, label.long())}

    named = hr.Loader(
        Path(sys.argv[1]), batch_size=10, seed=1, workers=0,
        transform=(FLAT, lambda sample: {"image": sample.image, "label": sample.label}),
    )  # fmt: skip

    class WithLoader(Trainer):
        def get_train_dataloader(self) -> Any:
            return TrainerLoader(named)

    arguments = TrainingArguments(
        "run", num_train_epochs=1, per_device_train_batch_size=10, save_strategy="no", report_to=[]
    )
    WithLoader(Model(), arguments).train()
    named.close()


def main() -> None:
    cases = {
        "accelerate": accelerated,
        "accelerate-fsdp": accelerated_fsdp,
        "lightning-fsdp": lightning_fsdp,
        "transformers": transformers,
    }
    cases[sys.argv[2]]()
    assert sorted(SEEN) == list(range(COUNT)), SEEN


if __name__ == "__main__":
    main()
