"""The training step of a LightningModule: its loss is weighted so that the gradient is of the global batch.

Lightning averages gradients over ranks, and over the batches of an optimizer step, whatever samples each has. So a
rank's loss gets a weight with which the gradient is that of the mean loss over the global batch, ragged or not.

Methods of this one object are wrapped: `training_step` records its loss, `backward` weights it, and `all_gather`
checks shapes.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.base.config_error import config_error, require
from lockstep.base.messages import all_gather_json, all_reduce_sums, broadcast
from lockstep.base.optimizers import update_together
from lockstep.base.random_state import preserve_generators
from lockstep.base.structures import tensors_in
from lockstep.engine.loaders import BatchShare
from lockstep.engine.loaders.source import RankData
from lockstep.engine.log import ExactLog
from lockstep.engine.logged_values import preserve_metrics
from lockstep.engine.phases import Phases
from lockstep.plan.plan import Plan
from lockstep.plan.targets.kinds import overrides, replace_method
from lockstep.runs.checkpoint.content import Progress
from lockstep.runs.record import StepRecorder
from lockstep.runs.record.step_lines import Scalar, to_scalar
from lockstep.strategies.parallel.fixed_bucket_ddp import average_late
from lockstep.strategies.parallel.sync_batchnorm import uncounted
from lockstep.strategies.parallel.tensor_layout import gradient_norms, parameters_of

TRAIN_LOSS = "train/loss"


def loss_of(outputs: Any) -> Tensor | None:
    """Return the loss in the return value of a training_step."""
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return loss if isinstance(loss, Tensor) else None


class ModuleStep:
    """The step of one batch.

    share, loader: this rank's part of the batch, and the index of its loader in an evaluation.
    loss, weight: that of the batch, and the factor on it.
    data_size: the shares of a batch. batches: over which Lightning averages the gradients of an optimizer step.
    averaged: the `id`s of the parameters whose gradients DistributedDataParallel averages; None without it.
    virtual: the ranks that run in turn in this process, if there are several.
    reports: whether this rank counts its samples, as one of the ranks that compute on them.
    shared_buffers: the names of those that all ranks take of rank 0 before each optimizer step.
    phases: whose forward, backward and optimizer end here, whichever loop runs.
    """

    virtual: Any = None
    share: BatchShare
    phases: Phases
    loader = 0
    loss: Tensor | None = None
    weight = 1.0
    averaged: frozenset[int] | None = None
    shared_buffers: Sequence[str] = ()

    def __init__(self, plan: Plan, module: Any, log: ExactLog, data: RankData, reports: bool) -> None:
        self.plan, self.module, self.log, self.data, self.reports = plan, module, log, data, reports
        self.data_size = plan.data_size
        self.ranks, self.batches = self.data_size * plan.strategy.virtual_ranks(plan), plan.accumulate_grad_batches
        self.weights = LossWeights(plan)
        self.backward_passes = 0
        replace_method(module, "training_step", self._training_step)
        if plan.strategy.shards_weights(plan) or not reports:
            self._replace_evaluation_steps(self._padded_step)
        replace_method(module, "backward", self._weighted_backward)
        replace_method(module, "all_gather", self._all_gather)

    def _replace_evaluation_steps(self, step: Callable[..., Any]) -> None:
        for name in ("validation_step", "test_step"):
            if overrides(self.module, name):
                replace_method(self.module, name, step)

    def prepare(self, optimizers: Sequence[Optimizer], wrapped: object) -> None:
        """Prepare the optimizers of the module; `wrapped`: a FixedBucketDDP, or else what averages gradients."""
        for optimizer in optimizers:
            update_together(optimizer)
            optimizer.register_step_post_hook(lambda *_: self.phases.mark("optimizer"))
            reason, hint = "its line search would go by each rank's own loss", "strategy=single, or another optimizer"
            fits = self.data_size == 1 or not isinstance(optimizer, torch.optim.LBFGS)
            require(fits, "optimizer", type(optimizer).__name__, reason, hint)
        if self.plan.world_size > 1 and not self.plan.compile:
            self.phases.watch(self.module)
        self.averaged = getattr(wrapped, "averaged", None)
        self.shared_buffers = self.plan.strategy.shared_buffers(self.module)

    @property
    def samples(self) -> int:
        """Return this rank's samples of the batch; none of a dummy batch."""
        return self.share.count

    @property
    def counted(self) -> int:
        """Return how many samples of the batch this rank counts: none if another rank counts them."""
        return self.samples if self.reports else 0

    def begin(self, share: BatchShare, position: Progress) -> None:
        """Begin a batch of training."""
        self.share, self.loader, self.position, self.loss, self.weights.batch = share, 0, position, None, None
        if position.batch % self.batches == 0:
            self.weights.window = 0.0
        self.weight = self.loss_weight(self.samples, self.data_size)

    def loss_weight(self, samples: int, averaged_over: int) -> float:
        """Return the factor on the mean loss over `samples` samples of the batch.

        averaged_over: ranks whose gradients are averaged afterwards; 1 if they are added.
        """
        share, batches = self.share, self.batches
        if samples == 0:
            return 0.0
        if self.plan.loss_reduction == "none":
            return averaged_over / self.ranks
        if self.plan.loss_reduction == "sum":
            return float(averaged_over)
        return averaged_over * batches * samples / (share.step_samples or share.samples * batches)

    def gradient_norms(self, optimizer: Optimizer) -> Sequence[Tensor]:
        """Return the norms of the optimizer's gradients, which are complete and averaged over ranks."""
        parameters = parameters_of(optimizer)
        if not self.module.automatic_optimization and self.ranks > 1 and self.plan.ckpt_path is None:
            reason = "it steps by gradients of loss.backward(), which nobody averages over ranks"
            hint = "one that calls self.manual_backward(loss) instead"
            averaged = self.backward_passes > 0 or all(parameter.grad is None for parameter in parameters)
            require(averaged, "model", self.plan.model.name, reason, hint)
        if self.averaged is not None:
            average_late(parameters, self.averaged)
        if self.weights.is_used:
            self.weights.divide(parameters, self.data.device)
        return gradient_norms(parameters)

    def record_batch(self, recorder: StepRecorder) -> tuple[Scalar, float, int]:
        """Record the loss of a training batch; log it as train/loss unless the module logs something of this name.

        Return the loss times what it counts, what it counts, and the samples.
        """
        loss_sum: Any = 0.0
        count, ids, weight = self.counted, self.share.ids, self.weights.batch
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
        if self.shared_buffers and self.position.batch % self.batches == 0:
            broadcast(attrgetter(name)(self.module) for name in self.shared_buffers)
        outputs = self._run(original, batch, *rest, **options)
        loss = self._require_loss(outputs)
        self.loss = None if loss is None else loss.detach()
        if (weight := self.weights.read(outputs)) is not None:
            weight = 0.0 if self.share.is_dummy else weight
            self.weights.batch = weight if self.reports else 0.0
            self.weight = weight * self.data_size * self.batches  # what the engine divides by
        elif self.share.dropped:
            self._require_all_samples()
        return outputs

    def _require_all_samples(self) -> None:
        """Raise if the loss was weighted by samples that are not in the batch."""
        reason = "its collate function drops samples, by whose number the losses of ranks and batches are weighted"
        hint = 'one that keeps all, or return {"loss": …, "weight": n} in training_step'
        fits = self.ranks == self.batches == 1 or self.plan.loss_reduction != "mean"
        require(fits, "data", self.plan.data.name, reason, hint)

    def _padded_step(self, original: Callable[..., Any], batch: Any, *rest: Any, **options: Any) -> Any:
        """Run a step of an evaluation; of a rank without samples nothing is left, and it returns None."""
        outputs = self._run(original, batch, *rest, **options)
        return None if self.share.is_dummy else outputs

    def _run(self, step: Callable[..., Any], batch: Any, *rest: Any, **options: Any) -> Any:
        """Run a step, of a dummy batch without traces: what it logs, and its loss, have weight 0."""
        if not self.share.is_dummy:
            with nullcontext() if self.reports else preserve_metrics(self.module):
                return step(batch, *rest, **options)
        with uncounted(), preserve_metrics(self.module), preserve_generators([self.data.device]):
            return step(batch, *rest, **options)

    def _all_gather(self, original: Callable[..., Any], data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Gather tensors of all ranks, after a look at their shapes: unequal ones would abort the process."""
        shapes = [[*tensor.shape] for tensor in tensors_in(data)]
        if self.share.is_dummy and any(shapes):  # it has no samples of its own
            shapes = [[0]]
        ranks = [shapes] if group is not None else all_gather_json(shapes)
        if any(each != shapes for each in ranks):
            reason = f"self.all_gather gets tensors of unequal shapes, {' and '.join(map(str, ranks))}"
            raise config_error("drop_last", self.plan.drop_last, reason, "drop_last=true, or another batch_size")
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

    def _weighted_backward(self, original: Callable[..., None], loss: Tensor, *arguments: Any, **options: Any) -> None:
        self.backward_passes += 1
        self.phases.mark("forward")
        original(loss if self.weight == 1.0 else loss * self.weight, *arguments, **options)
        self.phases.end_backward()


class LossWeights:
    """A loss that is a mean over something else than samples: tokens that count, pixels that are not ignored.

    Its training_step returns `{"loss": …, "weight": n}`, the loss a mean over n. Gradients of loss × n are added over
    the batches and ranks of an optimizer step, and divided once by the sum of n: exact, however unequal these are.
    batch: the weight of this rank's current batch, None if its step returned none; 0 if another rank counts it.
    is_used: whether the steps return weights; None before the first one.
    window: the sum over earlier batches of the optimizer step.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.is_used: bool | None = None
        self.batch: float | None = None
        self.window = 0.0

    def read(self, outputs: Any) -> float | None:
        """Return the weight in the outputs of a training_step; raise if it is invalid, or only some steps have one."""
        value = outputs.get("weight") if isinstance(outputs, dict) else None
        if outputs is None or (value is None and not self.is_used):  # a step that is left out, or without a weight
            self.is_used = self.is_used if outputs is None else False
            return None
        plan, name = self.plan, self.plan.model.name
        reason, hint = "its training_step returns a weight in some steps alone", "one that returns it in every step"
        require(value is not None and self.is_used is not False, "model", name, reason, hint)
        reason, hint = "it optimizes manually, and its training_step returns a weight", "one that returns a loss"
        require(not plan.model.manual, "model", name, reason, hint)
        reason, hint = "training_step returns the weight of a mean", "loss_reduction=mean"
        require(plan.loss_reduction == "mean", "loss_reduction", plan.loss_reduction, reason, hint)
        self.is_used, weight = True, float(value)  # type: ignore[arg-type]
        reason = f"its training_step returns the weight {weight}"
        require(0 <= weight < math.inf, "model", name, reason, "one that returns a number of 0 or more")
        return weight

    def divide(self, parameters: Sequence[Tensor], device: torch.device) -> None:
        """Divide the gradients by the sum of the weights over ranks and batches. To be called by every rank."""
        total = all_reduce_sums(torch.tensor(self.window + (self.batch or 0.0), dtype=torch.float64), device).item()
        for parameter in parameters:
            if total and parameter.grad is not None:
                parameter.grad.div_(total)
