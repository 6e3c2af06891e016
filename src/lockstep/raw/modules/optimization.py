"""Who steps. Automatic: one optimizer, a closure of forward, zero_grad and backward. Manual: the module itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lockstep.own_module.loss_weight import loss_of
from lockstep.private_api.torch import prepare_for_backward
from lockstep.raw.modules.hooks import step_arguments

if TYPE_CHECKING:
    from lockstep.raw.modules.training import Training


class NoOptimizer(Optimizer):
    """Where a module has none: its steps count as steps, and change nothing, as in Lightning."""

    def __init__(self) -> None:
        super().__init__([torch.zeros(1)], {})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """It has none."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """There is nothing to load."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """It has no gradients."""

    def step(self, closure: Any = None) -> Any:
        return None if closure is None else closure()


@dataclass
class SchedulerConfig:
    """A schedule and when it steps, by Lightning's names."""

    scheduler: Any
    name: str | None = None
    interval: str = "epoch"
    frequency: int = 1
    reduce_on_plateau: bool = False
    monitor: str | None = None
    strict: bool = True


def configured(made: Any) -> tuple[list[Optimizer], list[SchedulerConfig]]:
    """What `configure_optimizers` returns, in all forms that Lightning takes.

    Raises:
        ValueError: it is none of them.
    """
    if made is None:
        return [NoOptimizer()], []
    if isinstance(made, Optimizer):
        return [made], []
    if isinstance(made, Mapping):
        schedules = [_config(made["lr_scheduler"], made.get("monitor"))] if "lr_scheduler" in made else []
        return [made["optimizer"]], schedules
    if isinstance(made, list | tuple) and len(made) == 2 and isinstance(made[0], list):
        listed = made[1] if isinstance(made[1], list) else [made[1]]
        return [*made[0]], [_config(own, None) for own in listed]
    if all(isinstance(own, Mapping) for own in made):
        parts = [configured(own) for own in made]
        return [own for found, _ in parts for own in found], [own for _, found in parts for own in found]
    if all(isinstance(own, Optimizer) for own in made):
        return [*made], []
    raise ValueError(f"configure_optimizers returns a {type(made).__name__}, and not optimizers with their schedules")


def _config(own: Any, monitor: str | None) -> SchedulerConfig:
    known = SchedulerConfig.__dataclass_fields__
    given = own if isinstance(own, Mapping) else {"scheduler": own}
    options = {key: value for key, value in given.items() if key in known}
    plateau = isinstance(options["scheduler"], ReduceLROnPlateau)
    return SchedulerConfig(**{"reduce_on_plateau": plateau, "monitor": monitor, **options})


def automatic_step(run: "Training", batch: Any, number: int, due: bool) -> dict[str, Any]:
    """One batch of automatic optimization, and the optimizer step where it is due. What hooks get as outputs."""
    module, optimizer = run.module, run.trainer.optimizers[0]
    result: dict[str, Any] = {}

    @torch.enable_grad()
    def closure() -> Tensor | None:
        nonlocal result
        with run.forward_context():
            returned = run.wrapped.forward(*step_arguments(module.training_step, batch, number))
        loss = loss_of(returned)
        part = None if loss is None else loss / run.session.batches_per_step
        extra = returned if isinstance(returned, Mapping) else {}
        result = {} if part is None else {**extra, "loss": part.detach().clone()}
        if number % run.session.batches_per_step == 0:
            run.hooks.call("on_before_zero_grad", optimizer)
            module.optimizer_zero_grad(run.trainer.current_epoch, number, optimizer)
        if part is not None:
            run.hooks.call("on_before_backward", part)
            module.backward(part)
            run.hooks.call("on_after_backward")
        return result.get("loss")

    def stepping() -> Tensor | None:
        """The closure that the optimizer calls: the gradient is whole behind it, and can be measured and clipped."""
        loss = closure()
        run.session.before_optimizer_step(optimizer)
        run.hooks.call("on_before_optimizer_step", optimizer)
        clip, how = run.trainer.gradient_clip_val, run.trainer.gradient_clip_algorithm
        module.configure_gradient_clipping(optimizer, gradient_clip_val=clip, gradient_clip_algorithm=how)
        return loss

    with nullcontext() if due else run.wrapped.accumulating():
        if due:
            module.optimizer_step(run.trainer.current_epoch, number, optimizer, stepping)
            run.trainer.global_step += 1
        else:
            closure()
    return result


def manual_step(run: "Training", batch: Any, number: int) -> dict[str, Any]:
    """One batch of manual optimization: backward and steps are inside."""
    with run.forward_context():
        returned = run.module.training_step(*step_arguments(run.module.training_step, batch, number))
    if isinstance(returned, Mapping):
        extra = {**returned}
        if isinstance(extra.get("loss"), Tensor):
            extra["loss"] = extra["loss"].detach()
        return extra
    return {"loss": returned.detach()} if isinstance(returned, Tensor) else {}


def manual_backward(run: "Training", loss: Tensor, *arguments: Any, **named: Any) -> None:
    """DDP expects one backward for each forward; here it is told before each that gradients will come."""
    if run.wrapped.ddp is not None:
        prepare_for_backward(run.wrapped.ddp, loss)
    run.hooks.call("on_before_backward", loss)
    run.module.backward(loss, *arguments, **named)
    run.hooks.call("on_after_backward")


def watch_manual_steps(run: "Training") -> None:
    """Around each step of the module's own: the gradient is measured, hooks are called, the step counts."""

    def before(optimizer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        def gradient_is_whole() -> None:
            run.session.before_optimizer_step(optimizer)
            run.hooks.call("on_before_optimizer_step", optimizer)

        closure = named.get("closure") or (arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            gradient_is_whole()
            return None

        def whole() -> Any:
            loss = closure()
            gradient_is_whole()
            return loss

        return arguments[:1], {**named, "closure": whole}

    def after(*_: Any) -> None:
        run.trainer.global_step += 1

    optimizers: list[Any] = run.trainer.optimizers
    for optimizer in optimizers:
        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
        optimizer.optimizer = optimizer  # as of a LightningOptimizer
        optimizer.toggle_model = partial(_toggled, run, optimizer)


@contextmanager
def _toggled(run: "Training", optimizer: Optimizer, sync_grad: bool = True) -> Iterator[None]:
    """Only this optimizer's parameters get gradients, and without `sync_grad` ranks keep theirs for themselves."""
    with nullcontext() if sync_grad else run.wrapped.accumulating():
        run.module.toggle_optimizer(optimizer)
        yield
        run.module.untoggle_optimizer(optimizer)


def step_schedules(run: "Training", interval: str, number: int, plateau: bool) -> None:
    """Of automatic optimization: those that step now, `plateau` ones by what they monitor, where it is logged."""
    if run.session.manual:
        return
    index = 1 + (number if interval == "step" else run.trainer.current_epoch)
    for config in run.trainer.lr_scheduler_configs:
        if config.reduce_on_plateau != plateau or config.interval != interval or index % config.frequency:
            continue
        value = run.trainer.callback_metrics.get(str(config.monitor)) if plateau else None
        if not plateau or value is not None:
            run.module.lr_scheduler_step(config.scheduler, value)
