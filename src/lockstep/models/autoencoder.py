"""A module that trains a net to return its input."""

from typing import Any

from torch import Tensor
from torch.nn.functional import mse_loss

from lockstep.base.config_error import ConfigError
from lockstep.models.checks import shape_of, wrong_shape
from lockstep.models.regressor import Regressor


class Autoencoder(Regressor):
    """Mean squared error of outputs and inputs, in any shape; targets in a batch are not used."""

    def evaluate(self, stage: str, batch: Any) -> None:
        """Log the loss of a stage."""
        self.log(f"{stage}/loss", self.step(batch)[1], sync_dist=True)

    def step(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the outputs and the mean squared error, for a batch of inputs, with targets or without."""
        x = batch[0] if isinstance(batch, list | tuple) else batch
        if not x.is_floating_point():
            raise ConfigError(
                "data: its inputs are whole numbers, and an Autoencoder returns real ones; write data of real numbers."
            )
        outputs = self(x)
        shape = shape_of(outputs)
        if len(shape) < 2 or shape[0] != len(x) or outputs.numel() != x.numel():
            raise wrong_shape(outputs, f"({len(x)}, …) with {x[0].numel()} numbers a sample")
        return outputs, mse_loss(outputs.flatten(1), x.flatten(1))
