"""The example of an earlier version, of which runs_of_9b27836b has a run."""

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn.functional import cross_entropy

from example.net import Net


class Classifier(LightningModule):
    """The net of net.py, trained on batches of (points (batch, 2), classes (batch,))."""

    def __init__(self, width: int, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net, self.lr = Net(width, num_outputs=2), lr

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        return y

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = cross_entropy(self(batch[0]), batch[1])
        self.log("train/loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.evaluate("val", batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.evaluate("test", batch)

    def evaluate(self, split: str, batch: tuple[Tensor, Tensor]) -> None:
        outputs, labels = self(batch[0]), batch[1]
        hits = (outputs.argmax(1) == labels).double().mean()
        self.log_dict({f"{split}/loss": cross_entropy(outputs, labels), f"{split}/acc": hits}, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)
