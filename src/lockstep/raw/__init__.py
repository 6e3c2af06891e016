"""The raw engine: the same run by plain torch.distributed, to be read as a lesson.

Read `run` first, then `training` and `evaluation`, `lockstep.strategies` (what wraps the net),
`lockstep.parallel.reduce` (how ranks come to one gradient), and last what is around them: `precision`, `state` (of
checkpoints), `report`. What both engines do alike is `lockstep.session`.
"""

from lockstep.raw.run import run

__all__ = ["run"]
