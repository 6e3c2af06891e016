"""The training step of a LightningModule: its loss is weighted so that the gradient is of the global batch.

Methods of this one object are wrapped: `training_step` records its loss and runs virtual ranks, `backward` weights the
loss by samples, `optimizer_step` and `lr_schedulers` make all ranks step alike.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.content import Progress
from lockstep.config_error import config_error, require
from lockstep.loaders.rank_data import RankData
from lockstep.loaders.rank_loader import BatchShare
from lockstep.optimizers import update_together
from lockstep.parallel.fixed_bucket_ddp import average_late
from lockstep.parallel.messages import all_gather_json
from lockstep.parallel.tensor_layout import gradient_norms
from lockstep.plan import Plan
from lockstep.random_state import preserve_generators
from lockstep.record.recorder import Recorder
from lockstep.record.step_lines import Scalar, to_scalar
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.logged_values import preserve_metrics
from lockstep.steps.step_outputs import LossWeights, Scale, backward, loss_of, loss_weight
from lockstep.structures import tensors_in
from lockstep.targets.kinds import overrides, replace_method

TRAIN_LOSS = "train/loss"


class ModuleStep:
    """`loss`: that of the current batch; `virtual`: the ranks that run in turn in this process, if there are several.

    weight: the factor on the loss of the current batch.
    share, loader: this rank's part of the batch, and the index of its loader in an evaluation.
    batches: over which the engine averages the gradients of an optimizer step.
    averaged: the `id`s of the parameters whose gradients DistributedDataParallel averages; None without it.
    """

    virtual: Any = None
    weight = 1.0
    share: BatchShare
    loader = 0

    def __init__(self, plan: Plan, module: Any, log: ExactLog, data: RankData) -> None:
        self.plan, self.module, self.log, self.data = plan, module, log, data
        self.ranks = plan.world_size * plan.strategy.virtual_ranks(plan)
        self.averaged: frozenset[int] | None = None
        self.loss: Tensor | None = None
        self.batches, self.weights = 1, LossWeights(plan)
        self.backward_passes = 0
        self.has_default_backward = not overrides(module, "backward")
        replace_method(module, "training_step", self._training_step)
        if plan.strategy.shards_weights(plan):
            for name in ("validation_step", "test_step"):
                if overrides(module, name):
                    replace_method(module, name, self._padded_step)
        replace_method(module, "backward", self.weighted_backward)
        replace_method(module, "all_gather", self._all_gather)

    def watch(self, optimizers: Sequence[Optimizer], wrapped: object) -> None:
        """Register the optimizers of the module, and what averages gradients, a FixedBucketDDP or anything else."""
        for optimizer in optimizers:
            update_together(optimizer)
        if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in optimizers):
            replace_method(self.module, "optimizer_step", self._lbfgs_step)
        self.averaged = getattr(wrapped, "averaged", None)

    @property
    def samples(self) -> int:
        """Return this rank's samples of the batch; none of a dummy batch."""
        return 0 if self.share.is_dummy else self.share.count

    def begin(self, share: BatchShare, position: Progress, batches: int) -> None:
        """Begin a batch of an optimizer step that has `batches` of them."""
        self.share, self.loader, self.position, self.loss, self.batches = share, 0, position, None, batches
        self.weights.batch = None
        if position.batch % batches == 0:
            self.weights.window = 0.0
        self.weight = loss_weight(self.plan, share, self.samples, self.plan.world_size, batches)

    def backward(self, loss: Tensor, batches: int, scale: Scale | None) -> None:
        """Run backward from the loss of one of `batches` batches, by the module's `backward` if it overrides it."""
        if self.has_default_backward:
            backward(loss, self.weight, batches, scale)
        else:
            self.module.backward((loss if scale is None else scale(loss)) / batches)

    def gradient_norms(self, optimizer: Optimizer) -> Sequence[Tensor]:
        """Return the norms of the optimizer's gradients, which are complete and averaged over ranks."""
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if not self.module.automatic_optimization and self.ranks > 1 and self.plan.ckpt_path is None:
            reason = "it steps by gradients of loss.backward(), which nobody averages over ranks"
            hint = "one that calls self.manual_backward(loss) instead"
            averaged = self.backward_passes > 0 or all(parameter.grad is None for parameter in parameters)
            require(averaged, "model", self.plan.model.name, reason, hint)
        if self.averaged is not None:
            average_late(parameters, self.averaged)
        if self.weights.is_used:
            self.weights.divide(parameters, self.data.device)
        return gradient_norms([gradient for each in parameters if (gradient := each.grad) is not None])

    def record_batch(self, recorder: Recorder) -> tuple[Scalar, float, int]:
        """Record the loss of a training batch; log it as train/loss unless the module logs something of this name.

        Return the loss times what it counts, what it counts, and the samples.
        """
        loss_sum: Any = 0.0
        count, ids, weight = self.samples, self.share.ids, self.weights.batch
        mean_over = count if weight is None else weight
        self.weights.window += weight or 0.0
        has_loss = self.loss is not None and (mean_over > 0 or weight is None)  # the mean over nothing may be NaN
        if self.loss is not None and has_loss:
            loss = to_scalar(self.loss)
            if mean_over:
                loss_sum = loss if self.plan.loss_reduction == "sum" else loss * mean_over
            logged = self.log.stages.get("train", {}).get(TRAIN_LOSS)
            if logged is None or not logged.logger:
                self.log.log(TRAIN_LOSS, loss, logger=False, on_step=False, on_epoch=True, batch_size=weight)
        recorder.batch((loss_sum, count, mean_over), ids if count else ids[:0])
        return loss_sum, mean_over if has_loss else 0.0, count

    # methods of the module

    def _training_step(self, original: Callable[..., Any], batch: Any, *rest: Any, **options: Any) -> Any:
        try:
            outputs = self._run(original, batch, *rest, **options)
        except StopIteration as error:
            raise RuntimeError("StopIteration, raised in training_step, would end the epoch") from error
        loss = self._require_loss(outputs)
        self.loss = None if loss is None else loss.detach()
        if (weight := self.weights.read(outputs)) is not None:
            self.weights.batch = weight = 0.0 if self.share.is_dummy else weight
            self.weight = weight * self.plan.world_size * self.batches  # what the engine divides by
        return outputs

    def _padded_step(self, original: Callable[..., Any], batch: Any, *rest: Any, **options: Any) -> Any:
        """Run a step of an evaluation; of a rank without samples nothing is left, and it returns None."""
        outputs = self._run(original, batch, *rest, **options)
        return None if self.share.is_dummy else outputs

    def _run(self, step: Callable[..., Any], batch: Any, *rest: Any, **options: Any) -> Any:
        """Run a step, of a dummy batch without traces: what it logs, and its loss, have weight 0."""
        if not self.share.is_dummy:
            return step(batch, *rest, **options)
        from lockstep.parallel.sync_batchnorm import uncounted

        with uncounted(), preserve_metrics(self.module), preserve_generators([self.data.device]):
            return step(batch, *rest, **options)

    def _all_gather(self, original: Callable[..., Any], data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Gather tensors of all ranks, after a look at their shapes: unequal ones would abort the process.

        A rank without samples would gather those of its dummy batch.
        """
        tensors = [*tensors_in(data)]
        is_empty = self.share.is_dummy and any(tensor.dim() for tensor in tensors)
        shapes = "none" if is_empty else ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        ranks = all_gather_json(shapes) if group is None else [shapes]
        if {*ranks} != {shapes}:
            place = f"batch {self.position.batch + 1} of epoch {self.position.epochs + 1}"
            place, hint = (place, "drop_last=true") if self.module.training else ("an evaluation", "another batch_size")
            reason = f"self.all_gather in {place} gets tensors of unequal shapes, {' and '.join(ranks)}"
            raise config_error("drop_last", self.plan.drop_last, reason, hint)
        return original(data, group, sync_grads)

    def _require_loss(self, outputs: Any) -> Tensor | None:
        """Return the loss in the outputs of a step; None skips a step. Raise if others would wait for one."""
        loss = loss_of(outputs)
        if loss is not None:
            return loss
        if not self.module.automatic_optimization or (outputs is None and self.ranks == 1):
            return None
        reason = f"its training_step returns a {type(outputs).__name__} without a loss"
        if outputs is None:
            reason = f"its training_step returns None, and the other of {self.ranks} ranks would wait for its gradient"
        raise config_error("model", self.plan.model.name, reason, "one that returns a loss, or a dictionary with loss")

    def weighted_backward(self, original: Callable[..., None], loss: Tensor, *arguments: Any, **options: Any) -> None:
        self.backward_passes += 1
        original(loss if self.weight == 1.0 else loss * self.weight, *arguments, **options)

    def _lbfgs_step(
        self, original: Callable[..., None], epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Step by the loss over all ranks: L-BFGS judges by it, and by their own losses ranks would diverge."""

        def closure() -> Any:
            loss = optimizer_closure()
            reason, hint = "LBFGS judges by a loss, and its training_step returns a weight", "another optimizer"
            require(not self.weights.is_used, "model", self.plan.model.name, reason, hint)
            if loss is None or self.plan.world_size == 1:
                return loss
            total = (loss.detach() * self.weight).to(torch.float64)
            dist.all_reduce(total)
            return (total / self.plan.world_size).to(loss.dtype)

        original(epoch, batch_idx, optimizer, closure)
