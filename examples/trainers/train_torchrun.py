# train_torchrun.py: torchrun --nproc-per-node 2 train_torchrun.py
import torch
import torch.distributed as dist
from model import Net
from torch.nn.parallel import DistributedDataParallel

import headrace as hr

dist.init_process_group()
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = hr.Loader("images", batch_size=16, transform=hr.image.train(64))
for _ in range(2):
    for images, labels in loader:
        optimizer.zero_grad()
        model(images, labels).backward()
        optimizer.step()
loader.close()
dist.destroy_process_group()
