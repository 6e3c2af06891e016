"""A LightningModule: it trains a net by a loss of its own, and logs a metric."""

from collections.abc import Callable

from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torchmetrics.classification import MulticlassAccuracy

Batch = tuple[Tensor, Tensor]


class FocalClassifier(LightningModule):
    """Focal loss: samples that are classified well count less. `num_classes` is filled in from the data."""

    def __init__(
        self, net: nn.Module, optimizer: Callable[..., Optimizer], num_classes: int, gamma: float = 2.0
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net", "optimizer"], logger=False)
        self.net, self.optimizer, self.gamma = net, optimizer, gamma
        self.val_acc = MulticlassAccuracy(num_classes, average="micro")
        self.test_acc = MulticlassAccuracy(num_classes, average="micro")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(logits, targets, reduction="none")
        return ((1 - (-losses).exp()) ** self.gamma * losses).mean()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = self.loss(self(batch[0]), batch[1])
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        return self.evaluate("val", self.val_acc, batch)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        return self.evaluate("test", self.test_acc, batch)

    def evaluate(self, split: str, accuracy: MulticlassAccuracy, batch: Batch) -> dict[str, Tensor]:
        """Log the loss and the accuracy; return what TensorBoard's pictures are drawn from."""
        logits, targets = self(batch[0]), batch[1]
        accuracy.update(logits, targets)
        self.log(f"{split}/loss", self.loss(logits, targets))
        self.log(f"{split}/acc", accuracy)
        return {"logits": logits, "targets": targets}

    def configure_optimizers(self) -> Optimizer:
        return self.optimizer(self.parameters())
