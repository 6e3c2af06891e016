"""A module that trains a net to predict real numbers."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim import Optimizer

from lockstep.base.config_error import ConfigError
from lockstep.models.checks import pair_of, shape_of, wrong_shape
from lockstep.models.optimizers import configure


class Regressor(LightningModule):
    """Mean squared error of outputs and targets (batch, …).

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
        _, loss = self.step(batch)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        return self.evaluate("val", batch)

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        return self.evaluate("test", batch)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0] if isinstance(batch, list | tuple) else batch)  # type: ignore[no-any-return]

    def evaluate(self, stage: str, batch: Any) -> Any:
        """Log the loss of a stage."""
        outputs, loss = self.step(batch)
        self.log(f"{stage}/loss", loss, sync_dist=True)
        return {"preds": outputs, "targets": batch[1]}

    def step(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the outputs and the mean squared error."""
        x, targets = pair_of(batch)
        outputs = self(x)
        if not targets.is_floating_point():
            raise ConfigError(
                "model: the targets of the data are whole numbers, and a Regressor needs real ones; write "
                "model._target_=lockstep.models.Classifier."
            )
        if shape_of(outputs) != targets.shape:
            raise wrong_shape(outputs, str(tuple(targets.shape)))
        return outputs, mse_loss(outputs, targets)

    def configure_optimizers(self) -> Any:
        return configure(self, self.optimizer, self.scheduler, self.hparams["scheduler_interval"], self.monitor)
