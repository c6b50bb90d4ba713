# train_fsdp.py: torchrun --nproc-per-node 2 train_fsdp.py
import torch
import torch.distributed as dist
from model import Net
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import headrace as hr

dist.init_process_group()
device = "cuda" if torch.cuda.is_available() else "cpu"
mesh = init_device_mesh(device, (dist.get_world_size(), 1), mesh_dim_names=("dp", "tp"))
model = Net().to(device)
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = hr.Loader(
    "images",
    batch_size=16,
    transform=hr.image.train(64),
    job=hr.Job(mesh=mesh["dp"]),  # ranks of a "tp" group get the same batches
)
for _ in range(2):
    for images, labels in loader:
        optimizer.zero_grad()
        model(images.to(device), labels.to(device)).backward()
        optimizer.step()
loader.close()
dist.destroy_process_group()
