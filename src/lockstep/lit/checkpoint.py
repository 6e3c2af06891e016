"""Lightning reads checkpoints of either engine: the raw engine's lack the state of Lightning's loops."""

from typing import Any

import lightning
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from lockstep.batches import batch_count
from lockstep.plan import Plan


class EitherEngine(TorchCheckpointIO):
    """Adds to a raw checkpoint, as it is read, what Lightning's would say at the end of the same epoch."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def load_checkpoint(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        checkpoint = super().load_checkpoint(*arguments, **options)
        if "loops" not in checkpoint:
            checkpoint["pytorch-lightning_version"] = lightning.__version__
            fit_loop = self._end_of_epoch(checkpoint["epoch"] + 1, checkpoint["global_step"])
            checkpoint["loops"] = {"fit_loop": fit_loop, "validate_loop": {}, "test_loop": {}, "predict_loop": {}}
        return checkpoint

    def _end_of_epoch(self, epochs: int, steps: int) -> dict[str, Any]:
        """The progress of a fit loop that is about to save at the end of its `epochs`-th epoch."""
        plan = self.plan
        batches = batch_count(plan.data.train_samples, plan.batch_size, plan.drop_last)
        epoch = {**_all(epochs), "completed": epochs - 1}
        return {
            "epoch_loop.state_dict": {"_batches_that_stepped": steps},
            "epoch_loop.batch_progress": {**_both(batches), "is_last_batch": True},
            "epoch_loop.automatic_optimization.optim_progress": {
                "optimizer": {"step": _both(steps), "zero_grad": _both(steps)}
            },
            "epoch_progress": {"total": epoch, "current": {**epoch}},
        }


def _all(count: int) -> dict[str, int]:
    return dict.fromkeys(("ready", "started", "processed", "completed"), count)


def _both(count: int) -> dict[str, dict[str, int]]:
    return {"total": _all(count), "current": _all(count)}
