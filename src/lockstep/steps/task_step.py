"""The training step of a TaskModule, which returns its loss summed over samples: the weight of that loss."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import Progress
from lockstep.loaders.rank_loader import BatchShare
from lockstep.plan import Plan
from lockstep.record.recorder import Recorder
from lockstep.steps.loss_weight import LossWeighting, Scale, loss_weight
from lockstep.steps.task_module import TaskModule
from lockstep.sums.epoch_metrics import StepCounts
from lockstep.targets.kinds import replace_method

if TYPE_CHECKING:
    from lockstep.parallel.global_dropout import GlobalMasks
    from lockstep.parallel.virtual_ranks import VirtualRanks


class TaskStep:
    """`counts` corrects the gradients if some targets are ignored.

    virtual: the ranks that the net's forward runs in turn; None without strategy=virtual.
    """

    overrides_optimizer_step = False
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
        if self.module.is_dummy_batch is not share.is_dummy:  # setting an attribute of a module takes 2 µs
            self.module.is_dummy_batch = share.is_dummy
        self.weighting.weight = loss_weight(self.plan, share, 1, self.plan.world_size, batches)
        if self.masks is not None:
            self.masks.begin(position.epochs, position.batch)

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
