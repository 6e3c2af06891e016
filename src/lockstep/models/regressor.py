"""A module that trains a net to predict real numbers."""

from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.functional import mse_loss
from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError, R2Score

from lockstep.base.config_error import ConfigError
from lockstep.models.checks import pair_of, shape_of, wrong_shape
from lockstep.models.net_module import NetModule


class R2(R2Score):
    """R², the mean over outputs; for equal targets 1 if they are predicted exactly, else 0, as scikit-learn's r2_score.

    torchmetrics raises for one sample, and takes targets that differ by little for equal.
    """

    def compute(self) -> Tensor:
        spread = self.sum_squared_error - self.sum_error**2 / self.total
        unexplained = self.residual / spread.where(spread > 0, 1.0)
        return (1 - unexplained.where(spread > 0, (self.residual > 0).double())).mean()


class Regressor(NetModule):
    """Mean squared error of outputs and targets (batch, …); its root, mean absolute error and R² in evaluations."""

    usual = {"rmse": partial(MeanSquaredError, squared=False), "mae": MeanAbsoluteError, "r2": R2}  # noqa: RUF012

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        _, _, loss = self.step(batch)
        self.log("train/loss", loss.detach(), on_step=False, on_epoch=True)
        return loss

    def evaluate(self, stage: str, batch: Any) -> Any:
        """Log the loss and the metrics of a stage."""
        outputs, targets, loss = self.step(batch)
        self.log(f"{stage}/loss", loss, sync_dist=True)
        self.log_metrics(stage, outputs, targets)
        return {"preds": outputs, "targets": targets}

    def step(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs, the targets and the mean squared error."""
        x, targets = pair_of(batch)
        outputs = self(x)
        if not targets.is_floating_point():
            raise ConfigError(
                "model: the targets of the data are whole numbers, and a Regressor needs real ones; write "
                "model._target_=lockstep.models.Classifier."
            )
        if shape_of(outputs) != targets.shape:
            raise wrong_shape(outputs, ", ".join(map(str, targets.shape)))
        return outputs, targets, mse_loss(outputs, targets)
