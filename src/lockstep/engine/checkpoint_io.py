"""Reading and writing checkpoints for the Trainer."""

from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from lockstep.base.private_api import lightning as private
from lockstep.engine.state import RankState
from lockstep.plan.targets.kinds import replace_method
from lockstep.runs.checkpoint.content import before_fit_end, named_as_in
from lockstep.runs.checkpoint.files import read_checkpoint
from lockstep.runs.checkpoint.reading import require_net
from lockstep.runs.checkpoint.saving import save
from lockstep.runs.checkpoint.shards import write_shards


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
