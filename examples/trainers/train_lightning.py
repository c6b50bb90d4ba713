# train_lightning.py: python train_lightning.py
import lightning
import torch
from model import Net

import headrace as hr
from headrace.torch import TrainerLoader


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def train_dataloader(self):
        loader = hr.Loader("images", batch_size=16, transform=hr.image.train(64))
        return TrainerLoader(loader)

    def training_step(self, batch, number):
        return self.net(*batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    trainer = lightning.Trainer(max_epochs=2, devices=2, strategy="ddp", logger=False)
    trainer.fit(Module())
