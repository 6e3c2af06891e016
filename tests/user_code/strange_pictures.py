"""More LightningModules of the kinds that people train: of pictures."""

from typing import Any

import torch
import torchmetrics
from strange_zoo import Loaders, drawn, loaders  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional as F


class Segmenter(Loaders):  # type: ignore[misc]
    """A small U-Net with BatchNorm, a loss of the whole batch, a matrix of classes, a plateau of its metric."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 3, 1)
        self.iou = torchmetrics.JaccardIndex("multiclass", num_classes=3)
        self.accuracy = torchmetrics.MetricCollection(
            [torchmetrics.Accuracy("multiclass", num_classes=3)], prefix="val_"
        )

    def loaders(self) -> tuple[Any, Any]:
        images = drawn(61, 1, 6, 6)
        train, val = loaders(images, (images[:, 0] > 0).long() + (images[:, 0] > 1).long())
        return train, [val, val]

    def step(self, batch: Any) -> tuple[Tensor, Tensor]:
        x, y = batch
        wide = self.down(x)
        logits = self.last(torch.cat([wide, self.up(self.deep(wide))], dim=1))
        shares, ones = logits.softmax(1), F.one_hot(y, 3).movedim(-1, 1)
        dice = 1 - (2 * (shares * ones).sum((2, 3)) + 1) / ((shares + ones).sum((2, 3)) + 1)
        return F.cross_entropy(logits, y) + dice.mean(), logits

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss, logits = self.step(batch)
        self.log("train/loss", loss, on_step=True, on_epoch=True)
        return {"loss": loss, "logits": logits.detach()}

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        loss, logits = self.step(batch)
        if dataloader_idx == 0:
            self.iou(logits, batch[1])
            self.accuracy(logits, batch[1])
            self.log("val_iou", self.iou, on_epoch=True, add_dataloader_idx=False)
            self.log_dict(self.accuracy, add_dataloader_idx=False)
        self.log("val_loss", loss)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.RMSprop(self.parameters(), lr=0.003)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_iou"}}


class ImageNet(Loaders):  # type: ignore[misc]
    """Lightning's example: a deep net with BatchNorm, a rate by epochs, metrics of training and of evaluation."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models import resnet18

        self.save_hyperparameters()
        self.model = resnet18(num_classes=3)
        self.train_acc1 = torchmetrics.Accuracy("multiclass", num_classes=3, top_k=1)
        self.eval_acc1 = torchmetrics.Accuracy("multiclass", num_classes=3, top_k=1)
        self.eval_acc2 = torchmetrics.Accuracy("multiclass", num_classes=3, top_k=2)

    def loaders(self) -> tuple[Any, Any]:
        pictures = drawn(31, 3, 16, 16)
        return loaders(pictures, (pictures.mean((1, 2, 3)) * 40).long().clamp(-1, 1) + 1, train=21)  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        images, target = batch
        output = self.model(images)
        loss = F.cross_entropy(output, target)
        self.log("train_loss", loss)
        self.train_acc1(output, target)
        self.log("train_acc1", self.train_acc1, prog_bar=True)
        return loss

    def eval_step(self, batch: Any, prefix: str) -> None:
        images, target = batch
        output = self.model(images)
        self.log(f"{prefix}_loss", F.cross_entropy(output, target))
        self.eval_acc1(output, target)
        self.eval_acc2(output, target)
        self.log(f"{prefix}_acc1", self.eval_acc1, prog_bar=True)
        self.log(f"{prefix}_acc2", self.eval_acc2)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.eval_step(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.eval_step(batch, "test")

    def test_dataloader(self) -> Any:
        return self.val_dataloader()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.1 ** (epoch // 1))]
