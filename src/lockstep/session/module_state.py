"""The state of a module in a checkpoint beside its weights, saved and restored.

It is what each rank has logged and measured in the current epoch, and which parameters and statistics are frozen: a
resumed run does not call the hooks that have changed these.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.checkpoint.reading import ResumeState
from lockstep.launch.topology import RankContext
from lockstep.parallel.tensor_layout import load_optimizer_state
from lockstep.plan import Plan
from lockstep.private_api.torchmetrics import metric_state, restore_metric
from lockstep.steps.exact_log import ExactLog
from lockstep.steps.logged_values import metric_objects


class ModuleState:
    """The state of one rank. `checkpoint` is the loaded one, which hooks may have edited."""

    def __init__(self, plan: Plan, context: RankContext, start: ResumeState, module: Any, log: ExactLog) -> None:
        self.plan, self.context, self.start = plan, context, start
        self.module, self.log, self.checkpoint = module, log, start.checkpoint

    def saved(self) -> dict[str, Any]:
        """Return the state of the module beside its weights, as tensors and plain values."""
        metrics = metric_objects(self.module).items()
        return {
            "logged": self.log.state(),
            "metrics": {name: metric_state(metric) for name, metric in metrics if metric.update_count},
            "frozen": [name for name, weight in self.module.named_parameters() if not weight.requires_grad],
            "untracked": [name for name, layer in self._statistics().items() if not layer.track_running_stats],
        }

    def restore_optimizers(self, trainer: Any) -> None:
        """Load the states of optimizers and schedules. Callbacks have added their parameter groups by now."""
        if self.checkpoint is None:
            return
        for optimizer, state in zip(trainer.optimizers, self.checkpoint["optimizer_states"], strict=True):
            load_optimizer_state(optimizer, state)
        schedules = self.checkpoint["lr_schedulers"]  # a callback may have removed those that it will replace
        for config, state in zip(trainer.lr_scheduler_configs, schedules, strict=False):
            config.scheduler.load_state_dict(state)

    def restore(self) -> None:
        """Restore what this rank had logged, and which parameters and layers were frozen."""
        for state in self._states():
            self.log.restore(state.get("logged", {}))
        saved = {} if self.start.content is None else self.start.content["ranks"][0]["module"]
        if "frozen" in saved:
            for name, parameter in self.module.named_parameters():
                parameter.requires_grad_(name not in saved["frozen"])
            for name, layer in self._statistics().items():
                layer.track_running_stats = name not in saved["untracked"]

    def restore_metrics(self) -> None:
        """Restore the torchmetrics of the module, after its on_train_start, which may reset them.

        What hooks have measured since the start is in the checkpoint already.
        """
        metrics = metric_objects(self.module)
        if self.start.content is not None:
            for metric in metrics.values():
                if metric.update_count:
                    metric.reset()
        for state in self._states():
            for name, saved in state.get("metrics", {}).items():
                restore_metric(metrics[name], saved)

    def _statistics(self) -> dict[str, Any]:
        """Return layers with running statistics by name: Lightning's BaseFinetuning freezes these too."""
        layers = self.module.named_modules()
        return {name: layer for name, layer in layers if getattr(layer, "running_mean", None) is not None}

    def _states(self) -> Sequence[Mapping[str, Any]]:
        """Return the states that this rank restores: its own, or, in another world, all of them on rank 0."""
        states = [] if self.start.content is None else [rank["module"] for rank in self.start.content["ranks"]]
        if len(states) == self.plan.world_size:
            return [states[self.context.rank]]
        return [] if self.context.rank else states
