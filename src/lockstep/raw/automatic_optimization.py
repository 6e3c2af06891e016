"""Automatic optimization: forward and backward of a batch, and the optimizer step, are done for the module."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import LBFGS, Optimizer

from lockstep.optimizers import zero_grad
from lockstep.raw.hooks import step_arguments
from lockstep.raw.trainer_strategy import Clipping
from lockstep.steps.loss_weight import loss_of

if TYPE_CHECKING:
    from lockstep.raw.training import Training


def automatic_step(run: "Training", batch: Any, number: int, due: bool) -> dict[str, Any]:
    """Do forward and backward of one batch, and the optimizer step where it is due; return the outputs for hooks."""
    session, module, optimizer, precision = run.session, run.module, run.trainer.optimizers[0], run.precision
    batches, mark, hooks = session.progress.batches_per_step, session.phases.mark, run.hooks
    outputs: dict[str, Any] = {}

    def forward_backward() -> Tensor | None:
        with precision.forward_context():
            returned = run.wrapped.forward(*step_arguments(module.training_step, batch, number))
        mark("forward")
        loss = loss_of(returned)
        if number % batches == 0:
            hooks.call("on_before_zero_grad", optimizer)
            clear_gradients(run, optimizer, number)
        if loss is None:
            outputs.clear()
            return None
        if hooks.named("on_before_backward"):
            hooks.call("on_before_backward", loss / batches)
        session.step.backward(loss, batches, precision.scale)
        hooks.call("on_after_backward")
        mark("backward")
        detached = loss.detach() / batches
        outputs.update(returned if isinstance(returned, Mapping) else {}, loss=detached)
        return detached

    def closure() -> Tensor | None:
        """Compute the complete gradient, measure and clip it. The optimizer calls this before its step."""
        loss = forward_backward()
        run.wrapped.synchronise()
        mark("communication")
        precision.unscale(optimizer)
        session.before_optimizer_step(optimizer)
        hooks.call("on_before_optimizer_step", optimizer)
        clip_gradients(run, optimizer)
        return loss

    if not due:
        with run.wrapped.accumulating():
            forward_backward()
        return outputs
    if session.step.overrides_optimizer_step or isinstance(optimizer, LBFGS):
        module.optimizer_step(run.trainer.current_epoch, number, optimizer, closure)
    else:
        precision.step(optimizer, closure)
    mark("optimizer")
    run.trainer.global_step += 1
    return outputs


def clear_gradients(run: "Training", optimizer: Optimizer, number: int) -> None:
    """Set every gradient to None, or as the module does it."""
    if (method := run.hooks.method("optimizer_zero_grad")) is not None:
        method(run.trainer.current_epoch, number, optimizer)
    else:
        zero_grad(parameter for group in optimizer.param_groups for parameter in group["params"])


def clip_gradients(run: "Training", optimizer: Optimizer) -> None:
    """Clip by the plan's value, or as the module does it."""
    value, algorithm = run.trainer.gradient_clip_val, run.trainer.gradient_clip_algorithm
    if (method := run.hooks.method("configure_gradient_clipping")) is not None:
        method(optimizer, gradient_clip_val=value, gradient_clip_algorithm=algorithm)
    elif value is not None:
        Clipping().clip_gradients(optimizer, value, algorithm)
