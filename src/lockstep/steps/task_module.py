"""A plain net and its task as the steps of a LightningModule, without Lightning, and the weight of their loss."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep import schemas
from lockstep.checkpoint.content import Progress
from lockstep.data.samples import as_batch, keys_of
from lockstep.data.tensors import Batch
from lockstep.loaders.rank_loader import BatchShare
from lockstep.optimizers import create_optimizer
from lockstep.plan import Plan
from lockstep.precision import dtype_of
from lockstep.record.recorder import Recorder
from lockstep.schedulers import create_scheduler
from lockstep.steps.loss_weight import LossWeighting, Scale, loss_weight
from lockstep.sums.epoch_metrics import StepCounts
from lockstep.sums.running import BatchStats, batch_stats
from lockstep.targets.kinds import replace_method

if TYPE_CHECKING:
    from lockstep.parallel.global_dropout import GlobalMasks
    from lockstep.parallel.virtual_ranks import VirtualRanks
    from lockstep.steps.task_metrics import TaskMetrics


class TaskModule(nn.Module):
    """A net with the loss, the metrics, the optimizer and the schedule of a plan.

    `training_step` returns the loss summed over the batch; the session divides it by the samples of the optimizer step.
    `lightning_task` adds Lightning's base class. No attribute here may have the name of one of its properties
    (`trainer`, `device`, …), which it would hide.
    """

    automatic_optimization = True
    computes_with_net = True
    """Whether a strategy may shard, split or replicate `net` alone: nothing else computes with its parameters."""

    sums: "TaskMetrics"

    def __init__(self, net: nn.Module, plan: Plan) -> None:
        super().__init__()
        self.net, self.plan, self.objective = net, plan, plan.objective
        self.compute = plan.strategy.forward(plan, net)
        self.keys = keys_of(plan.data)
        self.is_dummy_batch = False

    def forward(self, inputs: Tensor) -> Any:
        return self.compute(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss_sum, stats, _, _ = self._shared_step(batch)
        self.sums.training_batch(stats)
        return loss_sum

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        _, stats, outputs, batch = self._shared_step(batch)
        self.sums.evaluation_batch(stats, outputs, batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def _shared_step(self, batch: Any) -> tuple[Tensor, BatchStats, Any, Batch]:
        """Return the loss summed over the batch, the sums of the batch, the outputs of the net, and their batch."""
        batch = self.prepared(batch)
        if self.is_dummy_batch:
            batch = Batch(*(tensor[:0] for tensor in batch))
        outputs = self.compute(batch.inputs)
        loss_sum = self.objective.loss_sum(outputs, batch.targets)
        return loss_sum, batch_stats(self.objective, loss_sum, outputs, batch.targets), outputs, batch

    def prepared(self, batch: Any) -> Batch:
        """Convert a batch of a user's loader to a Batch; loaders of built-in data and Datasets yield one."""
        if isinstance(batch, Batch):
            return batch
        pair = self.keys.of_batch(batch) if self.keys and isinstance(batch, Mapping) else batch
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


class TaskStep:
    """`counts` corrects the gradients if some targets are ignored.

    virtual: the ranks that the net's forward runs in turn; None without strategy=virtual.
    """

    share: BatchShare

    def __init__(self, plan: Plan, module: TaskModule, masks: "GlobalMasks | None") -> None:
        """`masks`: of a dropout that does not depend on the world size."""
        self.plan, self.module, self.masks = plan, module, masks
        self.weighting = LossWeighting()
        is_virtual = plan.strategy.layout(plan.devices).virtual_ranks > 1
        self.virtual: VirtualRanks | None = module.compute if is_virtual else None  # type: ignore[assignment]
        self.counts = StepCounts(plan.objective, plan.strategy.devices(plan)[0])

    def wrap(self) -> None:
        """Weight the loss in `backward`, which Lightning's own loop calls."""
        if hasattr(self.module, "backward"):
            replace_method(
                self.module,
                "backward",
                lambda original, loss, *rest, **options: original(loss * self.weighting.weight, *rest, **options),
            )

    def watch(self, callbacks: Iterable[Any], optimizers: Sequence[Optimizer], wrapped: object) -> None:
        """No-op: only the net has weights, and the loop alone steps."""

    def begin(self, share: BatchShare, position: Progress, batches: int) -> None:
        """Begin a batch of an optimizer step that has `batches` of them."""
        self.share = share
        self.begin_evaluation_batch(share)
        self.weighting.weight = loss_weight(self.plan, share, 1, self.plan.world_size, batches)
        if self.masks is not None:
            self.masks.begin(position.epochs, position.batch)

    def begin_evaluation_batch(self, share: BatchShare) -> None:
        """Have the module compute with no samples if the batch is a dummy, because FSDP's ranks meet in each layer."""
        if self.module.is_dummy_batch is not share.is_dummy:  # setting an attribute of a module takes 2 µs
            self.module.is_dummy_batch = share.is_dummy

    @property
    def samples(self) -> int:
        """Return this rank's samples of the batch."""
        return 0 if self.share.is_dummy else self.share.count

    def backward(self, loss: Tensor, batches: int, scale: Scale | None) -> None:
        self.weighting.backward(loss, batches, scale)

    def gradient_norms(self, recorder: Recorder, optimizer: Optimizer) -> Sequence[Tensor]:
        """Return the norms of the gradients, which are complete and averaged over ranks."""
        self.counts.weigh(recorder.parameters)
        return recorder.norms(recorder.parameters)
