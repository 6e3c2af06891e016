"""More LightningModules of the kinds that people train: of pictures, and of a game that is played while they learn."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
import torchmetrics
from strange_zoo import Loaders, drawn, loaders  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset


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


class Replay(IterableDataset[Any]):
    """Draws from what the agent has seen by then."""

    def __init__(self, buffer: Any, samples: int) -> None:
        self.buffer, self.samples = buffer, samples

    def __iter__(self) -> Iterator[Any]:
        for number in torch.randint(len(self.buffer), (self.samples,)).tolist():
            yield self.buffer[number % len(self.buffer)]


class DQN(pl.LightningModule):
    """An agent that walks on a line: its steps fill the buffer that its data set draws from; a target net."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
        self.target = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
        self.buffer: Any = deque(maxlen=60)
        self.place, self.reward = torch.zeros(2), 0.0
        for _ in range(20):
            self.play(1.0)

    def play(self, epsilon: float) -> None:
        before = self.place.clone()
        with torch.no_grad():
            best = int(self.net(before.to(self.net[0].weight)).argmax())  # type: ignore[arg-type]
        action = int(torch.randint(2, ())) if float(torch.rand(())) < epsilon else best
        self.place = torch.stack([(before[0] + 0.2 * (2 * action - 1)).clamp(-1, 1), before[0]])
        reward = -float(self.place[0].abs())
        self.buffer.append((before, action, torch.tensor(reward), self.place))
        self.reward += reward

    def train_dataloader(self) -> Any:
        return DataLoader(Replay(self.buffer, 30), batch_size=8)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.play(max(0.05, 1 - self.global_step / 10))
        before, actions, rewards, after = batch
        values = self.net(before).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            aims = rewards + 0.9 * self.target(after).amax(1)
        loss = F.mse_loss(values, aims)
        if self.global_step % 3 == 0:
            self.target.load_state_dict(self.net.state_dict())
        self.log_dict({"reward": self.reward, "buffer": float(len(self.buffer))}, prog_bar=True)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), lr=0.01)


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
