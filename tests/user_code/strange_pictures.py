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
