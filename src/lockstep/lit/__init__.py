"""The Lightning engine: a Trainer, one callback that calls the session, and a faster loop over an epoch."""

from lockstep.lit.run import run

__all__ = ["run"]
