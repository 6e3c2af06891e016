"""Lightning's loop over the batches of an epoch, calling only what is overridden.

For every batch Lightning calls a dozen hooks of every callback, the module and the strategy through its profiler,
whether they do anything or not: half a millisecond, several times a step of a small net. Here the overridden hooks are
looked up once an epoch. Hooks, their arguments and order, and all counts are the same; what the fast path does not do
(manual optimization, a scaled loss, L-BFGS, an overridden method of OVERRIDES), Lightning's own loop does.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature

from lockstep.base.optimizers import clear_gradients, needs_no_closure
from lockstep.base.private_api import lightning as private
from lockstep.engine.session import Session
from lockstep.engine.step import loss_of
from lockstep.plan.targets.kinds import overrides

OVERRIDES = (
    *("on_train_batch_start", "optimizer_step", "lr_scheduler_step"),
    *("optimizer_zero_grad", "configure_gradient_clipping"),
)
"""Methods of a module that may change what the loop does: if one is overridden, Lightning's own loop runs."""


class Hooks:
    """The overridden hooks of callbacks, in their order, then the module's; each name is looked up once."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.module = trainer, trainer.lightning_module
        self.overridden: dict[str, list[Callable[..., Any]]] = {}

    def named(self, name: str) -> list[Callable[..., Any]]:
        if name not in self.overridden:
            callbacks = [callback for callback in self.trainer.callbacks if overrides(callback, name)]
            hooks = [partial(getattr(callback, name), self.trainer, self.module) for callback in callbacks]
            self.overridden[name] = [*hooks, *([getattr(self.module, name)] if overrides(self.module, name) else [])]
        return self.overridden[name]

    def call(self, name: str, *arguments: Any) -> None:
        for hook in self.named(name):
            hook(*arguments)


class FastTrainingEpochLoop(private.TrainingEpochLoop):
    """Replaces the trainer's epoch loop."""

    def __init__(self, session: Session, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.session = session

    def on_run_start(self, data_fetcher: Any) -> None:
        """Look up the overridden hooks, and whether this epoch takes the fast path."""
        super().on_run_start(data_fetcher)
        trainer, module = self.trainer, self.trainer.lightning_module
        self.hooks = Hooks(trainer)
        self.takes_batch_idx = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
        self.fast_path = (
            module.automatic_optimization
            and not any(overrides(module, name) for name in OVERRIDES)
            and needs_no_closure(trainer.optimizers[0])
            and getattr(trainer.precision_plugin, "scaler", None) is None
            and not private.skips_backward(self)
        )
        self.skips_validation = (
            self.fast_path
            and trainer.val_check_batch == trainer.num_training_batches
            and not any(config.reduce_on_plateau for config in trainer.lr_scheduler_configs)
            and trainer.check_val_every_n_epoch is not None
        )

    def advance(self, data_fetcher: Any) -> None:
        """Train on one batch, from the fetcher to the end of its hooks."""
        if self.restarting or not self.fast_path:
            super().advance(data_fetcher)
            return
        progress = self.batch_progress
        if self.val_loop.restarting:
            self.val_loop.restarting = False
        batch, _, _ = next(data_fetcher)
        batch_idx = self.batch_idx + 1
        progress.is_last_batch = data_fetcher.done
        batch = self.session.data.transfer(batch)
        progress.increment_ready()
        self.hooks.call("on_train_batch_start", batch, batch_idx)
        progress.increment_started()
        outputs = self._step(batch, batch_idx)
        progress.increment_processed()
        if self.trainer.lr_scheduler_configs:
            self.update_lr_schedulers("step", update_plateau_schedulers=False)
            if self._num_ready_batches_reached():
                self.update_lr_schedulers("epoch", update_plateau_schedulers=False)
        self.hooks.call("on_train_batch_end", outputs, batch, batch_idx)
        progress.increment_completed()

    def on_advance_end(self, data_fetcher: Any) -> None:
        """Skip what Lightning does between two batches, unless a validation or the end of training is due."""
        requested = self.trainer.should_stop or self.trainer.received_sigterm or self._skip_next_val
        if not self.skips_validation or requested or self.batch_progress.is_last_batch:
            super().on_advance_end(data_fetcher)
        elif not self._should_accumulate():
            self._batches_that_stepped += 1

    def _step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Run forward, zero_grad and backward; clip and step at the end of an accumulation."""
        trainer, hooks, progress = self.trainer, self.hooks, self.automatic_optimization.optim_progress.optimizer
        strategy, optimizer, batches = trainer.strategy, trainer.optimizers[0], trainer.accumulate_grad_batches
        is_step_boundary = not self._should_accumulate()
        outputs: dict[str, Any] = {}
        if is_step_boundary:
            progress.step.increment_ready()
        with nullcontext() if is_step_boundary else getattr(strategy, "block_backward_sync", nullcontext)():
            returned = strategy.training_step(batch, *([batch_idx] if self.takes_batch_idx else []))
            loss = loss_of(returned)
            if batch_idx % batches == 0:
                progress.zero_grad.increment_ready()
                hooks.call("on_before_zero_grad", optimizer)
                progress.zero_grad.increment_started()
                clear_gradients(optimizer)
                progress.zero_grad.increment_completed()
            if loss is not None:
                detached = loss.detach() if batches == 1 else loss.detach() / batches
                outputs = {**(returned if isinstance(returned, Mapping) else {}), "loss": detached}
                strategy.pre_backward(loss)
                if hooks.named("on_before_backward"):
                    hooks.call("on_before_backward", loss / batches)
                trainer.lightning_module.backward(loss if batches == 1 else loss / batches)
                hooks.call("on_after_backward")
                strategy.post_backward(loss)
        if is_step_boundary:
            hooks.call("on_before_optimizer_step", optimizer)
            if trainer.gradient_clip_val is not None:
                trainer.lightning_module.clip_gradients(optimizer)
            optimizer.step()
            progress.step.increment_completed()
        return outputs
