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
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from lockstep.optimizers import zero_grad
from lockstep.private_api import lightning as private
from lockstep.sums.phases import Phases

HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)
"""Of callbacks and of the module, in the order in which a batch meets them."""

TRANSFER = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")

OWN_LOOP = ("on_train_batch_start", "optimizer_step", "lr_scheduler_step")
"""Methods of a module that may change what the loop does: where one is overridden, Lightning's own loop runs."""


class FastTrainingEpochLoop(private.TrainingEpochLoop):
    """In place of the trainer's own epoch loop. `phases` has the seconds of its batches."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.phases = Phases()

    def on_run_start(self, data_fetcher: private.DataFetcher) -> None:
        """Find the overridden hooks, and whether this epoch takes the fast path."""
        super().on_run_start(data_fetcher)
        self.phases.begin()
        trainer, module = self.trainer, self.trainer.lightning_module
        self.module, self.precision = module, trainer.precision_plugin
        self.hooks = {name: overriding(trainer, module, name) for name in HOOKS}
        self.before, self.transfer, self.after = private.transfer_hooks(trainer, TRANSFER)
        overridden = partial(private.is_overridden, instance=module)
        self.clips = trainer.gradient_clip_val is not None or overridden("configure_gradient_clipping")
        self.zero_inline = not overridden("optimizer_zero_grad")
        self.parameters = [own for group in trainer.optimizers[0].param_groups for own in group["params"]]
        self.numbered = private.is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
        self.fast_path = isinstance(data_fetcher, private.PrefetchDataFetcher) and self._is_plain()
        at_end = trainer.val_check_batch == trainer.num_training_batches and trainer.check_val_every_n_epoch is not None
        self.skip_validation = (
            self.fast_path and at_end and not any(own.reduce_on_plateau for own in trainer.lr_scheduler_configs)
        )

    def _is_plain(self) -> bool:
        """Whether the module and the trainer ask for nothing but what the fast path does."""
        trainer, module = self.trainer, self.module
        return (
            module.automatic_optimization
            and not any(private.is_overridden(name, module) for name in OWN_LOOP)
            and not isinstance(trainer.optimizers[0], LBFGS)
            and isinstance(trainer.profiler, PassThroughProfiler)
            and getattr(self.precision, "scaler", None) is None
            and not trainer.strategy.handles_gradient_accumulation
            and not private.skips_backward(self)
        )

    def advance(self, data_fetcher: private.DataFetcher) -> None:
        """One batch, from the fetcher to the end of its hooks."""
        if self.restarting or not self.fast_path:
            super().advance(data_fetcher)
            return
        trainer, progress = self.trainer, self.batch_progress
        if self.val_loop.restarting:
            self.val_loop.restarting = False
        batch, _, _ = next(data_fetcher)
        batch_idx = self.batch_idx + 1
        progress.is_last_batch = data_fetcher.done
        batch = self.after(self.transfer(self.before(self.precision.convert_input(batch), 0), self._device, 0), 0)
        progress.increment_ready()
        self.phases.mark("data")
        private.begin_logging(self, batch)
        self._call("on_train_batch_start", batch, batch_idx)
        progress.increment_started()
        outputs = self._step(batch, batch_idx)
        progress.increment_processed()
        if trainer.lr_scheduler_configs:
            self.update_lr_schedulers("step", update_plateau_schedulers=False)
            if private.epoch_batches_done(self):
                self.update_lr_schedulers("epoch", update_plateau_schedulers=False)
        self._call("on_train_batch_end", outputs, batch, batch_idx)
        private.finish_logging(self)
        self.phases.step()

    def on_advance_end(self, data_fetcher: private.DataFetcher) -> None:
        """Between two batches there is nothing to validate and nothing to end, unless a stop is requested."""
        requested = self.trainer.should_stop or self.trainer.received_sigterm or private.skips_next_validation(self)
        if not self.skip_validation or requested or self.batch_progress.is_last_batch:
            super().on_advance_end(data_fetcher)
            self.phases.begin()  # a validation is none of any phase
        elif not private.accumulates(self):
            private.count_stepping_batch(self)

    def on_iteration_done(self) -> None:
        if self.restarting:
            super().on_iteration_done()

    @property
    def _device(self) -> Any:
        return self.trainer.strategy.root_device

    def _step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Forward, zero_grad, backward; and, where an optimizer step is due, clip and step."""
        trainer, module, progress = self.trainer, self.module, self.automatic_optimization.optim_progress.optimizer
        strategy, optimizer = trainer.strategy, trainer.optimizers[0]
        due = not private.accumulates(self)
        if due:
            progress.step.increment_ready()
        with nullcontext() if due else private.block_gradient_sync(strategy, block=True):
            private.set_current_hook(module, "training_step")
            loss, outputs = self._loss(strategy.training_step(*((batch, batch_idx) if self.numbered else (batch,))))
            private.set_current_hook(module, None)
            self.phases.mark("forward")
            if batch_idx % trainer.accumulate_grad_batches == 0:
                progress.zero_grad.increment_ready()
                self._call("on_before_zero_grad", optimizer)
                progress.zero_grad.increment_started()
                self._zero_grad(batch_idx, optimizer)
                progress.zero_grad.increment_completed()
            if loss is not None:
                strategy.pre_backward(loss)
                self._call("on_before_backward", loss)
                module.backward(loss)
                self._call("on_after_backward")
                strategy.post_backward(loss)
        self.phases.mark("backward")
        if due:
            self._call("on_before_optimizer_step", optimizer)
            if self.clips:
                value, how = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
                module.configure_gradient_clipping(optimizer, gradient_clip_val=value, gradient_clip_algorithm=how)
            optimizer.step()
            self.phases.mark("optimizer")
            progress.step.increment_completed()
        return outputs

    def _zero_grad(self, batch_idx: int, optimizer: Optimizer) -> None:
        if self.zero_inline:
            zero_grad(self.parameters)
        else:
            self.module.optimizer_zero_grad(self.trainer.current_epoch, batch_idx, optimizer)

    def _loss(self, returned: Any) -> tuple[Tensor | None, dict[str, Any]]:
        """What to go backward from, and what the hooks are handed of a training step."""
        parts = self.trainer.accumulate_grad_batches
        if parts == 1 and isinstance(returned, Mapping) and isinstance(returned.get("loss"), Tensor):
            return returned["loss"], {**returned, "loss": returned["loss"].detach()}
        result = private.ClosureResult.from_training_step_output(returned, parts)
        if result.closure_loss is None and self.trainer.world_size > 1:
            raise RuntimeError("a training_step may not return None where other ranks wait for its gradient")
        return result.closure_loss, {} if result.loss is None else result.asdict()

    def _call(self, name: str, *args: Any) -> None:
        if calls := self.hooks[name]:
            private.set_current_hook(self.module, name)
            for call in calls:
                call(*args)
            private.set_current_hook(self.module, None)


def overriding(trainer: Any, module: pl.LightningModule, name: str) -> list[Callable[..., Any]]:
    """The overridden hooks of this name, in the order in which Lightning calls them: of callbacks, then the module."""
    callbacks = [own for own in trainer.callbacks if private.is_overridden(name, own, Callback)]
    calls: list[Callable[..., Any]] = [partial(getattr(own, name), trainer, module) for own in callbacks]
    return calls + ([getattr(module, name)] if private.is_overridden(name, module) else [])
