"""Manual optimization: backward passes and optimizer steps are within the module's training step."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.private_api.torch import prepare_for_backward
from lockstep.raw.hooks import step_arguments

if TYPE_CHECKING:
    from lockstep.raw.training import Training


def manual_step(run: "Training", batch: Any, number: int) -> dict[str, Any]:
    """Run the training step of a batch, which goes backward and steps optimizers itself."""
    with run.precision.forward_context():
        returned = run.module.training_step(*step_arguments(run.module.training_step, batch, number))
    if isinstance(returned, Mapping):
        extra = {**returned}
        if isinstance(extra.get("loss"), Tensor):
            extra["loss"] = extra["loss"].detach()
        return extra
    return {"loss": returned.detach()} if isinstance(returned, Tensor) else {}


def manual_backward(run: "Training", loss: Tensor, *arguments: Any, **named: Any) -> None:
    """Go backward. DDP expects one backward for each forward, so it is told before each that gradients will come."""
    if run.wrapped.ddp is not None:
        prepare_for_backward(run.wrapped.ddp, loss)
    run.hooks.call("on_before_backward", loss)
    run.module.backward(loss, *arguments, **named)
    run.hooks.call("on_after_backward")


def watch_manual_steps(run: "Training") -> None:
    """Register hooks on the optimizers that measure the gradient, call the module's hooks and count the step."""

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
    """Let only this optimizer's parameters get gradients; without `sync_grad` they are not averaged over ranks."""
    with nullcontext() if sync_grad else run.wrapped.accumulating():
        run.module.toggle_optimizer(optimizer)
        yield
        run.module.untoggle_optimizer(optimizer)
