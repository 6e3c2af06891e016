"""Lightning reads checkpoints of either engine, and resumes within an epoch; files are written whole or not at all."""

from pathlib import Path
from typing import Any

import lightning
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from lockstep.checkpoint.content import OWN, SCALER, Content, Progress
from lockstep.checkpoint.saving import save
from lockstep.plan import Plan
from lockstep.private_api.lightning import BATCHES_THAT_STEPPED
from lockstep.safe_loading import load

KEYS = ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", SCALER, OWN)
"""What either engine's checkpoints hold, and a run resumes from."""


class CrossEngineCheckpointIO(TorchCheckpointIO):
    """The state of Lightning's loops, which raw checkpoints lack, follows from where training stood."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        loaded = load(path)
        checkpoint = {key: loaded[key] for key in KEYS if key in loaded}  # what else there is has not been looked at
        checkpoint["pytorch-lightning_version"] = lightning.__version__
        if self.plan.train:
            fit_loop = self._fit_loop(Content.from_saved(checkpoint[OWN]).position)
            checkpoint["loops"] = {"fit_loop": fit_loop, "validate_loop": {}, "test_loop": {}, "predict_loop": {}}
        return checkpoint

    def _fit_loop(self, at: Progress) -> dict[str, Any]:
        """The progress of a fit loop at a position: within an epoch, or about to save at the end of one."""
        if at.batch:
            batches, epoch = at.batch, {**tracker(at.epochs), "ready": at.epochs + 1, "started": at.epochs + 1}
        else:
            batches = self.plan.epoch_batches
            epoch = {**tracker(at.epochs), "completed": at.epochs - 1}
        return {
            "epoch_loop.state_dict": {BATCHES_THAT_STEPPED: at.steps},
            "epoch_loop.batch_progress": {**total_and_current(batches), "is_last_batch": not at.batch},
            "epoch_loop.automatic_optimization.optim_progress": {
                "optimizer": {"step": total_and_current(at.steps), "zero_grad": total_and_current(at.steps)}
            },
            "epoch_progress": {"total": epoch, "current": {**epoch}},
        }


def tracker(count: int) -> dict[str, int]:
    """So many epochs or batches, of which nothing is under way, as Lightning's loops count them."""
    return dict.fromkeys(("ready", "started", "processed", "completed"), count)


def total_and_current(count: int) -> dict[str, dict[str, int]]:
    return {"total": tracker(count), "current": tracker(count)}
