"""The base of the modules of lockstep.models: the net, its optimizer and schedule, and further metrics."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import Metric, MetricCollection, classification, regression

from lockstep.base.config_error import option_error
from lockstep.models.optimizers import configure

Metrics = Sequence[str] | Mapping[str, str | Metric] | None
"""Names, such as auroc or r2, or a mapping of names to them or to torchmetrics objects."""
PREFIX = {classification: "Multiclass", regression: ""}


class NetModule(LightningModule):
    """The base of modules that train a net: a subclass has `training_step` and `evaluate`.

    Args:
        scheduler_interval: step or epoch, after which the rate changes; None: step if the schedule takes `total_steps`.
        monitor: the logged value by which best.ckpt is best, and that a ReduceLROnPlateau looks at.
        metrics: further ones of evaluations, such as r2.
    """

    usual: ClassVar[Mapping[str, Callable[[], Metric]]] = {}  # the metrics that all modules of a class have

    def __init__(
        self,
        net: nn.Module,
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., Any] | None = None,
        scheduler_interval: str | None = None,
        monitor: str = "val/loss",
        metrics: Metrics = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net", "optimizer", "scheduler", "metrics"], logger=False)
        self.net, self.optimizer, self.scheduler, self.monitor = net, optimizer, scheduler, monitor
        self.set_metrics(metrics, regression)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        return self.evaluate("val", batch)

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        return self.evaluate("test", batch)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0] if isinstance(batch, list | tuple) else batch)  # type: ignore[no-any-return]

    def evaluate(self, stage: str, batch: Any) -> Any:
        """Log the loss and the metrics of a stage."""
        raise NotImplementedError

    def configure_optimizers(self) -> Any:
        return configure(self, self.optimizer, self.scheduler, self.hparams["scheduler_interval"], self.monitor)

    def set_metrics(self, metrics: Metrics, family: ModuleType, **options: Any) -> None:
        """Create further metrics of evaluations, in float64; `options` are arguments of those that are only named."""
        names = [metrics] if isinstance(metrics, str) else metrics or ()
        chosen: dict[str, Any] = {**metrics} if isinstance(metrics, Mapping) else {str(name): name for name in names}
        kinds = metrics_of(family)
        for name, metric in chosen.items():
            if isinstance(metric, str) and metric not in kinds:
                raise option_error("model.metrics", metric, "there is no such metric", kinds)
            created = kinds[metric](**options) if isinstance(metric, str) else metric
            chosen[name] = created.set_dtype(torch.float64)
        chosen = {name: kind().set_dtype(torch.float64) for name, kind in self.usual.items()} | chosen
        collections = {stage: MetricCollection({**chosen}).clone(f"{stage}/") for stage in ("val", "test") if chosen}
        self.metrics = nn.ModuleDict(collections)

    def log_metrics(self, stage: str, outputs: Tensor, targets: Tensor) -> None:
        """Update the further metrics of a stage, and log them; outputs for classes are logits (batch, classes, …)."""
        if not self.metrics:
            return
        collection: Any = self.metrics[stage]
        for metric in collection.values(copy_state=False):
            for name, state in metric.metric_state.items():
                if isinstance(state, Tensor) and state.is_inference():  # of a Trainer.validate before a Trainer.fit
                    setattr(metric, name, state.clone())
        values = outputs.detach().double()
        if targets.is_floating_point():  # torchmetrics' regression takes two dimensions at most
            collection.update(*(each.flatten(min(1, each.dim() - 1)) for each in (values, targets.double())))
        else:
            collection.update(values.softmax(1), targets)
        self.log_dict(collection)


def metrics_of(family: ModuleType) -> dict[str, type[Metric]]:
    """Return the metrics of torchmetrics' `classification` or `regression` that are one number, by name."""
    prefix = PREFIX[family]
    kinds = [kind for name, kind in vars(family).items() if name.startswith(prefix) and isinstance(kind, type)]
    numbers = [kind for kind in kinds if issubclass(kind, Metric) and kind.higher_is_better is not None]
    short = [kind.__name__.removeprefix(prefix).removesuffix("Score") for kind in numbers]
    names = [re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in short]
    return dict(zip(names, numbers, strict=True))
