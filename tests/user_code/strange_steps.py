"""LightningModules for regression as people write them, with unusual steps, schedules and metrics."""

from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torchmetrics
from strange_loaders import UnevenData  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Regressor(pl.LightningModule):
    """A loss by squared error, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def training_step(self, batch: Any) -> Tensor:
        x, y = batch
        return F.mse_loss(self.net(x), y)

    def validation_step(self, batch: Any) -> None:
        x, y = batch
        self.log("val_loss", F.mse_loss(self.net(x), y))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Plateaued(Regressor):
    """A schedule that looks at what `monitor` says."""

    def __init__(self, monitor: str | None = None, interval: str = "epoch") -> None:
        super().__init__()
        self.given = {"interval": interval} | ({} if monitor is None else {"monitor": monitor})

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, **self.given}}


class LogsLoss(Regressor):
    """Its training loss on each step and of each epoch."""

    def training_step(self, batch: Any) -> Tensor:
        loss = super().training_step(batch)
        self.log("train/loss", loss, on_step=True, on_epoch=True)
        return loss


class Skipping(Regressor):
    """It leaves out its second step on some ranks, or returns no loss."""

    def __init__(self, ranks: tuple[int, ...] = (0, 1), result: str = "None") -> None:
        super().__init__()
        self.ranks, self.result = ranks, result

    def training_step(self, batch: Any, batch_idx: int = 0) -> Any:
        loss = super().training_step(batch)
        if batch_idx == 1 and self.global_rank in self.ranks:
            return None if self.result == "None" else {"lost": loss}
        return loss


class Unused(Regressor):
    """Two layers have no part in the loss from a batch on."""

    def __init__(self, since: int = 0) -> None:
        super().__init__()
        self.since = since
        self.spare = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)])

    def training_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        loss = super().training_step(batch)
        spare = torch.stack([weight.sum() for weight in self.spare.parameters()]).sum()
        return loss if batch_idx >= self.since else torch.add(loss, spare, alpha=0)


class UserBackward(Regressor):
    """Manual optimization past Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss


class LateManual(Regressor):
    """Sets what kind of optimization it has after it was created."""

    def setup(self, stage: str) -> None:
        self.automatic_optimization = False


class Late(pl.LightningModule):
    """Layers that exist only once the model is configured, in tensors of their own data."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.net: nn.Module | None = None

    def configure_model(self) -> None:
        if self.net is None:
            self.net = nn.Sequential(nn.Linear(4, self.width), nn.Tanh(), nn.Linear(self.width, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        assert self.net is not None
        x, y = batch
        return F.mse_loss(self.net(x), y)

    def train_dataloader(self) -> DataLoader[Any]:
        x = torch.linspace(-1, 1, 80).reshape(20, 4)
        return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=6, shuffle=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.5, max_iter=3)


class Uneven(pl.LightningModule):
    """Values of steps over ranks, a schedule by the last of them, a metric that is kept for all epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        self.val_loss = torchmetrics.MeanMetric()
        self.worst = torchmetrics.MaxMetric()

    def on_train_start(self) -> None:
        self.worst.reset()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = F.mse_loss(self.net(batch.x), batch.y)
        self.log("synced", loss, sync_dist=True)
        self.log("alone", loss)
        self.log("count", float(len(batch.y)), reduce_fx="sum", on_epoch=True)
        self.log("least", batch.x.min(), reduce_fx="min")
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.log("after", outputs["loss"], on_epoch=True)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.val_loss.update(F.mse_loss(self.net(batch.x), batch.y), len(batch.y))

    def on_validation_epoch_end(self) -> None:
        loss = self.val_loss.compute()
        self.val_loss.reset()
        self.worst(loss)
        self.log_dict({"val_loss": loss, "worst": self.worst.compute()})

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return [optimizer], [{"scheduler": plateau, "monitor": "alone"}]


class Short(Uneven):
    """Leaves out the rest of its first epoch, and stops in the middle of the second."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if self.current_epoch == 0 and batch_idx == 2 else None

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.trainer.should_stop = self.current_epoch == 1 and batch_idx == 1

    def test_dataloader(self) -> Any:
        return UnevenData().val_dataloader()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_loss", F.mse_loss(self.net(batch.x), batch.y))

    def train_dataloader(self) -> Any:
        return UnevenData().train_dataloader()

    def val_dataloader(self) -> Any:
        return UnevenData().val_dataloader()


class AutoEncoder(pl.LightningModule):
    """Nets that are handed in, a schedule by step, tuples of batches, hooks that change and count things."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.example_input_array = {"x": torch.zeros(1, 4)}
        self.seen: list[str] = []
        self.largest = 0.0

    def forward(self, x: Tensor) -> Tensor:
        decoded: Tensor = self.decoder(self.encoder(x))
        return decoded

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, _ = batch
        loss = F.mse_loss(self(x), x)
        self.log_dict({"a": loss, "b": 3 * loss}, on_epoch=True)
        return {"loss": loss, "batch": batch_idx}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        self.log("val_loss", F.mse_loss(self(x), x))
        gathered: Any = self.all_gather(torch.tensor(float(batch_idx)))
        assert gathered.max() == batch_idx

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        norms = [weight.grad.norm() for weight in self.parameters() if weight.grad is not None]
        self.log("grad", torch.stack(norms).norm())

    def on_after_backward(self) -> None:
        self.seen.append("backward")

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="value")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seen"] = len(self.seen)
        checkpoint["statistics"] = {"mean": np.float64(len(self.seen)), "array": np.arange(3) * len(self.seen)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        saved = checkpoint["statistics"]
        assert saved["array"].tolist() == [0, saved["mean"], 2 * saved["mean"]]
        self.seen = ["backward"] * checkpoint["seen"]
