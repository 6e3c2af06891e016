"""A module that trains a net to return its input."""

from typing import Any

from torch import Tensor
from torch.nn.functional import mse_loss

from lockstep.base.config_error import ConfigError
from lockstep.models.checks import shape_of, wrong_shape
from lockstep.models.regressor import Regressor


class Autoencoder(Regressor):
    """Mean squared error of outputs and inputs, in any shape; targets in a batch are not used."""

    usual = {}  # noqa: RUF012

    def evaluate(self, stage: str, batch: Any) -> Any:
        super().evaluate(stage, batch)  # and return no predictions, which would be counted as those of classes

    def step(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs and inputs (batch, numbers) and the mean squared error, for inputs with or without targets."""
        x = batch[0] if isinstance(batch, list | tuple) else batch
        if not x.is_floating_point():
            raise ConfigError(
                "data: its inputs are whole numbers, and an Autoencoder returns real ones; write data of real numbers."
            )
        outputs, shape = self(x), x.shape
        if shape_of(outputs)[:1] != shape[:1] or outputs.numel() != x.numel():
            raise wrong_shape(outputs, ", ".join(map(str, shape)))
        return outputs.flatten(1), x.flatten(1), mse_loss(outputs.flatten(1), x.flatten(1))
