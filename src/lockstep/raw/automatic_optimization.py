"""Automatic optimization: forward, backward and the optimizer step of a batch, and the steps of schedules."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.config_error import config_error
from lockstep.optimizers import clear_gradients
from lockstep.steps.step_outputs import loss_of

if TYPE_CHECKING:
    from lockstep.raw.training import Training


def automatic_step(run: "Training", batch: Any, batch_idx: int, is_step_boundary: bool) -> dict[str, Any]:
    """Run forward and backward, and the optimizer at the end of an accumulation. Return the outputs for hooks."""
    trainer, hooks, precision, mark = run.trainer, run.hooks, run.precision, run.session.phases.mark
    optimizer, batches = trainer.optimizers[0], trainer.accumulate_grad_batches
    outputs: dict[str, Any] = {}

    def forward_backward() -> Tensor | None:
        with precision.forward_context():
            returned = run.wrapped.forward(*hooks.step_arguments("training_step", batch, batch_idx))
        mark("forward")
        loss = loss_of(returned)
        if batch_idx % batches == 0:
            hooks.call("on_before_zero_grad", optimizer)
            zero_grad = hooks.method("optimizer_zero_grad", lambda *_: clear_gradients(optimizer))
            zero_grad(trainer.current_epoch, batch_idx, optimizer)
        outputs.clear()
        if loss is None:
            return None
        if hooks.named("on_before_backward"):
            hooks.call("on_before_backward", loss / batches)
        run.session.step.backward(loss, batches, precision.scale)
        hooks.call("on_after_backward")
        mark("backward")
        detached = loss.detach() if batches == 1 else loss.detach() / batches
        outputs.update(returned if isinstance(returned, Mapping) else {}, loss=detached)
        return detached

    def closure() -> Tensor | None:
        """Compute the complete gradient, measure and clip it. The optimizer calls this before its step."""
        loss = forward_backward()
        run.wrapped.synchronise()
        mark("communication")
        if loss is not None:
            precision.unscale(optimizer)
        run.session.before_optimizer_step(optimizer)
        hooks.call("on_before_optimizer_step", optimizer)
        clip_gradients(run, optimizer)
        return loss

    if not is_step_boundary:
        with run.wrapped.accumulating():
            forward_backward()
        return outputs
    step = hooks.method("optimizer_step", lambda *_: precision.step(optimizer, closure))
    step(trainer.current_epoch, batch_idx, optimizer, closure)
    mark("optimizer")
    trainer.global_step += 1
    return outputs


def clip_gradients(run: "Training", optimizer: Optimizer) -> None:
    value, algorithm = run.trainer.gradient_clip_val, run.trainer.gradient_clip_algorithm
    clip = run.hooks.method("configure_gradient_clipping", run.precision.clip_gradients)
    clip(optimizer, gradient_clip_val=value, gradient_clip_algorithm=algorithm)


def step_schedules(run: "Training", interval: str, index: int, plateau: bool) -> None:
    """Step the schedules that are due after a batch or epoch: every ReduceLROnPlateau by its value, or all others."""
    for config in [] if run.session.manual else run.trainer.lr_scheduler_configs:
        metric = run.trainer.callback_metrics.get(str(config.monitor)) if plateau else None
        is_due = config.interval == interval and (index + 1) % config.frequency == 0
        if not is_due or config.reduce_on_plateau != plateau:
            continue
        if plateau and metric is None and config.strict:
            reason = f"its ReduceLROnPlateau monitors {config.monitor}, which it does not log"
            logged = ", ".join(sorted(run.trainer.callback_metrics))
            raise config_error("model", run.session.plan.model.name, reason, f"one of {logged}")
        if metric is not None or not plateau:
            run.hooks.method("lr_scheduler_step", lr_scheduler_step)(config.scheduler, metric)


def lr_scheduler_step(scheduler: Any, metric: Any) -> None:
    scheduler.step(*([] if metric is None else [metric]))
