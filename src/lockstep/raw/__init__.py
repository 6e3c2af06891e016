"""The raw engine: any module with the steps of a LightningModule, by plain torch.distributed. To be read as a lesson.

Read `run` first, then `loop` (an epoch, a batch, a step). `manual_optimization` and `evaluation` are what they say;
`optimization` steps schedules; `hooks` calls hooks of the module and of callbacks; `trainer` is what these
see as `self.trainer`; `state` is what a checkpoint holds. What both engines do around a module is `lockstep.session`.
"""

from lockstep.raw.run import run

__all__ = ["run"]
