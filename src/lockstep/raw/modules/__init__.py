"""A LightningModule of the user's own without Lightning's Trainer, by plain torch.distributed: to be read as a lesson.

Read `run` first, then `training` (an epoch, a batch), `optimization` (who steps, automatic and manual), `evaluation`.
`trainer` is what the module sees as `self.trainer`, `strategy` as its strategy; `hooks` calls its hooks and those of
callbacks. What both engines do alike is `lockstep.own_module.session`.
"""

from lockstep.raw.modules.run import run

__all__ = ["run"]
