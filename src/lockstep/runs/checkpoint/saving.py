"""When a checkpoint is due, what goes into it beside the state of Lightning, and which one is the best."""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lockstep.base.files import atomic_write, sync_folder
from lockstep.base.messages import all_gather_json, gather_values
from lockstep.base.random_state import random_state, restore_random_state
from lockstep.base.safe_loading import is_loadable, plain
from lockstep.base.streams import notice
from lockstep.plan.plan import Plan
from lockstep.plan.schemas.groups import better
from lockstep.runs.checkpoint.content import SECTION, Content, Progress, SavedRankState, saved_plan, state_of_rank
from lockstep.runs.checkpoint.files import BEST, FOLDER, LAST, PREVIOUS, hardlink, read_checkpoint
from lockstep.runs.checkpoint.reading import identity
from lockstep.runs.checkpoint.shards import SHARDS, remove_unused, with_tensors
from lockstep.runs.record import StepRecorder, depends_on_world, not_finite
from lockstep.runs.record.fingerprint import buffers_of, digest
from lockstep.runs.run_files import Metrics
from lockstep.strategies.parallel.tensor_layout import full_gradients, full_tensor, is_here, local_shard, shard_like

if TYPE_CHECKING:
    from lockstep.strategies.parallel.virtual_ranks import VirtualRanks


# entries of a checkpoint that consist of tensors and plain values
SAFE_KEYS = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "loops", SECTION, SHARDS)


class CheckpointManager:
    """The checkpoints of one rank; all ranks call the same methods at the same moments, and rank 0 writes."""

    def __init__(self, plan: Plan, rank: int, recorder: StepRecorder, virtual: "VirtualRanks | None" = None) -> None:
        self.plan, self.rank, self.recorder, self.virtual = plan, rank, recorder, virtual
        self.set_monitor(plan.checkpoint.monitor or "")
        self.best: float | None = None
        self.best_epoch, self.best_yet = 0, False
        self.last = Path(plan.run_dir) / FOLDER / LAST
        previous = self.last.with_name(PREVIOUS)
        if self.rank == 0 and Path(str(plan.ckpt_path)).resolve() == previous.resolve():
            hardlink(previous, LAST)  # a damaged last.ckpt must not replace it at the next save

    def set_monitor(self, name: str) -> None:
        self.monitor = name, self.plan.checkpoint.mode or better(name)

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after an optimizer step, whatever its place in the epoch."""
        every = self.plan.checkpoint.every_n_steps
        return every is not None and step % every == 0

    def restore(self, content: Content) -> Mapping[str, Tensor]:
        """Restore this rank's random state, gradients, buffers and sums from a checkpoint; return the sums."""
        state, net = self._state_of_rank(content), self.recorder.net
        if state["random"]:
            restore_random_state(state["random"], self.plan.strategy.devices(self.plan))
        for name, parameter in net.named_parameters():
            if name in state["gradients"] and is_here(parameter):
                parameter.grad = shard_like(state["gradients"][name], like=parameter)
        for name, buffer in buffers_of(net).items():
            if name in state["buffers"]:
                buffer.copy_(state["buffers"][name])
        sums: Mapping[str, Tensor] = state["sums"]
        if not self.plan.reports(self.rank):
            sums = {name: torch.zeros_like(total) for name, total in sums.items()}
        self.recorder.carried = {name: sums[name] for name in ("window", "ids")}
        best = content["best"]
        if self.plan.resume and best and self.monitor[0] in ("", best[0]):
            _, self.best, self.best_epoch = best  # in a new folder the best is that of its own epochs
            self.set_monitor(best[0])
        return sums

    def _state_of_rank(self, content: Content) -> SavedRankState:
        """Return this rank's state; virtual ranks restore theirs."""
        plan, data_rank = self.plan, self.plan.data_rank(self.rank)
        state = state_of_rank(content, data_rank, plan.data_size, plan.strategy.shards_weights(plan))
        first, *others = content["ranks"]
        if self.virtual is None or not others or 1 + len(others) != self.virtual.count:
            return state
        self.virtual.restore([(other["random"], other["buffers"]) for other in others])
        return {**state, "random": first["random"]}

    def extra_state(
        self,
        position: Progress,
        results: Mapping[str, float],
        sums: Mapping[str, Tensor],
        module: Mapping[str, Any] | None = None,
        ended: bool = False,
        random: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the Content of a checkpoint, for rank 0 to save; `sums` are this rank's. Flushes and syncs the record.

        With `detect_nan` a weight that is not finite raises NotFinite.
        """
        plan, recorder, net = self.plan, self.recorder, self.recorder.net
        recorder.flush(position.epochs + 1, position.steps)
        if recorder.file:
            recorder.file.sync()
        if plan.detect_nan:
            self._check_weights(position.steps)
        saved_sums = {name: tensor.cpu() for name, tensor in {**sums, **recorder.carried}.items()}
        accumulating = plan.model.manual or position.batch % plan.accumulate_grad_batches > 0
        shards: dict[str, Any] = {}
        if plan.checkpoint.sharded:
            is_common = plan.strategy.shards_weights(plan) or self.virtual is not None
            share = "all" if is_common else str(plan.data_rank(self.rank))
            gradients = {name: each.grad for name, each in net.named_parameters() if each.grad is not None}
            shards[SHARDS] = {"gradients": {share: gradients} if accumulating else {}}
        gradients = full_gradients(net) if accumulating and not shards else {}
        buffers = buffers_of(net) if self.rank else {}  # rank 0's are in the state_dict
        state: SavedRankState = {
            "random": random or random_state(plan.strategy.devices(plan)),
            "sums": saved_sums,
            "gradients": {name: gradient.cpu() for name, gradient in gradients.items()},
            "buffers": {name: buffer.cpu() for name, buffer in buffers.items()},
            "module": module or {},
        }
        ranks = [each for each in gather_values(state if plan.reports(self.rank) else None) if each is not None]
        zeros = {name: torch.zeros_like(tensor) for name, tensor in saved_sums.items()}
        for virtual_random, virtual_buffers in self.virtual.states() if self.virtual is not None else ():
            rest = {"sums": zeros, "buffers": virtual_buffers, "module": {}}
            ranks.append({**state, **rest, "random": virtual_random})
        content: Content = {
            "identity": identity(plan, depends_on_world(plan, net)),
            "plan": saved_plan(plan),
            "position": {**vars(position)},
            "record": recorder.file.offset if recorder.file else {},
            "results": dict(results),
            "best": None if self.best is None else (self.monitor[0], self.best, self.best_epoch),
            "best_yet": self.best_yet,
            "ranks": ranks,
            "ended": ended,
        }
        self.best_yet = False
        return {SECTION: content, **shards}

    def update_best(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Note whether an epoch is the best so far, in float32; NaN is worst, and the first of equals is the best."""
        name, mode = self.monitor
        value = torch.tensor(metrics[name], dtype=torch.float32).item()
        badness = math.inf if math.isnan(value) else value if mode == "min" else -value
        self.best_yet = self.best is None or badness < self.best
        if self.best_yet:
            self.best, self.best_epoch = badness, epoch

    @property
    def best_metrics(self) -> Metrics:
        """Return for metrics.json the metric of best.ckpt, whether less or more is better, its value and its epoch."""
        name, mode = self.monitor
        sign = 1 if mode == "min" else -1
        values = () if self.best is None else (name, mode, sign * self.best, self.best_epoch)
        return dict(zip(("monitor", "mode", "best", "best_epoch"), values, strict=False))

    def _check_weights(self, step: int) -> None:
        weights = dict(self.recorder.net.named_parameters())
        shards = (local_shard(weight) for weight in weights.values() if is_here(weight))
        if all(all_gather_json(all(bool(shard.isfinite().all()) for shard in shards))):
            return
        for name, weight in weights.items():
            full = full_tensor(weight).detach()
            infinite = full[~full.isfinite()]
            if len(infinite):
                raise not_finite(f"after step {step} the weight {name}", infinite[0].item())


def save(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint atomically, or raise an OSError; keep the old one as previous.ckpt, the best as best.ckpt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        with temporary.open("wb") as file:
            torch.save(loadable(checkpoint), file)
        if path.exists():
            hardlink(path, PREVIOUS)
        if checkpoint.get(SECTION, {}).get("best_yet"):
            hardlink(temporary, BEST)
    sync_folder(path.parent)
    remove_unused(path.parent)


def loadable(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint without what would run code when it is loaded; print a line about that once."""
    safe = {}
    for key, original in checkpoint.items():
        value = original if key == "state_dict" else plain(original)  # arguments of targets, such as `betas`
        if key in SAFE_KEYS or is_loadable(value):
            safe[key] = value
        elif isinstance(value, Mapping) and (lost := [name for name, item in value.items() if not is_loadable(item)]):
            safe[key] = {name: item for name, item in value.items() if name not in lost}
            _report(key, ", ".join(map(str, lost)))
        else:
            _report(key, type(value).__name__)
    return safe


@cache
def _report(key: str, lost: str) -> None:
    reason = "only tensors and values of known types can be loaded safely"
    hint = "; lockstep.load(RUN) creates them again" if key == "hyper_parameters" else ""
    notice(f"checkpoints hold no {lost} of {key}: {reason}{hint}")


def replace_weights(path: Path, weights: Mapping[str, Any]) -> None:
    """Save the weights that the end of fit has left, if they are others, beside those to go on training with."""
    checkpoint = read_checkpoint(path, mmap=True)
    is_sharded = SHARDS in checkpoint
    saved = (with_tensors(checkpoint, path.parent, ["state_dict"]) if is_sharded else checkpoint)["state_dict"]
    weights = {name: weights.get(name, value) for name, value in saved.items()}  # a module may leave some out
    if digest(weights) != digest(saved):
        checkpoint = with_tensors(checkpoint, path.parent) if is_sharded else checkpoint
        content = {**checkpoint[SECTION], "state_dict": saved, "best_yet": False}
        save({**checkpoint, "state_dict": weights, SECTION: content}, path)
