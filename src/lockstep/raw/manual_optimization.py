"""Manual optimization: backward passes and optimizer steps are within the module's training step."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.parallel.divided_optimizer import call_before_update
from lockstep.private_api.torch import prepare_for_backward

if TYPE_CHECKING:
    from lockstep.raw.training import Training


def manual_step(run: "Training", batch: Any, batch_idx: int) -> dict[str, Any]:
    """Run the training step of a batch, which goes backward and steps optimizers itself."""
    with run.precision.forward_context():
        returned = run.module.training_step(*run.hooks.step_arguments("training_step", batch, batch_idx))
    outputs = dict(returned) if isinstance(returned, Mapping) else {"loss": returned}
    if isinstance(outputs.get("loss"), Tensor):
        outputs["loss"] = outputs["loss"].detach()
    return outputs if isinstance(returned, Mapping | Tensor) else {}


def manual_backward(run: "Training", loss: Tensor, *arguments: Any, **options: Any) -> None:
    """Go backward. DDP expects one backward pass for each forward, so each pass is announced to it."""
    if run.wrapped.ddp is not None:
        prepare_for_backward(run.wrapped.ddp, loss)
    run.hooks.call("on_before_backward", loss)
    run.module.backward(loss, *arguments, **options)
    run.hooks.call("on_after_backward")


def watch_manual_steps(run: "Training") -> None:
    """Register hooks on the optimizers that measure the gradient, call the module's hooks and count the step."""

    def measure(optimizer: Any) -> None:
        run.session.before_optimizer_step(optimizer)
        run.hooks.call("on_before_optimizer_step", optimizer)

    def after_step(*_: Any) -> None:
        run.trainer.global_step += 1

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
