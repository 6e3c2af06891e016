"""Lightning's loop over the batches of an epoch, calling only what someone has overridden.

For every batch Lightning calls every callback, the module and the strategy at a dozen hooks, through its profiler and
its optimizer's wrapper, and goes through its table of logged values, whether they have anything to do or not. That
takes half a millisecond, several times as long as a step of a small net. Here who has something to do is found out once
an epoch. Which hooks are called, with what and in which order is the same, and so are all counts; where a run is not
plain (manual optimization, a profiler, a scaled loss, L-BFGS, an overridden `optimizer_step`), Lightning's own does it.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loops.fetchers import _DataFetcher, _PrefetchDataFetcher
from lightning.pytorch.loops.optimization.automatic import ClosureResult
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.loops.utilities import _block_parallel_sync_behavior
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from lockstep.optimizers import zero_grad

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

NOT_PLAIN = ("on_train_batch_start", "optimizer_step", "lr_scheduler_step")
"""Methods of a module that may change what the loop does."""


class FastTrainingEpochLoop(_TrainingEpochLoop):
    """In place of the trainer's own epoch loop."""

    def on_run_start(self, data_fetcher: _DataFetcher) -> None:
        """Find out who has something to do in this epoch."""
        super().on_run_start(data_fetcher)
        trainer, module = self.trainer, self.trainer.lightning_module
        self.module, self.precision = module, trainer.precision_plugin
        self.hooks = {name: [*self._overriding(name)] for name in HOOKS}
        select = trainer._data_connector._datahook_selector
        assert select is not None
        owners = {name: select.get_instance(name) for name in TRANSFER}
        self.before, self.transfer, self.after = (getattr(owners[name], name) for name in TRANSFER)
        self.clips = trainer.gradient_clip_val is not None or is_overridden("configure_gradient_clipping", module)
        self.zero_inline = not is_overridden("optimizer_zero_grad", module)
        self.parameters = [own for group in trainer.optimizers[0].param_groups for own in group["params"]]
        self.numbered = is_param_in_hook_signature(module.training_step, "batch_idx", min_args=2)
        self.fast_path = isinstance(data_fetcher, _PrefetchDataFetcher) and self._is_plain()
        at_end = trainer.val_check_batch == trainer.num_training_batches and trainer.check_val_every_n_epoch is not None
        self.skip_validation = (
            self.fast_path and at_end and not any(own.reduce_on_plateau for own in trainer.lr_scheduler_configs)
        )

    def _overriding(self, name: str) -> list[Callable[..., Any]]:
        trainer, module = self.trainer, self.trainer.lightning_module
        callbacks = [own for own in trainer.callbacks if is_overridden(name, own, Callback)]
        calls: list[Callable[..., Any]] = [partial(getattr(own, name), trainer, module) for own in callbacks]
        return calls + ([getattr(module, name)] if is_overridden(name, module) else [])

    def _is_plain(self) -> bool:
        trainer, module = self.trainer, self.module
        return (
            module.automatic_optimization
            and not any(is_overridden(name, module) for name in NOT_PLAIN)
            and not isinstance(trainer.optimizers[0], LBFGS)
            and isinstance(trainer.profiler, PassThroughProfiler)
            and getattr(self.precision, "scaler", None) is None
            and not trainer.strategy.handles_gradient_accumulation
            and not self.automatic_optimization._skip_backward
        )

    def advance(self, data_fetcher: _DataFetcher) -> None:
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
        self._begin_logging(batch)
        self._call("on_train_batch_start", batch, batch_idx)
        progress.increment_started()
        outputs = self._step(batch, batch_idx)
        progress.increment_processed()
        if trainer.lr_scheduler_configs:
            self.update_lr_schedulers("step", update_plateau_schedulers=False)
            if self._num_ready_batches_reached():
                self.update_lr_schedulers("epoch", update_plateau_schedulers=False)
        self._call("on_train_batch_end", outputs, batch, batch_idx)
        self._hand_on_logged()

    def on_advance_end(self, data_fetcher: _DataFetcher) -> None:
        """Between two batches there is nothing to validate and nothing to end, unless somebody asked."""
        asked = self.trainer.should_stop or self.trainer.received_sigterm or self._skip_next_val
        if not self.skip_validation or asked or self.batch_progress.is_last_batch:
            super().on_advance_end(data_fetcher)
        elif not self._should_accumulate():
            self._batches_that_stepped += 1

    def on_iteration_done(self) -> None:
        if self._restarting:
            super().on_iteration_done()

    @property
    def _device(self) -> Any:
        return self.trainer.strategy.root_device

    def _step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Forward, zero_grad, backward; and, where an optimizer step is due, clip and step."""
        trainer, module, progress = self.trainer, self.module, self.automatic_optimization.optim_progress.optimizer
        strategy, optimizer = trainer.strategy, trainer.optimizers[0]
        due = not self._should_accumulate()
        if due:
            progress.step.increment_ready()
        with nullcontext() if due else _block_parallel_sync_behavior(strategy, block=True):
            object.__setattr__(module, "_current_fx_name", "training_step")
            loss, outputs = self._loss(strategy.training_step(*((batch, batch_idx) if self.numbered else (batch,))))
            object.__setattr__(module, "_current_fx_name", None)
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
        if due:
            self._call("on_before_optimizer_step", optimizer)
            if self.clips:
                value, how = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
                module.configure_gradient_clipping(optimizer, gradient_clip_val=value, gradient_clip_algorithm=how)
            optimizer.step()
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
        result = ClosureResult.from_training_step_output(returned, parts)
        if result.closure_loss is None and self.trainer.world_size > 1:
            raise RuntimeError("a training_step may not return None where other ranks wait for its gradient")
        return result.closure_loss, {} if result.loss is None else result.asdict()

    def _call(self, name: str, *args: Any) -> None:
        if calls := self.hooks[name]:
            object.__setattr__(self.module, "_current_fx_name", name)  # nn.Module's own looks for parameters first
            for call in calls:
                call(*args)
            object.__setattr__(self.module, "_current_fx_name", None)

    def _begin_logging(self, batch: Any) -> None:
        """The batch whose size weighs what `self.log` is told."""
        if self.trainer._logger_connector._first_loop_iter is not False:
            self.trainer._logger_connector.on_batch_start(batch)
        else:
            self._results.batch, self._results.batch_size = batch, None

    def _hand_on_logged(self) -> None:
        """What `self.log(…, on_step=True)` was told goes to bars, callbacks and loggers."""
        connector, results = self.trainer._logger_connector, self._results
        logged = any(result.meta.on_step for result in results.values())
        if logged:
            connector.on_batch_end()
        else:
            results.batch, results.batch_size = None, None
        self.batch_progress.increment_completed()
        if logged:
            connector.update_train_step_metrics()

    def _broadcast_sigterm_tensor(self) -> None:
        """Nothing. Lightning asks rank 0 before every batch whether it has caught a SIGTERM: a collective a step, which
        also swallows the error of a lost peer. Here Lightning does not hear of SIGTERM, see create_trainer.
        """
