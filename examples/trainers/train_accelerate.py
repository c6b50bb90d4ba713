# train_accelerate.py: accelerate launch --num_processes 2 train_accelerate.py
from pathlib import Path

import torch
from accelerate import Accelerator
from model import Net

import headrace as hr
from headrace.torch import TrainerLoader

accelerator = Accelerator()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = hr.Loader("images", batch_size=16, transform=hr.image.train(64))
loader = TrainerLoader(loader, accelerator)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
if Path("saved").exists():
    accelerator.load_state("saved")  # The loader's place, too: it goes on with the next batch.
while loader.state_dict()["epoch"] < 2:
    for images, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(model(images, labels))
        optimizer.step()
        if loader.state_dict()["samples"] == 64:
            accelerator.save_state("saved")
loader.close()
accelerator.end_training()
