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
        ignore_index: a token that does not count as a target, such as that of padding.
        num_outputs: tokens of the vocabulary, filled in from the data; `metrics` may need it.
        metrics: further ones of evaluations, of the probabilities; scheduler_interval, monitor: see NetModule.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        ignore_index: int | None = None,
        scheduler_interval: str | None = None,
        monitor: str = "val/loss",
        num_outputs: int | None = None,
        metrics: Metrics = None,
    ) -> None:
        super().__init__(net, optimizer, scheduler, scheduler_interval, monitor)
        self.ignore_index = ignore_index
        options: dict[str, Any] = {"num_classes": num_outputs, "ignore_index": ignore_index, "validate_args": False}
        self.set_metrics(metrics, classification, **options)
        self.train_perplexity, self.val_perplexity, self.test_perplexity = Perplexity(), Perplexity(), Perplexity()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss, weight = self.measure("train", batch)
        return loss if weight is None else {"loss": loss, "weight": weight}

    def evaluate(self, stage: str, batch: Any) -> None:
        self.measure(stage, batch)

    def measure(self, stage: str, batch: Any) -> tuple[Tensor, int | None]:
        """Log the loss and the metrics of a stage; return the loss and the number of its tokens."""
        perplexity: Perplexity = getattr(self, f"{stage}_perplexity")
        logits, targets, loss, accuracy, weight = self.step(batch)
        perplexity.update(loss.detach(), len(targets) if weight is None else weight)
        self.log(f"{stage}/loss", loss.detach(), on_step=False, on_epoch=True, batch_size=weight)
        self.log(f"{stage}/acc", accuracy, on_step=False, on_epoch=True, batch_size=weight)
        self.log(f"{stage}/perplexity", perplexity, on_step=False, on_epoch=True)
        if stage != "train":
            self.log_metrics(stage, logits.mT, targets)
        return loss, weight

    def step(self, batch: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, int | None]:
        """Return logits, targets, mean loss, accuracy, and the number of tokens in these means; None: all."""
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
        hits = (logits.detach().argmax(2) == targets).double()
        if self.ignore_index is None:
            return logits, targets, cross_entropy(logits.flatten(0, 1), targets.flatten()), hits.mean(), None
        counts = targets != self.ignore_index
        weight = int(counts.sum())
        total = max(1, weight)
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=self.ignore_index, reduction="sum")
        return logits, targets, loss / total, hits[counts].sum() / total, weight
