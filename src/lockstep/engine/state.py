"""The state that a checkpoint has beside Lightning's: saved by every rank, and restored when training resumes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.base.messages import all_gather_json, gather_values
from lockstep.base.private_api.torchmetrics import metric_state, restore_metric
from lockstep.base.random_state import random_state, restore_random_state
from lockstep.engine.logged_values import metric_objects
from lockstep.engine.session import Session
from lockstep.runs.checkpoint.content import SECTION, Content, SavedRankState, saved_plan, state_of_rank
from lockstep.runs.checkpoint.files import keep_undamaged
from lockstep.runs.checkpoint.reading import identity
from lockstep.runs.checkpoint.shards import SHARDS
from lockstep.runs.record import depends_on_world, not_finite
from lockstep.runs.record.fingerprint import buffers_of
from lockstep.strategies.parallel.tensor_layout import (
    full_gradients,
    full_tensor,
    is_here,
    load_optimizer_state,
    local_shard,
    shard_like,
)


class RankState:
    """The state of one rank. All ranks call the same methods at the same moments.

    checkpoint: the loaded one, which hooks may have edited.
    It has what the rank has logged and measured in the current epoch, and which parameters and statistics are frozen:
    a resumed run does not call the hooks that have changed these.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.plan, self.module = session, session.plan, session.module
        self.rank, self.content, self.checkpoint = session.context.rank, session.start.content, session.start.checkpoint

    # saving

    def saved(self) -> dict[str, Any]:
        """Return the Content of a checkpoint, for rank 0 to save, after the lines of the record that it counts.

        With `detect_nan` a weight that is not finite raises NotFinite.
        """
        session, plan, module = self.session, self.plan, self.module
        position, recorder, best = session.progress.position, session.recorder, session.results.best
        recorder.flush(position.epochs + 1, position.steps)
        if recorder.file:
            recorder.file.sync()
        if plan.detect_nan:
            require_finite(module, position.steps)
        accumulating = plan.model.manual or position.batch % plan.accumulate_grad_batches > 0
        shards = (
            {SHARDS: {"gradients": self._stored_gradients() if accumulating else {}}} if plan.checkpoint.sharded else {}
        )
        gradients = full_gradients(module) if accumulating and not shards else {}
        content: Content = {
            "identity": identity(plan, depends_on_world(plan, module)),
            "plan": saved_plan(plan),
            "position": {**vars(position)},
            "record": recorder.file.offset if recorder.file else {},
            "results": dict(session.results.values),
            "best": best.state(),
            "best_yet": best.is_new,
            "ranks": self._ranks(gradients),
            "ended": session.progress.ended,
        }
        best.is_new = False
        return {SECTION: content, **shards}

    def _stored_gradients(self) -> dict[str, dict[str, Tensor]]:
        """Return the gradients that this rank stores: parts of those of `all` ranks, or of its share of a batch."""
        plan = self.plan
        is_common = plan.strategy.shards_weights(plan) or self.session.step.virtual is not None
        gradients = {name: each.grad for name, each in self.module.named_parameters() if each.grad is not None}
        return {"all" if is_common else str(plan.data_rank(self.rank)): gradients}

    def _ranks(self, gradients: Mapping[str, Tensor]) -> list[SavedRankState]:
        """Return the states of all shares of a batch: on rank 0 those of all ranks, elsewhere this rank's."""
        session, devices = self.session, self.plan.strategy.devices(self.plan)
        carried = session.recorder.carried
        sums = {"loss_weights": torch.tensor(session.step.weights.window, dtype=torch.float64), **carried}
        buffers = buffers_of(self.module) if self.rank else {}  # rank 0's are in the state_dict
        state: SavedRankState = {
            "random": session.random or random_state(devices),
            "sums": {name: total.cpu() for name, total in sums.items()},
            "gradients": {name: gradient.cpu() for name, gradient in gradients.items()},
            "buffers": {name: buffer.cpu() for name, buffer in buffers.items()},
            "module": self._module_state(),
        }
        states = gather_values(state if self.plan.reports(self.rank) else None)
        ranks = [each for each in states if each is not None]
        zeros = {name: torch.zeros_like(total) for name, total in state["sums"].items()}
        virtual = session.step.virtual
        for random, virtual_buffers in virtual.states() if virtual is not None else ():
            ranks.append({**state, "sums": zeros, "buffers": virtual_buffers, "module": {}, "random": random})
        return ranks

    def _module_state(self) -> dict[str, Any]:
        metrics = metric_objects(self.module).items()
        return {
            "logged": self.session.log.state(),
            "metrics": {name: metric_state(metric) for name, metric in metrics if metric.update_count},
            "frozen": [name for name, weight in self.module.named_parameters() if not weight.requires_grad],
            "untracked": [name for name, layer in self._norms().items() if not layer.track_running_stats],
        }

    def _norms(self) -> dict[str, Any]:
        """Return layers with running statistics by name: Lightning's BaseFinetuning freezes these too."""
        return {name: layer for name, layer in self.module.named_modules() if hasattr(layer, "track_running_stats")}

    # restoring

    def restore_optimizers(self) -> None:
        """Load the states of optimizers and schedules, after callbacks that add parameter groups.

        Lightning does it again, but accepts missing states.
        """
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
        if self.rank == 0:
            keep_undamaged(Path(str(self.plan.ckpt_path)), session.last_checkpoint)
        state = self._state_of_rank(self.content)
        self._restore_tensors(state)
        sums = dict(state["sums"])
        if not self.plan.reports(self.rank):
            sums = {name: torch.zeros_like(total) for name, total in sums.items()}
        session.step.weights.window = sums.pop("loss_weights").item()
        session.recorder.carried = sums
        session.results.values = dict(self.content["results"])
        if self.plan.resume:  # in a new folder the best is that of its own epochs
            session.results.best.restore(self.content["best"])
        for module_state in self._module_states():
            session.log.restore(module_state.get("logged", {}))
        saved = self.content["ranks"][0]["module"]
        if "frozen" in saved:
            for name, parameter in self.module.named_parameters():
                parameter.requires_grad_(name not in saved["frozen"])
            for name, layer in self._norms().items():
                layer.track_running_stats = name not in saved["untracked"]

    def _state_of_rank(self, content: Content) -> SavedRankState:
        """Return this rank's state; virtual ranks restore theirs."""
        plan, virtual, data_rank = self.plan, self.session.step.virtual, self.plan.data_rank(self.rank)
        state = state_of_rank(content, data_rank, plan.data_size, plan.strategy.shards_weights(plan))
        first, *others = content["ranks"]
        if virtual is None or not others or 1 + len(others) != virtual.count:
            return state
        virtual.restore([(other["random"], other["buffers"]) for other in others])
        return {**state, "random": first["random"]}

    def _restore_tensors(self, state: SavedRankState) -> None:
        """Restore this rank's generators, gradients and buffers."""
        if state["random"]:
            restore_random_state(state["random"], self.plan.strategy.devices(self.plan))
        for name, parameter in self.module.named_parameters():
            if name in state["gradients"] and is_here(parameter):
                parameter.grad = shard_like(state["gradients"][name], like=parameter)
        for name, buffer in buffers_of(self.module).items():
            if name in state["buffers"]:
                buffer.copy_(state["buffers"][name])

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
        for state in self._module_states():
            for name, saved in state.get("metrics", {}).items():
                restore_metric(metrics[name], saved)

    def _module_states(self) -> Sequence[Mapping[str, Any]]:
        """Return the states that this rank restores: its own, or, in another world, all of them on the first rank."""
        assert self.content is not None
        states, rank = [rank["module"] for rank in self.content["ranks"]], self.session.log.rank
        if not self.session.log.reports:
            return []
        if len(states) == self.plan.data_size:
            return [states[rank]]
        return [] if rank else states


def require_finite(module: nn.Module, step: int) -> None:
    """Raise NotFinite if a weight is NaN or infinite on any rank. To be called by every rank."""
    weights = dict(module.named_parameters())
    shards = (local_shard(weight) for weight in weights.values() if is_here(weight))
    if all(all_gather_json(all(bool(shard.isfinite().all()) for shard in shards))):
        return
    for name, weight in weights.items():
        full = full_tensor(weight).detach()
        infinite = full[~full.isfinite()]
        if len(infinite):
            raise not_finite(f"after step {step} the weight {name}", infinite[0].item())
