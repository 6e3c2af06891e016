"""What a checkpoint holds of a module beside its weights, and how a run that resumes takes it over again.

That is what each rank has logged and measured in the epoch under way, which parameters and statistics are frozen, and
which parameters are in which group of an optimizer: hooks that have changed these may not be called again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lockstep.checkpoint.reading import ResumeState
from lockstep.launch.topology import RankContext
from lockstep.plan import Plan
from lockstep.private_api.torchmetrics import metric_state, restore_metric
from lockstep.steps.exact_log import ExactLog, metric_modules


class ModuleState:
    """The state of one rank. `checkpoint` is the loaded one, which hooks may have edited."""

    def __init__(self, plan: Plan, context: RankContext, start: ResumeState, module: Any, logged: ExactLog) -> None:
        self.plan, self.context, self.start = plan, context, start
        self.module, self.logged, self.checkpoint = module, logged, start.checkpoint

    def saved(self, optimizers: Sequence[Optimizer], within: bool) -> dict[str, Any]:
        """Return what a checkpoint holds of the module beside its weights, as tensors and plain values.

        Args:
            within: an epoch is under way.
        """
        names: dict[Tensor, str] = {own: name for name, own in self.module.named_parameters()}
        return {
            "logged": self.logged.state() if within else {},
            "metrics": {name: metric_state(own) for name, own in metric_modules(self.module) if own.update_count},
            "frozen": [name for own, name in names.items() if not own.requires_grad],
            "untracked": [name for name, own in self._tracking() if not own.track_running_stats],
            "groups": [[_names(group, names) for group in own.param_groups] for own in optimizers],
        }

    def restore_optimizers(self, optimizers: Sequence[Optimizer], schedulers: Sequence[Any]) -> None:
        """Load the states of optimizers and schedules; add the parameter groups that hooks had added first.

        A callback may have added its own groups again by now.
        """
        if self.checkpoint is None:
            return
        parameters = dict(self.module.named_parameters())
        for optimizer, names in zip(optimizers, self._of_rank_zero("groups", ()), strict=False):
            for group in names[len(optimizer.param_groups) :]:
                optimizer.add_param_group({"params": [parameters[name] for name in group]})
        for optimizer, state in zip(optimizers, self.checkpoint["optimizer_states"], strict=True):
            self.plan.strategy.tensors.load_optimizer_state(optimizer, state)
        for scheduler, state in zip(schedulers, self.checkpoint["lr_schedulers"], strict=True):
            scheduler.load_state_dict(state)

    def restore(self) -> None:
        """Restore what this rank had logged, and which parameters and layers were frozen."""
        for state in self._of_this_rank():
            self.logged.restore(state.get("logged", {}))
        if (frozen := self._of_rank_zero("frozen", None)) is not None:
            for name, own in self.module.named_parameters():
                own.requires_grad_(name not in frozen)
        if (untracked := self._of_rank_zero("untracked", None)) is not None:
            for name, own in self._tracking():
                own.track_running_stats = name not in untracked

    def _tracking(self) -> list[tuple[str, Any]]:
        """Return layers with running statistics, which Lightning's BaseFinetuning freezes too."""
        return [
            (name, own) for name, own in self.module.named_modules() if getattr(own, "running_mean", None) is not None
        ]

    def restore_metrics(self) -> None:
        """Restore the states of the module's torchmetrics, after its on_train_start, which may reset them.

        What its hooks have measured as training began anew is among it already.
        """
        metrics = dict(metric_modules(self.module))
        if self.start.content is not None:
            for metric in metrics.values():
                if metric.update_count:
                    metric.reset()
        for state in self._of_this_rank():
            for name, own in state.get("metrics", {}).items():
                restore_metric(metrics[name], own)

    def _of_rank_zero(self, key: str, default: Any) -> Any:
        """Return a value that is equal on all ranks."""
        return default if self.start.content is None else self.start.content.ranks[0].module.get(key, default)

    def _of_this_rank(self) -> Sequence[Mapping[str, Any]]:
        """Return the states that this rank restores: its own, or on rank 0 those of all ranks of another world."""
        states = [] if self.start.content is None else [own.module for own in self.start.content.ranks]
        if len(states) == self.plan.world_size:
            return [states[self.context.rank]]
        return [] if self.context.rank else states


def _names(group: Mapping[str, Any], names: Mapping[Tensor, str]) -> list[str | None]:
    """Return the names of a group's parameters; None for one that is not the module's."""
    return [names.get(own) for own in group["params"]]
