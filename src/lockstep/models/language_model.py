"""A module that trains a net to predict the next token at each place of a sequence."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torchmetrics import Metric

from lockstep.base.config_error import ConfigError
from lockstep.models.checks import shape_of, wrong_shape
from lockstep.models.optimizers import configure


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


class LanguageModel(LightningModule):
    """Cross-entropy of logits (batch, length, vocabulary) and the next tokens (batch, length); accuracy, perplexity.

    A batch is tokens and the next ones, or tokens (batch, length + 1) alone.

    Args:
        ignore_index: a token that does not count as a target, such as that of padding.
        scheduler_interval: step or epoch, after which the rate changes; None: as the schedule needs it.
        monitor: the logged value by which best.ckpt is best, and that a ReduceLROnPlateau looks at.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        ignore_index: int | None = None,
        scheduler_interval: str | None = None,
        monitor: str = "val/loss",
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net", "optimizer", "scheduler"], logger=False)
        self.net, self.optimizer, self.scheduler = net, optimizer, scheduler
        self.ignore_index, self.monitor = ignore_index, monitor
        self.train_perplexity, self.val_perplexity, self.test_perplexity = Perplexity(), Perplexity(), Perplexity()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(tokens)  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss, weight = self.measure("train", self.train_perplexity, batch)
        return loss if weight is None else {"loss": loss, "weight": weight}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.measure("val", self.val_perplexity, batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.measure("test", self.test_perplexity, batch)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0] if isinstance(batch, list | tuple) else batch)  # type: ignore[no-any-return]

    def measure(self, stage: str, perplexity: Perplexity, batch: Any) -> tuple[Tensor, int | None]:
        """Log the loss, the accuracy and the perplexity of a stage; return the loss and the number of its tokens."""
        loss, accuracy, weight = self.step(batch)
        samples = len(batch[0]) if isinstance(batch, list | tuple) else len(batch)
        perplexity.update(loss.detach(), samples if weight is None else weight)
        self.log(f"{stage}/loss", loss.detach(), on_step=False, on_epoch=True, batch_size=weight)
        self.log(f"{stage}/acc", accuracy, on_step=False, on_epoch=True, batch_size=weight)
        self.log(f"{stage}/perplexity", perplexity, on_step=False, on_epoch=True)
        return loss, weight

    def step(self, batch: Any) -> tuple[Tensor, Tensor, int | None]:
        """Return the mean loss and the accuracy of a batch, and the number of tokens in these means; None: all."""
        parts = batch if isinstance(batch, list | tuple) else [batch]
        tokens, targets = parts if len(parts) == 2 else (parts[0][:, :-1], parts[0][:, 1:])
        if any(each.is_floating_point() or each.dim() != 2 for each in (tokens, targets)):
            raise ConfigError(
                "data: a LanguageModel needs sequences of whole numbers (batch, length), and bytes are taken "
                "for pixels; write data=text."
            )
        logits = self(tokens)
        if shape_of(logits)[:-1] != targets.shape:
            raise wrong_shape(logits, f"({', '.join(map(str, targets.shape))}, vocabulary)")
        hits = (logits.detach().argmax(2) == targets).double()
        if self.ignore_index is None:
            return cross_entropy(logits.flatten(0, 1), targets.flatten()), hits.mean(), None
        counts = targets != self.ignore_index
        weight = int(counts.sum())
        options: Any = {"ignore_index": self.ignore_index, "reduction": "sum"}
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), **options) / max(1, weight)
        return loss, torch.where(counts, hits, 0.0).sum() / max(1, weight), weight

    def configure_optimizers(self) -> Any:
        return configure(self, self.optimizer, self.scheduler, self.hparams["scheduler_interval"], self.monitor)
