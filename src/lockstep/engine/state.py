"""The state that a checkpoint has beside Lightning's: saved by every rank, and restored when training resumes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from lockstep.base.private_api import lightning as private
from lockstep.base.private_api.torchmetrics import metric_state, restore_metric
from lockstep.engine.logged_values import metric_objects
from lockstep.plan.targets.kinds import replace_method
from lockstep.runs.checkpoint.content import before_fit_end, named_as_in
from lockstep.runs.checkpoint.files import read_checkpoint
from lockstep.runs.checkpoint.reading import require_net
from lockstep.runs.checkpoint.saving import save
from lockstep.runs.checkpoint.shards import write_shards
from lockstep.strategies.parallel.tensor_layout import load_optimizer_state

if TYPE_CHECKING:
    from lockstep.engine.session import Session


class RankState:
    """The state of one rank. `checkpoint` is the loaded one, which hooks may have edited.

    It has what the rank has logged and measured in the current epoch, and which parameters and statistics are frozen:
    a resumed run does not call the hooks that have changed these.
    """

    def __init__(self, session: "Session") -> None:
        self.session, self.module, self.content = session, session.module, session.start.content
        self.checkpoint = session.start.checkpoint

    def saved(self) -> Mapping[str, Any]:
        """Return the content of a checkpoint beside Lightning's state. To be called by every rank."""
        session, progress = self.session, self.session.progress
        metrics = metric_objects(self.module).items()
        module = {
            "logged": session.log.state(),
            "metrics": {name: metric_state(metric) for name, metric in metrics if metric.update_count},
            "frozen": [name for name, weight in self.module.named_parameters() if not weight.requires_grad],
            "untracked": [name for name, layer in self._norms().items() if not layer.track_running_stats],
        }
        sums = {"loss_weights": torch.tensor(session.step.weights.window, dtype=torch.float64)}  # of this rank
        return session.checkpoints.extra_state(
            progress.position, session.results.values, sums, module, progress.ended, session.random
        )

    def restore_optimizers(self) -> None:
        """Load the states of optimizers and schedules. Callbacks have added their parameter groups by now."""
        if self.checkpoint is None:
            return
        trainer = self.session.trainer
        for optimizer, state in zip(trainer.optimizers, self.checkpoint["optimizer_states"], strict=True):
            load_optimizer_state(optimizer, state)
        schedules = self.checkpoint["lr_schedulers"]  # a callback may have removed those that it will replace
        for config, state in zip(trainer.lr_scheduler_configs, schedules, strict=False):
            config.scheduler.load_state_dict(state)

    def restore(self) -> None:
        """Restore all but metrics, weights and the states of optimizers."""
        if self.content is None:
            return
        session = self.session
        sums = session.checkpoints.restore(self.content)
        session.step.weights.window = sums["loss_weights"].item()
        session.results.values = dict(self.content["results"])
        for state in self._states():
            session.log.restore(state.get("logged", {}))
        saved = self.content["ranks"][0]["module"]
        if "frozen" in saved:
            for name, parameter in self.module.named_parameters():
                parameter.requires_grad_(name not in saved["frozen"])
            for name, layer in self._norms().items():
                layer.track_running_stats = name not in saved["untracked"]

    def restore_metrics(self) -> None:
        """Restore the torchmetrics of the module, after its on_train_start, which may reset them.

        What hooks have measured since the start is in the checkpoint already.
        """
        if self.content is None:
            return
        metrics = metric_objects(self.module)
        for metric in metrics.values():
            if metric.update_count:
                metric.reset()
        for state in self._states():
            for name, saved in state.get("metrics", {}).items():
                restore_metric(metrics[name], saved)

    def _norms(self) -> dict[str, Any]:
        """Return layers with running statistics by name: Lightning's BaseFinetuning freezes these too."""
        return {name: layer for name, layer in self.module.named_modules() if hasattr(layer, "track_running_stats")}

    def _states(self) -> Sequence[Mapping[str, Any]]:
        """Return the states that this rank restores: its own, or, in another world, all of them on the first rank."""
        assert self.content is not None
        states, rank = [rank["module"] for rank in self.content["ranks"]], self.session.log.rank
        if not self.session.log.reports:
            return []
        if len(states) == self.session.plan.data_size:
            return [states[rank]]
        return [] if rank else states


class SessionCheckpointIO(TorchCheckpointIO):
    """Writes files atomically. The state of Lightning's loops is computed from the position in training."""

    def __init__(self, state: RankState) -> None:
        super().__init__()
        self.state, self.session = state, state.session

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        position = self.session.progress.position
        checkpoint["epoch"] = position.epochs if position.batch else position.epochs - 1
        if self.session.plan.checkpoint.sharded:
            checkpoint = write_shards(checkpoint, Path(path).parent, self.session.module)
        if self.session.context.rank == 0:
            save(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        checkpoint = {**read_checkpoint(Path(path))}
        require_net(self.session.plan, self.session.module, checkpoint)
        checkpoint.pop("loops", None)
        if self.session.plan.train:
            fit_loop = self._fit_loop(int(checkpoint["global_step"]))
            loops = {"fit_loop": fit_loop, "validate_loop": {}, "test_loop": {}, "predict_loop": {}}
            checkpoint = {**before_fit_end(checkpoint), "loops": loops}
        checkpoint["state_dict"] = named_as_in(self.session.module, checkpoint["state_dict"])
        self.state.checkpoint = checkpoint
        return checkpoint

    def _fit_loop(self, steps: int) -> dict[str, Any]:
        """Return the state of a fit loop, within an epoch or before the next one, after so many optimizer steps."""
        at, epoch_batches = self.session.start.position, self.session.plan.steps.epoch_batches
        begun = dict.fromkeys(("ready", "started"), at.epochs + 1) if at.batch else {}
        return {
            "epoch_loop.state_dict": {private.BATCHES_THAT_STEPPED: at.steps},
            "epoch_loop.batch_progress": {
                "total": counters(at.epochs * epoch_batches + at.batch)["total"],
                "current": counters(at.batch)["current"],
                "is_last_batch": False,
            },
            "epoch_loop.automatic_optimization.optim_progress": {
                "optimizer": dict.fromkeys(("step", "zero_grad"), counters(steps))
            },
            "epoch_loop.manual_optimization.optim_step_progress": counters(steps),
            "epoch_progress": counters(at.epochs, **begun),
        }


def save_on_every_rank(strategy: Any) -> None:
    """Have every rank save a checkpoint, with the tensors and shards that it stores."""

    def save_checkpoint(_: Any, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        strategy.checkpoint_io.save_checkpoint(checkpoint, path)

    replace_method(strategy, "save_checkpoint", save_checkpoint)
    replace_method(strategy, "lightning_module_state_dict", lambda _: strategy.lightning_module.state_dict())
    replace_method(strategy, "optimizer_state", lambda _, optimizer: optimizer.state_dict())


def counters(completed: int, **begun: int) -> dict[str, dict[str, int]]:
    """Return Lightning's counters of epochs, batches or steps; by default none is under way."""
    counts = {**dict.fromkeys(("ready", "started", "processed", "completed"), completed), **begun}
    return {"total": counts, "current": {**counts}}
