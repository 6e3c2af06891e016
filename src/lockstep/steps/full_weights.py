"""Full weights for hooks and callbacks under a strategy that shards them.

Training steps (`module_step`) and evaluations have them, too. Methods that return or run optimizers see shards:
`configure_optimizers`, `optimizer_step`, `optimizer_zero_grad`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from torch.optim import Optimizer

from lockstep.config_error import require
from lockstep.plan import Plan
from lockstep.structures import map_tensors
from lockstep.targets.kinds import overrides, replace_method

HOOKS = (
    *("on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad"),
    *("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_train_batch_end"),
    *("on_train_epoch_end", "on_train_end", "on_fit_end", "teardown"),
)
"""Hooks outside of evaluations, whose first and last hooks enclose full weights."""

CLIPPING = "configure_gradient_clipping"


def wrap_hooks(plan: Plan, module: Any) -> None:
    """Give full weights to the hooks that a module overrides, of this one object, and to its checkpoint."""
    clips = plan.gradient_clip_val is not None  # torch cannot add norms of shards and of full tensors
    for name in (*HOOKS, CLIPPING):
        if overrides(module, name) or (clips and name == CLIPPING):
            replace_method(module, name, partial(_with_full_weights, plan, module))

    def on_save_checkpoint(original: Callable[..., None], checkpoint: dict[str, Any]) -> None:
        original(checkpoint)
        checkpoint |= map_tensors(plan.strategy.tensors.full_tensor, checkpoint)

    replace_method(module, "on_save_checkpoint", on_save_checkpoint)


def watch(plan: Plan, module: Any, callbacks: Iterable[Any], optimizers: Sequence[Optimizer]) -> None:
    """Give full weights to the hooks of the user's callbacks, and check the optimizers that the module has configured.

    Callbacks that save checkpoints are not wrapped: they gather shards.

    Raises:
        ConfigError: an optimizer would not see the module's gradients, or would compute with shards of them.
    """
    for callback in callbacks:
        kinds = type(callback).__mro__
        if not any(kind.__module__.startswith("lockstep.") or kind.__name__ == "Checkpoint" for kind in kinds):
            for name in HOOKS:
                if overrides(callback, name):
                    replace_method(callback, name, partial(_with_full_weights, plan, module))
    strategy, sharded = plan.strategy, plan.strategy.tensors.sharded_module(module)
    if sharded is None:
        return
    shards = {*sharded.shards}
    for optimizer in optimizers:
        strategy.check_optimizer([kind.__name__ for kind in type(optimizer).__mro__])
        reason = "an optimizer has tensors that configure_optimizers did not take from the module's parameters"
        fits = all(parameter in shards for group in optimizer.param_groups for parameter in group["params"])
        require(fits, "strategy", strategy.name, reason, "self.parameters() in it, or strategy=ddp")
    sharded.watch(optimizers)


def _with_full_weights(plan: Plan, module: Any, original: Callable[..., Any], *rest: Any, **options: Any) -> Any:
    with plan.strategy.tensors.full_weights(module):
        return original(*rest, **options)
