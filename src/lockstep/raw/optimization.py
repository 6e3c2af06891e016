"""The optimization of a batch, automatic or manual, and the steps of schedules."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.config_error import config_error
from lockstep.optimizers import clear_gradients
from lockstep.parallel.divided_optimizer import call_before_update
from lockstep.private_api.torch import prepare_for_backward
from lockstep.steps.step_outputs import loss_of

if TYPE_CHECKING:
    from lockstep.raw.run import Training


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
        value, algorithm = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
        clip = run.module.configure_gradient_clipping
        clip(optimizer, gradient_clip_val=value, gradient_clip_algorithm=algorithm)
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


def manual_step(run: "Training", batch: Any, batch_idx: int) -> dict[str, Any]:
    """Run the training step of a batch, which goes backward and steps optimizers itself."""
    with run.precision.forward_context():
        returned = run.module.training_step(*run.hooks.step_arguments("training_step", batch, batch_idx))
    outputs = dict(returned) if isinstance(returned, Mapping) else {"loss": returned}
    if isinstance(outputs.get("loss"), Tensor):
        outputs["loss"] = outputs["loss"].detach()
    return outputs if isinstance(returned, Mapping | Tensor) else {}


def manual_backward(run: "Training", loss: Tensor, _: Any, *arguments: Any, **options: Any) -> None:
    """Go backward. DDP expects one backward pass for each forward, so each pass is announced to it."""
    if run.wrapped.ddp is not None:
        prepare_for_backward(run.wrapped.ddp, loss)
    run.hooks.call("on_before_backward", loss)
    run.module.backward(loss, *arguments, **options)
    run.hooks.call("on_after_backward")


def watch_manual_steps(run: "Training") -> None:
    """Have `manual_backward` call the module's hooks, and each optimizer's step measure its gradient and count."""

    def measure(optimizer: Any) -> None:
        run.session.before_optimizer_step(optimizer)
        run.hooks.call("on_before_optimizer_step", optimizer)

    def after_step(*_: Any) -> None:
        run.trainer.global_step += 1

    run.trainer.strategy.backward = partial(manual_backward, run)
    optimizers: list[Any] = run.trainer.optimizers
    for optimizer in optimizers:
        call_before_update(optimizer, measure)
        optimizer.register_step_post_hook(after_step)
        optimizer.optimizer = optimizer  # LightningOptimizer has this attribute
        optimizer.toggle_model = partial(_toggle_model, run, optimizer)


@contextmanager
def _toggle_model(run: "Training", optimizer: Optimizer, sync_grad: bool = True) -> Iterator[None]:
    """Let only this optimizer's parameters get gradients; without `sync_grad` they are not averaged over ranks."""
    with nullcontext() if sync_grad else run.wrapped.accumulating():
        run.module.toggle_optimizer(optimizer)
        yield
        run.module.untoggle_optimizer(optimizer)


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
            run.module.lr_scheduler_step(config.scheduler, metric)
