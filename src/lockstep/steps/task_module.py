"""A plain net and its task as the steps of a LightningModule, without Lightning."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from lockstep import schemas
from lockstep.data.samples import as_batch, keys_of, values_of_batch
from lockstep.data.tensors import Batch
from lockstep.optimizers import create_optimizer
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.schedulers import create_scheduler
from lockstep.sums.running import BatchStats, batch_stats

if TYPE_CHECKING:
    from lockstep.steps.task_step import TaskStep


class TaskModule(nn.Module):
    """A net with the loss, the metrics, the optimizer and the schedule of a plan.

    `training_step` returns the loss summed over the batch; the session divides it by the samples of the optimizer step.
    `lightning_task` adds Lightning's base class. No attribute here may have the name of one of its properties
    (`trainer`, `device`, …), which it would hide.
    """

    automatic_optimization = True
    computes_with_net = True
    """Whether a strategy may shard, split or replicate `net` alone: nothing else computes with its parameters."""

    sums: "TaskStep"

    def __init__(self, net: nn.Module, plan: Plan) -> None:
        super().__init__()
        self.net, self.plan, self.objective = net, plan, plan.objective
        self.compute = plan.strategy.forward(plan, net)
        self.keys = keys_of(plan.data)
        self.is_dummy_batch = False
        self.check_outputs: Callable[[Any], None] | None = None

    def forward(self, inputs: Tensor) -> Any:
        return self.compute(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss_sum, stats, _, _ = self._shared_step(batch)
        self.sums.training_batch(stats)
        return loss_sum

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        _, stats, outputs, batch = self._shared_step(batch)
        self.sums.evaluation.add(stats, outputs, batch.targets, batch.inputs)

    test_step = validation_step

    def _shared_step(self, batch: Any) -> tuple[Tensor, BatchStats, Any, Batch]:
        """Return the loss summed over the batch, the sums of the batch, the outputs of the net, and their batch."""
        batch = self.prepared(batch)
        if self.is_dummy_batch:
            batch = Batch(*(tensor[:0] for tensor in batch))
        outputs = self.compute(batch.inputs)
        if self.check_outputs is not None:  # of the first batch; as a hook it would be compiled with the net
            self.check_outputs(outputs)
            self.check_outputs = None
        loss_sum = self.objective.loss_sum(outputs, batch.targets)
        return loss_sum, batch_stats(self.objective, loss_sum, outputs, batch.targets), outputs, batch

    def prepared(self, batch: Any) -> Batch:
        """Convert a batch of a user's loader to a Batch; loaders of built-in data and Datasets yield one."""
        if isinstance(batch, Batch):
            return batch
        pair = values_of_batch(batch, self.keys) if self.keys and isinstance(batch, Mapping) else batch
        return as_batch(pair, self.plan.task.samples, dtype_of(self.plan))

    def configure_optimizers(self) -> Any:
        optimizer, schedule = create_optimizer(self.plan.optimizer, self.net), self.plan.scheduler
        scheduler = create_scheduler(self.plan, optimizer)
        if scheduler is None:
            return optimizer
        config: dict[str, Any] = {"scheduler": scheduler, "interval": schedule.interval}
        if isinstance(schedule, schemas.UserScheduler) and schedule.plateau:
            config |= {"interval": "epoch", "monitor": schedule.metric(self.plan)}
        return {"optimizer": optimizer, "lr_scheduler": config}
