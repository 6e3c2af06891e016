"""The raw engine: the same run by plain torch.distributed, to be read as a lesson.

Read `run` first, then `training` and `evaluation`, `lockstep.strategies` (what wraps the net), `lockstep.parallel.reduce`
(how ranks come to one gradient), and last what is around them: `precision`,
`state` (checkpoints), `report`; and `lockstep.session`, what both engines do alike.
"""

from lockstep.raw.run import run

__all__ = ["run"]
