"""A batch on one rank with manual optimization: the module goes backward and steps its optimizers itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from lockstep.raw.average import average, buckets
from lockstep.raw.data import Share, arguments_for
from lockstep.raw.step import before_update, loss_factor

if TYPE_CHECKING:
    from lockstep.raw.trainer import Trainer


def manual_step(trainer: "Trainer", share: Share, batch: Any, index: int, is_step: bool) -> Mapping[str, Any]:
    """Run a training step that goes backward by `self.manual_backward`, and steps its optimizers itself."""
    trainer.factor = loss_factor(trainer, share, 1)
    with trainer.forward_context(share):
        returned = trainer.module.training_step(*arguments_for(trainer.module.training_step, batch, index))
    outputs = dict(returned) if isinstance(returned, Mapping) else {"loss": returned}
    trainer.loss = outputs["loss"].detach() if isinstance(outputs.get("loss"), Tensor) else None
    return outputs if isinstance(returned, Mapping | Tensor) else {}


def manual_backward(trainer: "Trainer", loss: Tensor, *arguments: Any, **options: Any) -> None:
    """Go backward, then average gradients over ranks, with what earlier passes have left to average."""
    averaged = trainer.averaged if trainer.world_size > 1 and trainer.syncs else []
    trainer.went_backward, earlier = True, [parameter.grad for parameter in averaged]
    for parameter in averaged:
        parameter.grad = None
    trainer.module.on_before_backward(loss)
    trainer.module.backward(loss * trainer.factor, *arguments, **options)
    average(buckets, averaged, earlier)
    trainer.module.on_after_backward()


def watch_manual_steps(trainer: "Trainer") -> None:
    """Measure, and call the module's hook, before each step of an optimizer; count it afterwards."""

    def before(optimizer: Any, arguments: Any, options: Any) -> Any:
        closure = arguments[1] if len(arguments) > 1 else options.get("closure")  # after the optimizer

        def measured() -> Any:
            loss = closure() if closure else None
            before_update(trainer, optimizer)
            return loss

        return arguments[:1], {**options, "closure": measured}

    def after(*_: Any) -> None:
        trainer.global_step += 1

    @contextmanager
    def toggle_model(optimizer: Any, sync_grad: bool = True) -> Iterator[None]:
        trainer.syncs = sync_grad
        with trainer.module.toggled_optimizer(optimizer):
            yield
        trainer.syncs = True

    for each in trainer.optimizers:
        each.register_step_pre_hook(before)
        each.register_step_post_hook(after)
        each.toggle_model, each.optimizer = partial(toggle_model, each), each
