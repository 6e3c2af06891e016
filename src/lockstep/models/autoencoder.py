"""A module that trains a net to return its input."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import Optimizer

from lockstep.config_error import ConfigError
from lockstep.models.checks import shape_of, wrong_shape
from lockstep.models.optimizers import configure


class Autoencoder(LightningModule):
    """Mean squared error of outputs and inputs, in any shape; targets in a batch are not used.

    Args:
        scheduler_interval: step or epoch, after which the rate changes; None: as the schedule needs it.
        monitor: the logged value by which best.ckpt is best, and that a ReduceLROnPlateau looks at.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        scheduler_interval: str | None = None,
        monitor: str = "val/loss",
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net", "optimizer", "scheduler"], logger=False)
        self.net, self.optimizer, self.scheduler, self.monitor = net, optimizer, scheduler, monitor

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.step(batch)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", self.step(batch), sync_dist=True)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test/loss", self.step(batch), sync_dist=True)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0] if isinstance(batch, list | tuple) else batch)  # type: ignore[no-any-return]

    def step(self, batch: Any) -> Tensor:
        """Return the mean squared error of a batch of inputs, with targets or without."""
        x = batch[0] if isinstance(batch, list | tuple) else batch
        if not x.is_floating_point():
            raise ConfigError(
                "data: its inputs are whole numbers, and an Autoencoder returns real ones; write data of real numbers."
            )
        outputs = self(x)
        shape = shape_of(outputs)
        if len(shape) < 2 or shape[0] != len(x) or outputs.numel() != x.numel():
            raise wrong_shape(outputs, f"({len(x)}, …) with {x[0].numel()} numbers a sample")
        return mse_loss(outputs.flatten(1), x.flatten(1))

    def configure_optimizers(self) -> Any:
        return configure(self, self.optimizer, self.scheduler, self.hparams["scheduler_interval"], self.monitor)
