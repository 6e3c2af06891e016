"""LightningModules whose attribute `net` strategies replicate, divide into stages, or shard."""

import copy
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
import torchmetrics
from lightning.pytorch.callbacks import Timer, WeightAveraging
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.nets.lenet import SplitCNN

NETS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3)),
    "recurrent": lambda: Recurrent(scalar=False),
    "scalar": lambda: Recurrent(scalar=True),
    "staged": lambda: Staged(),
    "left_out": lambda: Staged(left_out=True),
    "experts": lambda: Experts([nn.Linear(4, 3), nn.Linear(4, 3)]),
    "branches": lambda: nn.Sequential(nn.Sequential(Experts([nn.Linear(4, 4), nn.Linear(4, 4)])), nn.Linear(4, 3)),
    "norm": lambda: nn.Sequential(nn.Linear(4, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)),
    "conv": lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Upsample(scale_factor=8), SplitCNN((1, 16, 16), 3)),
}


class Experts(nn.ModuleList):
    """Each sample is computed by one of two layers, of which a rank may use one alone."""

    def forward(self, x: Tensor) -> Tensor:
        second = x[:, 0] > x[:, 1]
        parts = [layer(x[rows]) for layer, rows in zip(self, (~second, second), strict=True) if rows.any()]
        y: Tensor = torch.cat(parts)[torch.argsort(torch.argsort(second, stable=True))]
        return y


class Staged(nn.Module):
    """(batch, 4) → (batch, 3) in three stages; `left_out` scales the outputs by a weight of no stage."""

    def __init__(self, left_out: bool = False) -> None:
        super().__init__()
        self.stages = nn.Sequential(nn.Linear(4, 16), nn.Sequential(nn.Tanh(), nn.Linear(16, 16)), nn.Linear(16, 3))
        self.scale = nn.Parameter(torch.ones(())) if left_out else 1.0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.stages(x) * self.scale
        return y


class WithNet(pl.LightningModule):
    """A net, metrics as objects, a schedule; `kind` is one of NETS."""

    def __init__(self, kind: str = "mlp", optimizer: str = "AdamW", lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net: nn.Module = NETS[kind]()
        self.train_acc = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.val_f1 = torchmetrics.F1Score("multiclass", num_classes=3, average="macro")

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x)
        return y

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        logits = self(batch["x"])
        loss = F.cross_entropy(logits, batch["y"])
        self.train_acc(logits, batch["y"])
        self.log_dict({"train_loss": loss, "train_acc": self.train_acc}, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        logits = self(batch["x"])
        self.val_f1(logits, batch["y"])
        self.log("val_loss", F.cross_entropy(logits, batch["y"]))
        self.log("val_count", float(len(batch["y"])), reduce_fx="sum")
        if dataloader_idx == 0:
            self.log("val_f1", self.val_f1)
        return {"logits": logits, "targets": batch["y"]}

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        self.log("test_loss", F.cross_entropy(self(batch["x"]), batch["y"]))

    def configure_optimizers(self) -> Any:
        optimizer = getattr(torch.optim, self.hparams["optimizer"])(self.net.parameters(), lr=self.hparams["lr"])
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


class Outside(WithNet):
    """A weight outside the net."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.net(x) * self.temperature
        return y


class Aliased(WithNet):
    """Its loss uses a weight of the net."""

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        weight: Tensor = self.net.get_parameter("0.weight")
        return super().training_step(batch, batch_idx) + weight.square().sum()


class Copied(WithNet):
    """Computes with a copy of its net, which it takes at the start, too."""

    def on_fit_start(self) -> None:
        self.__dict__["before"] = copy.deepcopy(self.net)

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        self.log("before", self.__dict__["before"](batch["x"]).square().mean())
        return super().validation_step(batch, batch_idx, dataloader_idx)


class Averaging(WithNet):
    """Brings a callback that averages its weights."""

    def configure_callbacks(self) -> Any:
        return [WeightAveraging()]


class Stopwatch(Timer):
    """A callback that nobody knows."""


class Shown(WithNet):
    """Its forward has an example."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.example_input_array = torch.zeros(3, 4)


class Measuring(WithNet):
    """Measures and halves large gradients, and measures weights: of all of them, wherever they are stored."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        for name, weight in self.net.named_parameters():
            assert weight.grad is not None
            self.log(f"gradient of {name}", weight.grad.norm(), on_step=True)
            if weight.grad.norm().item() > 0.1:
                weight.grad.mul_(0.5)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("weights", sum(float(weight.square().sum()) for weight in self.parameters()))


class Clamping(WithNet):
    """Gives its weights other data after each step."""

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        for weight in self.parameters():
            weight.data = weight.data.clamp(-0.2, 0.2)


class Twice(WithNet):
    """Calls its net three times a step, once without gradients."""

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        with torch.no_grad():
            target = self.net(batch["x"] / 2)
        return super().training_step(batch, batch_idx) + F.mse_loss(self.net(2 * batch["x"]), target)


class Recurrent(nn.Module):
    """(batch, 4) → (batch, 3); a scalar weight cannot be sharded."""

    def __init__(self, scalar: bool) -> None:
        super().__init__()
        self.body, self.memory, self.head = nn.Linear(4, 5), nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(())) if scalar else 1.0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.memory(self.body(x)[:, None])[0][:, 0]) * self.scale
        return y
