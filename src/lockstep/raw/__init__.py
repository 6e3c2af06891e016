"""The raw engine: trains any module with the steps of a LightningModule by plain torch.distributed.

Read it as a lesson: `run` first, then `loop` (an epoch, a batch, an evaluation) and `optimization` (a step). `trainer`
is what callbacks and the module see as `self.trainer`, `state` saves and loads checkpoints. What both engines share is
in `lockstep.session`.
"""

from lockstep.raw.run import run

__all__ = ["run"]
