"""Lightning reads checkpoints of either engine, and resumes at the session's position."""

from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from lockstep.checkpoint.content import before_fit_end, named_as_in
from lockstep.checkpoint.reading import require_net
from lockstep.checkpoint.saving import save
from lockstep.private_api.lightning import BATCHES_THAT_STEPPED
from lockstep.safe_loading import load
from lockstep.session.session import Session


class SessionCheckpointIO(TorchCheckpointIO):
    """Writes files atomically. The state of Lightning's loops is computed from the position in training."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        position = self.session.progress.position
        epoch = position.epochs if position.batch else position.epochs - 1
        save({**checkpoint, "epoch": epoch}, Path(path))

    def load_checkpoint(self, path: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        checkpoint: dict[str, Any] = load(path)
        require_net(self.session.plan, self.session.module, checkpoint)
        checkpoint.pop("loops", None)
        if self.session.plan.train:
            fit_loop = self._fit_loop(int(checkpoint["global_step"]))
            loops = {"fit_loop": fit_loop, "validate_loop": {}, "test_loop": {}, "predict_loop": {}}
            checkpoint = {**before_fit_end(checkpoint), "loops": loops}
        checkpoint["state_dict"] = named_as_in(self.session.module, checkpoint["state_dict"])
        self.session.state.checkpoint = checkpoint
        return checkpoint

    def _fit_loop(self, steps: int) -> dict[str, Any]:
        """Return the state of a fit loop, within an epoch or before the next one, after so many optimizer steps."""
        at = self.session.start.position
        epoch = counts(at.epochs)
        if at.batch:
            epoch |= {"ready": at.epochs + 1, "started": at.epochs + 1}
        return {
            "epoch_loop.state_dict": {BATCHES_THAT_STEPPED: at.steps},
            "epoch_loop.batch_progress": {**total_and_current(counts(at.batch)), "is_last_batch": False},
            "epoch_loop.automatic_optimization.optim_progress": {
                "optimizer": dict.fromkeys(("step", "zero_grad"), total_and_current(counts(steps)))
            },
            "epoch_loop.manual_optimization.optim_step_progress": total_and_current(counts(steps)),
            "epoch_progress": total_and_current(epoch),
        }


def counts(completed: int) -> dict[str, int]:
    """Return Lightning's counters of epochs, batches or steps when none is under way."""
    return dict.fromkeys(("ready", "started", "processed", "completed"), completed)


def total_and_current(counters: dict[str, int]) -> dict[str, dict[str, int]]:
    return {"total": counters, "current": {**counters}}
