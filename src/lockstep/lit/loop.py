"""Lightning's loop over the batches of an epoch, calling only what is overridden.

For every batch Lightning calls every callback, the module and the strategy at a dozen hooks, through its profiler and
its optimizer's wrapper, and goes through its table of logged values, whether they do anything or not. That takes half a
millisecond, several times a step of a small net. Here the overridden hooks are found once an epoch. Which hooks are
called, with what and in which order is the same, and so are all counts; what the fast path does not do (manual
optimization, a profiler, a scaled loss, L-BFGS, an overridden `optimizer_step`), Lightning's own loop does.

What this loop needs of Lightning beyond its public names, and when it is not used, is in `private_api.lightning`.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.profilers import PassThroughProfiler
from torch.optim import Optimizer

from lockstep.optimizers import needs_no_closure, zero_grad
from lockstep.private_api import lightning as private
from lockstep.session.session import Session
from lockstep.steps.loss_weight import loss_of

HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)
"""Of callbacks and of the module, in the order in which a batch meets them."""

OVERRIDES = ("on_train_batch_start", "optimizer_step", "lr_scheduler_step")
"""Methods of a module that may change what the loop does: where one is overridden, Lightning's own loop runs."""


class FastTrainingEpochLoop(private.TrainingEpochLoop):
    """In place of the trainer's own epoch loop."""

    def __init__(self, session: Session, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.session, self.phases = session, session.phases

    def on_run_start(self, data_fetcher: private.DataFetcher) -> None:
        """Find the overridden hooks, and whether this epoch takes the fast path."""
        super().on_run_start(data_fetcher)
        self.phases.begin()
        trainer, module = self.trainer, self.trainer.lightning_module
        self.module, self.step = module, self.session.step
        self.hooks = {name: overriding(trainer, module, name) for name in HOOKS}
        overridden = partial(private.is_overridden, instance=module)
        self.overrides_clipping = overridden("configure_gradient_clipping")
        self.zero_inline = not overridden("optimizer_zero_grad")
        self.numbered = private.is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
        self.fast_path = isinstance(data_fetcher, private.PrefetchDataFetcher) and self.is_fast
        at_end = trainer.val_check_batch == trainer.num_training_batches and trainer.check_val_every_n_epoch is not None
        self.skip_validation = (
            self.fast_path and at_end and not any(config.reduce_on_plateau for config in trainer.lr_scheduler_configs)
        )

    @property
    def is_fast(self) -> bool:
        """Whether the module and the trainer ask for nothing but what the fast path does."""
        trainer, module = self.trainer, self.trainer.lightning_module
        return (
            module.automatic_optimization
            and not any(private.is_overridden(name, module) for name in OVERRIDES)
            and needs_no_closure(trainer.optimizers[0])
            and isinstance(trainer.profiler, PassThroughProfiler)
            and getattr(trainer.precision_plugin, "scaler", None) is None
            and not trainer.strategy.handles_gradient_accumulation
            and not private.skips_backward(self)
        )

    def advance(self, data_fetcher: private.DataFetcher) -> None:
        """Train on one batch, from the fetcher to the end of its hooks."""
        if self.restarting or not self.fast_path:
            super().advance(data_fetcher)
            return
        trainer, progress = self.trainer, self.batch_progress
        if self.val_loop.restarting:
            self.val_loop.restarting = False
        batch, _, _ = next(data_fetcher)
        batch_idx = self.batch_idx + 1
        progress.is_last_batch = data_fetcher.done
        batch = self.session.data.transfer(batch)
        progress.increment_ready()
        self._call("on_train_batch_start", batch, batch_idx)
        progress.increment_started()
        outputs = self._step(batch, batch_idx)
        progress.increment_processed()
        if trainer.lr_scheduler_configs:
            self.update_lr_schedulers("step", update_plateau_schedulers=False)
            if self._num_ready_batches_reached():
                self.update_lr_schedulers("epoch", update_plateau_schedulers=False)
        self._call("on_train_batch_end", outputs, batch, batch_idx)
        progress.increment_completed()

    def on_advance_end(self, data_fetcher: private.DataFetcher) -> None:
        """Skip what Lightning does between two batches, unless a validation or the end of training is due."""
        requested = self.trainer.should_stop or self.trainer.received_sigterm or self._skip_next_val
        if not self.skip_validation or requested or self.batch_progress.is_last_batch:
            super().on_advance_end(data_fetcher)
            self.phases.begin()  # a validation is none of any phase
        elif not self._should_accumulate():
            self._batches_that_stepped += 1

    def on_iteration_done(self) -> None:
        if self.restarting:
            super().on_iteration_done()

    def _step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Do forward, zero_grad and backward; clip and step if an optimizer step is due."""
        trainer, module, progress = self.trainer, self.module, self.automatic_optimization.optim_progress.optimizer
        strategy, optimizer, batches = trainer.strategy, trainer.optimizers[0], trainer.accumulate_grad_batches
        due = not self._should_accumulate()
        outputs: dict[str, Any] = {}
        if due:
            progress.step.increment_ready()
        with nullcontext() if due else private.block_gradient_sync(strategy, block=True):
            returned = strategy.training_step(*((batch, batch_idx) if self.numbered else (batch,)))
            loss = loss_of(returned)
            self.phases.mark("forward")
            if batch_idx % batches == 0:
                progress.zero_grad.increment_ready()
                self._call("on_before_zero_grad", optimizer)
                progress.zero_grad.increment_started()
                self._zero_grad(batch_idx, optimizer)
                progress.zero_grad.increment_completed()
            if loss is not None:
                outputs = {**(returned if isinstance(returned, Mapping) else {}), "loss": loss.detach() / batches}
                strategy.pre_backward(loss)
                if self.hooks["on_before_backward"]:
                    self._call("on_before_backward", loss / batches)
                self.step.backward(loss, batches, None)
                self._call("on_after_backward")
                strategy.post_backward(loss)
        self.phases.mark("backward")
        if due:
            self._call("on_before_optimizer_step", optimizer)
            if self.overrides_clipping or trainer.gradient_clip_val is not None:
                value, algorithm = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
                module.configure_gradient_clipping(
                    optimizer, gradient_clip_val=value, gradient_clip_algorithm=algorithm
                )
            optimizer.step()
            self.phases.mark("optimizer")
            progress.step.increment_completed()
        return outputs

    def _zero_grad(self, batch_idx: int, optimizer: Optimizer) -> None:
        if self.zero_inline:
            zero_grad(parameter for group in optimizer.param_groups for parameter in group["params"])
        else:
            self.module.optimizer_zero_grad(self.trainer.current_epoch, batch_idx, optimizer)

    def _call(self, name: str, *args: Any) -> None:
        for hook in self.hooks[name]:
            hook(*args)


def overriding(trainer: Any, module: pl.LightningModule, name: str) -> list[Callable[..., Any]]:
    """Return the overridden hooks of a name in Lightning's order: of callbacks, then of the module."""
    callbacks = [callback for callback in trainer.callbacks if private.is_overridden(name, callback, Callback)]
    calls: list[Callable[..., Any]] = [partial(getattr(callback, name), trainer, module) for callback in callbacks]
    return calls + ([getattr(module, name)] if private.is_overridden(name, module) else [])
