"""How much a rank's loss counts in a step of a TaskModule, which returns its loss summed over samples."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import Progress
from lockstep.loaders.rank_loader import BatchShare
from lockstep.plan import Plan
from lockstep.record.recorder import Recorder
from lockstep.steps.loss_weight import LossWeighting, Scale
from lockstep.steps.task_module import TaskModule
from lockstep.sums.step_counts import StepCounts

if TYPE_CHECKING:
    from lockstep.parallel.global_dropout import GlobalMasks
    from lockstep.parallel.virtual_ranks import VirtualRanks


class TaskStep:
    """`counts` corrects the gradients where some targets are ignored.

    virtual: the ranks that the net's forward runs in turn; None without strategy=virtual.
    """

    overrides_optimizer_step = False

    def __init__(self, plan: Plan, module: TaskModule, masks: "GlobalMasks | None") -> None:
        """`masks`: those of dropout that no world size changes."""
        self.plan, self.module, self.masks = plan, module, masks
        self.loss = LossWeighting()
        is_virtual = plan.strategy.layout(plan.devices).virtual_ranks > 1
        self.virtual: VirtualRanks | None = module.compute if is_virtual else None  # type: ignore[assignment]
        device, *_ = plan.strategy.devices(plan)
        self.counts = StepCounts(plan.objective, device)

    def wrap(self) -> None:
        """Weight the loss where Lightning itself goes backward."""
        original = getattr(self.module, "backward", None)
        if original is not None:
            object.__setattr__(
                self.module, "backward", lambda loss, *rest, **named: original(loss * self.loss.weight, *rest, **named)
            )

    def watch(self, callbacks: Iterable[Any], optimizers: Sequence[Optimizer], wrapped: object) -> None:
        """No-op: nothing but the net has weights, and nothing else steps."""

    def wrap_optimizers(self) -> None:
        """No-op: virtual ranks are within the net's forward."""

    def begin(self, share: BatchShare, position: Progress, batches: int) -> None:
        """Begin a batch of an optimizer step that has `batches` of them."""
        self.share = share
        if self.module.is_dummy_batch is not share.is_dummy:  # setting an attribute of a module takes 2 µs
            self.module.is_dummy_batch = share.is_dummy
        self.loss.weight = self.plan.world_size * batches / (share.step_samples or share.samples * batches)
        if self.masks is not None:
            self.masks.begin(position.epochs, position.batch)

    @property
    def samples(self) -> int:
        """Return this rank's samples of the batch."""
        return 0 if self.share.is_dummy else self.share.count

    def backward(self, loss: Tensor, batches: int, scale: Scale | None) -> None:
        self.loss.backward(loss, batches, scale)

    def gradient_norms(self, recorder: Recorder, optimizer: Optimizer, resumed: bool) -> Sequence[Tensor]:
        """Return the norms of the gradients, which are complete and averaged over ranks."""
        self.counts.weigh(recorder.parameters)
        return recorder.norms(recorder.parameters)
