"""A batch on one rank: forward, backward, the average over ranks, clipping, and the update of the weights."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from lockstep.base.config_error import require
from lockstep.raw.data import Share, arguments_for

if TYPE_CHECKING:
    from lockstep.raw.trainer import Trainer


def automatic_step(trainer: "Trainer", share: Share, batch: Any, index: int, is_step: bool) -> Mapping[str, Any]:
    """Run forward and backward of a batch, and the update if an optimizer step ends with it (`is_step`)."""
    module, optimizer, accumulate = trainer.module, trainer.optimizers[0], trainer.config.accumulate_grad_batches
    outputs: dict[str, Any] = {}

    def forward_backward() -> Any:
        with trainer.forward_context(share):
            returned = trainer.training_step(*arguments_for(module.training_step, batch, index))
        values = returned if isinstance(returned, Mapping) else {"loss": returned}
        if index % accumulate == 0:
            trainer.divisor = None
            module.on_before_zero_grad(optimizer)
            module.optimizer_zero_grad(trainer.current_epoch, index, optimizer)
        if (loss := values.get("loss")) is None:
            return None
        trainer.loss, factor = loss.detach(), loss_factor(trainer, share, accumulate)
        if (weight := values.get("weight")) is not None:  # the loss is a mean over so many items, possibly 0
            trainer.count = float(weight) if len(share.ids) else 0.0
            trainer.loss = trainer.loss if trainer.count else None
            trainer.divisor = trainer.count + (trainer.divisor or 0.0)
            factor = trainer.count * trainer.world_size * accumulate
        module.on_before_backward(loss / accumulate)  # Lightning's value; `loss_factor` undoes the division
        module.backward(loss / accumulate * factor)
        module.on_after_backward()
        outputs.update(values, loss=loss.detach() / accumulate)
        return outputs["loss"]

    def complete() -> Any:
        loss = forward_backward()
        trainer.average()
        before_update(trainer, optimizer)
        clip, algorithm = trainer.gradient_clip_val, trainer.gradient_clip_algorithm  # by `clip_gradients`
        module.configure_gradient_clipping(optimizer, gradient_clip_val=clip, gradient_clip_algorithm=algorithm)
        return loss

    if is_step:  # Lightning's default of this hook is optimizer.step(complete): gradients first, then the update
        module.optimizer_step(trainer.current_epoch, index, optimizer, complete)
        trainer.global_step += 1
    else:
        with getattr(trainer.training_step, "no_sync", nullcontext)():  # DistributedDataParallel: average later
            forward_backward()
    return outputs


def loss_factor(trainer: "Trainer", share: Share, accumulate: int) -> float:
    """Return the factor on this rank's mean loss, so that the average over ranks and batches is that of all samples.

    Two ranks with 3 and 2 of 5 samples have means a and b. The factors are 2 · 3/5 and 2 · 2/5, so that the average of
    both, (6/5 a + 4/5 b) / 2 = 3/5 a + 2/5 b, is the mean of the five. The average of a and b alone would not be.
    """
    if len(share.ids) == 0 or trainer.config.loss_reduction == "none":
        return 1.0 if len(share.ids) else 0.0
    if trainer.config.loss_reduction == "sum":
        return float(trainer.world_size)
    return float(trainer.world_size * accumulate * len(share.ids) / share.step_total)


def before_update(trainer: "Trainer", optimizer: Optimizer) -> None:
    """Measure the gradients of an optimizer, which are complete and averaged over ranks."""
    if trainer.world_size > 1 and not trainer.module.automatic_optimization:
        reason = "it steps by gradients of loss.backward(), which nobody averages over ranks"
        hint = "one that calls self.manual_backward(loss) instead"
        require(trainer.went_backward, "model", type(trainer.module).__name__, reason, hint)
    gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    if trainer.divisor is not None:
        total = torch.tensor(trainer.divisor, dtype=torch.float64, device=trainer.device)
        if trainer.world_size > 1:
            dist.all_reduce(total)
        for gradient in gradients if total else ():
            gradient.div_(total.item())
    norms = [nn.utils.get_total_norm([gradient]).to(trainer.device) for gradient in gradients]
    norms = torch.stack(norms).tolist() if norms else []  # a GPU is waited for once
    trainer.updates.append((float(optimizer.param_groups[0]["lr"]), norms))
    trainer.module.on_before_optimizer_step(optimizer)


def clip_gradients(optimizer: Optimizer, value: float | None = None, algorithm: Any = "norm") -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    by_value = getattr(algorithm, "value", algorithm) == "value"
    if value:
        (nn.utils.clip_grad_value_ if by_value else nn.utils.clip_grad_norm_)(parameters, value)


def step_schedules(trainer: "Trainer", index: int, step_ends: bool, epoch_ends: bool, plateau: bool = False) -> None:
    """Step the schedules that are due: those of ReduceLROnPlateau by a logged value, or all others."""
    due = {"step": (step_ends, index), "epoch": (epoch_ends, trainer.current_epoch)}
    for schedule in trainer.lr_scheduler_configs if trainer.module.automatic_optimization else ():
        value = trainer.callback_metrics.get(str(schedule.monitor)) if plateau else None
        ends, number = due[schedule.interval]
        is_due = ends and (number + 1) % schedule.frequency == 0 and schedule.reduce_on_plateau == plateau
        if is_due and (value is not None or not plateau):
            trainer.module.lr_scheduler_step(schedule.scheduler, value)
