"""A module that trains a net to predict the next token at each place of a sequence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torchmetrics import Metric, classification

from lockstep.base.config_error import ConfigError
from lockstep.models.checks import shape_of, wrong_shape
from lockstep.models.net_module import Metrics, NetModule


class Perplexity(Metric):
    """The exponential of the mean cross-entropy of a token, NaN if a loss is (a MeanMetric leaves it out).

    Its states are replaced, not changed in place as in torchmetrics' Perplexity: those of a Trainer.validate before a
    Trainer.fit are inference tensors.
    """

    loss_sum: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("loss_sum", torch.zeros(()), "sum")
        self.add_state("count", torch.zeros(()), "sum")

    def update(self, loss: Tensor, count: int) -> None:
        self.loss_sum, self.count = self.loss_sum + loss * count, self.count + count

    def compute(self) -> Tensor:
        return (self.loss_sum / self.count).exp()


class LanguageModel(NetModule):
    """Cross-entropy of logits (batch, length, vocabulary) and the next tokens (batch, length); accuracy, perplexity.

    A batch is tokens and the next ones, or tokens (batch, length + 1) alone.

    Args:
        num_outputs: tokens of the vocabulary, filled in from the data; `metrics` may need it.
        metrics: further ones of evaluations, of the probabilities; scheduler_interval, monitor: see NetModule.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        scheduler_interval: str | None = None,
        monitor: str = "val/loss",
        num_outputs: int | None = None,
        metrics: Metrics = None,
    ) -> None:
        super().__init__(net, optimizer, scheduler, scheduler_interval, monitor)
        self.set_metrics(metrics, classification, num_classes=num_outputs, validate_args=False)
        self.train_perplexity, self.val_perplexity, self.test_perplexity = Perplexity(), Perplexity(), Perplexity()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.measure("train", batch)

    def evaluate(self, stage: str, batch: Any) -> None:
        self.measure(stage, batch)

    def measure(self, stage: str, batch: Any) -> Tensor:
        """Log the loss and the metrics of a stage; return the loss."""
        parts = batch if isinstance(batch, list | tuple) else [batch]
        tokens, targets = parts if len(parts) == 2 else (parts[0][:, :-1], parts[0][:, 1:])
        if any(each.is_floating_point() or each.dim() != 2 for each in (tokens, targets)):
            raise ConfigError(
                "data: a LanguageModel needs sequences of whole numbers (batch, length), and bytes are taken "
                "for pixels; write data=text."
            )
        logits = self(tokens)
        if shape_of(logits)[:-1] != targets.shape:
            raise wrong_shape(logits, f"{', '.join(map(str, targets.shape))}, vocabulary")
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        perplexity: Perplexity = getattr(self, f"{stage}_perplexity")
        perplexity.update(loss.detach(), len(targets))
        accuracy = (logits.detach().argmax(2) == targets).double().mean()
        evaluates = stage != "train"
        self.log(f"{stage}/loss", loss.detach(), on_step=False, on_epoch=True, sync_dist=evaluates)
        self.log(f"{stage}/acc", accuracy, on_step=False, on_epoch=True, sync_dist=evaluates)
        self.log(f"{stage}/perplexity", perplexity, on_step=False, on_epoch=True)
        if evaluates:
            self.log_metrics(stage, logits.mT, targets)
        return loss
