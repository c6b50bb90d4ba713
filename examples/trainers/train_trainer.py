# train_trainer.py: torchrun --nproc-per-node 2 train_trainer.py
from pathlib import Path

from model import Net
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import headrace as hr
from headrace.torch import TrainerLoader


class Model(Net):  # gives a dict, as the models of Transformers do
    def forward(self, images, labels):
        return {"loss": super().forward(images, labels)}


class LoaderTrainer(Trainer):
    def get_train_dataloader(self):
        return TrainerLoader(loader)


arguments = TrainingArguments(
    "run",
    num_train_epochs=2,
    per_device_train_batch_size=16,  # the loader's: the Trainer counts with it
    save_steps=3,
    report_to=[],
)
loader = hr.Loader(
    "images",
    batch_size=16,
    transform=hr.image.train(64),
    output=hr.Output(fields={"images": "image", "labels": "label"}),
)
checkpoint = get_last_checkpoint("run") if Path("run").exists() else None
LoaderTrainer(Model(), arguments).train(resume_from_checkpoint=checkpoint)
loader.close()
